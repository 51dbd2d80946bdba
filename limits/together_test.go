package limits_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/limits"
	"github.com/weirgo/weir/weirtest"
)

// Each kind of limit that keeps one number for a caller.
var onSlots = map[string]func(l *weir.Limiter, n uint64, d time.Duration) *weir.Limit{
	"FixedWindow": func(l *weir.Limiter, n uint64, d time.Duration) *weir.Limit {
		return l.FixedWindow().Limit(n, d)
	},
	"SlidingWindow": func(l *weir.Limiter, n uint64, d time.Duration) *weir.Limit {
		return l.SlidingWindow().Limit(n, d)
	},
	"TokenBucket": func(l *weir.Limiter, n uint64, d time.Duration) *weir.Limit {
		return l.TokenBucket(0).Limit(n, d)
	},
	"Counter": func(l *weir.Limiter, n uint64, d time.Duration) *weir.Limit {
		return l.Counter().Limit(n, d)
	},
}

// interrupted is a clock that calls next when it is read, once: a decision on known callers has
// found their buckets then.
type interrupted struct {
	*weirtest.Clock
	next func()
}

func (c *interrupted) Now() time.Time {
	next := c.next
	c.next = nil
	if next != nil {
		next()
	}
	return c.Clock.Now()
}

func newInterrupted(t *testing.T) (*weir.Limiter, *interrupted) {
	clock := &interrupted{Clock: weirtest.NewClock(epoch)}
	l, _ := newLimiter(t, weir.Config{Now: clock.Now})
	return l, clock
}

// usedBy returns the count of key.
func usedBy(t *testing.T, m limit, key string) uint64 {
	out, err := m.Peek(t.Context(), key)
	require.NoError(t, err)
	return out.TotalRequests
}

// A limit whose rest another request takes, after a look has seen it, denies; what was taken from
// the limits before it is given back.
func TestADenialAfterALookIsGivenBack(t *testing.T) {
	for name, of := range onSlots {
		t.Run(name, func(t *testing.T) {
			l, clock := newInterrupted(t)
			wide, narrow := of(l, 9, time.Hour), of(l, 2, time.Minute)
			both := limits.All(wide, narrow)
			require.True(t, both.Allow("k"))
			clock.next = func() { require.True(t, narrow.Allow("k")) }
			out := mustTake(t, both, "k", 1)
			assert.False(t, out.Allowed())
			assert.Same(t, narrow, out.By)
			assert.EqualValues(t, 1, usedBy(t, wide, "k"))
			assert.EqualValues(t, 2, usedBy(t, narrow, "k"))
		})
	}
}

// A bucket that goes on to another period while it is looked at is looked at again: its words are
// of two periods.
func TestALookAtABucketOfTwoPeriods(t *testing.T) {
	for name, of := range onSlots {
		t.Run(name, func(t *testing.T) {
			l, clock := newInterrupted(t)
			wide, narrow := of(l, 9, time.Hour), of(l, 2, time.Minute)
			both := limits.All(wide, narrow)
			require.True(t, both.Allow("k"))
			require.True(t, both.Allow("k"))
			clock.next = func() {
				clock.Advance(2 * time.Minute)
				require.True(t, narrow.Allow("k"))
			}
			assert.True(t, both.Allow("k"), "one of two is left")
			assert.EqualValues(t, 2, usedBy(t, narrow, "k"))
			assert.EqualValues(t, 3, usedBy(t, wide, "k"))
		})
	}
}

// A denial of a token bucket that counts for two limits keeps its spacing, also if others decide
// with it.
func TestADenialOfAllKeepsItsSpacing(t *testing.T) {
	l, clock := newLimiter(t, weir.Config{})
	slow := l.TokenBucket(4).Limit(1, time.Minute).Named("b")
	fast := l.TokenBucket(4).Limit(600, time.Minute).Named("b")
	both := limits.All(l.FixedWindow().Limit(9, time.Hour), fast)
	require.True(t, both.Allow("k"))
	for range 3 {
		require.True(t, slow.Allow("k"))
	}
	require.False(t, both.Allow("k"))
	clock.Advance(100 * time.Millisecond)
	assert.True(t, slow.Allow("k"), "a token is back")
	assert.False(t, slow.Allow("k"))
}

// A limit whose window has ended does not deny by it.
func TestNoLimitOfAllDeniesByAWindowThatHasEnded(t *testing.T) {
	for name, of := range onSlots {
		t.Run(name, func(t *testing.T) {
			l, clock := newLimiter(t, weir.Config{})
			wide, narrow := of(l, 9, time.Hour), of(l, 1, time.Second)
			for i, m := range []limit{limits.All(wide, narrow), limits.All(narrow, wide)} {
				clock.Set(epoch.Add(time.Duration(i) * time.Minute))
				require.True(t, m.Allow("k"))
				require.False(t, m.Allow("k"))
				clock.Advance(2 * time.Second)
				assert.True(t, m.Allow("k"))
			}
		})
	}
}

// All limits decide as of one instant, in which order they stand.
func TestAllDecidesAsOfOneInstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := weir.New(weir.Config{SweepEvery: 24 * time.Hour})
		require.NoError(t, err)
		defer l.Close()
		narrow, wide := l.TokenBucket(0).Limit(1, 4*time.Second), l.TokenBucket(0).Limit(3600, time.Hour)
		for range 2 {
			d, err := limits.Decide(t.Context(), narrow.For("k"), wide.For("k"))
			require.NoError(t, err)
			require.True(t, d.Allowed())
			for _, m := range []limit{limits.All(narrow, wide), limits.All(wide, narrow)} {
				time.Sleep(time.Second)
				out := mustTake(t, m, "k", 1)
				require.False(t, out.Allowed())
				assert.Equal(t, time.Until(out.ExpiresAt), out.Wait)
			}
			time.Sleep(8 * time.Second)
		}
	})
}

// Limits of two Limiters are decided by the clocks of both.
func TestAllOfTwoClocks(t *testing.T) {
	for name, of := range onSlots {
		t.Run(name, func(t *testing.T) {
			l, _ := newLimiter(t, weir.Config{})
			other, clock := newLimiter(t, weir.Config{})
			clock.Advance(time.Hour)
			here, there := of(l, 9, time.Minute), of(other, 1, time.Minute)
			for i, m := range []limit{limits.All(here, there), limits.All(there, here)} {
				require.True(t, m.Allow("k"))
				require.False(t, m.Allow("k"))
				clock.Advance(2 * time.Minute)
				assert.EqualValues(t, 1+i, usedBy(t, here, "k"))
			}
		})
	}
}

// What wrappers count is not taken all at once: each may hand its op on by itself.
func TestWrappersAreNotTakenTogether(t *testing.T) {
	l := standing(t)
	wide, narrow := l.SlidingWindow().Limit(10, time.Minute), l.SlidingWindow().Limit(1, time.Hour)
	for _, m := range []*weir.Limit{wide, narrow} {
		require.True(t, m.Allow("k"))
	}
	attempts := limits.Attempts{limits.NewAttempt(ops.Around(weir.CounterOf(wide))),
		limits.NewAttempt(ops.Around(weir.CounterOf(narrow)))}
	for i := range attempts {
		attempts[i].Op.Key = "k"
	}
	allowed, err := attempts.Take(t.Context(), nil)
	require.NoError(t, err)
	require.False(t, allowed)
	out, err := wide.Peek(t.Context(), "k")
	require.NoError(t, err)
	assert.EqualValues(t, 1, out.TotalRequests, "the denial takes nothing")
}
