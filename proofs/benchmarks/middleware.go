package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"

	"github.com/go-chi/httprate"
	golimiter "github.com/sethvargo/go-limiter/httplimit"
	"github.com/sethvargo/go-limiter/memorystore"
	ulule "github.com/ulule/limiter/v3"
	ululestdlib "github.com/ulule/limiter/v3/drivers/middleware/stdlib"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
)

// The middlewares, each keyed by the address of the TCP peer and with its own default headers.
var middlewares = []store{
	{"weir", modWeir, openWeirHTTP(func(l *weir.Limiter) weir.Strategy { return l.FixedWindow() })},
	{"weir-sliding", modWeir, openWeirHTTP(func(l *weir.Limiter) weir.Strategy {
		return l.SlidingWindow()
	})},
	{"go-limiter", modGoLimiter, openGoLimiterHTTP},
	{"ulule", modUlule, openUluleHTTP},
	{"httprate", modHTTPRate, openHTTPRateHTTP},
	{baseNone, "", openNothing},
	{baseFields, "", openFields},
}

// The baselines: a handler without middleware, and one that sets two header fields.
const baseNone, baseFields = "none", "two fields"

// isLimiter reports whether a store is a limiter and not a baseline.
func isLimiter(store string) bool { return store != baseNone && store != baseFields }

var guarded = answering(http.StatusOK)

func answering(status int) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
}

// openNothing serves without middleware: the cost of the recorder and the handler.
func openNothing(q quota) instance { return serving(undecided(q)) }

// openFields has a middleware that decides nothing and sets two prepared header fields. The time
// that net/http takes for them is a lower bound for any middleware that reports a limit to the
// client.
func openFields(q quota) instance {
	next := undecided(q)
	policy, left := []string{`"100/1m";q=100;w=60`}, []string{`"100/1m";r=99;t=60`}
	return serving(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h["Ratelimit-Policy"], h["Ratelimit"] = policy, left
		next.ServeHTTP(w, r)
	}))
}

// undecided returns a handler without a limiter. It answers 200, or 429 if the workload denies
// every request.
func undecided(q quota) http.Handler {
	if q.limit == unlimited {
		return guarded
	}
	return answering(http.StatusTooManyRequests)
}

// serving returns the instance of a guarded handler. An id is a RemoteAddr. Each request has its
// own recorder.
func serving(h http.Handler) instance {
	return instance{
		caller: func() decide {
			r := httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/", nil)
			return func(id string) bool {
				r.RemoteAddr = id
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if w.Code != http.StatusOK && w.Code != http.StatusTooManyRequests {
					panic(http.StatusText(w.Code))
				}
				return w.Code == http.StatusOK
			}
		},
		close: func() {},
	}
}

// ordinary is the name that a limit of 100 in a minute has by default. The default name is made of
// the limit and its period: without this one it would be "1000000000/24h", and every key longer
// than in any service.
const ordinary = "100/1m"

func openWeirHTTP(of func(*weir.Limiter) weir.Strategy) func(quota) instance {
	return func(q quota) instance {
		l := must(weir.New(weir.Config{}))
		guard := httplimit.New(of(l), httplimit.Config{
			Name:      ordinary,
			Extractor: httplimit.RemoteAddr(),
			Limit:     uint64(q.limit),
			Duration:  q.period,
		})
		in := serving(guard(guarded))
		in.close = func() { must(0, l.Close()) }
		return in
	}
}

func openGoLimiterHTTP(q quota) instance {
	s := must(memorystore.New(&memorystore.Config{Tokens: uint64(q.limit), Interval: q.period}))
	in := serving(must(golimiter.NewMiddleware(s, golimiter.IPKeyFunc())).Handle(guarded))
	in.close = func() { must(0, s.Close(context.Background())) }
	return in
}

func openUluleHTTP(q quota) instance {
	l := ulule.New(ululememory.NewStore(), ulule.Rate{Period: q.period, Limit: q.limit})
	return serving(ululestdlib.NewMiddleware(l).Handler(guarded))
}

func openHTTPRateHTTP(q quota) instance {
	peer := func(r *http.Request) (string, error) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		return httprate.CanonicalizeIP(host), err
	}
	return serving(httprate.LimitBy(int(q.limit), q.period, peer)(guarded))
}
