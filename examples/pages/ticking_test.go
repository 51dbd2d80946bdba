package pages

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
)

// A denial lasts up to a step longer, and no more is admitted.
func TestTicking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		limiter, err := weir.New(weir.Config{Now: Ticking(ctx, time.Millisecond)})
		require.NoError(t, err)
		defer limiter.Close()
		limit := limiter.TokenBucket(1).Limit(1, time.Second)
		require.True(t, limit.Allow("ann"))
		time.Sleep(500 * time.Microsecond)
		out, err := limit.Take(t.Context(), "ann", 1)
		require.NoError(t, err)
		require.Equal(t, time.Second, out.Wait, "as of the last tick")
		time.Sleep(out.Wait - time.Millisecond)
		assert.False(t, limit.Allow("ann"))
		time.Sleep(2 * time.Millisecond)
		assert.True(t, limit.Allow("ann"))
	})
}

func BenchmarkTicking(b *testing.B) {
	for name, now := range map[string]func() time.Time{
		"exact": nil, "ticking": Ticking(b.Context(), time.Millisecond),
	} {
		b.Run(name, func(b *testing.B) {
			limiter, err := weir.New(weir.Config{Now: now})
			require.NoError(b, err)
			defer limiter.Close()
			limit := limiter.SlidingWindow().Limit(1<<40, time.Hour)
			for b.Loop() {
				limit.Allow("ann")
			}
		})
	}
}
