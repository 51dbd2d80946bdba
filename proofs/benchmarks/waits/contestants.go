package main

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/limits"
)

// contestant opens a limit of n a second, whose calls return once they are admitted.
type contestant struct {
	name string
	open func(ctx context.Context, l *weir.Limiter, n int) func() error // ctx ends after the calls
}

var always = context.Background()

var rival = contestant{"x/time/rate, burst 1", func(
	_ context.Context, _ *weir.Limiter, n int,
) func() error {
	l := rate.NewLimiter(rate.Limit(n), 1)
	return func() error { return l.Wait(always) }
}}

// contestants wait in a line.
var contestants = []contestant{
	rival,
	{"TokenBucket(1)", func(_ context.Context, l *weir.Limiter, n int) func() error {
		return waits(l.TokenBucket(1).Limit(uint64(n), time.Second))
	}},
	{"LeakyBucket(100), Run", func(_ context.Context, l *weir.Limiter, n int) func() error {
		s := l.LeakyBucket(100)
		return func() error {
			r := &weir.Request{Key: "upstream", Limit: uint64(n), Duration: time.Second}
			return admitted(s.Run(always, r))
		}
	}},
	{"LeakyBucket(100), Take", func(_ context.Context, l *weir.Limiter, n int) func() error {
		m := l.LeakyBucket(100).Limit(uint64(n), time.Second)
		return func() error {
			out, err := m.Take(always, "upstream", 1)
			return admitted(&out.Result, err)
		}
	}},
	{"LeakyBucket(0), Wait", func(_ context.Context, l *weir.Limiter, n int) func() error {
		return waits(l.LeakyBucket(0).Limit(uint64(n), time.Second))
	}},
	{"LeakyBucket(10), Wait", func(_ context.Context, l *weir.Limiter, n int) func() error {
		return waits(l.LeakyBucket(10).Limit(uint64(n), time.Second))
	}},
	{"SlidingLog", func(_ context.Context, l *weir.Limiter, n int) func() error {
		return waits(l.SlidingLog().Limit(uint64(n), time.Second))
	}},
	{"All of TokenBucket(1) and SlidingLog", func(
		_ context.Context, l *weir.Limiter, n int,
	) func() error {
		return waits(limits.All(l.TokenBucket(1).Limit(uint64(n), time.Second),
			l.SlidingLog().Limit(uint64(n), time.Second)))
	}},
}

// calls need not wait.
var calls = []contestant{
	rival,
	{"Allow", func(_ context.Context, l *weir.Limiter, n int) func() error {
		m := tokens(l, n)
		return func() error {
			if !m.Allow("upstream") {
				return errDenied
			}
			return nil
		}
	}},
	{"Limit.Wait", func(_ context.Context, l *weir.Limiter, n int) func() error {
		return waits(tokens(l, n))
	}},
	{"Wait of the Limit", func(_ context.Context, l *weir.Limiter, n int) func() error {
		m, r := tokens(l, n), &weir.Request{Key: "upstream"}
		return func() error {
			_, err := weir.Wait(always, m, r)
			return err
		}
	}},
	{"Limit.Wait while others wait elsewhere", func(
		ctx context.Context, l *weir.Limiter, n int,
	) func() error {
		busy := l.TokenBucket(1).Limit(1, 24*time.Hour)
		for range 2 { // the second one waits
			go func() { _ = busy.Wait(ctx, "busy") }()
		}
		time.Sleep(10 * time.Millisecond) // by then it waits
		return waits(tokens(l, n))
	}},
}

// tokens returns a limit that the calls do not use up.
func tokens(l *weir.Limiter, n int) *weir.Limit {
	return l.TokenBucket(uint64(n)).Limit(uint64(n), time.Second)
}

func waits(m interface {
	Wait(ctx context.Context, key string) error
}) func() error {
	return func() error { return m.Wait(always, "upstream") }
}

var errDenied = errors.New("the call was denied")

func admitted(res *weir.Result, err error) error {
	if err == nil && !res.Allowed() {
		return errDenied
	}
	return err
}

// share returns which part of n a second passes where waiters call in a loop.
func share(c contestant, n int) float64 {
	l := limiter()
	defer closeLimiter(l)
	wait := c.open(always, l, n)
	var passed atomic.Int64
	var all sync.WaitGroup
	begun := time.Now()
	for range *waiters {
		all.Go(func() {
			for {
				must(wait())
				if time.Since(begun) > *during {
					return
				}
				passed.Add(1)
			}
		})
	}
	all.Wait()
	return float64(passed.Load()) / (float64(n) * during.Seconds())
}
