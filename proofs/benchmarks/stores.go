package main

import (
	"context"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/RussellLuo/slidingwindow"
	"github.com/go-chi/httprate"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	ulule "github.com/ulule/limiter/v3"
	ululememory "github.com/ulule/limiter/v3/drivers/store/memory"
	"github.com/weirgo/weir"
	"golang.org/x/time/rate"
)

// quota is the limit of every store: limit hits per id in each period.
type quota struct {
	limit  int64
	period time.Duration
}

// decide reports whether a hit of id is admitted. It panics if the store cannot decide, since a
// benchmark of errors means nothing.
type decide func(id string) bool

// store is a limiter that is measured.
type store struct {
	name   string
	module string // the report shows its version
	open   func(quota) instance
}

// instance is an open store. Each goroutine uses its own decide, so that a weir.Request, which a
// caller would keep on its stack, is not shared.
type instance struct {
	caller func() decide
	size   func() int // the number of ids it holds; nil if unknown
	close  func()
}

// shared returns an instance whose goroutines all use d.
func shared(d decide) instance {
	return instance{caller: func() decide { return d }, close: func() {}}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// The module paths of the stores.
const (
	modWeir      = "github.com/weirgo/weir"
	modGoLimiter = "github.com/sethvargo/go-limiter"
	modUlule     = "github.com/ulule/limiter/v3"
	modThrottled = "github.com/throttled/throttled/v2"
	modHTTPRate  = "github.com/go-chi/httprate"
	modXTime     = "golang.org/x/time"
	modXSync     = "golang.org/x/sync"
	modSlidingWn = "github.com/RussellLuo/slidingwindow"
)

// The stores. Each limiter has its default settings, apart from the quota.
var (
	weirStore      = store{"weir", modWeir, openWeir}
	goLimiterStore = store{"go-limiter", modGoLimiter, openGoLimiter}
	ululeStore     = store{"ulule", modUlule, openUlule}
	throttledStore = store{"throttled", modThrottled, openThrottled}
	httprateStore  = store{"httprate", modHTTPRate, openHTTPRate}
	xtimeStore     = store{"x-time-rate", modXTime, openXTime}
	slidingwStore  = store{"slidingwindow", modSlidingWn, openSlidingWindow}
)

func openWeir(q quota) instance { return openCheckRate(q, weir.Config{}) }

func openCheckRate(q quota, cfg weir.Config) instance {
	l := must(weir.New(cfg))
	scale := q.period.Milliseconds()
	in := shared(func(id string) bool {
		r, err := l.CheckRate(id, scale, q.limit)
		if err != nil {
			panic(err)
		}
		return r.Allowed()
	})
	in.size = func() int { return l.Stats().Buckets }
	in.close = func() { must(0, l.Close()) }
	return in
}

func openGoLimiter(q quota) instance {
	s := must(memorystore.New(&memorystore.Config{Tokens: uint64(q.limit), Interval: q.period}))
	ctx := context.Background()
	in := shared(func(id string) bool {
		_, _, _, ok, err := s.Take(ctx, id)
		if err != nil {
			panic(err)
		}
		return ok
	})
	in.close = func() { must(0, s.Close(ctx)) }
	return in
}

func openUlule(q quota) instance {
	l := ulule.New(ululememory.NewStore(), ulule.Rate{Period: q.period, Limit: q.limit})
	ctx := context.Background()
	return shared(func(id string) bool {
		c, err := l.Get(ctx, id)
		if err != nil {
			panic(err)
		}
		return !c.Reached
	})
}

// openThrottled raises throttled's number of attempts. By default it fails after losing ten
// compare-and-swaps, which happens when 8 goroutines use one id.
func openThrottled(q quota) instance {
	l := must(throttled.NewGCRARateLimiterCtx(must(memstore.NewCtx(0)), throttled.RateQuota{
		MaxRate:  throttled.PerDuration(int(q.limit), q.period),
		MaxBurst: int(q.limit) - 1,
	}))
	l.SetMaxCASAttemptsLimit(math.MaxInt)
	ctx := context.Background()
	return shared(func(id string) bool {
		limited, _, err := l.RateLimitCtx(ctx, id, 1)
		if err != nil {
			panic(err)
		}
		return !limited
	})
}

// openHTTPRate uses httprate without its middleware. It decides by OnLimit, the only decision that
// is exact under concurrency: Status followed by Increment is faster but admits bursts. With no
// header to set, OnLimit does not use the ResponseWriter.
func openHTTPRate(q quota) instance {
	l := httprate.NewRateLimiter(int(q.limit), q.period,
		httprate.WithResponseHeaders(httprate.ResponseHeaders{}))
	r := must(http.NewRequestWithContext(context.Background(), http.MethodGet, "/", nil))
	return shared(func(id string) bool { return !l.OnLimit(nil, r, id) })
}

// openXTime keeps a rate.Limiter for each id in a sync.Map, as its users do. It calls Load first,
// since LoadOrStore alone would allocate a limiter on every call.
func openXTime(q quota) instance {
	var m sync.Map
	perSecond := rate.Limit(float64(q.limit) / q.period.Seconds())
	in := shared(func(id string) bool {
		l, ok := m.Load(id)
		if !ok {
			l, _ = m.LoadOrStore(id, rate.NewLimiter(perSecond, int(min(q.limit, math.MaxInt))))
		}
		return l.(*rate.Limiter).Allow()
	})
	in.size = func() int { return length(&m) }
	return in
}

func openSlidingWindow(q quota) instance {
	var m sync.Map
	in := shared(func(id string) bool {
		l, ok := m.Load(id)
		if !ok {
			fresh, _ := slidingwindow.NewLimiter(q.period, q.limit,
				func() (slidingwindow.Window, slidingwindow.StopFunc) {
					return slidingwindow.NewLocalWindow()
				})
			l, _ = m.LoadOrStore(id, fresh)
		}
		return l.(*slidingwindow.Limiter).Allow()
	})
	in.size = func() int { return length(&m) }
	return in
}

func length(m *sync.Map) (n int) {
	m.Range(func(any, any) bool { n++; return true })
	return n
}
