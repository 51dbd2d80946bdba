package limits_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/wrap"
	"github.com/weirgo/weir/weirtest"
)

var epoch = time.UnixMilli(0).UTC()

func newLimiter(t testing.TB, cfg weir.Config) (*weir.Limiter, *weirtest.Clock) {
	t.Helper()
	clock := weirtest.NewClock(epoch)
	if cfg.Now == nil {
		cfg.Now = clock.Now
	}
	l, err := weir.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l, clock
}

// standing returns a limiter whose clock stands.
func standing(t testing.TB) *weir.Limiter {
	t.Helper()
	l, _ := newLimiter(t, weir.Config{})
	return l
}

// keyed returns what counts for a Limit with a name by s, as if s were of another package.
func keyed(t testing.TB, name string, s weir.Strategy, n uint64, d time.Duration) weir.Strategy {
	t.Helper()
	other := wrap.Of(s)
	m, err := weir.NewLimit(&other, n, d)
	require.NoError(t, err)
	return m.Named(name).Unwrap()
}

func mustTiers(t testing.TB, l *weir.Limiter, tiers ...weir.Tier) *weir.Tiers {
	t.Helper()
	s, err := l.Tiers(tiers...)
	require.NoError(t, err)
	return s
}

func mustRun(t testing.TB, s weir.Strategy, r *weir.Request) *weir.Result {
	t.Helper()
	res, err := s.Run(t.Context(), r)
	require.NoError(t, err)
	return res
}

func mustPeek(t testing.TB, s weir.Strategy, r *weir.Request) *weir.Result {
	t.Helper()
	res, err := s.(weir.Peeker).Peek(t.Context(), r)
	require.NoError(t, err)
	return res
}

func mustTake(t testing.TB, m *weir.Limit, key string, cost uint64) weir.Outcome {
	t.Helper()
	out, err := m.Take(t.Context(), key, cost)
	require.NoError(t, err)
	return out
}

// everyOption is implemented by every local strategy.
type everyOption interface {
	weir.Strategy
	weir.Peeker
	weir.Refunder
	weir.Resetter
	weir.Seeder
	weir.Charger
}

// counted returns the count of s for r.
func counted(t testing.TB, s weir.Strategy, r *weir.Request) uint64 {
	t.Helper()
	res := mustPeek(t, s, r)
	if res.Allowed() {
		return res.TotalRequests - max(1, r.Cost)
	}
	return res.TotalRequests
}
