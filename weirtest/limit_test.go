package weirtest_test

import (
	"context"
	"testing"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/weirtest"
)

// byLimit decides on each request by a limit with its numbers, made anew, of one name.
type byLimit struct{ weir.Strategy }

func (s byLimit) limit(r *weir.Request) (*weir.Limit, error) {
	m, err := weir.NewLimit(s.Strategy, r.Limit, r.Duration)
	if err != nil {
		return nil, err
	}
	return m.Named("suite"), nil
}

// Run implements weir.Strategy.
func (s byLimit) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	m, err := s.limit(r)
	if err != nil {
		return nil, err
	}
	if _, holds := s.Strategy.(weir.Holder); holds || r.Meta != "" {
		return m.Unwrap().Run(ctx, r)
	}
	out, err := m.Take(ctx, r.Key, r.Cost)
	if err != nil {
		return nil, err
	}
	return &out.Result, nil
}

// bound calls a method of the strategy that counts for the limit of r.
func bound[T any](s byLimit, r *weir.Request, call func(of T) error) error {
	m, err := s.limit(r)
	if err != nil {
		return err
	}
	return call(m.Unwrap().(T))
}

// Peek implements weir.Peeker.
func (s byLimit) Peek(ctx context.Context, r *weir.Request) (res *weir.Result, err error) {
	err = bound(s, r, func(of weir.Peeker) (err error) { res, err = of.Peek(ctx, r); return })
	return
}

// Refund implements weir.Refunder.
func (s byLimit) Refund(ctx context.Context, r *weir.Request, taken *weir.Result) error {
	return bound(s, r, func(of weir.Refunder) error { return of.Refund(ctx, r, taken) })
}

// Reset implements weir.Resetter.
func (s byLimit) Reset(ctx context.Context, r *weir.Request) error {
	return bound(s, r, func(of weir.Resetter) error { return of.Reset(ctx, r) })
}

// Seed implements weir.Seeder.
func (s byLimit) Seed(ctx context.Context, r *weir.Request, counted *weir.Result) error {
	return bound(s, r, func(of weir.Seeder) error { return of.Seed(ctx, r, counted) })
}

// Charge implements weir.Charger.
func (s byLimit) Charge(ctx context.Context, r *weir.Request) error {
	return bound(s, r, func(of weir.Charger) error { return of.Charge(ctx, r) })
}

// kept is the reason to skip laws that expect another Duration to count anew.
const kept = "a named bucket keeps its count in another Duration"

// Limits keep the laws of their strategies.
func TestLimitsConform(t *testing.T) {
	histories := slow.N(6, 60, 1000)
	for name, c := range map[string]struct {
		of   func(l *weir.Limiter) weir.Strategy
		laws weirtest.Laws
	}{
		"fixed window": {func(l *weir.Limiter) weir.Strategy { return l.FixedWindow() },
			weirtest.Laws{Span: twice, Aligned: true}},
		"sliding window": {func(l *weir.Limiter) weir.Strategy { return l.SlidingWindow() },
			weirtest.Laws{Span: func(limit uint64) uint64 { return 2*limit - 1 }, Aligned: true}},
		"sliding log": {func(l *weir.Limiter) weir.Strategy { return l.SlidingLog() }, weirtest.Laws{}},
		"in flight":   {func(l *weir.Limiter) weir.Strategy { return l.InFlight() }, weirtest.Laws{}},
		"token bucket": {func(l *weir.Limiter) weir.Strategy { return l.TokenBucket(0) },
			weirtest.Laws{Span: func(limit uint64) uint64 { return 2*limit - 1 },
				Skip: map[string]string{"Durations": kept, "Reset": kept}}},
		"counter": {func(l *weir.Limiter) weir.Strategy { return l.Counter() },
			weirtest.Laws{Span: twice, Skip: firstHit}},
		"list": {func(l *weir.Limiter) weir.Strategy { return l.List() },
			weirtest.Laws{Span: twice, Skip: firstHit}},
	} {
		t.Run(name, func(t *testing.T) {
			c.laws.Histories = histories
			conforms(t, func(_ testing.TB, l *weir.Limiter) weir.Strategy { return byLimit{c.of(l)} }, c.laws)
		})
	}
}
