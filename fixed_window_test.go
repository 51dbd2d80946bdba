package weir

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/core/ids"
	"github.com/weirgo/weir/internal/core/windows"
)

// sharingScales returns two scales whose windows are looked for in the same place first.
func sharingScales(l *Limiter) (a, b int64) {
	l.windows.Running(0, 1000)
	for b = 1001; l.windows.Latest(b).Scale != 1000; b++ {
	}
	return 1000, b
}

// A decision on a key that has a bucket takes no lock, whatever the length of its ID and however
// many scales are in use.
func TestKnownKeyTakesNoLock(t *testing.T) {
	l, _ := newTestLimiter(t, Config{SweepEvery: time.Hour})
	a, b := sharingScales(l)
	decided := func(id string, scale, limit int64) <-chan Result {
		done := make(chan Result, 1)
		go func() {
			r, err := l.CheckRate(id, scale, limit)
			assert.NoError(t, err)
			done <- r
		}()
		return done
	}
	var callers []string
	for _, length := range []int{1, 8, ids.Inline, ids.Inline + 1, 57, maxID} {
		callers = append(callers, strings.Repeat("k", length))
	}
	for _, id := range callers {
		for _, scale := range []int64{a, b} {
			require.True(t, (<-decided(id, scale, 2)).Allowed())
		}
	}
	for i := range l.buckets.shards {
		l.buckets.shards[i].Lock()
	}
	for _, id := range callers {
		for _, scale := range []int64{a, b} {
			for _, c := range []struct {
				limit int64
				want  State
			}{{2, Allow}, {2, Deny}, {1, Deny}} {
				select {
				case r := <-decided(id, scale, c.limit):
					require.Equal(t, c.want, r.State, "%d bytes, scale %d, limit %d", len(id), scale, c.limit)
				case <-time.After(10 * time.Second):
					t.Fatalf("%d bytes, scale %d, limit %d: waits for a mutex", len(id), scale, c.limit)
				}
			}
		}
	}
	fresh := decided("new", a, 1) // the control
	locked := true
	select {
	case <-fresh:
		locked = false
	case <-time.After(20 * time.Millisecond):
	}
	for i := range l.buckets.shards {
		l.buckets.shards[i].Unlock()
	}
	require.True(t, locked, "a new key took no lock")
	require.True(t, (<-fresh).Allowed())
}

// Scales whose windows share a place in the cache count apart.
func TestScalesThatShareAPlaceCountApart(t *testing.T) {
	l, clock := newTestLimiter(t, Config{SweepEvery: time.Hour})
	a, b := sharingScales(l)
	for range 3 {
		clock.ns.Add(b * msec)
		for hit := range int64(3) {
			for _, scale := range []int64{a, b} {
				r := MustCheck(t, l, "id", scale, 2)
				require.Equal(t, hit < 2, r.Allowed(), "hit %d, scale %d", hit, scale)
				require.EqualValues(t, min(hit+1, 2), r.TotalRequests)
			}
		}
	}
}

// A count is never raised beyond maxCount, whatever the limit: its bits end there.
func TestCountEndsAtItsMaximum(t *testing.T) {
	l, _ := newTestLimiter(t, Config{SweepEvery: time.Hour})
	f := l.FixedWindow()
	r := &Request{Key: "id", Limit: math.MaxUint64, Duration: time.Second, Cost: maxCount - 1}
	require.NoError(t, ops.Charge(t.Context(), f, r))
	for _, want := range []State{Allow, Deny, Deny} {
		res := MustCheck(t, l, "id", 1000, math.MaxInt64)
		assert.Equal(t, want, res.State)
		assert.Equal(t, uint64(maxCount), res.TotalRequests)
	}
}

// A clock that goes back finds the window it goes back to, not the one that was current last.
func TestWindowOfAnEarlierReading(t *testing.T) {
	l, clock := newTestLimiter(t, Config{SweepEvery: time.Hour})
	for _, ms := range []int64{25, 15, 25, 15} {
		clock.setMs(ms)
		r := MustCheck(t, l, "id", 10, 2)
		assert.True(t, r.Allowed(), "at %d ms", ms)
		assert.Equal(t, clock.now().Add(5*time.Millisecond), r.ExpiresAt)
	}
}

// An error comes with the zero Result, also after a hit that failed, because its bucket was removed
// meanwhile, and had set it.
func TestErrorAfterAFailedHitHasNoResult(t *testing.T) {
	meanwhile := func() {} // runs once, while CheckRate reads the clock
	l := MustNew(t, Config{MaxBuckets: 1, SweepEvery: time.Hour, Now: func() time.Time {
		f := meanwhile
		meanwhile = func() {}
		f()
		return time.UnixMilli(5)
	}})
	MustCheck(t, l, "id", 1000, 5)
	meanwhile = func() {
		require.NoError(t, l.Reset("id", 1000))
		MustCheck(t, l, "other", 1000, 5)
	}
	r, err := l.CheckRate("id", 1000, 5)
	require.ErrorIs(t, err, ErrFull)
	require.Zero(t, r)

	require.NoError(t, l.Close())
	r = Result{State: Allow, TotalRequests: 2}
	_, err = l.countSlow("id", 1000, 5, 1, 0, windows.NoWindow, &r)
	require.ErrorIs(t, err, ErrClosed)
	require.Zero(t, r)
}
