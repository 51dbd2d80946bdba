package weirtest_test

import (
	"context"
	"testing"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/weirtest"
)

// byLimit decides on each request by a limit with its numbers, made anew, of one name.
type byLimit struct{ weir.Counter }

func (s byLimit) limit(r *weir.Request) (*weir.Limit, error) {
	m, err := weir.NewLimit(s.Counter, r.Limit, r.Duration)
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
	if s.About().InFlight || r.Meta != "" {
		return weir.CounterOf(m).Run(ctx, r)
	}
	out, err := m.Take(ctx, r.Key, r.Cost)
	if err != nil {
		return nil, err
	}
	return &out.Result, nil
}

// About implements weir.Counter.
func (s byLimit) About() *weir.About { return s.Counter.About().By(s) }

// Do implements weir.Counter.
func (s byLimit) Do(ctx context.Context, ops []*weir.Op) {
	for _, op := range ops {
		m, err := s.limit(&op.Request)
		if err != nil {
			op.Err = err
			continue
		}
		weir.CounterOf(m).Do(ctx, []*weir.Op{op})
	}
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
			conforms(t, func(_ testing.TB, l *weir.Limiter) weir.Strategy { return byLimit{weir.CounterOf(c.of(l))} }, c.laws)
		})
	}
}
