package weir

import (
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCoarseClockMovesByResolutionWhileThereAreBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := MustNew(t, Config{Resolution: 10 * time.Millisecond, SweepEvery: time.Second,
			Timeout: time.Second})
		late := func() time.Duration { return time.Duration(time.Now().UnixNano() - l.clock.Read()) }
		for range 2 {
			for range 3 {
				require.Zero(t, late(), "the table is empty: the clock is exact")
				time.Sleep(3 * time.Millisecond)
			}
			MustCheck(t, l, "id", 1000, 1)
			for i := range 100 {
				synctest.Wait()
				require.Equal(t, time.Duration(i)*3*time.Millisecond%(10*time.Millisecond), late())
				time.Sleep(3 * time.Millisecond)
			}
			time.Sleep(time.Minute)
			require.Zero(t, l.Stats().Buckets)
		}
	})
}

// A denial is decided by the exact clock: a retry at ExpiresAt is admitted by every strategy,
// though the coarse clock has not come there.
func TestCoarseDenialsAreNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := MustNew(t, Config{Resolution: time.Hour, SweepEvery: 24 * time.Hour})
		tiers := MustTiers(t, l, Tier{1, time.Second})
		check := func(name string, decide func() (Result, error)) {
			res, err := decide()
			require.NoError(t, err)
			require.True(t, res.Allowed(), name)
			denied, err := decide()
			require.NoError(t, err)
			require.False(t, denied.Allowed(), name)
			time.Sleep(time.Until(denied.ExpiresAt) - 1)
			again, err := decide()
			require.NoError(t, err)
			require.Equal(t, denied, again, "%s a nanosecond before", name)
			time.Sleep(1)
			again, err = decide()
			require.NoError(t, err)
			assert.True(t, again.Allowed(), "%s at the instant named", name)
		}
		check("CheckRate", func() (Result, error) { return l.CheckRate("id", 1000, 1) })
		for _, s := range []Strategy{
			l.SlidingWindow(), l.TokenBucket(0), l.Counter(), l.SlidingLog(), l.List(), tiers,
			l.LeakyBucket(0),
		} {
			r := &Request{Key: "id", Limit: 1, Duration: time.Second}
			check(fmt.Sprintf("%T", s), func() (Result, error) {
				res, err := s.Run(t.Context(), r)
				return *res, err
			})
			denied := MustRun(t, s, r)
			time.Sleep(time.Until(denied.ExpiresAt))
			peeked := MustPeek(t, s, r)
			assert.True(t, peeked.Allowed(), "%T, Peek", s)
		}
	})
}

// What is admitted may still count in a window up to Resolution after its end.
func TestCoarseWindowsEndLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(5 * time.Millisecond) // away from window edges
		l := MustNew(t, Config{Resolution: 10 * time.Millisecond})
		first := MustCheck(t, l, "id", 1000, 9)
		time.Sleep(time.Until(first.ExpiresAt))
		synctest.Wait()
		res := MustCheck(t, l, "id", 1000, 9)
		assert.Equal(t, Result{State: Allow, TotalRequests: 2, ExpiresAt: first.ExpiresAt}, res,
			"5 ms too early")
		time.Sleep(5 * time.Millisecond)
		synctest.Wait()
		res = MustCheck(t, l, "id", 1000, 9)
		assert.Equal(t, Result{State: Allow, TotalRequests: 1, ExpiresAt: first.ExpiresAt.Add(time.Second)},
			res)
	})
}

func TestResolutionIsIgnoredWithNow(t *testing.T) {
	l, c := newTestLimiter(t, Config{Resolution: time.Hour})
	for ms := range int64(5) {
		c.setMs(ms)
		res := MustCheck(t, l, "id", 1, 1)
		assert.True(t, res.Allowed())
	}
}

// A sweep of a large table takes longer than a tick, so it advances the clock itself.
func TestSweepAdvancesTheCoarseClock(t *testing.T) {
	for name, fill := range map[string]func(l *Limiter, id string) (Result, error){
		"slots": func(l *Limiter, id string) (Result, error) { return l.CheckRate(id, 1000, 1) },
		"logs": func(l *Limiter, id string) (Result, error) {
			out, err := l.SlidingLog().Limit(1, time.Second).Take(t.Context(), id, 1)
			return out.Result, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := MustNew(t, Config{Resolution: time.Hour, SweepEvery: time.Hour})
			for i := range 10 {
				_, err := fill(l, strconv.Itoa(i))
				require.NoError(t, err)
			}
			before := l.clock.Read()
			require.Equal(t, before, l.clock.Read(), "the coarse clock stands still")
			l.Sweep()
			assert.Greater(t, l.clock.Read(), before)
		})
	}
}

// rejected fails unless one of 20 tries detects a broken limiter.
func rejected(t *testing.T, found func() bool) {
	for range 20 {
		if found() {
			return
		}
	}
	t.Error("the control passed")
}

// overfull hits one ID concurrently in windows of a millisecond, with pauses in which the table
// empties. It returns the number of windows that admitted more than the limit.
func overfull(t *testing.T, cfg Config) (windows int) {
	const limit = 3
	cfg.MaxBuckets, cfg.Timeout, cfg.SweepEvery = 4, 1, 500*time.Microsecond
	l := MustNew(t, cfg)
	var mu sync.Mutex
	admitted := map[int64]int{}
	until := time.Now().Add(300 * time.Millisecond)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := 0; time.Now().Before(until); i++ {
				res, err := l.CheckRate("id", 1, limit)
				if err == nil && res.Allowed() {
					mu.Lock()
					admitted[res.ExpiresAt.UnixNano()]++
					mu.Unlock()
				}
				if i%200 == 0 {
					time.Sleep(3 * time.Millisecond) // the table empties
				}
			}
		})
	}
	wg.Wait()
	require.NotEmpty(t, admitted)
	for _, n := range admitted {
		if n > limit {
			windows++
		}
	}
	return windows
}

func TestCoarseWindowsNeverAdmitMoreThanTheLimit(t *testing.T) {
	for _, resolution := range []time.Duration{100 * time.Microsecond, time.Millisecond,
		3 * time.Millisecond} {
		assert.Zero(t, overfull(t, Config{Resolution: resolution}), "%v", resolution)
	}
}

// The control is a clock that steps back by up to 4 ms.
func TestCoarseWindowsControlIsRejected(t *testing.T) {
	back := func() time.Time {
		now := time.Now()
		if now.UnixMilli()/4%2 == 0 {
			return now
		}
		return now.Add(-4 * time.Millisecond)
	}
	rejected(t, func() bool { return overfull(t, Config{Now: back}) > 0 })
}
