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
	"github.com/weirgo/weir/internal/slow"
)

// janitors counts the goroutines of janitors.
func janitors() int {
	buf := make([]byte, 1<<20)
	return strings.Count(string(buf[:runtime.Stack(buf, true)]), "created by github.com/weirgo/weir.(*janitor).start")
}

// noJanitors waits until none is left: one that has ended is counted for a moment more.
func noJanitors(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return janitors() == 0 }, time.Minute, time.Millisecond)
}

func TestJanitorLivesFromTheFirstBucketToTheLast(t *testing.T) {
	noJanitors(t)
	synctest.Test(t, func(t *testing.T) {
		l, err := New(Config{SweepEvery: time.Second, Timeout: time.Second})
		require.NoError(t, err)
		defer l.Close()
		running := func() bool {
			synctest.Wait()
			return janitors() > 0
		}
		require.False(t, running(), "New starts nothing")
		_, err = l.CheckRate("id", 100, 0)
		require.NoError(t, err)
		_, err = l.CheckRate("", 100, 1)
		require.Error(t, err)
		_, err = l.Inspect("id", 100)
		require.NoError(t, err)
		require.False(t, running(), "what makes no bucket starts nothing")
		for range 3 {
			_, err = l.CheckRate("id", 100, 1)
			require.NoError(t, err)
			require.True(t, running(), "the first bucket starts it")
			require.Equal(t, 1, l.Stats().Buckets)
			time.Sleep(time.Minute)
			require.Zero(t, l.Stats().Buckets, "it has swept the bucket")
			require.False(t, running(), "with the last bucket it ends")
		}
	})
}

func TestOneJanitorHoweverManyBegin(t *testing.T) {
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

// The janitor gives up its goroutine at the moment at which a bucket may arrive: one of the two must see the other.
func TestJanitorNeverEndsBesideABucket(t *testing.T) {
	l, err := New(Config{SweepEvery: time.Nanosecond, Timeout: time.Nanosecond})
	require.NoError(t, err)
	defer l.Close()
	for i := range 3000 {
		_, err := l.CheckRate(strconv.Itoa(i), 1, 1)
		require.NoError(t, err)
		if i%10 == 0 {
			for l.Stats().Buckets > 0 { // without a janitor for ever
				runtime.Gosched()
			}
		}
	}
}

// The same, with the two held at that moment: the janitor has seen that no bucket is left, and then one arrives.
func TestJanitorGoesOnForABucketThatArrives(t *testing.T) {
	l, _ := newTestLimiter(t, Config{})
	j := &l.janitor
	j.running.Store(true) // as if it ran
	j.mu.Lock()
	ended := make(chan bool)
	go func() { ended <- j.idle() }()
	require.Eventually(t, func() bool {
		buf := make([]byte, 1<<20)
		return strings.Contains(string(buf[:runtime.Stack(buf, true)]), "(*janitor).idle")
	}, time.Minute, time.Millisecond)
	time.Sleep(time.Millisecond) // until it waits for the lock, most likely; if not, less is shown
	require.True(t, l.capacity.tryTake())
	j.start() // sees it running
	j.mu.Unlock()
	assert.False(t, <-ended, "a bucket is left without a janitor")
	assert.True(t, j.running.Load())
	l.capacity.give()
}

func TestJanitorKeepsTimeoutAndSweepEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(Config{}) // a minute, and 10 s
		require.NoError(t, err)
		defer l.Close()
		_, err = l.CheckRate("id", 1000, 1)
		require.NoError(t, err)
		time.Sleep(59 * time.Second)
		synctest.Wait()
		require.Equal(t, 1, l.Stats().Buckets, "within the Timeout")
		require.EqualValues(t, 5, l.Stats().Sweeps)
		time.Sleep(time.Hour)
		synctest.Wait()
		s := l.Stats()
		require.Zero(t, s.Buckets, "a minute past the end of its window")
		require.EqualValues(t, 1, s.Swept)
		require.EqualValues(t, 7, s.Sweeps, "and with it the janitor ended")
	})
}

