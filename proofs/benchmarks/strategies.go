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
	return openLimit(func(l *weir.Limiter) *weir.Limit {
		return l.FixedWindow().Limit(uint64(q.limit), q.period)
	})
}

func openCalendar(q quota) instance {
	return openLimit(func(l *weir.Limiter) *weir.Limit {
		return l.Calendar(weir.Month, time.UTC).Limit(uint64(q.limit))
	})
}

func openSliding(q quota) instance {
	return openLimit(func(l *weir.Limiter) *weir.Limit { return slidingLimit(l, q) })
}

func slidingLimit(l *weir.Limiter, q quota) *weir.Limit {
	return l.SlidingWindow().Limit(uint64(q.limit), q.period)
}

func openTokens(q quota) instance {
	return openLimit(func(l *weir.Limiter) *weir.Limit { return tokenLimit(l, q) })
}

func tokenLimit(l *weir.Limiter, q quota) *weir.Limit {
	return l.TokenBucket(0).Limit(uint64(q.limit), q.period)
}

// openLog uses a period of 10 ms. A log with a period of a day would only grow during the
// measurement.
func openLog(q quota) instance {
	return openLimit(func(l *weir.Limiter) *weir.Limit {
		return l.SlidingLog().Limit(uint64(q.limit), 10*time.Millisecond)
	})
}

func openCounter(q quota) instance {
	return openLimit(func(l *weir.Limiter) *weir.Limit {
		return l.Counter().Limit(uint64(q.limit), q.period)
	})
}

func openList(q quota) instance { // see openLog
	return openLimit(func(l *weir.Limiter) *weir.Limit {
		return l.List().Limit(uint64(q.limit), 10*time.Millisecond)
	})
}

func openTiers(q quota) instance {
	return openLimit(func(l *weir.Limiter) *weir.Limit {
		limit := uint64(q.limit)
		return must(l.Tiers(weir.Tier{Limit: limit, Duration: time.Second},
			weir.Tier{Limit: limit, Duration: 10 * time.Second},
			weir.Tier{Limit: limit, Duration: 15 * time.Second})).Limit()
	})
}

var always = context.Background()

func openLimit(of func(*weir.Limiter) *weir.Limit) instance {
	return openCall(func(l *weir.Limiter) decide { return of(l).Allow })
}

// openCall opens a limiter that decides by a call as programs write it.
func openCall(call func(*weir.Limiter) decide) instance {
	l := must(weir.New(weir.Config{}))
	in := shared(call(l))
	in.size = func() int { return l.Stats().Buckets }
	in.close = func() { must(0, l.Close()) }
	return in
}
