package weir

import (
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/testkit/slow"
)

// janitors returns the number of janitor goroutines.
func janitors() int {
	buf := make([]byte, 1<<20)
	return strings.Count(string(buf[:runtime.Stack(buf, true)]),
		"created by github.com/weirgo/weir.(*janitor).start")
}

// noJanitors waits until there are none: a goroutine that has ended is listed a moment longer.
func noJanitors(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return janitors() == 0 }, time.Minute, time.Millisecond)
}

func TestJanitorLivesFromTheFirstBucketToTheLast(t *testing.T) {
	noJanitors(t)
	synctest.Test(t, func(t *testing.T) {
		l := MustNew(t, Config{SweepEvery: time.Second, Timeout: time.Second})
		running := func() bool {
			synctest.Wait()
			return janitors() > 0
		}
		require.False(t, running(), "New does not start it")
		MustCheck(t, l, "id", 100, 0)
		_, err := l.CheckRate("", 100, 1)
		require.Error(t, err)
		MustInspect(t, l, "id", 100)
		require.False(t, running(), "calls that create no bucket do not start it")
		for range 3 {
			MustCheck(t, l, "id", 100, 1)
			require.True(t, running(), "the first bucket starts it")
			require.Equal(t, 1, l.Stats().Buckets)
			time.Sleep(time.Minute)
			require.Zero(t, l.Stats().Buckets, "it has swept the bucket")
			require.False(t, running(), "it ends with the last bucket")
		}
	})
}

func TestConcurrentStartsRunOneJanitor(t *testing.T) {
	noJanitors(t)
	l, _ := newTestLimiter(t, Config{SweepEvery: time.Hour})
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() { l.CheckRate(strconv.Itoa(i), 1000, 1) })
	}
	wg.Wait()
	assert.Equal(t, 1, janitors())
	l.Close()
	noJanitors(t)
}

// The janitor ends when no bucket is left, and a bucket may arrive at that moment: it must keep
// running or be started again.
func TestJanitorNeverEndsWhileThereIsABucket(t *testing.T) {
	l := MustNew(t, Config{SweepEvery: time.Nanosecond, Timeout: time.Nanosecond})
	for i := range 3000 {
		MustCheck(t, l, strconv.Itoa(i), 1, 1)
		if i%10 == 0 {
			for l.Stats().Buckets > 0 { // would never end without a janitor
				runtime.Gosched()
			}
		}
	}
}

// The same with both goroutines held at that moment: a bucket arrives after the janitor has seen
// none.
func TestJanitorContinuesForANewBucket(t *testing.T) {
	l, _ := newTestLimiter(t, Config{})
	j := &l.janitor
	j.running.Store(true) // as if it were running
	j.mu.Lock()
	ended := make(chan bool)
	go func() { ended <- j.idle() }()
	require.Eventually(t, func() bool {
		buf := make([]byte, 1<<20)
		return strings.Contains(string(buf[:runtime.Stack(buf, true)]), "(*janitor).idle")
	}, time.Minute, time.Millisecond)
	// most likely it waits for the lock by then; otherwise the test proves less
	time.Sleep(time.Millisecond)
	require.True(t, l.room.Take()) // finds it running
	j.mu.Unlock()
	assert.False(t, <-ended, "the janitor ended although there is a bucket")
	assert.True(t, j.running.Load())
	l.room.Give()
}

func TestJanitorKeepsTimeoutAndSweepEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(Config{}) // a Timeout of a minute and a SweepEvery of 10 s
		require.NoError(t, err)
		defer l.Close()
		MustCheck(t, l, "id", 1000, 1)
		time.Sleep(59 * time.Second)
		synctest.Wait()
		require.Equal(t, 1, l.Stats().Buckets, "within the Timeout")
		require.EqualValues(t, 5, l.Stats().Sweeps)
		time.Sleep(time.Hour)
		synctest.Wait()
		s := l.Stats()
		require.Zero(t, s.Buckets, "a minute past the end of its window")
		require.EqualValues(t, 1, s.Swept)
		require.EqualValues(t, 7, s.Sweeps, "then the janitor ended")
	})
}

// After the machine was suspended there is one sweep, not one for each missed tick, and decisions
// are in the new window.
func TestForwardJumpSweepsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ahead atomic.Int64
		l := MustNew(t, Config{Now: func() time.Time {
			return time.Now().Add(time.Duration(ahead.Load()))
		}})
		first := MustCheck(t, l, "id", 60_000, 1)
		ahead.Store(int64(8 * time.Hour))
		second := MustCheck(t, l, "id", 60_000, 1)
		assert.True(t, second.Allowed())
		assert.Equal(t, first.ExpiresAt.Add(8*time.Hour), second.ExpiresAt)
		require.Zero(t, l.Stats().Sweeps)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.EqualValues(t, 1, l.Stats().Sweeps)
		assert.Equal(t, 1, l.Stats().Buckets, "the bucket of the new window")
	})
}

