package golimiter

import (
	"net/http"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
)

func After(limiter *weir.Limiter) func(http.Handler) http.Handler {
	return httplimit.New(limiter.Counter(), httplimit.Config{
		Extractor: httplimit.RemoteAddr(),
		Limit:     3,
		Duration:  time.Minute,
		Headers:   httplimit.HeadersLegacy, // X-RateLimit-Limit, -Remaining, -Reset
	})
}
