// Package pages has the pieces of code in the README and in docs that are in no program and in no
// test, so that they compile.
package pages

import (
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
)

// Policies is in docs/http.md.
func Policies() httplimit.Config {
	return httplimit.Config{
		Extractor: httplimit.Headers("X-User"), // both set by a proxy that has authenticated them
		Policies: []httplimit.Policy{
			{Name: "user", Limit: 10, Duration: time.Second},
			{Name: "org", Limit: 1000, Duration: time.Minute, Extractor: httplimit.Headers("X-Org")},
		},
	}
}

// Concurrency is in docs/http.md.
func Concurrency(limiter *weir.Limiter) httplimit.Config {
	return httplimit.Config{
		Concurrency: httplimit.Policy{Strategy: limiter.InFlight(), Limit: 4,
			Extractor: httplimit.Headers("X-User")},
	}
}

// Names is in docs/http.md.
func Names() []httplimit.Config {
	login := httplimit.Config{Name: "login", Extractor: httplimit.RemoteAddr(), Limit: 5,
		Duration: time.Minute}
	search := httplimit.Config{Name: "search", Extractor: httplimit.RemoteAddr(), Limit: 5,
		Duration: time.Minute}
	return []httplimit.Config{login, search}
}
