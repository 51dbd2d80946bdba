package weir

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/algorithm"
)

// lockedStrategies returns the strategies with states of variable size. In each of them a hit
// counts for 10 ms.
func lockedStrategies(t testing.TB, l *Limiter) map[string]Strategy {
	tiers, err := l.Tiers(Tier{100, 5 * time.Millisecond}, Tier{1000, 10 * time.Millisecond})
	require.NoError(t, err)
	return map[string]Strategy{"SlidingLog": l.SlidingLog(), "LeakyBucket": l.LeakyBucket(0),
		"Tiers": tiers}
}

func hitOf(key string) *Request {
	return &Request{Key: key, Limit: 1, Duration: 10 * time.Millisecond}
}

func TestStatesAreSweptWhenTheTimeoutHasPassed(t *testing.T) {
	l, clock := newTestLimiter(t, Config{Timeout: 7 * time.Millisecond, SweepEvery: time.Hour})
	for name, s := range lockedStrategies(t, l) {
		t.Run(name, func(t *testing.T) {
			start := clock.ns.Load() / msec
			_, err := s.Run(t.Context(), hitOf("a"))
			require.NoError(t, err)
			clock.setMs(start + 2)
			_, err = s.Run(t.Context(), hitOf("a")) // a denial does not extend the state's life
			require.NoError(t, err)
			clock.setMs(start + 16)
			assert.Zero(t, l.Sweep(), "it is kept for 7 ms after it has expired")
			clock.setMs(start + 17)
			assert.Equal(t, 1, l.Sweep())
			assert.Zero(t, l.Stats().Buckets)
			assert.Zero(t, l.room.Bytes.Load())
			clock.setMs(start + 1000)
		})
	}
}

func TestSweepKeepsStatesThatAreUsedAgain(t *testing.T) {
	l, clock := newTestLimiter(t, Config{Timeout: 1, SweepEvery: time.Hour})
	for name, s := range lockedStrategies(t, l) {
		t.Run(name, func(t *testing.T) {
			for range 5 {
				_, err := s.Run(t.Context(), hitOf("early"))
				require.NoError(t, err)
				clock.ns.Add(5 * msec)
				_, err = s.Run(t.Context(), hitOf("late"))
				require.NoError(t, err)
				clock.ns.Add(6 * msec)
				assert.Equal(t, 1, l.Sweep(), "only the early one has expired")
				clock.ns.Add(4 * msec)
			}
			clock.ns.Add(5 * msec)
			assert.Equal(t, 1, l.Sweep())
			assert.Zero(t, l.Stats().Buckets)
		})
	}
}

func TestErrFullEnds(t *testing.T) {
	for name := range lockedStrategies(t, newLimiter(t)) {
		t.Run(name, func(t *testing.T) {
			l, clock := newTestLimiter(t, Config{MaxBuckets: 2, SweepEvery: time.Hour})
			s := lockedStrategies(t, l)[name]
			for round := range 3 {
				run := func(key string) error {
					_, err := s.Run(t.Context(), hitOf(fmt.Sprint(round, key)))
					return err
				}
				require.NoError(t, run("a"))
				require.NoError(t, run("b"))
				require.ErrorIs(t, run("c"), ErrFull)
				require.NoError(t, run("a"), "a known caller is decided")
				clock.ns.Add(10*msec - 1)
				require.ErrorIs(t, run("c"), ErrFull)
				clock.ns.Add(1)
				require.NoError(t, run("c"), "the first bucket has expired")
				clock.ns.Add(20 * msec)
			}
		})
	}
}

func newLimiter(t testing.TB) *Limiter {
	l, _ := newTestLimiter(t, Config{SweepEvery: time.Hour})
	return l
}

// A caller that finds an entry that is removed before it is locked searches again.
func TestRemovedEntryIsNotUsed(t *testing.T) {
	l := newLimiter(t)
	s := l.SlidingLog()
	r := &Request{Key: "id", Limit: 2, Duration: time.Second}
	_, err := s.Run(t.Context(), r)
	require.NoError(t, err)
	sh := l.logs().shard(stateKey{id: "id", scale: 1000})
	old := sh.find(stateKey{id: "id", scale: 1000})
	require.NotNil(t, old)
	old.mu.Lock()
	got := make(chan *Result)
	go func() {
		res, _ := s.Run(context.Background(), r)
		got <- res
	}()
	for !blockedIn("lock") { // it has found the entry
		runtime.Gosched()
	}
	l.logs().mark(old)
	old.mu.Unlock()
	assert.EqualValues(t, 1, (<-got).TotalRequests)
	assert.NotSame(t, old, sh.find(stateKey{id: "id", scale: 1000}))
	assert.Equal(t, 1, l.Stats().Buckets)
	require.NoError(t, s.Reset(t.Context(), r))
	assert.Zero(t, l.Stats().Buckets)
	assert.Zero(t, l.room.Bytes.Load())
}

