package httprate

import (
	"net/http"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
)

func After(limiter *weir.Limiter) func(http.Handler) http.Handler {
	return httplimit.New(limiter.SlidingWindow().Limit(3, time.Minute), httplimit.Config{
		Extractor: httplimit.RemoteAddr(),
		Headers:   httplimit.HeadersLegacy, // X-RateLimit-Limit, -Remaining, -Reset
	})
}
