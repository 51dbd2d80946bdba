package fallback_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/near"
	"github.com/weirgo/weir/weirtest"
)

// The limits of a Fallback count separately through an outage. While the server is down, local
// admits what the server would have; after that the server counts it.
func TestLimitsThroughAnOutage(t *testing.T) {
	limitOf := func(t *testing.T, s weir.Strategy, n uint64) *weir.Limit {
		m, err := weir.NewLimit(s, n, time.Hour)
		require.NoError(t, err)
		return m
	}
	for name, to := range map[string]front{
		"plain":          whole,
		"behind denials": func(s *server) weir.Strategy { return near.NewDenials(s, near.DenialsConfig{}) },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 1, fixedWindow, tripAtOnce, to)
			six, seven := limitOf(t, f.instances[0], 6), limitOf(t, f.instances[0], 7)
			take := func(m *weir.Limit, n, want uint64) {
				t.Helper()
				out, err := m.Take(t.Context(), "a", n)
				require.NoError(t, err)
				assert.True(t, out.Allowed())
				assert.Equal(t, want, out.Left)
			}
			take(six, 2, 4)
			take(seven, 1, 6)
			f.server.fails(errDown)
			take(six, 1, 3)
			take(six, 1, 2)
			take(seven, 1, 5)
			f.heal(t)
			take(six, 1, 1)
			take(six, 1, 0)
			assert.False(t, six.Allow("a"))
			res, err := ops.Peek(t.Context(), f.server, &weir.Request{Key: weir.JoinKey("", "6/1h", "a"), Limit: 100,
				Duration: time.Hour})
			require.NoError(t, err)
			assert.EqualValues(t, 7, res.TotalRequests, "six were admitted, and all are counted")
		})
	}
}

// A limit by a Fallback needs numbers that can be right, and of limits there is none: they have
// theirs.
func TestLimitOfAFallback(t *testing.T) {
	f := newFallback(t, local(t), local(t), fallback.Config{})
	m := f.Limit(2, time.Hour)
	assert.Equal(t, []bool{true, true, false}, []bool{m.Allow("a"), m.Allow("a"), m.Allow("a")})
	assert.Equal(t, "fixed window, 2 in 1h", m.String())
	assert.Panics(t, func() { f.Limit(2, time.Nanosecond) })

	of := newFallback(t, local(t).(*weir.WindowCounter).Limit(3, time.Hour),
		local(t).(*weir.WindowCounter).Limit(2, time.Hour), fallback.Config{})
	for _, s := range []weir.Strategy{of, near.NewDenials(of, near.DenialsConfig{})} {
		_, err := weir.NewLimit(s, 10, time.Minute)
		assert.EqualError(t, err, "weir: bad limit: fixed window has its numbers already")
	}
	assert.Panics(t, func() { of.Limit(10, time.Minute) })
}

// The Outcomes of a limit by a Fallback are those of a limit without one, whoever decides, on any
// clock.
func TestOutcomesOfALimit(t *testing.T) {
	for name, of := range strategies() {
		for _, down := range []bool{false, true} {
			clock := weirtest.NewClock(time.Date(2026, 1, 2, 3, 0, 10, 0, time.UTC))
			counts := func() weir.Strategy { return of(limiterOn(t, clock.Now)) }
			primary := counts()
			if down {
				primary = weirtest.FailAll(errDown)
			}
			m := newFallback(t, primary, counts(), with(fallback.Config{Now: clock.Now, Timeout: time.Minute})).
				Limit(10, time.Minute)
			alone, err := weir.NewLimit(counts(), 10, time.Minute)
			require.NoError(t, err)
			outcome := func(m *weir.Limit, cost uint64) weir.Outcome {
				var out weir.Outcome
				if cost == 0 {
					out, err = m.Peek(t.Context(), "a")
				} else {
					out, err = m.Take(t.Context(), "a", cost)
				}
				require.NoError(t, err)
				out.By = nil
				return out
			}
			for step, cost := range []uint64{0, 4, 0, 7, 3, 3, 0, 1, 2} {
				assert.Equal(t, outcome(alone, cost), outcome(m, cost), "%s, down %v, step %d", name, down, step)
				clock.Advance(7 * time.Second)
			}
		}
	}
}

// A Fallback of two limits ignores the numbers of a request, as they do.
func TestFallbackOfLimits(t *testing.T) {
	limitOf := func(n uint64) *weir.Limit {
		m, err := weir.NewLimit(local(t), n, time.Hour)
		require.NoError(t, err)
		return m
	}
	f := newFallback(t, limitOf(3), limitOf(2), fallback.Config{})
	for i, want := range []bool{true, true, true, false} {
		res, by := ask(t, f, weir.Request{Key: "a", Limit: 1})
		assert.Equal(t, weir.FromPrimary, by)
		assert.Equal(t, want, res.Allowed(), i)
		require.NoError(t, ops.Charge(t.Context(), f, &weir.Request{Key: "b"}))
	}
}

// A limit by tiers behind a Fallback says which tier binds, whoever decides.
func TestTiersThroughAnOutage(t *testing.T) {
	tiers := func(l *weir.Limiter) weir.Strategy {
		s := l.Tiers(weir.Tier{Limit: 3, Duration: time.Hour},
			weir.Tier{Limit: 5, Duration: 24 * time.Hour})
		return s
	}
	f := newFleet(t, 1, tiers, tripAtOnce, whole)
	m, err := weir.NewLimit(f.instances[0], 0, 0)
	require.NoError(t, err)
	for left := uint64(3); left > 0; {
		left--
		out, err := m.Take(t.Context(), "a", 1)
		require.NoError(t, err)
		assert.Equal(t, left, out.Left)
		assert.Contains(t, out.By.String(), "3 in 1h")
		f.server.fails(errDown)
	}
}
