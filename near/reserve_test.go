package near_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/internal/testkit/verbtest"
	"github.com/weirgo/weir/limits"
	"github.com/weirgo/weir/near"
)

// Reservations are settled through leases and cached denials as without them.
func TestReserve(t *testing.T) {
	type clock = func() time.Time
	lease := func(s weir.Strategy, now clock) weir.Strategy {
		return near.NewLeases(s, near.LeaseConfig{Block: 3, Skew: -1, Now: now})
	}
	denials := func(s weir.Strategy, now clock) weir.Strategy {
		return near.NewDenials(s, near.DenialsConfig{Size: 8, Skew: -1, Now: now})
	}
	limit := func(s weir.Strategy) *weir.Limit {
		m, err := weir.NewLimit(s, verbtest.ReserveLimit, verbtest.ReserveDuration)
		require.NoError(t, err)
		return m
	}
	for name, to := range map[string]func(l *weir.Limiter, now clock) weir.Strategy{
		"lease": func(l *weir.Limiter, now clock) weir.Strategy { return lease(l.FixedWindow(), now) },
		"denials": func(l *weir.Limiter, now clock) weir.Strategy {
			return denials(l.FixedWindow(), now)
		},
		"both": func(l *weir.Limiter, now clock) weir.Strategy {
			return lease(denials(l.FixedWindow(), now), now)
		},
		"denials of a log": func(l *weir.Limiter, now clock) weir.Strategy {
			return denials(l.SlidingLog(), now)
		},
		"denials of a token bucket": func(l *weir.Limiter, now clock) weir.Strategy {
			return denials(l.TokenBucket(0), now)
		},
		"all": func(l *weir.Limiter, now clock) weir.Strategy {
			return weir.CounterOf(limits.All(limit(lease(l.FixedWindow(), now)),
				limit(denials(l.SlidingLog(), now))))
		},
	} {
		t.Run(name, func(t *testing.T) {
			subject := verbtest.Reserver{Span: 2 * verbtest.ReserveLimit,
				Make: func(now clock) weir.Strategy { return to(limiterOn(t, now), now) }}
			for seed := range uint64(slow.N(20, 80, 5000)) {
				if name == "lease" || name == "all" { // the count of a repeated denial is as of its decision
					assert.NoError(t, subject.Check(seed, 60), "seed %d", seed)
				}
				assert.NoError(t, subject.CheckSpans(seed, 60), "seed %d", seed)
			}
		})
	}
}