func TestCloseEndsASleepingJanitor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		l, err := New(Config{SweepEvery: time.Hour})
		require.NoError(t, err)
		MustCheck(t, l, "id", 1000, 1)
		synctest.Wait()
		require.NoError(t, l.Close())
		require.Zero(t, time.Since(start), "Close waited for a tick")
	}) // the bubble fails if a goroutine remains
}

// sweeps is a table that calls a function when it is swept.
type sweeps struct {
	sweeper
	call func()
}

func (f sweeps) Sweep(_, _ int64) int { f.call(); return 0 }

func TestCloseWaitsForSweep(t *testing.T) {
	l, early := closeInMidSweep(t, (*Limiter).Close, 10*time.Millisecond)
	require.Zero(t, early, "Close returned in mid-sweep")
	require.NoError(t, l.Close(), "Close again")
}

func TestCloseControlReturnsDuringSweep(t *testing.T) {
	_, early := closeInMidSweep(t, func(l *Limiter) error {
		l.closed.Store(true)
		return nil
	}, time.Minute)
	require.NotZero(t, early)
}

// closeInMidSweep calls end during a sweep, and ends the sweep when all calls have returned or
// after wait. It returns the limiter and the number of calls that returned during the sweep.
func closeInMidSweep(t *testing.T, end func(*Limiter) error, wait time.Duration) (*Limiter, int64) {
	sweeping, swept := make(chan struct{}), make(chan struct{})
	var ended atomic.Bool
	var once sync.Once
	l, _ := newTestLimiter(t, Config{SweepEvery: time.Millisecond})
	endSweep := sync.OnceFunc(func() { close(swept) })
	t.Cleanup(endSweep) // runs before l is closed, which waits for the sweep
	l.janitor.tables = append(l.janitor.tables, sweeps{l.stores.Lists.Table, func() {
		once.Do(func() { sweeping <- struct{}{} })
		<-swept
	}})
	MustCheck(t, l, "id", 1000, 1)
	<-sweeping
	var early atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := end(l); err != nil {
				t.Error(err)
			}
			if !ended.Load() {
				early.Add(1)
			}
		})
	}
	returned := make(chan struct{})
	go func() { wg.Wait(); close(returned) }()
	require.Eventually(t, l.closed.Load, time.Minute, time.Millisecond)
	_, err := l.CheckRate("id", 1000, 1)
	require.ErrorIs(t, err, ErrClosed, "while Close waits")
	select {
	case <-returned:
	case <-time.After(wait):
	}
	ended.Store(true)
	endSweep()
	<-returned
	l.Close()
	return l, early.Load()
}

func TestCloseDuringConcurrentCalls(t *testing.T) {
	for range slow.N(5, 15, 500) {
		l, err := New(Config{SweepEvery: time.Microsecond, Timeout: 1})
		require.NoError(t, err)
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				for j := range 20 {
					_, err := l.CheckRate(strconv.Itoa(i*j), 1, 1)
					if err != nil && err != ErrClosed {
						t.Error(err)
					}
					l.Sweep()
					l.Stats()
				}
			})
			wg.Go(func() {
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		_, err = l.CheckRate("id", 1000, 1)
		require.ErrorIs(t, err, ErrClosed)
	}
	noJanitors(t)
}

func TestReclaimedCapacityServesAllWaiters(t *testing.T) {
	const n = 64
	for range slow.N(50, 200, 5000) {
		l, clock := newTestLimiter(t, Config{})
		l.room.Max = n // after New, so that there are as many shards as in a large table
		for i := range n {
			MustCheck(t, l, strconv.Itoa(i), 10, 1)
		}
		clock.setMs(10)
		var wg sync.WaitGroup
		var failed atomic.Int64
		for i := range n {
			wg.Go(func() {
				if _, err := l.CheckRate(strconv.Itoa(i), 10, 1); err != nil {
					failed.Add(1)
				}
			})
		}
		wg.Wait()
		l.Close()
		require.Zero(t, failed.Load(), "ErrFull although every bucket had expired")
	}
}

// Now may call Close, even if the janitor calls it.
func TestCloseFromNow(t *testing.T) {
	noJanitors(t)
	var l *Limiter
	var sweeping atomic.Bool
	closed := make(chan struct{})
	now := func() time.Time {
		if sweeping.Load() {
			l.Close()
			select {
			case <-closed:
			default:
				close(closed)
			}
		}
		return time.Unix(0, 0)
	}
	l, err := New(Config{Now: now, SweepEvery: time.Millisecond})
	require.NoError(t, err)
	MustCheck(t, l, "id", 1000, 1)
	sweeping.Store(true)
	select {
	case <-closed:
	case <-time.After(time.Minute):
		t.Fatal("deadlock: Close waits for the janitor, which waits for Now")
	}
	noJanitors(t)
}
