package weirtest_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/limits"
	"github.com/weirgo/weir/weirtest"
)

func TestSlidingWindowConforms(t *testing.T) {
	histories := slow.N(6, 60, 1000)
	conforms(t, func(_ testing.TB, l *weir.Limiter) weir.Strategy {
		return l.SlidingWindow()
	}, weirtest.Laws{
		Histories: histories,
		// The whole limit at the end of one window, and at the end of the next what the previous window's
		// weight leaves.
		Span:    func(limit uint64) uint64 { return 2*limit - 1 },
		Aligned: true,
	})
}

func TestSlidingLogConforms(t *testing.T) {
	histories := slow.N(6, 60, 1000)
	conforms(t, func(_ testing.TB, l *weir.Limiter) weir.Strategy { return l.SlidingLog() },
		weirtest.Laws{Histories: histories})
}

func TestInFlightConforms(t *testing.T) {
	histories := slow.N(6, 60, 1000)
	conforms(t, func(_ testing.TB, l *weir.Limiter) weir.Strategy { return l.InFlight() },
		weirtest.Laws{Histories: histories})
}

func TestTokenBucketConforms(t *testing.T) {
	histories := slow.N(6, 60, 1000)
	t.Run("burst of the limit", func(t *testing.T) {
		conforms(t, func(_ testing.TB, l *weir.Limiter) weir.Strategy {
			return l.TokenBucket(0)
		}, weirtest.Laws{
			Histories: histories,
			// A full bucket, and the tokens that are added before the last instant of the span.
			Span: func(limit uint64) uint64 { return 2*limit - 1 },
		})
	})
	for _, burst := range []uint64{1, 5, 500} {
		t.Run(fmt.Sprintf("burst of %d", burst), func(t *testing.T) {
			conforms(t, func(_ testing.TB, l *weir.Limiter) weir.Strategy { return l.TokenBucket(burst) },
				weirtest.Laws{
					Histories: histories,
					Burst:     func(uint64) uint64 { return burst },
					Span:      func(limit uint64) uint64 { return burst + limit - 1 },
				})
		})
	}
}

// A period begins with its first request. Without that request the period would have begun and
// ended later, which a refund cannot change afterwards.
// TestRefundWhereThePeriodBeginsWithTheFirstHit covers the rest of the law.
var firstHit = map[string]string{"Refund": "the period begins with the first request"}

func TestCounterConforms(t *testing.T) {
	histories := slow.N(6, 60, 1000)
	conforms(t, func(_ testing.TB, l *weir.Limiter) weir.Strategy { return l.Counter() },
		weirtest.Laws{Histories: histories, Span: twice, Skip: firstHit})
}

func TestListConforms(t *testing.T) {
	histories := slow.N(6, 60, 1000)
	conforms(t, func(_ testing.TB, l *weir.Limiter) weir.Strategy { return l.List() },
		weirtest.Laws{Histories: histories, Span: twice, Skip: firstHit})
}

func tiers(of ...weir.Tier) func(testing.TB, *weir.Limiter) weir.Strategy {
	return func(t testing.TB, l *weir.Limiter) weir.Strategy {
		s := l.Tiers(of...)
		return s
	}
}

// others is the reason to skip laws about the ExpiresAt of several tiers.
const others = "a Result describes one tier, and hits may count longer in the others"

func TestTiersConform(t *testing.T) {
	histories := slow.N(6, 60, 1000)
	for _, c := range []struct {
		what  string
		tiers []weir.Tier
		limit uint64 // of the tier described by Laws
		d     time.Duration
		span  uint64
		skip  []string
	}{
		{"one tier", []weir.Tier{{Limit: 10, Duration: time.Second}}, 10, time.Second, 20, nil},
		{
			"a second one that never binds",
			[]weir.Tier{{Limit: 10, Duration: 2 * time.Second},
				{Limit: math.MaxUint64, Duration: 3 * time.Second}},
			10, 2 * time.Second, 20, []string{"FreshAgain"},
		},
		{
			"several that bind",
			[]weir.Tier{{Limit: 10, Duration: 2 * time.Second}, {Limit: 12, Duration: 3 * time.Second}}, 10,
			2 * time.Second, 12, []string{"FreshAgain", "Refund", "Seed"},
		},
		{
			"1000 in 1 s, 5000 in 10 s, 7000 in 15 s",
			[]weir.Tier{{Limit: 1000, Duration: time.Second}, {Limit: 5000, Duration: 10 * time.Second},
				{Limit: 7000, Duration: 15 * time.Second}}, 1000, time.Second, 2000, []string{"FreshAgain"},
		},
	} {
		t.Run(c.what, func(t *testing.T) {
			skip := map[string]string{}
			for _, law := range c.skip {
				skip[law] = others
			}
			conforms(t, tiers(c.tiers...), weirtest.Laws{
				Histories: histories,
				Limits:    []uint64{c.limit},
				Durations: []time.Duration{c.d},
				Fixed:     true,
				Span:      func(uint64) uint64 { return c.span },
				Skip:      skip,
			})
		})
	}
}

func TestLeakyBucketConforms(t *testing.T) {
	histories := slow.N(6, 60, 1000)
	for _, queue := range []int{0, 1, 3, 20} {
		t.Run(fmt.Sprintf("queue of %d", queue), func(t *testing.T) {
			weirtest.TestStrategy(t, func(t testing.TB, _ *weirtest.Clock) weir.Strategy {
				limiter, err := weir.New(weir.Config{}) // the factory's clock is the bubble's
				require.NoError(t, err)
				t.Cleanup(func() { limiter.Close() })
				return limiter.LeakyBucket(queue)
			}, weirtest.Laws{Histories: histories, Waits: true, Queue: queue})
		})
	}
}

func TestLimitConforms(t *testing.T) {
	histories := slow.N(6, 60, 1000)
	conforms(t, func(t testing.TB, l *weir.Limiter) weir.Strategy {
		m, err := weir.NewLimit(l.InFlight(), 10, time.Hour)
		require.NoError(t, err)
		return weir.CounterOf(m.Named("hourly"))
	}, weirtest.Laws{
		Histories: histories,
		Limits:    []uint64{10},
		Durations: []time.Duration{time.Hour},
		Fixed:     true,
	})
}

// The example's store in a map conforms.
func TestWindowsInAMapConform(t *testing.T) {
	weirtest.TestStrategy(t, func(_ testing.TB, clock *weirtest.Clock) weir.Strategy {
		return newWindows(clock.Now)
	}, weirtest.Laws{Histories: slow.N(6, 60, 1000), Span: twice})
}

func TestAllConforms(t *testing.T) {
	histories := slow.N(6, 60, 1000)
	conforms(t, func(_ testing.TB, l *weir.Limiter) weir.Strategy {
		exact, windows := l.SlidingLog().Limit(10, time.Hour), l.FixedWindow().Limit(10, time.Hour)
		return weir.CounterOf(limits.All(exact, windows))
	}, weirtest.Laws{
		Histories: histories,
		Limits:    []uint64{10},
		Durations: []time.Duration{time.Hour},
		Fixed:     true,
		// The stricter strategy decides. While one caller is being refunded, another may be denied.
		Inexact: true,
	})
}
