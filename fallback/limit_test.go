package fallback_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/near"
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
			res, err := f.server.Peek(t.Context(), &weir.Request{Key: weir.JoinKey("", "6/1h", "a"), Limit: 100,
				Duration: time.Hour})
			require.NoError(t, err)
			assert.EqualValues(t, 7, res.TotalRequests, "six were admitted, and all are counted")
		})
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
		assert.Equal(t, fallback.FromPrimary, by)
		assert.Equal(t, want, res.Allowed(), i)
		require.NoError(t, f.Charge(t.Context(), &weir.Request{Key: "b"}))
	}
}

// A limit by tiers behind a Fallback says which tier binds, whoever decides.
func TestTiersThroughAnOutage(t *testing.T) {
	tiers := func(l *weir.Limiter) weir.Strategy {
		s, err := l.Tiers(weir.Tier{Limit: 3, Duration: time.Hour},
			weir.Tier{Limit: 5, Duration: 24 * time.Hour})
		require.NoError(t, err)
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
