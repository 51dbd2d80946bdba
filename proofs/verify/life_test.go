package verify

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/slow"
)

func TestNeverExceedsCapacity(t *testing.T) {
	const capacity, callers = 2000, 64
	ids := slow.N(10_000, 50_000, 10_000_000)
	var ms atomic.Int64
	l := newLimiter(t, weir.Config{MaxBuckets: capacity,
		Now: func() time.Time { return at(ms.Load()) }, Timeout: 1})
	var most, full atomic.Int64
	var wg, watch sync.WaitGroup
	stop := make(chan struct{})
	watch.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				most.Store(max(most.Load(), int64(l.Stats().Buckets)))
			}
		}
	})
	for c := range callers {
		wg.Go(func() {
			for i := c; i < ids; i += callers {
				if _, err := l.CheckRate(fmt.Sprint(i), 10, 1); err != nil {
					full.Add(1)
				}
				if i%(2*capacity) == 0 {
					ms.Add(10) // twice the capacity in each window
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	watch.Wait()
	t.Logf("%d ids: at most %d buckets, %d ErrFull", ids, most.Load(), full.Load())
	assert.LessOrEqual(t, most.Load(), int64(capacity))
	assert.Positive(t, full.Load())
}

func TestIDsAreCopiedAndBounded(t *testing.T) {
	l := newLimiter(t, weir.Config{})
	huge := strings.Repeat("x", 1<<20)
	start := time.Now()
	for range 1000 {
		_, err := l.CheckRate(huge, 1000, 1)
		require.ErrorIs(t, err, weir.ErrID)
	}
	assert.Less(t, time.Since(start)/1000, time.Millisecond)

	const n = 5000
	for name, count := range map[string]func(id string) error{
		"CheckRate": func(id string) error {
			_, err := l.CheckRate(id, 60_000, 1)
			return err
		},
		"SlidingLog": func(id string) error {
			r := &weir.Request{Key: id, Limit: 1, Duration: time.Minute}
			_, err := l.SlidingLog().Run(t.Context(), r)
			return err
		},
	} {
		before := liveHeap()
		for i := range n {
			header := fmt.Sprintf("%06d", i) + strings.Repeat(".", 8<<10)
			require.NoError(t, count(header[:6]))
		}
		each := (liveHeap() - before) / n
		t.Logf("%s: %d live bytes a bucket", name, each)
		assert.LessOrEqual(t, each, int64(1024), name)
	}
	runtime.KeepAlive(l)
}

func TestFloodResetsNoCounter(t *testing.T) {
	const capacity, limit, scale = 100, 5, 60_000
	l := newLimiter(t, weir.Config{MaxBuckets: capacity, Now: func() time.Time {
		return at(0)
	}, Timeout: 1})
	ask := func(id string) weir.Result {
		res, err := l.CheckRate(id, scale, limit)
		require.NoError(t, err)
		return res
	}
	for range limit {
		ask("attacker")
	}
	for range limit - 1 {
		ask("victim")
	}
	for trial := range slow.N(8, 150, 1000) {
		for i := range 10 * capacity {
			_, err := l.CheckRate(fmt.Sprint("flood", trial, "-", i), scale, limit)
			if err != nil && err != weir.ErrFull {
				t.Fatal(err)
			}
		}
		l.Sweep()
		require.False(t, ask("attacker").Allowed(), "trial %d: the attacker's count was lost", trial)
		b, err := l.Inspect("victim", scale)
		require.NoError(t, err)
		require.EqualValues(t, limit-1, b.Count, "trial %d", trial)
	}
	assert.True(t, ask("victim").Allowed())
}

func TestFullTableServesKnownIDs(t *testing.T) {
	const capacity, scale = 1000, 60_000
	l := newLimiter(t, weir.Config{MaxBuckets: capacity, Now: func() time.Time { return at(0) }})
	for i := range capacity {
		_, err := l.CheckRate(fmt.Sprint(i), scale, math.MaxInt64)
		require.NoError(t, err)
	}
	var wg sync.WaitGroup
	for c := range 16 {
		wg.Go(func() {
			for i := range 10_000 {
				known := i%2 == 0
				id := fmt.Sprint(i % capacity)
				if !known {
					id = fmt.Sprint("new", c, "-", i)
				}
				res, err := l.CheckRate(id, scale, math.MaxInt64)
				if known && (err != nil || !res.Allowed()) || !known && err != weir.ErrFull {
					t.Errorf("%s: %v, %v", id, res, err)
					return
				}
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, 16*5000, l.Stats().Full, "one for each hit of a new ID")
	assert.Zero(t, l.Stats().Denied)
}

// A decision on a known ID allocates nothing in any strategy that does not wait.
func TestKnownIDAllocatesNothing(t *testing.T) {
	l := newLimiter(t, weir.Config{})
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		_, _ = l.CheckRate("id", 60_000, math.MaxInt64)
	}))
	for _, s := range subjects() {
		strategy := s.make(l, time.Now)
		if _, ok := strategy.(byLimit); ok {
			continue // it makes a limit for each request
		}
		for _, limit := range []uint64{1, 1 << 40} {
			r := &weir.Request{Key: fmt.Sprint(limit), Limit: limit, Duration: time.Minute}
			_, err := strategy.Run(t.Context(), r)
			require.NoError(t, err)
			// Run returns a pointer to its Result, which is the one allocation.
			allocs := testing.AllocsPerRun(1000, func() { _, _ = strategy.Run(t.Context(), r) })
			assert.LessOrEqual(t, allocs, 1.0, "%s at limit %d", s.name, limit)
		}
	}
}

func TestClose(t *testing.T) {
	t.Run("beside a thousand others and CheckRate", func(t *testing.T) {
		l, err := weir.New(weir.Config{SweepEvery: time.Microsecond, Timeout: 1})
		require.NoError(t, err)
		var wg sync.WaitGroup
		for i := range slow.N(300, 1000, 10_000) {
			wg.Go(func() {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			})
			wg.Go(func() {
				if _, err := l.CheckRate(fmt.Sprint(i), 1, 1); err != nil && err != weir.ErrClosed {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		_, err = l.CheckRate("id", 1000, 1)
		assert.ErrorIs(t, err, weir.ErrClosed)
	})
	t.Run("in mid-sweep", func(t *testing.T) {
		var ms atomic.Int64
		l, err := weir.New(weir.Config{
			Now: func() time.Time { return at(ms.Load()) }, SweepEvery: time.Millisecond, Timeout: 1})
		require.NoError(t, err)
		const n = 40_000
		for i := range n {
			if _, err := l.CheckRate(fmt.Sprint(i), 1000, 1); err != nil {
				t.Fatal(err)
			}
		}
		before := l.Stats().Swept
		ms.Store(1001) // expired, and after the Timeout
		require.Eventually(t, func() bool {
			return l.Stats().Swept > before || l.Stats().Buckets < n
		}, time.Minute, 100*time.Microsecond)
		start := time.Now()
		require.NoError(t, l.Close())
		took := time.Since(start)
		t.Logf("closed in %v with %d of %d buckets left", took, l.Stats().Buckets, n)
		if !slow.Race {
			assert.Less(t, took, 100*time.Millisecond)
		}
		left := l.Stats().Buckets
		time.Sleep(5 * time.Millisecond) // time for a sweep, of which there must be none
		assert.Equal(t, left, l.Stats().Buckets, "the janitor outlived Close")
	})
}