// blockedIn reports whether a goroutine waits for a mutex in the given method of states.
func blockedIn(method string) bool {
	buf := make([]byte, 1<<20)
	for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		if strings.Contains(g, "[sync.Mutex.Lock") && strings.Contains(g, "weir.(*states)."+method) {
			return true
		}
	}
	return false
}

// A state emptied by a refund is also kept for Timeout, so that its time does not go back.
func TestEmptiedStatesAreKept(t *testing.T) {
	l, clock := newTestLimiter(t, Config{Timeout: 7 * time.Millisecond, SweepEvery: time.Hour})
	strategies := lockedStrategies(t, l)
	strategies["TokenBucket"] = l.TokenBucket(0)
	for name, s := range strategies {
		clock.setMs(1000)
		r := hitOf(name)
		res, err := s.Run(t.Context(), r)
		require.NoError(t, err)
		require.NoError(t, s.(Refunder).Refund(t.Context(), r, res))
		l.Sweep()
		require.Equal(t, 1, l.Stats().Buckets, name)
		clock.setMs(1006)
		l.Sweep()
		require.Equal(t, 1, l.Stats().Buckets, name)
		clock.setMs(1020)
		l.Sweep()
		require.Zero(t, l.Stats().Buckets, name)
	}
}

func TestEveryRemovalMarksTheEntry(t *testing.T) {
	key := stateKey{id: "id", scale: 10}
	for name, remove := range map[string]func(*Limiter, *SlidingLog){
		"Reset":   func(_ *Limiter, s *SlidingLog) { _ = s.Reset(t.Context(), hitOf("id")) },
		"Sweep":   func(l *Limiter, _ *SlidingLog) { l.Sweep() },
		"reclaim": func(l *Limiter, _ *SlidingLog) { l.janitor.reclaimBytes(l.clock.Read()) },
	} {
		t.Run(name, func(t *testing.T) {
			l, clock := newTestLimiter(t, Config{Timeout: 1, SweepEvery: time.Hour})
			s := l.SlidingLog()
			_, err := s.Run(t.Context(), hitOf("id"))
			require.NoError(t, err)
			e := l.logs().shard(key).find(key)
			clock.setMs(11)
			remove(l, s)
			assert.True(t, e.removed)
			assert.Nil(t, l.logs().shard(key).find(key))
			assert.Zero(t, l.Stats().Buckets)
		})
	}
}

// Entries copy the strings of requests: six bytes of a header must not keep the whole header in
// memory.
func TestStatesCopyTheirStrings(t *testing.T) {
	l := newLimiter(t)
	header := strings.Repeat("x", 8<<10)
	for name, s := range lockedStrategies(t, l) {
		for _, n := range []int{1, 32, 33, 500} {
			_, err := s.Run(t.Context(), &Request{Key: header[:n], Limit: 1, Duration: time.Second})
			require.NoError(t, err, "%s, %d bytes", name, n)
		}
	}
	keys := append(append(keysOf(l.logs()), keysOf(l.queues())...), keysOf(l.slices())...)
	require.Equal(t, 24, len(keys), "in the map and in the entry")
	for _, k := range keys {
		assert.NotSame(t, unsafe.StringData(header), unsafe.StringData(k.id), "%d bytes", len(k.id))
	}
	_, err := l.SlidingLog().Run(t.Context(), &Request{Key: "m", Limit: 1, Duration: time.Second,
		Meta: header[:6]})
	require.NoError(t, err)
	key := stateKey{id: "m", scale: 1000}
	_, meta := l.logs().shard(key).find(key).state.(*algorithm.Log).Hit(0)
	assert.Equal(t, "xxxxxx", meta)
	assert.NotSame(t, unsafe.StringData(header), unsafe.StringData(meta))
}

func keysOf(t *states) (keys []stateKey) {
	for i := range t.shards {
		if m := t.shards[i].entries.Load(); m != nil {
			m.Range(func(k stateKey, e *entry) bool {
				keys = append(keys, k, e.key)
				return true
			})
		}
	}
	return keys
}

