package limits_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/limits"
)

// fullOver is leftOver, but for Tiers, which are named: of those all limits are probed.
var fullOver = map[string]func(t *testing.T, l *weir.Limiter) limit{
	"Tiers": func(t *testing.T, l *weir.Limiter) limit { return namedTiers(t, l) },
	"fine Tiers": func(t *testing.T, l *weir.Limiter) limit {
		return fineTiers(t, l, 5)
	},
	"All with Tiers": func(t *testing.T, l *weir.Limiter) limit {
		return limits.All(l.SlidingLog().Limit(25, 30*time.Second), namedTiers(t, l))
	},
	"All with a LeakyBucket": func(_ *testing.T, l *weir.Limiter) limit {
		return limits.All(l.FixedWindow().Limit(40, time.Minute), l.LeakyBucket(3).Limit(12, time.Minute))
	},
	// shorter than in leftOver: a sweep of each second is simulated
	"All of numbers": func(_ *testing.T, l *weir.Limiter) limit {
		return limits.All(l.TokenBucket(9).Limit(12, time.Minute),
			l.SlidingWindow().Limit(20, time.Minute),
			l.FixedWindow().Limit(6, time.Second))
	},
	"All of logs": func(_ *testing.T, l *weir.Limiter) limit {
		return limits.All(l.SlidingLog().Limit(12, 30*time.Second),
			l.SlidingWindow().Limit(20, time.Minute))
	},
	"wrapped Tiers": nil, // see TestFullAtOfWhatAnotherPackageCounts
}

func init() {
	for name, of := range leftOver {
		if _, ok := fullOver[name]; !ok {
			fullOver[name] = of
		}
	}
}

func namedTiers(t *testing.T, l *weir.Limiter) *weir.Limit { return tiersWith(t, l, 5) }

func tiersWith(t *testing.T, l *weir.Limiter, least uint64) *weir.Limit {
	return mustTiers(t, l, weir.Tier{Limit: least, Duration: time.Second},
		weir.Tier{Limit: 12, Duration: time.Minute}).Limit().Named("tiers")
}

func fineTiers(t *testing.T, l *weir.Limiter, least uint64) *weir.Limit {
	tiers := mustTiers(t, l, weir.Tier{Limit: least, Duration: time.Second},
		weir.Tier{Limit: 12, Duration: time.Minute}).Resolution(100 * time.Millisecond)
	return tiers.Limit().Named("fine")
}

// isFull reports whether all of m is left to key now, by what it admits: a part of it that counts
// is seen by a probe on the same count.
func isFull(t *testing.T, l *weir.Limiter, m limit, key string) bool {
	full := true
	for _, part := range parts(m) {
		probe := part
		switch part.Name() {
		case "tiers":
			probe = tiersWith(t, l, 12)
		case "fine":
			probe = fineTiers(t, l, 12)
		}
		out, err := probe.Peek(t.Context(), key)
		require.NoError(t, err)
		full = full && out.TotalRequests == 0
		if fresh, err := probe.Peek(t.Context(), "fresh"); out.TotalRequests == 0 {
			require.NoError(t, err)
			require.Equal(t, fresh.Left, out.Left)
		}
	}
	return full
}

// parts returns the limits of an All, or m itself.
func parts(m limit) []*weir.Limit {
	if all, ok := m.(*limits.Several); ok {
		return all.Limits()
	}
	return []*weir.Limit{m.(*weir.Limit)}
}

// At FullAt of each Outcome, and not a nanosecond before, nothing counts: after an admission, a
// denial and a Peek.
func TestAtFullAtNothingCounts(t *testing.T) {
	for name, of := range fullOver {
		if of == nil {
			continue
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := inBubble(t)
				m, rng := of(t, l), rand.New(rand.NewPCG(3, 4))
				var seen [4]int // after a denial and an admission, in part and in full
				for range 200 {
					cost := 1 + rng.Uint64N(5)
					if rng.IntN(8) == 0 {
						cost = 50
					}
					now := time.Now()
					out := mustTake(t, m, "k", cost)
					peeked, err := m.Peek(t.Context(), "k")
					require.NoError(t, err)
					require.True(t, peeked.FullAt.Equal(out.FullAt), "%v %v", peeked.FullAt, out.FullAt)
					require.False(t, out.FullAt.Before(time.Now()))
					if out.State == weir.Deny && !out.ExpiresAt.IsZero() {
						require.False(t, out.FullAt.Before(out.ExpiresAt))
					}
					place := 2 * int(out.State)
					if isFull(t, l, m, "k") {
						require.True(t, out.FullAt.Equal(now), "%v of %d: %v", out.State, cost, out.FullAt)
						seen[place+1]++
					} else if rng.IntN(3) == 0 {
						time.Sleep(time.Until(out.FullAt) - 1)
						require.False(t, isFull(t, l, m, "k"), "%v of %d: %v", out.State, cost, out.FullAt)
						time.Sleep(1)
						require.True(t, isFull(t, l, m, "k"), "%v of %d: %v", out.State, cost, out.FullAt)
						seen[place]++
					}
					time.Sleep(time.Duration(rng.IntN(4)) * time.Second / 2)
				}
				assert.Zero(t, seen[3], "an admission counts")
				assert.Positive(t, seen[1], "a denial where nothing counts")
				if name != "a limit of 0" {
					assert.Positive(t, seen[0])
					assert.Positive(t, seen[2])
				}
			})
		})
	}
}

