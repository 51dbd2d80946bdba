package limits_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/turns"
	"github.com/weirgo/weir/limits"
)

// lateLimit has whoever waits for the limit be woken late.
type lateLimit struct{ *limits.Several }

func (s lateLimit) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	if turns.IsDue(ctx) && !turns.UseDue(ctx).Before(time.Now()) {
		time.Sleep(700 * time.Microsecond) // of a bubble
	}
	return s.Several.Run(ctx, r)
}

func (s lateLimit) Wait(ctx context.Context, key string) error {
	_, err := weir.Wait(ctx, s, &weir.Request{Key: key})
	return err
}

// passesInASecond returns how many of 50 callers in a loop of waits are admitted.
func passesInASecond(t *testing.T, waits func(l *weir.Limiter) func(context.Context, string) error) (n int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l, err := weir.New(weir.Config{})
		require.NoError(t, err)
		defer l.Close()
		wait, ends := waits(l), time.Now().Add(time.Second)
		var mu sync.Mutex
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				for wait(t.Context(), "a") == nil && time.Now().Before(ends) {
					mu.Lock()
					n++
					mu.Unlock()
				}
			})
		}
		all.Wait()
	})
	return n
}

func TestALineOfAllKeepsItsRate(t *testing.T) {
	all := func(l *weir.Limiter) *limits.Several {
		return limits.All(l.TokenBucket(1).Limit(1000, time.Second),
			l.SlidingLog().Limit(500, time.Second/2),
			l.LeakyBucket(0).Limit(1000, time.Second), l.FixedWindow().Limit(5000, time.Second))
	}
	assert.InDelta(t, 1000, passesInASecond(t, func(l *weir.Limiter) func(context.Context, string) error {
		return lateLimit{all(l)}.Wait
	}), 1)
	control := passesInASecond(t, func(l *weir.Limiter) func(context.Context, string) error {
		s := lateLimit{all(l)}
		return func(ctx context.Context, key string) error {
			_, err := weir.Wait(ctx, atPresent{s}, &weir.Request{Key: key})
			return err
		}
	})
	assert.Less(t, control, 700, "a line that decides at the present")
}

// atPresent is lateLimit, and decides at the present.
type atPresent struct{ lateLimit }

func (s atPresent) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	if turns.IsDue(ctx) && !turns.UseDue(ctx).Before(time.Now()) {
		time.Sleep(700 * time.Microsecond) // of a bubble
	}
	return s.Several.Run(context.Background(), r)
}

// As of an instant at which one of them denies nothing is taken from the others.
func TestADenialOfAllAsOfAnInstantTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := weir.New(weir.Config{})
		require.NoError(t, err)
		defer l.Close()
		defer turns.Line()()
		wide, narrow := l.SlidingLog().Limit(10, time.Minute), l.TokenBucket(1).Limit(1, time.Second)
		m := limits.All(wide, narrow)
		require.True(t, m.Allow("a"))
		time.Sleep(1020 * time.Millisecond)
		for _, ago := range []time.Duration{50 * time.Millisecond, 20 * time.Millisecond} {
			res, err := m.Run(turns.At(t.Context(), time.Now().Add(-ago)), &weir.Request{Key: "a"})
			require.NoError(t, err)
			assert.Equal(t, ago == 20*time.Millisecond, res.Allowed(), "the token is back since 20 ms")
			out, err := wide.Peek(t.Context(), "a")
			require.NoError(t, err)
			left := map[bool]uint64{false: 9, true: 8}[res.Allowed()]
			assert.Equal(t, 10-left, out.TotalRequests)
		}
	})
}
