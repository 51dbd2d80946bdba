package xrate_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/adapters/xrate"
	"github.com/weirgo/weir/weirtest"
)

var start = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func newBucket(t *testing.T, limit uint64, d time.Duration, burst int) *xrate.Bucket {
	b, err := xrate.NewBucket(limit, d, burst)
	require.NoError(t, err)
	return b
}

// The numbers of a weir.Limit are its own, and so is its burst.
func TestLimiterOnALimit(t *testing.T) {
	l, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer l.Close()
	lim := xrate.New(l.TokenBucket(2).Limit(10, time.Hour), xrate.Config{Key: "ann"})
	assert.Equal(t, 2, lim.Burst())
	assert.True(t, lim.TakeN(2))
	assert.False(t, lim.Allow())
	assert.InDelta(t, 10.0/3600, lim.Limit(), 1e-9)
	assert.InDelta(t, 0, lim.Tokens(), 0.1)
}

// By every Strategy a Limiter admits the limit and no more, and Tokens counts down.
func TestLimiterOnEveryStrategy(t *testing.T) {
	clock := weirtest.NewClock(start)
	l, err := weir.New(weir.Config{Now: clock.Now})
	require.NoError(t, err)
	defer l.Close()
	for name, m := range map[string]*weir.Limit{
		"FixedWindow":   l.FixedWindow().Limit(3, time.Minute),
		"SlidingWindow": l.SlidingWindow().Limit(3, time.Minute),
		"SlidingLog":    l.SlidingLog().Limit(3, time.Minute),
		"TokenBucket":   l.TokenBucket(0).Limit(3, time.Minute),
	} {
		lim, other := xrate.New(m, xrate.Config{Key: name}), xrate.New(m, xrate.Config{Key: "other"})
		assert.Equal(t, 3.0, lim.Tokens(), name)
		assert.True(t, lim.TakeN(2), name)
		assert.Equal(t, 1.0, lim.Tokens(), name)
		assert.False(t, lim.TakeN(2), name)
		assert.True(t, lim.Allow(), name)
		assert.False(t, lim.Allow(), name)
		assert.Equal(t, 0.0, lim.Tokens(), name)
		assert.True(t, lim.TakeN(0), name)
		assert.True(t, other.Allow(), name)
		assert.Equal(t, 0.05, lim.Limit())
		assert.Equal(t, 3, lim.Burst())
	}
}

// Nobody would release an event of work in flight.
func TestLimiterOfWorkInFlight(t *testing.T) {
	l, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer l.Close()
	jobs := l.InFlight().Limit(2)
	for _, m := range []*weir.Limit{jobs, jobs.Named("jobs")} {
		assert.PanicsWithValue(t, fmt.Sprintf("xrate: nobody would release an event of %v: use its Hold", m),
			func() { xrate.New(m, xrate.Config{Key: "k"}) })
	}
}

func TestLimiterThatCannotDecide(t *testing.T) {
	down := errors.New("connection refused")
	var reported []error
	cfg := xrate.Config{Key: "k", OnError: func(err error) { reported = append(reported, err) }}
	closed := xrate.New(weirtest.FailAll(down).Limit(1, time.Minute), cfg)
	assert.False(t, closed.Allow())
	assert.ErrorIs(t, closed.Wait(context.Background()), down)
	assert.True(t, math.IsNaN(closed.Tokens()))
	cfg.FailOpen = true
	open := xrate.New(weirtest.FailAll(down).Limit(1, time.Minute), cfg)
	assert.True(t, open.Allow())
	assert.NoError(t, open.Wait(context.Background()))
	assert.Equal(t, []error{down, down, down, down}, reported)

	never := xrate.New(weirtest.DenyAll().Limit(1, time.Minute), cfg)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	assert.ErrorIs(t, never.Wait(ctx), context.DeadlineExceeded, "a denial is no failure")
	cancel()
	assert.ErrorIs(t, never.WaitN(ctx, 0), context.Canceled)
	assert.Len(t, reported, 4)
}

// Bad input and a full table, which a client can cause, are not admitted.
func TestFailOpenRejectsErrorsOfTheClient(t *testing.T) {
	for _, bad := range []error{weir.ErrID, weir.ErrScale, weir.ErrLimit, weir.ErrFull} {
		var reported int
		lim := xrate.New(weirtest.FailAll(fmt.Errorf("wrapped: %w", bad)).Limit(1, time.Minute), xrate.Config{
			Key: "k", FailOpen: true, OnError: func(error) { reported++ },
		})
		assert.False(t, lim.Allow(), bad)
		assert.ErrorIs(t, lim.Wait(context.Background()), bad)
		assert.Equal(t, 2, reported, bad)
	}
}

