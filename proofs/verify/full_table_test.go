package verify

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// Eight callers share a table of eight buckets, in windows of 10 ms. In each new window some bucket
// has expired, so there is always room.
func TestReclaimNeverFailsWhenABucketHasExpired(t *testing.T) {
	const callers, scale = 8, 10
	windows := slow.N(100, 2500, 100_000)
	fill := func(l *weir.Limiter, first, calls int) error {
		var g errgroup.Group
		for c := range callers {
			g.Go(func() error {
				for range calls {
					if _, err := l.CheckRate(fmt.Sprint("caller", first+c), scale, 1); err != nil {
						return fmt.Errorf("caller %d: %w", c, err)
					}
				}
				return nil
			})
		}
		return g.Wait()
	}
	t.Run("the clock moves between the calls", func(t *testing.T) {
		var ms atomic.Int64
		l := newLimiter(t, weir.Config{MaxBuckets: callers,
			Now: func() time.Time { return at(ms.Load()) }, SweepEvery: still})
		for w := range windows {
			require.NoError(t, fill(l, w%3*callers, 2), "window %d", w)
			ms.Add(scale)
		}
	})
	t.Run("the clock moves during the calls", func(t *testing.T) {
		var clock movingClock // its readings are often old when they are used
		l := newLimiter(t, weir.Config{MaxBuckets: callers, Now: clock.now, SweepEvery: still})
		done := make(chan struct{})
		var g errgroup.Group
		g.Go(func() error {
			for moved := uint64(0); ; yield() {
				select {
				case <-done:
					return nil
				default:
				}
				if l.Stats().Checks >= moved*callers*2 { // every window is used
					moved++
					clock.ms.Add(scale)
				}
			}
		})
		err := fill(l, 0, windows)
		close(done)
		require.NoError(t, g.Wait())
		require.NoError(t, err)
	})
	t.Run("the last window is long past", func(t *testing.T) {
		var ms atomic.Int64
		l := newLimiter(t, weir.Config{MaxBuckets: callers,
			Now: func() time.Time { return at(ms.Load()) }, SweepEvery: still})
		for _, at := range []int64{0, 11, 20, 60, 111, 1000} { // not all are edges of windows
			ms.Store(at)
			require.NoError(t, fill(l, int(at), 1), "at %d ms", at)
		}
	})
}

// After a flood of new IDs has filled the table, known callers are decided in the following
// windows.
func TestFloodDoesNotBlockKnownCallers(t *testing.T) {
	const room, known, floods = 1000, 600, 2000
	for _, s := range subjects() {
		if strings.HasSuffix(s.name, "FixedWindow") || s.name == "LeakyBucket" {
			continue // these keep nothing for a caller once its window or turn has passed
		}
		t.Run(s.name, func(t *testing.T) {
			now := int64(5)
			clock := func() time.Time { return at(now) }
			l := newLimiter(t, weir.Config{MaxBuckets: room, Now: clock, SweepEvery: still})
			strategy := s.make(l, clock)
			ask := func(id string) error {
				_, err := strategy.Run(t.Context(),
					&weir.Request{Key: id, Limit: 5, Duration: 10 * time.Millisecond,
						Cost: 2})
				return err
			}
			for i := range known {
				require.NoError(t, ask(fmt.Sprint("known", i)))
			}
			for range 3 {
				full := 0
				for i := range floods {
					if err := ask(fmt.Sprint("flood", i)); err != nil {
						require.ErrorIs(t, err, weir.ErrFull)
						full++
					}
				}
				require.Positive(t, full, "the flood did not fill the table")
				now += 5
				for i := range known {
					require.NoError(t, ask(fmt.Sprint("known", i)), "caller %d at %d ms", i, now)
				}
			}
		})
	}
}
