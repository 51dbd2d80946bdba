package httplimit

import (
	"fmt"
	"net/http"
)

// Mochiweb returns a Config that answers as the Erlang limiter raterlimiter did under Mochiweb: a
// denial is 413 (Request Entity Too Large) with a page in text/html and Retry-After, and no other
// field of this package. Set the Extractor and the limit in it; the original's example was 500 hits
// in 30 s by the peer's address.
func Mochiweb() Config {
	return Config{DeniedStatus: http.StatusRequestEntityTooLarge, Headers: HeadersNone, Respond: respondHTML}
}

func respondHTML(w http.ResponseWriter, _ *http.Request, d Decision) {
	w.Header().Set(fieldContentType, "text/html")
	w.WriteHeader(d.Status)
	text := http.StatusText(d.Status)
	_, _ = fmt.Fprintf(w, "<html><head><title>%d %s</title></head><body><h1>%s</h1></body></html>\n",
		d.Status, text, text)
}