// A Strategy's own timeout is a failure, not the end of the caller's context.
func TestWaitOnAStrategyThatTimesOut(t *testing.T) {
	var reported []error
	cfg := xrate.Config{Key: "k", OnError: func(err error) { reported = append(reported, err) }}
	m := weirtest.FailAll(context.DeadlineExceeded).Limit(1, time.Minute)
	assert.ErrorIs(t, xrate.New(m, cfg).Wait(context.Background()), context.DeadlineExceeded)
	cfg.FailOpen = true
	assert.NoError(t, xrate.New(m, cfg).Wait(context.Background()))
	assert.Len(t, reported, 2)
}

// A Strategy that cannot peek has no Tokens.
func TestTokensWithoutPeeker(t *testing.T) {
	m, err := weir.NewLimit(struct{ weir.Strategy }{&weirtest.Fake{}}, 1, time.Minute)
	require.NoError(t, err)
	assert.True(t, math.IsNaN(xrate.New(m, xrate.Config{Key: "k"}).Tokens()))
}

func TestLimiterWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := weir.New(weir.Config{})
		require.NoError(t, err)
		defer l.Close()
		lim := xrate.New(l.TokenBucket(1).Limit(1, time.Second), xrate.Config{Key: "k"})
		began := time.Now()
		for range 4 {
			require.NoError(t, lim.Wait(context.Background()))
		}
		assert.Equal(t, 3*time.Second, time.Since(began))
	})
}

// Limiters of one key, each made for one request, admit in order of arrival.
func TestLimitersOfOneKeyQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := weir.New(weir.Config{})
		require.NoError(t, err)
		defer l.Close()
		m, began := l.TokenBucket(2).Limit(1, time.Second), time.Now()
		var waiting sync.WaitGroup
		for i := range 6 {
			waiting.Go(func() {
				lim := xrate.New(m, xrate.Config{Key: "k"})
				n := i%2 + 1 // those of 2 are not passed by those of 1
				assert.NoError(t, lim.WaitN(context.Background(), n))
				assert.Equal(t, time.Duration([]int{0, 1, 2, 4, 5, 7}[i])*time.Second, time.Since(began), i)
			})
			synctest.Wait()
		}
		impossible := xrate.New(m, xrate.Config{Key: "k"})
		assert.ErrorIs(t, impossible.WaitN(context.Background(), 3), weir.ErrLimit)
		assert.Zero(t, time.Since(began), "behind others too")
		waiting.Wait()
	})
}

func TestNewBucketRejects(t *testing.T) {
	for _, c := range []struct {
		limit    uint64
		duration time.Duration
		burst    int
	}{{0, time.Second, 1}, {1, time.Second, 0}, {1, 0, 1}, {1, time.Microsecond, 1},
		{1, 366 * 24 * time.Hour, 1}, {1, 365 * 24 * time.Hour, 1000}} {
		_, err := xrate.NewBucket(c.limit, c.duration, c.burst)
		assert.Error(t, err, "%+v", c)
	}
}

func TestBucketReserves(t *testing.T) {
	b := newBucket(t, 10, time.Second, 2)
	assert.False(t, b.ReserveN(start, 3).OK(), "over the burst")
	assert.Equal(t, xrate.InfDuration, b.ReserveN(start, 3).DelayFrom(start))
	var reserved []*xrate.Reservation
	for _, want := range []time.Duration{0, 0, 100, 200, 300} {
		r := b.ReserveN(start, 1)
		assert.True(t, r.OK())
		assert.Equal(t, want*time.Millisecond, r.DelayFrom(start))
		reserved = append(reserved, r)
	}
	assert.Equal(t, -3.0, b.TokensAt(start))
	assert.False(t, b.AllowN(start.Add(300*time.Millisecond), 1))
	reserved[4].CancelAt(start.Add(100 * time.Millisecond))
	reserved[4].CancelAt(start.Add(100 * time.Millisecond))
	assert.True(t, b.AllowN(start.Add(300*time.Millisecond), 1),
		"the token of the one that was canceled")
	assert.False(t, b.AllowN(start.Add(300*time.Millisecond), 1))
	reserved[0].CancelAt(start.Add(400 * time.Millisecond)) // too late
	assert.Equal(t, 1.0, b.TokensAt(start.Add(400*time.Millisecond)))
}

