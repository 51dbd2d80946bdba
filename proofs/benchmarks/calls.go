package main

import (
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/limits"
)

// calls are weir's calls as programs write them.
var calls = []store{
	{"CheckRate", modWeir, openWeir},
	{"Allow", modWeir, openLimit(slidingLimit)},
	{"Allow, token bucket", modWeir, openLimit(tokenLimit)},
	{"Allow, fixed window", modWeir, openLimit(fixedLimit)},
	{"AllowBytes", modWeir, openBytes},
	{"Take", modWeir, openTake},
	{"All of two", modWeir, openAll},
	{"Run of a Strategy", modWeir, openRun},
}

// openBytes decides on bytes that each caller writes into a buffer of its own, as
// netip.Addr.AppendTo does.
func openBytes(q quota) instance {
	l := must(weir.New(weir.Config{}))
	return instance{
		caller: func() decide {
			limit, buf := slidingLimit(l, q), make([]byte, 0, 64)
			return func(id string) bool { return limit.AllowBytes(append(buf, id...)) }
		},
		size:  func() int { return l.Stats().Buckets },
		close: func() { must(0, l.Close()) },
	}
}

func openTake(q quota) instance {
	return openCall(func(l *weir.Limiter) decide {
		limit := slidingLimit(l, q)
		return func(id string) bool {
			out, err := limit.Take(always, id, 1)
			if err != nil {
				panic(err)
			}
			return out.Allowed()
		}
	})
}

func openAll(q quota) instance {
	in := openCall(func(l *weir.Limiter) decide {
		longer := q
		longer.period += time.Hour
		return limits.All(slidingLimit(l, q), slidingLimit(l, longer)).Allow
	})
	buckets := in.size
	in.size = func() int { return buckets() / 2 }
	return in
}

// openRun calls Run of a type that the compiler knows: through an interface the Request escapes.
func openRun(q quota) instance {
	return openCall(func(l *weir.Limiter) decide {
		s := l.SlidingWindow()
		return func(id string) bool {
			res, err := s.Run(always,
				&weir.Request{Key: id, Limit: uint64(q.limit), Duration: q.period})
			if err != nil {
				panic(err)
			}
			return res.Allowed()
		}
	})
}
