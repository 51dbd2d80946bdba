package switching

import (
	"net/http"
	"time"

	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	"github.com/ulule/limiter/v3/drivers/store/memory"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
)

func beforeUlule() func(http.Handler) http.Handler {
	instance := limiter.New(memory.NewStore(), limiter.Rate{Period: time.Minute, Limit: 3})
	return stdlib.NewMiddleware(instance).Handler
}

func afterCounter(limiter *weir.Limiter) func(http.Handler) http.Handler {
	return httplimit.New(limiter.Counter().Limit(3, time.Minute), httplimit.Config{
		Extractor: httplimit.RemoteAddr(),
		Headers:   httplimit.HeadersLegacy, // X-RateLimit-Limit, -Remaining, -Reset
	})
}