// Before the first call a Bucket has no time, and callers may begin long ago.
func TestBucketBeginsAnywhere(t *testing.T) {
	for _, at := range []time.Time{time.Unix(0, 0), start, start.AddDate(200, 0, 0)} {
		b := newBucket(t, 1, time.Second, 1)
		assert.True(t, b.AllowN(at, 1), at)
		assert.False(t, b.AllowN(at, 1), at)
		assert.True(t, b.AllowN(at.Add(time.Second), 1), at)
	}
	b := newBucket(t, 1, time.Second, 1)
	assert.True(t, b.AllowN(time.Time{}, 1))
	assert.True(t, b.AllowN(start, 1))
	assert.False(t, b.AllowN(time.Time{}, 1))
}

// Waiters are admitted in order, and one that gives up lets the next move on no later.
func TestBucketWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(t, 1, time.Second, 1)
		began := time.Now()
		var order []int
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				assert.NoError(t, b.Wait(context.Background()))
				assert.Equal(t, time.Duration(i)*time.Second, time.Since(began))
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
			})
			synctest.Wait()
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		assert.ErrorIs(t, b.Wait(ctx), context.DeadlineExceeded)
		assert.Zero(t, time.Since(began), "at once")
		assert.ErrorIs(t, b.WaitN(context.Background(), 2), weir.ErrLimit)
		wg.Wait()
		assert.Equal(t, []int{0, 1, 2, 3}, order)

		ctx, stop := context.WithCancel(context.Background())
		time.AfterFunc(time.Second/2, stop)
		assert.ErrorIs(t, b.Wait(ctx), context.Canceled)
		assert.Equal(t, 3500*time.Millisecond, time.Since(began))
		assert.NoError(t, b.Wait(context.Background()))
		assert.Equal(t, 4*time.Second, time.Since(began), "the token was returned")
		runtime.KeepAlive(b)
		b.Close()
	})
}

// However many goroutines call it, at most the burst and the inflow are admitted; callers' clocks
// differ.
func TestBucketNeverExceedsItsRate(t *testing.T) {
	b := newBucket(t, 1000, time.Second, 10)
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 2000 {
				at := start.Add(time.Duration(i)*time.Millisecond/20 - time.Duration(g)*time.Millisecond)
				if b.AllowN(at, 1) {
					admitted.Add(1)
				}
			}
		})
	}
	wg.Wait()
	assert.LessOrEqual(t, admitted.Load(), int64(10+100+8),
		"a burst, and the inflow of 100 ms and of the clocks' difference")
	assert.GreaterOrEqual(t, admitted.Load(), int64(10+90))
}

// An unreachable Bucket ends its goroutine.
func TestBucketNeedsNoClose(t *testing.T) {
	before := runtime.NumGoroutine()
	for range 20 {
		newBucket(t, 1, time.Hour, 1).Allow()
	}
	for range 1000 {
		runtime.GC()
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(time.Millisecond) // between two collections
	}
	assert.LessOrEqual(t, runtime.NumGoroutine(), before)
}

func ExampleNew() {
	limiter, err := weir.New(weir.Config{})
	if err != nil {
		panic(err)
	}
	defer limiter.Close()
	requests := limiter.SlidingWindow().Limit(2, time.Hour)

	for _, tenant := range []string{"a", "a", "a", "b"} {
		lim := xrate.New(requests, xrate.Config{Key: tenant})
		fmt.Println(tenant, lim.Allow())
	}
	// Output:
	// a true
	// a true
	// a false
	// b true
}

func ExampleNewBucket() {
	bucket, err := xrate.NewBucket(10, time.Second, 1) // rate.NewLimiter(10, 1)
	if err != nil {
		panic(err)
	}
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	fmt.Println(bucket.AllowN(now, 1), bucket.AllowN(now, 1))
	fmt.Println(bucket.ReserveN(now, 1).DelayFrom(now))
	// Output:
	// true false
	// 100ms
}

func ExampleNewFlow() {
	bucket, err := xrate.NewBucket(50, time.Second, 100)
	if err != nil {
		panic(err)
	}
	flow := xrate.NewFlow(bucket) // config.RateLimiter = flow, of a rest.Config of client-go
	fmt.Println(flow.TryAccept(), flow.QPS())
	// Output: true 50
}
