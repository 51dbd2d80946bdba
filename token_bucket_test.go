package weir

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Charges and seeds of any size deny at any time. Before 1970 they once overflowed and admitted
// everything.
func TestUnboundedChargesDeny(t *testing.T) {
	for _, at := range []int64{math.MinInt64 / 2, -1e18, -1, 0, 1e18} {
		l, clock := newTestLimiter(t, Config{})
		clock.ns.Store(at)
		tiers := MustTiers(t, l, Tier{5, time.Second})
		for name, s := range map[string]Strategy{
			"fixed": l.FixedWindow(), "sliding": l.SlidingWindow(), "log": l.SlidingLog(),
			"tokens": l.TokenBucket(0),
			"tiers":  tiers, "queue": l.LeakyBucket(0),
		} {
			r := &Request{Key: name, Limit: 5, Duration: time.Second, Cost: math.MaxUint64}
			for range 3 {
				require.NoError(t, ops.Charge(t.Context(), s, r))
			}
			end := clock.now().Add(time.Second)
			require.NoError(t, ops.Seed(t.Context(), s, r, &Result{TotalRequests: math.MaxUint64, ExpiresAt: end}))
			r.Cost = 1
			res := MustRun(t, s, r)
			assert.False(t, res.Allowed(), "%s at %d", name, at)
			assert.Positive(t, int64(res.TotalRequests), "%s at %d", name, at)
		}
	}
}

// The longest burst takes 2^62 ns, 146 years, to refill. A nanosecond more is an error.
func TestLongestBurst(t *testing.T) {
	l, _ := newTestLimiter(t, Config{})
	run := func(burst uint64) error { // a token takes 1<<20 ns
		_, err := l.TokenBucket(burst).Run(t.Context(),
			&Request{Key: "a", Limit: 1e9, Duration: (1 << 20) * time.Second})
		return err
	}
	assert.NoError(t, run(1<<42))
	assert.NoError(t, run(1<<41+1))
	assert.ErrorIs(t, run(1<<42+1), ErrLimit)
}
