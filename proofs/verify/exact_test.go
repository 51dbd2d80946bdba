package verify

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// crowd makes calls from 64 goroutines in each of several windows, for keys in turn. It returns by
// how much in all a key was admitted more, and less, than limit in a window.
func crowd(t *testing.T, l checker, clock *atomic.Int64, keys, windows, calls int,
	limit int64) (over, under int64) {
	const goroutines, scale = 64, 60_000
	ids := make([]string, keys)
	for i := range ids {
		ids[i] = fmt.Sprint("id", i)
	}
	for range windows {
		clock.Add(scale)
		admitted := make([]atomic.Int64, keys)
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() {
				for i := g; i < calls; i += goroutines {
					res, err := l.CheckRate(ids[i%keys], scale, limit)
					if err != nil {
						t.Error(err)
						return
					}
					if res.Allowed() {
						admitted[i%keys].Add(1)
					}
				}
			})
		}
		wg.Wait()
		for i := range admitted {
			over += max(0, admitted[i].Load()-limit)
			under += max(0, limit-admitted[i].Load())
		}
	}
	return over, under
}

// The longest form makes ten million calls in successive windows while the janitor sweeps all the
// time.
func TestExactUnderConcurrency(t *testing.T) {
	calls := slow.N(20_000, 500_000, 1_000_000)
	for _, c := range []struct {
		keys, windows, calls int
		limit                int64
	}{
		{1, 5, calls, int64(calls / 3)},
		{1000, 5, calls, int64(calls / 2000)},
	} {
		t.Run(fmt.Sprintf("keys=%d", c.keys), func(t *testing.T) {
			var clock atomic.Int64
			l := newLimiter(t, weir.Config{
				Now: func() time.Time {
					return at(clock.Load())
				}, Timeout: 1, SweepEvery: 100 * time.Microsecond,
			})
			start := time.Now()
			over, under := crowd(t, l, &clock, c.keys, c.windows, c.calls, c.limit)
			s := l.Stats()
			t.Logf("%d calls in %v, %d sweeps, %d swept: %d over, %d under",
				c.windows*c.calls, time.Since(start).Round(time.Millisecond), s.Sweeps, s.Swept, over, under)
			assert.Zero(t, over)
			assert.Zero(t, under)
			assert.EqualValues(t, c.windows*c.calls, s.Checks)
			assert.EqualValues(t, c.limit*int64(c.keys*c.windows), s.Allowed)
			if slow.N(0, 1, 1) == 1 { // the quick form may end before a sweep
				assert.Positive(t, s.Swept, "the sweeper removed nothing")
			}
		})
	}
}

// looseLimiter reads the count and then writes it, each atomically.
type looseLimiter struct{ count atomic.Int64 }

func (l *looseLimiter) CheckRate(_ string, _, limit int64) (res weir.Result, err error) {
	if n := l.count.Load(); n < limit {
		yield()
		l.count.Store(n + 1)
		res.State = weir.Allow
	}
	return res, nil
}

func TestExactControlIsRejected(t *testing.T) {
	var clock atomic.Int64
	over, _ := crowd(t, new(looseLimiter), &clock, 1, 1, 10_000, 1000)
	assert.Positive(t, over)
}

// The clock advances with each reading, so window edges fall between the readings of one call.
func TestExactAcrossWindows(t *testing.T) {
	const scale, limit, goroutines = 10, 7, 16
	calls := slow.N(10_000, 20_000, 200_000)
	var ns atomic.Int64
	l := newLimiter(t, weir.Config{
		Now: func() time.Time {
			return time.Unix(0, ns.Add(20_000))
		}, Timeout: 1, SweepEvery: time.Microsecond,
	})
	var mu sync.Mutex
	admitted := map[int64]int{}
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range calls / goroutines {
				res, err := l.CheckRate("id", scale, limit)
				if err != nil {
					t.Error(err)
				}
				if res.Allowed() {
					mu.Lock()
					admitted[res.ExpiresAt.UnixMilli()]++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	require.Greater(t, len(admitted), calls/1000)
	for end, n := range admitted {
		require.LessOrEqual(t, n, limit, "window ending at %d", end)
	}
}

// For the race detector, all strategies and methods run concurrently on one limiter that is too
// small for them.
func TestRaceFree(t *testing.T) {
	var clock movingClock
	const capacity = 50
	l := newLimiter(t, weir.Config{Now: clock.now, MaxBuckets: capacity, Timeout: 1,
		SweepEvery: 50 * time.Microsecond})
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() { mix(t, l, &clock, g, slow.N(500, 3000, 30_000)) })
	}
	wg.Wait()
	assert.LessOrEqual(t, l.Stats().Buckets, capacity)
	clock.ms.Add(100_000)
	l.Sweep()
	assert.Zero(t, l.Stats().Buckets)
}

func mix(t *testing.T, l *weir.Limiter, clock *movingClock, g, n int) {
	ctx := t.Context()
	var strategies []weir.Strategy
	for _, s := range subjects() {
		strategies = append(strategies, s.make(l, clock.now))
	}
	for i := g; i < n+g; i++ {
		s := strategies[i%len(strategies)]
		r := &weir.Request{Key: fmt.Sprint(i % 13), Limit: 3, Duration: 10 * time.Millisecond,
			Cost: uint64(i % 5)}
		res, err := s.Run(ctx, r)
		switch i % 11 {
		case 0:
			clock.ms.Add(1)
		case 1:
			if err == nil {
				_ = ops.Refund(ctx, s, r, res)
			}
		case 2:
			_ = ops.Reset(ctx, s, r)
		case 3:
			_ = ops.Charge(ctx, s, r)
		case 4:
			_ = ops.Seed(ctx, s, r, &weir.Result{TotalRequests: 2, ExpiresAt: clock.now().Add(time.Second)})
		case 5:
			_, _ = ops.Peek(ctx, s, r)
		case 6:
			for range l.Buckets() {
			}
		case 7:
			if n := l.Stats().Buckets; n > 50 {
				t.Errorf("%d buckets, at most 50", n)
			}
		}
	}
}
