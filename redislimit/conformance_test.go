package redislimit_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
	"github.com/weirgo/weir/weirtest"
)

func twice(limit uint64) uint64 { return 2 * limit }

// Every strategy passes the conformance suite.
func TestConformance(t *testing.T) {
	client := dial(t, generousOptions(redistest.Start(t).Addr))
	tier := weir.Tier{Limit: 10, Duration: time.Second}
	// A period begins with its first hit. Without that request the period would have begun and
	// ended later, which a refund cannot change afterwards.
	// TestRefundWhereThePeriodStartsWithTheFirstHit covers the rest of the law.
	firstHit := weirtest.Laws{Span: twice,
		Skip: map[string]string{"Refund": "the period starts with the first request"}}
	for name, tt := range map[string]struct {
		pick func(testing.TB, *redislimit.Store) weir.Strategy
		laws weirtest.Laws
	}{
		"FixedWindow": {
			func(_ testing.TB, s *redislimit.Store) weir.Strategy { return s.FixedWindow() },
			weirtest.Laws{Span: twice, Aligned: true},
		},
		"Calendar": {
			func(_ testing.TB, s *redislimit.Store) weir.Strategy { return s.Calendar(weir.Hour, nil) },
			weirtest.Laws{Span: twice, Aligned: true, FixedDuration: true,
				Durations: []time.Duration{time.Hour}},
		},
		"SlidingWindow": {
			func(_ testing.TB, s *redislimit.Store) weir.Strategy { return s.SlidingWindow() },
			weirtest.Laws{Span: twice, Aligned: true},
		},
		"SlidingLog": {
			func(_ testing.TB, s *redislimit.Store) weir.Strategy { return s.SlidingLog() },
			weirtest.Laws{},
		},
		"InFlight": {
			func(_ testing.TB, s *redislimit.Store) weir.Strategy { return s.InFlight() },
			weirtest.Laws{},
		},
		"TokenBucket": {
			func(_ testing.TB, s *redislimit.Store) weir.Strategy { return s.TokenBucket(0) },
			weirtest.Laws{Span: twice},
		},
		"Tiers": {
			func(t testing.TB, s *redislimit.Store) weir.Strategy {
				tiers := s.Tiers(tier)
				return tiers
			},
			weirtest.Laws{Span: twice, Aligned: true, Fixed: true, Limits: []uint64{tier.Limit},
				Durations: []time.Duration{tier.Duration}},
		},
		"Counter": {
			func(_ testing.TB, s *redislimit.Store) weir.Strategy { return s.Counter() },
			firstHit,
		},
		"List": {
			func(_ testing.TB, s *redislimit.Store) weir.Strategy { return s.List() },
			firstHit,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.laws.Histories = slow.N(2, 8, 100)
			var made atomic.Int64
			weirtest.TestStrategy(t, func(t testing.TB, clock *weirtest.Clock) weir.Strategy {
				return tt.pick(t, storeOn(t, client, redislimit.Config{
					Prefix: name + strconv.FormatInt(made.Add(1), 10) + ":", Now: clock.Now, Timeout: generous,
				}))
			}, tt.laws)
		})
	}
	// The keys of the originals have no Grace, so they expire by the server's clock while the
	// suite's clock stands still.
	hours := []time.Duration{time.Hour, time.Minute, 24 * time.Hour}
	firstHit.Durations = hours
	t.Run("originals", func(t *testing.T) {
		t.Parallel()
		own := redistest.Start(t).Client()
		for name, tt := range map[string]weirtest.Laws{"counter": firstHit,
			"sorted set": {Durations: hours},
			"list":       firstHit} {
			t.Run(name, func(t *testing.T) {
				tt.Histories = slow.N(2, 8, 100)
				weirtest.TestStrategy(t, func(t testing.TB, clock *weirtest.Clock) weir.Strategy {
					require.NoError(t, own.FlushDB(context.Background()).Err()) // The originals share keys.
					return originals[name](own, clock.Now)
				}, tt)
			})
		}
	})
}

// If the period starts with the first hit, a refund takes effect within that period only, and not
// below zero.
func TestRefundWhereThePeriodStartsWithTheFirstHit(t *testing.T) {
	server := redistest.Start(t)
	ctx := context.Background()
	clock := weirtest.NewClock(time.Unix(1_700_000_000, 1))
	store := open(t, server.Addr, redislimit.Config{Now: clock.Now})
	for name, s := range map[string]weir.Counter{"Counter": store.Counter(), "List": store.List()} {
		t.Run(name, func(t *testing.T) {
			ask := func(cost uint64) *weir.Request {
				return &weir.Request{Key: "a", Limit: 10, Duration: time.Minute, Cost: cost, Meta: "m"}
			}
			counted := func() uint64 {
				t.Helper()
				res := mustPeek(t, s, ask(1))
				return res.TotalRequests - uint64(res.State)
			}
			first := mustRun(t, s, ask(3))
			clock.Advance(10 * time.Second)
			second := mustRun(t, s, ask(4))
			require.NoError(t, ops.Refund(ctx, s, ask(4), second))
			require.Equal(t, uint64(3), counted())
			require.NoError(t, ops.Refund(ctx, s, ask(4), &weir.Result{State: weir.Deny, ExpiresAt: second.ExpiresAt}))
			require.Equal(t, uint64(3), counted(), "a denial is not counted")
			require.NoError(t, ops.Refund(ctx, s, ask(5), first))
			require.Equal(t, uint64(0), counted(), "not below zero")
			third := mustRun(t, s, ask(6))
			require.True(t, third.ExpiresAt.Equal(first.ExpiresAt), "the period is unchanged")
			require.Equal(t, uint64(6), counted())

			clock.Set(first.ExpiresAt)
			fourth := mustRun(t, s, ask(2))
			require.NoError(t, ops.Refund(ctx, s, ask(6), third))
			require.Equal(t, uint64(2), counted(), "the period has ended")
			require.NoError(t, ops.Refund(ctx, s, ask(2), fourth))
			require.Equal(t, uint64(0), counted())
			clock.Advance(time.Hour)
		})
	}
}

// Above 2^53-1 a limit counts as 2^53-1, but a cost over the limit is still denied, as in package
// weir.
func TestACostOverTheLimitNeverPasses(t *testing.T) {
	client := dial(t, redislimit.Options(redistest.Start(t).Addr))
	l, s := counters(t, client, "", weirtest.NewClock(time.Unix(1_700_000_000, 0)).Now)
	pairs := plainPairs(l, s)
	pairs = append(pairs, pair{name: "TokenBucket of 2^54", local: l.TokenBucket(1 << 54),
		remote: s.TokenBucket(1 << 54)})
	tier := weir.Tier{Limit: 1 << 54, Duration: time.Hour}
	local := l.Tiers(tier)
	remote := s.Tiers(tier)
	pairs = append(pairs, pair{name: "Tiers of 2^54", local: local, remote: remote})
	for _, p := range pairs {
		for _, limit := range []uint64{1 << 53, 1 << 54} {
			r := &weir.Request{Key: p.name, Limit: limit, Duration: time.Hour, Cost: 1<<54 + 1}
			for _, s := range []weir.Counter{p.local, p.remote} {
				res := mustRun(t, s, r)
				require.Equal(t, weir.Deny, res.State, "%s: %T", p.name, s)
				require.True(t, res.ExpiresAt.IsZero())
			}
		}
	}
}
