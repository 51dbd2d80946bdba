package weir_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
)

// The Outcome of a Reservation is that of a Take, and a Commit leaves what the cost came to.
func TestALimitReserves(t *testing.T) {
	for name, m := range map[string]func(l *weir.Limiter) *weir.Limit{
		"fixed window":   func(l *weir.Limiter) *weir.Limit { return l.FixedWindow().Limit(10, time.Minute) },
		"sliding window": func(l *weir.Limiter) *weir.Limit { return l.SlidingWindow().Limit(10, time.Minute) },
		"log":            func(l *weir.Limiter) *weir.Limit { return l.SlidingLog().Limit(10, time.Minute) },
		"token bucket":   func(l *weir.Limiter) *weir.Limit { return l.TokenBucket(0).Limit(10, time.Minute) },
		"named":          func(l *weir.Limiter) *weir.Limit { return l.List().Limit(10, time.Minute).Named("n") },
	} {
		t.Run(name, func(t *testing.T) {
			l, _ := newLimiter(t, weir.Config{})
			m, ctx := m(l), t.Context()
			used := func() uint64 {
				out, err := m.Peek(ctx, "k")
				require.NoError(t, err)
				return out.TotalRequests
			}
			v, err := m.Reserve(ctx, "k", 8)
			require.NoError(t, err)
			assert.True(t, v.Allowed())
			assert.EqualValues(t, 2, v.Left)
			assert.Same(t, m, v.By)
			assert.False(t, v.FullAt.IsZero())
			denied, err := m.Reserve(ctx, "k", 3)
			require.NoError(t, err)
			assert.False(t, denied.Allowed())
			assert.Positive(t, denied.Wait)
			require.NoError(t, denied.Commit(ctx, 1))
			assert.EqualValues(t, 8, used(), "a denial has nothing to correct")
			require.NoError(t, v.Commit(ctx, 5))
			require.NoError(t, v.Cancel(ctx))
			assert.EqualValues(t, 5, used(), "the first Commit counts")
			over, err := m.Reserve(ctx, "k", 11)
			require.NoError(t, err)
			assert.EqualValues(t, int64(math.MaxInt64), over.Wait, "it can never pass")
			_, err = m.Reserve(ctx, "", 1)
			assert.ErrorIs(t, err, weir.ErrID)
		})
	}
}

// A Strategy that cannot give back reserves nothing.
func TestALimitThatCannotReserve(t *testing.T) {
	run := &counting{}
	m, err := weir.NewLimit(run, 10, time.Minute)
	require.NoError(t, err)
	_, err = m.Reserve(t.Context(), "k", 1)
	assert.ErrorIs(t, err, errors.ErrUnsupported)
	assert.ErrorContains(t, err, "cannot refund and charge")
	assert.Zero(t, run.runs)
}

// counting is a Strategy that can only Run.
type counting struct{ runs int }

func (c *counting) Run(context.Context, *weir.Request) (*weir.Result, error) {
	c.runs++
	return &weir.Result{State: weir.Allow}, nil
}
