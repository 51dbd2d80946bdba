package switching

import (
	"net/http"
	"time"

	theirs "github.com/sethvargo/go-limiter/httplimit"
	"github.com/sethvargo/go-limiter/memorystore"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
)

func beforeGoLimiter() (func(http.Handler) http.Handler, error) {
	store, err := memorystore.New(&memorystore.Config{Tokens: 3, Interval: time.Minute})
	if err != nil {
		return nil, err
	}
	middleware, err := theirs.NewMiddleware(store, theirs.IPKeyFunc())
	if err != nil {
		return nil, err
	}
	return middleware.Handle, nil
}

func afterGoLimiter(limiter *weir.Limiter) func(http.Handler) http.Handler {
	return httplimit.New(limiter.Counter().Limit(3, time.Minute), httplimit.Config{
		Extractor: httplimit.RemoteAddr(),
		Headers:   httplimit.HeadersLegacy, // X-RateLimit-Limit, -Remaining, -Reset
	})
}
