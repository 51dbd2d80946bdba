// Package pages has the pieces of code in the README and in docs that are in no program and in no
// test, so that they compile.
package pages

import (
	"net/http"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
)

// Policies is in docs/http.md.
func Policies(limiter *weir.Limiter) func(http.Handler) http.Handler {
	perUser := limiter.SlidingWindow().Limit(10, time.Second).Named("user")
	perOrg := limiter.SlidingWindow().Limit(1000, time.Minute).Named("org")
	guard := httplimit.New(perUser, httplimit.Config{
		Extractor: httplimit.Headers("X-User"), // both set by a proxy that has authenticated them
		Policies:  []httplimit.Policy{{Strategy: perOrg, Extractor: httplimit.Headers("X-Org")}},
	})
	return guard
}

// Plans is in docs/http.md.
func Plans(limiter *weir.Limiter) func(http.Handler) http.Handler {
	free := limiter.SlidingWindow().Limit(100, time.Hour).Named("v1")
	plans := map[string]*weir.Limit{"paid": limiter.SlidingWindow().Limit(5000, time.Hour).Named("v1")}
	guard := httplimit.New(free, httplimit.Config{
		Extractor: httplimit.Headers("X-User"),
		// nil: free
		LimitFunc: func(r *http.Request) *weir.Limit { return plans[r.Header.Get("X-Plan")] },
	})
	return guard
}

// Concurrency is in docs/http.md.
func Concurrency(limiter *weir.Limiter) httplimit.Config {
	return httplimit.Config{
		Concurrency: httplimit.Policy{Strategy: limiter.InFlight().Limit(4),
			Extractor: httplimit.Headers("X-User")},
	}
}
