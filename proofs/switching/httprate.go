package switching

import (
	"net/http"
	"time"

	"github.com/go-chi/httprate"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
)

func beforeHTTPRate() func(http.Handler) http.Handler {
	return httprate.LimitByIP(3, time.Minute)
}

func afterHTTPRate(limiter *weir.Limiter) func(http.Handler) http.Handler {
	return httplimit.New(limiter.SlidingWindow().Limit(3, time.Minute), httplimit.Config{
		Extractor: httplimit.RemoteAddr(),
		Headers:   httplimit.HeadersLegacy, // X-RateLimit-Limit, -Remaining, -Reset
	})
}
