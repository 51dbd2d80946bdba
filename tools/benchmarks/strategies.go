package main

import (
	"context"
	"time"

	"github.com/weirgo/weir"
)

// weir's strategies: under the name weir where they are compared with rivals, and under their own
// names where they are compared with each other.
var (
	weirTokens  = store{"weir", modWeir, openTokens}
	weirSliding = store{"weir", modWeir, openSliding}

	strategies = []store{
		{"FixedWindow", modWeir, openFixed},
		{"Calendar", modWeir, openCalendar},
		{"SlidingWindow", modWeir, openSliding},
		{"SlidingLog", modWeir, openLog},
		{"TokenBucket", modWeir, openTokens},
		{"Tiers", modWeir, openTiers},
		{"Counter", modWeir, openCounter},
		{"List", modWeir, openList},
	}
)

func openFixed(q quota) instance {
	return openStrategy(q, func(l *weir.Limiter) ask {
		s := l.FixedWindow()
		return func(r *weir.Request) bool { return passes(s.Decide(always, r)) }
	})
}

func openCalendar(q quota) instance {
	return openStrategy(q, func(l *weir.Limiter) ask {
		s := l.Calendar(weir.Month, time.UTC)
		return func(r *weir.Request) bool { return passes(s.Decide(always, r)) }
	})
}

func openSliding(q quota) instance {
	return openStrategy(q, func(l *weir.Limiter) ask {
		s := l.SlidingWindow()
		return func(r *weir.Request) bool { return passes(s.Decide(always, r)) }
	})
}

func openTokens(q quota) instance {
	return openStrategy(q, func(l *weir.Limiter) ask {
		s := l.TokenBucket(0)
		return func(r *weir.Request) bool { return passes(s.Decide(always, r)) }
	})
}

// openLog uses a period of 10 ms. A log with a period of a day would only grow during the
// measurement.
func openLog(q quota) instance {
	q.period = 10 * time.Millisecond
	return openStrategy(q, func(l *weir.Limiter) ask {
		s := l.SlidingLog()
		return func(r *weir.Request) bool { return passes(s.Decide(always, r)) }
	})
}

func openCounter(q quota) instance {
	return openStrategy(q, func(l *weir.Limiter) ask {
		s := l.Counter()
		return func(r *weir.Request) bool { return passes(s.Decide(always, r)) }
	})
}

func openList(q quota) instance {
	q.period = 10 * time.Millisecond // see openLog
	return openStrategy(q, func(l *weir.Limiter) ask {
		s := l.List()
		return func(r *weir.Request) bool { return passes(s.Decide(always, r)) }
	})
}

func openTiers(q quota) instance {
	return openStrategy(q, func(l *weir.Limiter) ask {
		limit := uint64(q.limit)
		s := must(l.Tiers(weir.Tier{Limit: limit, Duration: time.Second},
			weir.Tier{Limit: limit, Duration: 10 * time.Second},
			weir.Tier{Limit: limit, Duration: 15 * time.Second}))
		return func(r *weir.Request) bool { return passes(s.Decide(always, r)) }
	})
}

// ask calls a strategy's Decide or Run on its concrete type, as users do, so that the call can be
// inlined.
type ask func(*weir.Request) bool

var always = context.Background()

func passes(r weir.Result, err error) bool {
	if err != nil {
		panic(err)
	}
	return r.Allowed()
}

func openStrategy(q quota, of func(*weir.Limiter) ask) instance {
	l := must(weir.New(weir.Config{}))
	ask := of(l)
	return instance{
		caller: func() decide {
			req := &weir.Request{Limit: uint64(q.limit), Duration: q.period}
			return func(id string) bool {
				req.Key = id
				return ask(req)
			}
		},
		size:  func() int { return l.Stats().Buckets },
		close: func() { must(0, l.Close()) },
	}
}
