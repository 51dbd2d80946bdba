package main

import (
	"context"
	"time"

	"github.com/weirgo/weir"
)

// weir's strategies: under the name weir where they are compared with rivals, and under their own
// names where they are compared with each other.
var (
	weirTokens  = store{"weir", modWeir, openLimit(tokenLimit)}
	weirSliding = store{"weir", modWeir, openLimit(slidingLimit)}

	strategies = []store{
		{"FixedWindow", modWeir, openLimit(fixedLimit)},
		{"Calendar", modWeir, openLimit(func(l *weir.Limiter, q quota) *weir.Limit {
			return l.Calendar(weir.Month, time.UTC).Limit(uint64(q.limit))
		})},
		{"SlidingWindow", modWeir, openLimit(slidingLimit)},
		// A log with a period of a day would only grow during the measurement.
		{"SlidingLog", modWeir, openLimit(func(l *weir.Limiter, q quota) *weir.Limit {
			return l.SlidingLog().Limit(uint64(q.limit), 10*time.Millisecond)
		})},
		{"TokenBucket", modWeir, openLimit(tokenLimit)},
		{"Tiers", modWeir, openLimit(func(l *weir.Limiter, q quota) *weir.Limit {
			limit := uint64(q.limit)
			return l.Tiers(weir.Tier{Limit: limit, Duration: time.Second},
				weir.Tier{Limit: limit, Duration: 10 * time.Second},
				weir.Tier{Limit: limit, Duration: 15 * time.Second}).Limit()
		})},
		{"Counter", modWeir, openLimit(func(l *weir.Limiter, q quota) *weir.Limit {
			return l.Counter().Limit(uint64(q.limit), q.period)
		})},
		{"List", modWeir, openLimit(func(l *weir.Limiter, q quota) *weir.Limit { // as SlidingLog
			return l.List().Limit(uint64(q.limit), 10*time.Millisecond)
		})},
	}
)

func fixedLimit(l *weir.Limiter, q quota) *weir.Limit {
	return l.FixedWindow().Limit(uint64(q.limit), q.period)
}

func slidingLimit(l *weir.Limiter, q quota) *weir.Limit {
	return l.SlidingWindow().Limit(uint64(q.limit), q.period)
}

func tokenLimit(l *weir.Limiter, q quota) *weir.Limit {
	return l.TokenBucket(0).Limit(uint64(q.limit), q.period)
}

var always = context.Background()

func openLimit(of func(*weir.Limiter, quota) *weir.Limit) func(quota) instance {
	return func(q quota) instance {
		return openCall(func(l *weir.Limiter) decide { return of(l, q).Allow })
	}
}

// openCall opens a limiter that decides by a call as programs write it.
func openCall(call func(*weir.Limiter) decide) instance {
	l := must(weir.New(weir.Config{}))
	in := shared(call(l))
	in.size = func() int { return l.Stats().Buckets }
	in.close = func() { must(0, l.Close()) }
	return in
}
