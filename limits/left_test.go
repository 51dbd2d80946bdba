package limits_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/limits"
)

// leftOver is a limit of each kind, of 12 in a minute where it has one number.
var leftOver = map[string]func(t *testing.T, l *weir.Limiter) limit{
	"FixedWindow": func(_ *testing.T, l *weir.Limiter) limit {
		return l.FixedWindow().Limit(12, time.Minute)
	},
	"Calendar": func(_ *testing.T, l *weir.Limiter) limit {
		return l.Calendar(weir.Hour, nil).Limit(12)
	},
	"SlidingWindow": func(_ *testing.T, l *weir.Limiter) limit {
		return l.SlidingWindow().Limit(12, time.Minute)
	},
	"Counter": func(_ *testing.T, l *weir.Limiter) limit {
		return l.Counter().Limit(12, time.Minute)
	},
	"SlidingLog": func(_ *testing.T, l *weir.Limiter) limit {
		return l.SlidingLog().Limit(12, time.Minute)
	},
	"List": func(_ *testing.T, l *weir.Limiter) limit {
		return l.List().Limit(12, time.Minute)
	},
	"TokenBucket": func(_ *testing.T, l *weir.Limiter) limit {
		return l.TokenBucket(7).Limit(12, time.Minute)
	},
	"a limit of 0": func(_ *testing.T, l *weir.Limiter) limit {
		return l.FixedWindow().Limit(0, time.Minute)
	},
	"LeakyBucket without a line": func(_ *testing.T, l *weir.Limiter) limit {
		return l.LeakyBucket(0).Limit(12, time.Minute)
	},
	"LeakyBucket": func(_ *testing.T, l *weir.Limiter) limit {
		return l.LeakyBucket(3).Limit(12, time.Minute)
	},
	"Tiers": func(t *testing.T, l *weir.Limiter) limit { return tiersOf(t, l) },
	"wrapped Tiers": func(t *testing.T, l *weir.Limiter) limit {
		return wrapped(t, weir.CounterOf(tiersOf(t, l)))
	},
	"All of numbers": func(_ *testing.T, l *weir.Limiter) limit {
		return limits.All(l.TokenBucket(9).Limit(12, time.Minute), l.SlidingWindow().Limit(20, time.Hour),
			l.FixedWindow().Limit(6, time.Second))
	},
	"All of logs": func(_ *testing.T, l *weir.Limiter) limit {
		return limits.All(l.SlidingLog().Limit(12, time.Minute), l.SlidingWindow().Limit(20, time.Hour))
	},
	"All with Tiers": func(t *testing.T, l *weir.Limiter) limit {
		return limits.All(l.SlidingLog().Limit(25, time.Hour), tiersOf(t, l))
	},
	"All with a LeakyBucket": func(_ *testing.T, l *weir.Limiter) limit {
		return limits.All(l.FixedWindow().Limit(40, 24*time.Hour), l.LeakyBucket(3).Limit(12,
			time.Minute))
	},
}

func tiersOf(t *testing.T, l *weir.Limiter) *weir.Limit {
	return mustTiers(t, l, weir.Tier{Limit: 5, Duration: time.Second},
		weir.Tier{Limit: 12, Duration: time.Minute}).Limit()
}

// inBubble returns a limiter on the clock of a synctest bubble.
func inBubble(t *testing.T) *weir.Limiter {
	l, err := weir.New(weir.Config{SweepEvery: time.Hour}) // some of them sleep for months
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func wrapped(t *testing.T, s weir.Strategy) *weir.Limit {
	m, err := weir.NewLimit(ops.Around(s), 0, 0)
	require.NoError(t, err)
	return m
}

// largest returns the largest cost of key that m admits now.
func largest(t *testing.T, m limit, key string) (cost uint64) {
	for c := uint64(1); c <= 50; c++ {
		res, err := ops.Peek(t.Context(), m, &weir.Request{Key: key, Cost: c})
		require.NoError(t, err)
		if res.Allowed() {
			cost = c
		}
	}
	return cost
}

// Left is the largest cost that is admitted at the instant of the decision: after an admission,
// after a denial, and before a hit that is peeked at.
func TestLeftIsTheLargestCostThatIsAdmitted(t *testing.T) {
	for name, of := range leftOver {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := inBubble(t)
				m, rng, admitted, denied := of(t, l), rand.New(rand.NewPCG(1, 2)), 0, 0
				for range 300 {
					want := largest(t, m, "k")
					before, err := m.Peek(t.Context(), "k")
					require.NoError(t, err)
					require.Equal(t, want, before.Left, "peeked")
					require.Equal(t, want > 0, before.Allowed())
					cost := 1 + rng.Uint64N(5)
					if rng.IntN(8) == 0 {
						cost = 50
					}
					out := mustTake(t, m, "k", cost)
					require.Equal(t, cost <= want, out.Allowed())
					require.Equal(t, largest(t, m, "k"), out.Left, "%v of %d: %+v", out.State, cost, out)
					if out.Allowed() {
						admitted++
					} else {
						denied++
					}
					time.Sleep(time.Duration(rng.IntN(4)) * time.Second / 2)
				}
				assert.Positive(t, denied)
				if name != "a limit of 0" {
					assert.Positive(t, admitted)
				}
			})
		})
	}
}

// A Peek of a caller who has used nothing finds all of the limit, and nothing used.
func TestPeekIsBeforeTheHit(t *testing.T) {
	l := standing(t)
	for name, of := range leftOver {
		m := of(t, l)
		out, err := m.Peek(t.Context(), name)
		require.NoError(t, err)
		assert.Equal(t, largest(t, m, name), out.Left, name)
		assert.Zero(t, out.TotalRequests, name)
		if !out.Allowed() {
			continue
		}
		assert.EqualValues(t, 1, mustTake(t, m, name, 1).TotalRequests, name)
		out, err = m.Peek(t.Context(), name)
		require.NoError(t, err)
		assert.EqualValues(t, 1, out.TotalRequests, name)
	}
	jobs := l.InFlight().Limit(4)
	for n := range uint64(4) {
		out, err := jobs.Peek(t.Context(), "k")
		require.NoError(t, err)
		assert.Equal(t, []uint64{4 - n, n}, []uint64{out.Left, out.TotalRequests})
		_, err = jobs.Hold(t.Context(), "k")
		require.NoError(t, err)
	}
	out, err := jobs.Peek(t.Context(), "k")
	require.NoError(t, err)
	assert.Equal(t, []uint64{0, 4}, []uint64{out.Left, out.TotalRequests})
}

// A line that is full admits nothing, whatever the cost.
func TestLeftOfALeakyBucketWhoseLineIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := inBubble(t).LeakyBucket(2).Limit(12, time.Minute)
		require.True(t, m.Allow("k"))
		left := make(chan uint64, 2)
		for range 2 {
			go func() {
				out, err := m.Take(t.Context(), "k", 1)
				assert.NoError(t, err)
				left <- out.Left
			}()
			synctest.Wait()
		}
		for _, cost := range []uint64{1, 12, 13} {
			out := mustTake(t, m, "k", cost)
			assert.False(t, out.Allowed())
			assert.Zero(t, out.Left, cost)
		}
		assert.EqualValues(t, 12, <-left, "there is room for one")
		assert.EqualValues(t, 12, <-left)
		out := mustTake(t, m, "k", 13)
		assert.False(t, out.Allowed())
		assert.EqualValues(t, 12, out.Left)
	})
}
