package redislimit_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// skewed returns a clock that is off by d.
func skewed(d time.Duration) func() time.Time {
	return func() time.Time { return time.Now().Add(d) }
}

// admitted makes as many requests as possible from three instances for two seconds. It returns the
// number admitted in each whole window, by the end of the window on the true clock. skews are the
// errors of the instances' clocks.
func admitted(t *testing.T, window time.Duration, limit uint64, skews [3]time.Duration,
	clocks [3]func() time.Time) map[int64]uint64 {
	server := redistest.Start(t)
	var (
		mu     sync.Mutex
		counts = map[int64]uint64{}
		wg     sync.WaitGroup
	)
	start := time.Now()
	for i, now := range clocks {
		s := open(t, server.Addr, redislimit.Config{Now: now}).FixedWindow()
		for range 2 {
			wg.Go(func() {
				for time.Since(start) < 2*time.Second {
					res, err := s.Run(context.Background(),
						&weir.Request{Key: "a", Limit: limit, Duration: window})
					if !assert.NoError(t, err) {
						return
					}
					if res.Allowed() {
						mu.Lock()
						counts[res.ExpiresAt.Add(-skews[i]).UnixMilli()/window.Milliseconds()]++
						mu.Unlock()
					}
				}
			})
		}
	}
	wg.Wait()
	first, last := start.Add(2*window).UnixMilli(), time.Now().Add(-window).UnixMilli()
	for w := range counts {
		if end := w * window.Milliseconds(); end < first || end > last {
			delete(counts, w)
		}
	}
	require.NotEmpty(t, counts)
	return counts
}

// Instances whose clocks differ by half a second share one window, as the server's clock determines
// it.
func TestSkewedClientClocksShareWindow(t *testing.T) {
	slow.Test(t)
	const window, limit = 250 * time.Millisecond, 40
	none := [3]time.Duration{}
	counts := admitted(t, window, limit, none, [3]func() time.Time{})
	full := 0
	for w, n := range counts {
		assert.LessOrEqual(t, int64(n), int64(limit), "window %d", w)
		if n == limit { // after a stall the rest of a window may be too short
			full++
		}
	}
	assert.Positive(t, full)
	t.Logf("%d windows, %d admitted in each", len(counts), limit)

	// The control: with their own clocks, each instance counts in another window.
	skews := [3]time.Duration{-500 * time.Millisecond, 0, 500 * time.Millisecond}
	var clocks [3]func() time.Time
	for i, d := range skews {
		clocks[i] = skewed(d)
	}
	over := 0
	for _, n := range admitted(t, window, limit, skews, clocks) {
		if n > limit {
			over++
		}
	}
	assert.NotZero(t, over, "with three clocks the instances do not share windows")
}
