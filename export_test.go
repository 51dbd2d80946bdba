package weir

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/core/turns"
)

// Waiting runs f in a synctest bubble, with a new limiter. No queue may be left afterwards.
func Waiting(t *testing.T, f func(t *testing.T, l *Limiter)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, MustNew(t, Config{})) })
	assert.Zero(t, turns.Queues(), "a queue without waiters is removed")
}

// The functions that begin with Must end the test at an error.

// MustNew returns a limiter that is closed with the test.
func MustNew(t testing.TB, cfg Config) *Limiter {
	t.Helper()
	l, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// MustTiers is Limiter.Tiers.
func MustTiers(t testing.TB, l *Limiter, tiers ...Tier) *Tiers {
	t.Helper()
	s := l.Tiers(tiers...)
	return s
}

// MustRun is Strategy.Run.
func MustRun(t testing.TB, s Strategy, r *Request) *Result {
	t.Helper()
	res, err := s.Run(t.Context(), r)
	require.NoError(t, err)
	return res
}

// MustPeek is Strategy.Peek.
func MustPeek(t testing.TB, s Strategy, r *Request) *Result {
	t.Helper()
	res, err := ops.Peek(t.Context(), s, r)
	require.NoError(t, err)
	return res
}

// Counted returns the count of s for r.
func Counted(t testing.TB, s Strategy, r *Request) uint64 {
	t.Helper()
	res := MustPeek(t, s, r)
	if res.Allowed() {
		return res.TotalRequests - max(1, r.Cost)
	}
	return res.TotalRequests
}

// MustTake is Limit.Take.
func MustTake(t testing.TB, m *Limit, key string, cost uint64) Outcome {
	t.Helper()
	out, err := m.Take(t.Context(), key, cost)
	require.NoError(t, err)
	return out
}

// MustCheck is Limiter.CheckRate.
func MustCheck(t testing.TB, l *Limiter, id string, scaleMs, limit int64) Result {
	t.Helper()
	res, err := l.CheckRate(id, scaleMs, limit)
	require.NoError(t, err)
	return res
}

// MustInspect is Limiter.Inspect.
func MustInspect(t testing.TB, l *Limiter, id string, scaleMs int64) Bucket {
	t.Helper()
	b, err := l.Inspect(id, scaleMs)
	require.NoError(t, err)
	return b
}
