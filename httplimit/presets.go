package httplimit

import (
	"fmt"
	"net/http"
	"time"

	"github.com/weirgo/weir"
)

// PerIP returns a middleware that admits limit requests of each client address in duration:
//
//	http.ListenAndServe(":8080", httplimit.PerIP(100, time.Minute)(mux))
//
// PerIP stands for New on this limit of the SlidingWindow of a Limiter of its own, with the zero
// [weir.Config], and a Config with the Extractor [RemoteAddr]. Each call counts for itself, in this
// process, until the program ends. Behind a proxy all clients share one address: use [New] with
// [ClientIP]. PerIP panics where New does.
func PerIP(limit uint64, duration time.Duration) func(http.Handler) http.Handler {
	return perKey(RemoteAddr(), limit, duration)
}

// PerHeader is PerIP with the Extractor [Headers] of this name: each value has a limit of its own,
// and a request without the header is answered with 400. A client that can make up values has any
// number of limits, but for MaxKeysPerClient: the header must be checked before, or be written by a
// proxy.
func PerHeader(name string, limit uint64, duration time.Duration) func(http.Handler) http.Handler {
	return perKey(Headers(name), limit, duration)
}

func perKey(e Extractor, limit uint64, duration time.Duration) func(http.Handler) http.Handler {
	limiter, err := weir.New(weir.Config{}) // without buckets it holds nothing that a Close would free
	if err != nil {
		panic(err) // cannot happen: the zero Config is valid
	}
	return New(limiter.SlidingWindow().Limit(limit, duration), Config{Extractor: e})
}

// Mochiweb returns a Config that answers as the Erlang limiter raterlimiter did under Mochiweb: a
// denial is 413 (Request Entity Too Large) with a page in text/html and Retry-After, and no other
// field of this package. Set the Extractor and the limit in it; the original's example was 500 hits
// in 30 s by the peer's address.
func Mochiweb() Config {
	return Config{DeniedStatus: http.StatusRequestEntityTooLarge, Headers: HeadersNone,
		Respond: respondHTML}
}

func respondHTML(w http.ResponseWriter, _ *http.Request, d Decision) {
	w.Header().Set(fieldContentType, "text/html")
	w.WriteHeader(d.Status)
	text := http.StatusText(d.Status)
	_, _ = fmt.Fprintf(w, "<html><head><title>%d %s</title></head><body><h1>%s</h1></body></html>\n",
		d.Status, text, text)
}