// Work in flight is all back when its last lease ends, or at no instant that anybody knows.
func TestFullAtOfWorkInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := inBubble(t)
		jobs, err := weir.NewLimit(l.InFlight(), 3, time.Minute)
		require.NoError(t, err)
		full := func() time.Time {
			out, err := jobs.Peek(t.Context(), "k")
			require.NoError(t, err)
			return out.FullAt
		}
		assert.Equal(t, time.Now().UnixNano(), full().UnixNano())
		for range 3 { // the last peek is denied
			time.Sleep(time.Second)
			_, err = weir.CounterOf(jobs).Run(t.Context(), &weir.Request{Key: "k"})
			require.NoError(t, err)
			assert.Equal(t, time.Now().Add(time.Minute).UnixNano(), full().UnixNano())
		}
		time.Sleep(time.Minute)
		held, err := jobs.Hold(t.Context(), "k")
		require.NoError(t, err)
		assert.Zero(t, full())
		both, err := limits.All(l.FixedWindow().Limit(5, time.Hour), jobs).Peek(t.Context(), "k")
		require.NoError(t, err)
		assert.Zero(t, both.FullAt)
		require.NoError(t, held.Release(t.Context()))
		assert.Equal(t, time.Now().UnixNano(), full().UnixNano())
	})
}

// Those who wait in the line of a leaky bucket count until they have left.
func TestFullAtOfALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, start := inBubble(t).LeakyBucket(3).Limit(60, time.Minute), time.Now()
		at := make(chan time.Duration, 4)
		for range 4 {
			go func() {
				out, err := m.Take(t.Context(), "k", 1)
				assert.NoError(t, err)
				at <- out.FullAt.Sub(start)
			}()
			synctest.Wait()
		}
		out := mustTake(t, m, "k", 1)
		require.False(t, out.Allowed())
		assert.Equal(t, 4*time.Second, out.FullAt.Sub(start))
		for _, want := range []time.Duration{1, 4, 4, 4} {
			assert.Equal(t, want*time.Second, <-at)
		}
	})
}

// Where another package counts, FullAt is what its Result says, or the zero time.
func TestFullAtOfWhatAnotherPackageCounts(t *testing.T) {
	type make = func(t *testing.T, l *weir.Limiter) weir.Strategy
	of := func(s func(l *weir.Limiter) weir.Strategy) make {
		return func(_ *testing.T, l *weir.Limiter) weir.Strategy { return s(l) }
	}
	for name, of := range map[string]struct {
		limit                    make
		admitted, denied, peeked bool
	}{
		"FixedWindow": {of(func(l *weir.Limiter) weir.Strategy { return l.FixedWindow() }), true, true, true},
		"TokenBucket": {of(func(l *weir.Limiter) weir.Strategy { return l.TokenBucket(0) }), true, true, true},
		"Hour": {of(func(l *weir.Limiter) weir.Strategy { return l.Calendar(weir.Hour, time.UTC) }),
			true, true, true},
		"burst":   {of(func(l *weir.Limiter) weir.Strategy { return l.TokenBucket(5) }), true, true, true},
		"Window":  {of(func(l *weir.Limiter) weir.Strategy { return l.SlidingWindow() }), true, false, false},
		"Log":     {of(func(l *weir.Limiter) weir.Strategy { return l.SlidingLog() }), true, false, false},
		"Counter": {of(func(l *weir.Limiter) weir.Strategy { return l.Counter() }), true, false, false},
		"Tiers": {func(t *testing.T, l *weir.Limiter) weir.Strategy {
			return mustTiers(t, l, weir.Tier{Limit: 4, Duration: time.Second})
		}, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := of.limit(t, inBubble(t))
				m, err := weir.NewLimit(newFake(s, handOn), 4, time.Minute)
				require.NoError(t, err)
				for range 20 {
					before := peekOf(t, m)
					known := of.peeked || before.TotalRequests == 0
					if !before.Allowed() {
						known = of.denied
					}
					checkFullAt(t, m, before.FullAt, known)
					out := mustTake(t, m, "k", 2)
					if known = of.denied; out.Allowed() {
						known = of.admitted
					}
					checkFullAt(t, m, out.FullAt, known)
					time.Sleep(7 * time.Second)
				}
			})
		})
	}
}

func peekOf(t *testing.T, m *weir.Limit) weir.Outcome {
	out, err := m.Peek(t.Context(), "k")
	require.NoError(t, err)
	return out
}

// checkFullAt sleeps until at, if it is known, and checks that m is full then.
func checkFullAt(t *testing.T, m *weir.Limit, at time.Time, known bool) {
	if !known {
		require.Zero(t, at)
		return
	}
	require.NotZero(t, at)
	if until := time.Until(at); until > 0 && until < 8*time.Second {
		time.Sleep(until - 1)
		require.Positive(t, used(t, m))
		time.Sleep(1)
		require.Zero(t, used(t, m))
	}
}

func used(t *testing.T, m *weir.Limit) uint64 { return peekOf(t, m).TotalRequests }

// Takes that race name the instant of the last of them, and none a later one.
func TestFullAtUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := inBubble(t).TokenBucket(0).Limit(100, time.Second)
		latest := make(chan time.Time, 8)
		for range cap(latest) {
			go func() {
				var at time.Time
				for range 40 {
					out, err := m.Take(context.Background(), "k", 1)
					if assert.NoError(t, err) && out.FullAt.After(at) {
						at = out.FullAt
					}
				}
				latest <- at
			}()
		}
		var at time.Time
		for range cap(latest) {
			if of := <-latest; of.After(at) {
				at = of
			}
		}
		assert.True(t, peekOf(t, m).FullAt.Equal(at))
		assert.Equal(t, time.Second, time.Until(at))
	})
}