// bytes follows the memory of the states and never exceeds its bound.
func TestBytesOfStatesAreBounded(t *testing.T) {
	l, clock := newTestLimiter(t, Config{MaxBuckets: 1, SweepEvery: time.Hour})
	require.EqualValues(t, 1<<20+256, l.room.MaxBytes)
	s := l.SlidingLog()
	r := &Request{Key: "id", Limit: math.MaxInt64, Duration: time.Second,
		Meta: strings.Repeat("m", 1<<10)}
	held := func() (n int64) {
		key := stateKey{id: "id", scale: 1000}
		if e := l.logs().shard(key).find(key); e != nil {
			n = e.state.Bytes()
		}
		return n
	}
	admitted := 0
	for err := error(nil); err == nil; admitted++ {
		_, err = s.Run(t.Context(), r)
		require.Equal(t, held(), l.room.Bytes.Load())
		require.LessOrEqual(t, held(), l.room.MaxBytes)
		if err != nil {
			require.ErrorIs(t, err, ErrFull)
		}
	}
	admitted--
	assert.Greater(t, admitted, 900)
	assert.LessOrEqual(t, int64(admitted)<<10, l.room.MaxBytes)
	assert.EqualValues(t, admitted, l.Stats().Allowed)
	assert.EqualValues(t, 1, l.Stats().Full)
	require.ErrorIs(t, s.Charge(t.Context(), r), ErrFull)

	clock.setMs(1000)
	res, err := s.Run(t.Context(), r)
	require.NoError(t, err, "all hits have expired")
	assert.EqualValues(t, 1, res.TotalRequests)
	assert.Equal(t, held(), l.room.Bytes.Load())
	require.NoError(t, s.Refund(t.Context(), r, res))
	assert.Equal(t, held(), l.room.Bytes.Load())
	clock.setMs(100_000)
	l.Sweep()
	assert.Zero(t, l.room.Bytes.Load())
}

// lowerBound is implemented by expiry and by variants whose stores are in the wrong order.
type lowerBound interface {
	begin()
	note(end int64)
	finish(earliest int64)
	bound() int64
}

type rightOrder struct{ expiry }

func (e *rightOrder) bound() int64 { return e.earliest.Load() }

type noteWrong struct{ rightOrder }

func (e *noteWrong) note(end int64) {
	storeMin(&e.earliest, end)
	runtime.Gosched()
	storeMin(&e.noted, end)
}

type finishWrong struct{ rightOrder }

func (e *finishWrong) finish(earliest int64) {
	noted := e.noted.Load()
	runtime.Gosched()
	e.earliest.Store(min(earliest, noted))
}

// missed runs a sweep and a use of a state concurrently many times. It returns how often the bound
// was above the noted end.
func missed(e lowerBound, rounds int) (n int) {
	var turn, done atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 1; i <= rounds; i++ {
			for turn.Load() < int64(i) {
				runtime.Gosched()
			}
			e.note(5)
			done.Store(int64(i))
		}
	})
	for i := 1; i <= rounds; i++ {
		e.begin()
		turn.Store(int64(i))
		for range i % 8 {
			turn.Load()
		}
		if i%3 == 0 {
			runtime.Gosched()
		}
		e.finish(maxInstant)
		for done.Load() < int64(i) {
			runtime.Gosched()
		}
		if e.bound() > 5 {
			n++
		}
	}
	wg.Wait()
	return n
}

func TestExpirySeesUsesDuringASweep(t *testing.T) {
	const rounds = 30_000
	assert.Zero(t, missed(new(rightOrder), rounds))
	rejected := func(make func() lowerBound) bool { // a busy machine may not interleave them at once
		for range 50 {
			if missed(make(), rounds) > 0 {
				return true
			}
		}
		return false
	}
	assert.True(t, rejected(func() lowerBound {
		return new(noteWrong)
	}), "control: earliest before noted")
	assert.True(t, rejected(func() lowerBound {
		return new(finishWrong)
	}), "control: noted before earliest")
}

// Seeding a state with its own count neither extends its life nor lets it grow.
func TestSeedOfAnEqualCountExtendsNothing(t *testing.T) {
	l, clock := newTestLimiter(t, Config{Timeout: 1, SweepEvery: time.Hour})
	for name, s := range lockedStrategies(t, l) {
		t.Run(name, func(t *testing.T) {
			res, err := s.Run(t.Context(), hitOf("id"))
			require.NoError(t, err)
			bytes := l.room.Bytes.Load()
			if name != "LeakyBucket" { // there the seed is more than what remains later
				clock.ns.Add(5 * msec)
			}
			seed := &Result{State: Allow, TotalRequests: res.TotalRequests,
				ExpiresAt: res.ExpiresAt.Add(time.Second)}
			require.NoError(t, s.(Seeder).Seed(t.Context(), hitOf("id"), seed))
			assert.Equal(t, bytes, l.room.Bytes.Load())
			clock.ns.Store(res.ExpiresAt.UnixNano() + 5*msec + 1)
			if name != "Tiers" { // its Result may describe the shorter tier
				clock.ns.Store(res.ExpiresAt.UnixNano() + 1)
			}
			assert.Equal(t, 1, l.Sweep())
		})
		clock.ns.Add(1000*msec - clock.ns.Load()%msec)
	}
}