// A machine that slept: one sweep, not one for each tick that was missed, and the decision is in the new window.
func TestForwardJumpSweepsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ahead atomic.Int64
		l, err := New(Config{Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }})
		require.NoError(t, err)
		defer l.Close()
		first, err := l.CheckRate("id", 60_000, 1)
		require.NoError(t, err)
		ahead.Store(int64(8 * time.Hour))
		second, err := l.CheckRate("id", 60_000, 1)
		require.NoError(t, err)
		assert.True(t, second.Allowed())
		assert.Equal(t, first.ExpiresAt.Add(8*time.Hour), second.ExpiresAt)
		require.Zero(t, l.Stats().Sweeps)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		assert.EqualValues(t, 1, l.Stats().Sweeps)
		assert.Equal(t, 1, l.Stats().Buckets, "that of the new window")
	})
}

func TestCloseEndsASleepingJanitor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		l, err := New(Config{SweepEvery: time.Hour})
		require.NoError(t, err)
		_, err = l.CheckRate("id", 1000, 1)
		require.NoError(t, err)
		synctest.Wait()
		require.NoError(t, l.Close())
		require.Zero(t, time.Since(start), "Close waited for a tick")
	}) // the bubble fails if a goroutine is left
}

// sweeps is a table that calls a function when it is swept.
type sweeps func()

func (f sweeps) sweep(_, _ int64) int            { f(); return 0 }
func (f sweeps) reclaimSome(int64, *int) int     { return 0 }
func (f sweeps) soonest() int64                  { return maxInstant }
func (f sweeps) save(*encoder, int64)            {}
func (f sweeps) stats() (allowed, denied uint64) { return 0, 0 }

func TestCloseWaitsForSweep(t *testing.T) {
	l, early := closeInMidSweep(t, (*Limiter).Close, 10*time.Millisecond)
	require.Zero(t, early, "Close returned in mid-sweep")
	require.NoError(t, l.Close(), "again")
}

func TestCloseControlReturnsDuringSweep(t *testing.T) {
	_, early := closeInMidSweep(t, func(l *Limiter) error {
		l.closed.Store(true)
		return nil
	}, time.Minute)
	require.NotZero(t, early)
}

// closeInMidSweep calls end while a sweep goes on, and ends the sweep when all calls have returned or after wait.
// It counts those that returned before.
func closeInMidSweep(t *testing.T, end func(*Limiter) error, wait time.Duration) (*Limiter, int64) {
	sweeping, swept := make(chan struct{}), make(chan struct{})
	var ended atomic.Bool
	var once sync.Once
	l, _ := newTestLimiter(t, Config{SweepEvery: time.Millisecond})
	endSweep := sync.OnceFunc(func() { close(swept) })
	t.Cleanup(endSweep) // before l is closed, which waits for it
	l.janitor.add(sweeps(func() {
		once.Do(func() { sweeping <- struct{}{} })
		<-swept
	}))
	_, err := l.CheckRate("id", 1000, 1)
	require.NoError(t, err)
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
	_, err = l.CheckRate("id", 1000, 1)
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
		l.capacity.max = n // after New, which makes as many shards as a large table has
		for i := range n {
			_, err := l.CheckRate(strconv.Itoa(i), 10, 1)
			require.NoError(t, err)
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
		require.Zero(t, failed.Load(), "ErrFull, though what filled the table was over")
	}
}

func TestReclaimWaitsForNoTimeout(t *testing.T) {
	l, clock := newTestLimiter(t, Config{MaxBuckets: 2, Timeout: time.Hour})
	for _, id := range []string{"a", "b"} {
		_, err := l.CheckRate(id, 10, 1)
		require.NoError(t, err)
	}
	_, err := l.CheckRate("c", 10, 1)
	require.ErrorIs(t, err, ErrFull, "both are live")
	clock.setMs(10)
	res, err := l.CheckRate("c", 10, 1)
	require.NoError(t, err, "both are over")
	assert.True(t, res.Allowed())
	assert.LessOrEqual(t, l.Stats().Buckets, 2)
	assert.EqualValues(t, 2, l.Stats().Swept)
	assert.EqualValues(t, 1, l.Stats().Full)
}

// Now may call Close, also where the janitor reads it.
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
	_, err = l.CheckRate("id", 1000, 1)
	require.NoError(t, err)
	sweeping.Store(true)
	select {
	case <-closed:
	case <-time.After(time.Minute):
		t.Fatal("Close waits for the janitor, and the janitor for Now")
	}
	noJanitors(t)
}
