package limits_test

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/limits"
)

// A tenant has two jobs at a time, and three in a minute: what is released makes room for a job,
// and none in the minute; a job that is denied counts nowhere.
func TestAllHolds(t *testing.T) {
	for name, order := range map[string]func(jobs, rate *weir.Limit) *limits.Several{
		"jobs first": func(jobs, rate *weir.Limit) *limits.Several { return limits.All(jobs, rate) },
		"rate first": func(jobs, rate *weir.Limit) *limits.Several { return limits.All(rate, jobs) },
	} {
		t.Run(name, func(t *testing.T) {
			l, clock := newLimiter(t, weir.Config{})
			jobs, rate, ctx := l.InFlight().Limit(2), l.SlidingLog().Limit(3, time.Minute), t.Context()
			tenant := order(jobs, rate)
			counts := func() (n [2]uint64) {
				for i, m := range []*weir.Limit{jobs, rate} {
					out, err := m.Peek(ctx, "acme")
					require.NoError(t, err)
					n[i] = out.TotalRequests
				}
				return n
			}
			denied := func() *weir.DeniedError {
				_, err := tenant.Hold(ctx, "acme")
				var denied *weir.DeniedError
				require.ErrorAs(t, err, &denied)
				return denied
			}
			first, err := tenant.Hold(ctx, "acme")
			require.NoError(t, err)
			second, err := tenant.Hold(ctx, "acme")
			require.NoError(t, err)
			by := denied()
			assert.Same(t, jobs, by.Limit)
			assert.ErrorContains(t, by, "2 in flight, until one is released")
			assert.Equal(t, [2]uint64{2, 2}, counts(), "who is denied counts nowhere")
			require.NoError(t, first.Release(ctx))
			assert.Equal(t, [2]uint64{1, 2}, counts(), "the minute keeps what has ended")
			third, err := tenant.Hold(ctx, "acme")
			require.NoError(t, err)
			require.NoError(t, second.Release(ctx))
			by = denied()
			assert.Same(t, rate, by.Limit)
			assert.ErrorContains(t, by, "denied by sliding log, 3 in 1m until ")
			assert.NotContains(t, by.Error(), "in flight")
			assert.Equal(t, [2]uint64{1, 3}, counts())
			require.NoError(t, third.Release(ctx))
			clock.Advance(time.Minute)
			again, err := tenant.Hold(ctx, "acme")
			require.NoError(t, err)
			require.NoError(t, again.Release(ctx))
		})
	}
}

// Hold of an All needs one limit on work in flight.
func TestAllThatCannotHold(t *testing.T) {
	l, _ := newLimiter(t, weir.Config{})
	rate := l.SlidingLog().Limit(3, time.Minute)
	for want, all := range map[string]*limits.Several{
		"none of its limits": limits.All(rate),
		"two of its limits":  limits.All(l.InFlight().Limit(2), rate, l.InFlight().Limit(3).Named("other")),
	} {
		_, err := all.Hold(t.Context(), "k")
		assert.ErrorIs(t, err, errors.ErrUnsupported)
		assert.ErrorContains(t, err, want)
	}
	_, err := limits.All(rate, l.InFlight().Limit(0)).Hold(t.Context(), "k")
	assert.ErrorIs(t, err, weir.ErrLimit, "none may ever be in flight")
	out, err := rate.Peek(t.Context(), "k")
	require.NoError(t, err)
	assert.Zero(t, out.TotalRequests)
}

// Nobody could release what a call takes that returns no Held: it fails, and counts nothing.
func TestNoCallTakesWhatNobodyReleases(t *testing.T) {
	l := standing(t)
	jobs, rate := l.InFlight().Limit(2), l.SlidingLog().Limit(3, time.Minute)
	tenant, ctx := limits.All(rate, jobs), t.Context()
	assert.False(t, tenant.Allow("acme"))
	_, err := tenant.Take(ctx, "acme", 1)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = tenant.Run(ctx, &weir.Request{Key: "acme"})
	require.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = limits.Decide(ctx, rate.For("acme"), jobs.For("acme"))
	require.ErrorIs(t, err, errors.ErrUnsupported)
	out, err := tenant.Peek(ctx, "acme")
	require.NoError(t, err)
	assert.Zero(t, out.TotalRequests)
	assert.EqualValues(t, 2, out.Left)
}
