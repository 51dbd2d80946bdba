package weir

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weirgo/weir/internal/core/calendar"
	"github.com/weirgo/weir/internal/core/engine"
	"github.com/weirgo/weir/internal/core/ids"
	"github.com/weirgo/weir/internal/core/slots"
	"github.com/weirgo/weir/internal/core/windows"
)

// checkTable checks the invariants of a table that is not in use, and returns the number of its
// buckets.
func checkTable(t *testing.T, tab *slots.Table) (live int) {
	t.Helper()
	for i := range tab.Shards() {
		n, err := tab.Shards()[i].Check()
		require.NoError(t, err)
		live += n
	}
	return live
}

// Services decide on known IDs for each request. An allocation would cost more than the rest of the
// decision.
func TestKnownIDAllocatesNothing(t *testing.T) {
	l, _ := newTestLimiter(t, Config{})
	long := strings.Repeat("a long id ", 20)
	tokens := l.TokenBucket(0).Limit(1<<40, time.Second)
	month := l.Calendar(Month, nil).Limit(1 << 40)
	many := make([]*Limit, 200)
	for i := range many {
		many[i] = l.TokenBucket(0).Limit(1<<40+uint64(i), time.Second).Named("one")
	}
	for name, f := range map[string]func(){
		"admitted":       func() { l.CheckRate("id", 1000, math.MaxInt64) },
		"denied":         func() { l.CheckRate("full", 1000, 1) },
		"never to pass":  func() { l.CheckRate("id", 1000, 0) },
		"with a long ID": func() { l.CheckRate(long, 1000, math.MaxInt64) },
		"calendar":       func() { month.Allow("id") },
		"token bucket":   func() { tokens.Allow("id") },
		"with 200 scales": func() {
			for scale := range int64(200) {
				l.CheckRate("id", 1000+scale, math.MaxInt64)
			}
		},
		"with 200 limits": func() {
			for _, m := range many {
				m.Allow("id")
			}
		},
	} {
		for range 10 {
			f() // creates the buckets and the windows of many scales
		}
		assert.Zero(t, testing.AllocsPerRun(100, f), name)
	}
}

// A hit on a slot whose bucket was removed is not counted, neither as a hit nor as a denial of the
// slot's next bucket.
func TestStaleHitsFail(t *testing.T) {
	l, clock := newTestLimiter(t, Config{SweepEvery: time.Hour, Timeout: 1})
	MustCheck(t, l, "old", 10, 5)
	w := l.windows.Running(0, 10)
	s, state, _ := l.buckets.Find("old", &w.Fixed)
	require.NotNil(t, s)
	clock.ns.Store(10*msec + 1)
	require.Equal(t, 1, l.Sweep())
	for id := range 200 { // one of them reuses the slot of "old"
		MustCheck(t, l, strconv.Itoa(id), 10, 1)
	}
	before := *s
	assert.False(t, l.hit(s, state, 1, 5, 7, w, new(Result)))
	assert.False(t, l.hit(s, state, 1, 1, 7, w, new(Result)), "a denial")
	s.Touch(state, 7)
	assert.Equal(t, before, *s)
	assert.EqualValues(t, 201, l.Stats().Allowed)
	assert.Zero(t, l.Stats().Denied)
}

// Chunks without buckets are freed, and the index shrinks.
func TestMemoryIsFreed(t *testing.T) {
	l, clock := newTestLimiter(t, Config{SweepEvery: time.Hour, MaxBuckets: 1 << 20, Timeout: 1})
	before := LiveHeap()
	const n = 20_000
	for i := range n {
		MustCheck(t, l, fmt.Sprintf("a long id of client number %d", i), 10, 1)
	}
	full := LiveHeap() - before
	require.Greater(t, full, int64(n*128))
	clock.setMs(15)
	MustCheck(t, l, "another", 10, 1)
	require.Equal(t, n, l.Sweep())
	assert.Less(t, LiveHeap()-before, full/50, "of %d bytes", full)
	require.Equal(t, 1, checkTable(t, l.buckets))
	res := MustCheck(t, l, "another", 10, 1)
	assert.False(t, res.Allowed(), "a live bucket is kept")
}

// The slot numbers of a shard are limited. Beyond that, new buckets fail with ErrFull, and existing
// ones keep working.
func TestShardWithoutSlotNumbersIsFull(t *testing.T) {
	l, _ := newTestLimiter(t, Config{SweepEvery: time.Hour})
	MustCheck(t, l, "known", 1000, 1)
	for i := range l.buckets.Shards() {
		l.buckets.Shards()[i].MaxChunks = -1
	}
	_, err := l.CheckRate("new", 1000, 1)
	require.ErrorIs(t, err, ErrFull)
	require.EqualValues(t, 1, l.room.Used())
	res := MustCheck(t, l, "known", 1000, 2)
	require.True(t, res.Allowed())
}

func TestSweepRemovesExpiredBucketsOnly(t *testing.T) {
	l, clock := newTestLimiter(t, Config{Timeout: 1})
	MustCheck(t, l, "short", 10, 1)
	MustCheck(t, l, "long", 1000, 1)
	MustRun(t, l.TokenBucket(0), &Request{Key: "token", Limit: 10, Duration: time.Second})
	MustRun(t, l.SlidingWindow(), &Request{Key: "sliding", Limit: 10, Duration: time.Second})
	for _, c := range []struct {
		name string
		ns   int64
		left int
	}{
		{"nothing has expired", 10*msec - 1, 4},
		{"a window has ended, within the Timeout", 10 * msec, 4},
		{"a window has ended", 10*msec + 1, 3},
		{"a token was refilled, within the Timeout", 100 * msec, 3},
		{"a token was refilled", 100*msec + 1, 2},
		{"another window has ended", 1000*msec + 1, 1},
		{"the next window still weighs the sliding one", 2000 * msec, 1},
		{"the next window has ended too", 2000*msec + 1, 0},
	} {
		clock.ns.Store(c.ns)
		l.Sweep()
		require.Equal(t, c.left, l.Stats().Buckets, c.name)
	}
}

// earliest avoids scanning a full table, so no bucket may expire before it.
func TestEarliestIsALowerBound(t *testing.T) {
	l, clock := newTestLimiter(t, Config{SweepEvery: time.Hour, Timeout: 1, MaxBuckets: 500})
	random := rand.New(rand.NewPCG(3, 4))
	tokens := l.TokenBucket(0)
	for range 3000 {
		clock.ns.Add(random.Int64N(3 * msec))
		id := strconv.Itoa(random.IntN(800))
		r := &Request{Key: id, Limit: 5, Duration: 20 * time.Millisecond}
		switch random.IntN(6) {
		case 0:
			l.CheckRate(id, 1+random.Int64N(20), 1)
		case 1:
			if res, err := tokens.Run(t.Context(), r); err == nil {
				ops.Refund(t.Context(), tokens, r, res)
			}
		case 2:
			ops.Charge(t.Context(), tokens, r)
		case 3:
			ops.Reset(t.Context(), tokens, r)
		case 4:
			l.Sweep()
		default:
			tokens.Run(t.Context(), r)
		}
		checkTable(t, l.buckets)
		checkTable(t, l.callers)
	}
}

// The invariants hold after each step of a random history of keys of all lengths in few shards.
func TestTableKeepsItsInvariants(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	l, clock := newTestLimiter(t, Config{SweepEvery: time.Hour, Timeout: 1, MaxBuckets: 1500})
	tokens := l.TokenBucket(0)
	var keys []string
	for i := range 600 {
		n := []int{1, 8, 16, 22, 23, 56, 57, 96, 97, 400, 1024}[i%11]
		keys = append(keys, strings.Repeat(string(rune('a'+i%26)), n-1)+string(rune('0'+i/26)))
	}
	for step := range 2500 {
		key := keys[rnd.IntN(len(keys))]
		switch rnd.IntN(40) {
		case 0:
			clock.ns.Add(rnd.Int64N(30 * msec))
		case 1:
			l.Sweep()
		case 2, 3, 4, 5, 6, 7, 8:
			require.NoError(t, l.Reset(key, 100))
		case 9, 10:
			_, err := tokens.Run(t.Context(), &Request{Key: key, Limit: 5, Duration: 20 * time.Millisecond})
			require.True(t, err == nil || err == ErrFull, err)
		default:
			_, err := l.CheckRate(key, 100, 3)
			require.True(t, err == nil || err == ErrFull, err)
		}
		if step%20 == 0 {
			require.EqualValues(t, l.room.Used(), checkTable(t, l.buckets)+checkTable(t, l.callers))
		}
	}
	clock.ns.Add(int64(time.Hour))
	l.Sweep()
	require.Zero(t, checkTable(t, l.buckets)+checkTable(t, l.callers))
}

// Hits are counted exactly while the index of their shard is rebuilt and chunks are added and
// freed.
func TestHitsDuringGrowth(t *testing.T) {
	l, clock := newTestLimiter(t, Config{MaxBuckets: 20_000, Timeout: 1})
	require.Len(t, l.buckets.Shards(), 1)
	const callers, known, limit = 4, 50, 300
	for round := range int64(2) {
		clock.setMs(round * 1000)
		var admitted [known]atomic.Int64
		var callersDone errgroup.Group
		for c := range callers {
			callersDone.Go(func() error {
				for i := range known * limit / 2 {
					id := (i*7 + c) % known
					res, err := l.CheckRate("known"+strconv.Itoa(id), 1000, limit)
					if err != nil {
						return err
					}
					if res.Allowed() {
						admitted[id].Add(1)
					}
					if i%8 == 0 {
						if _, err := l.CheckRate(fmt.Sprint("new", c, i), 1000, 1); err != nil && err != ErrFull {
							return err
						}
					}
					if i%1000 == 0 {
						l.Sweep()
					}
				}
				return nil
			})
		}
		require.NoError(t, callersDone.Wait())
		for id := range admitted {
			require.EqualValues(t, limit, admitted[id].Load(), "id %d in round %d", id, round)
		}
	}
}

var hashes = map[string]uint64{"all alike": 0, "16 values": 15, "one shard": 1<<32 - 1}

// breakHash keeps only the bits of each hash that are set in mask.
func breakHash(l *Limiter, mask uint64) {
	l.buckets.Mask = mask
	l.callers.Mask = mask
	l.stores.Places.Table.Mask = mask
	l.stores.Logs.Table.Mask = mask
	l.stores.Queues.Table.Mask = mask
	l.stores.Tiers.Table.Mask = mask
	l.stores.Places.Flights.Table.Mask = mask
}

// A hash only selects where to search, and keys are compared in full: equal hashes cost time but
// cause no errors.
func TestCorrectWithBrokenHash(t *testing.T) {
	for name, mask := range hashes {
		t.Run(name, func(t *testing.T) {
			t.Run("IDs and scales are counted separately", func(t *testing.T) {
				l, clock := newTestLimiter(t, Config{Timeout: 1})
				breakHash(l, mask)
				for window := range int64(3) {
					for i := range 40 {
						for _, scale := range []int64{10, 11} {
							clock.setMs(window * 110)
							for n := range 4 {
								res := MustCheck(t, l, fmt.Sprint("id", i), scale, 3)
								require.Equal(t, n < 3, res.Allowed())
								require.EqualValues(t, min(n+1, 3), res.TotalRequests)
							}
						}
					}
					require.Equal(t, 80, l.Stats().Buckets)
					require.NoError(t, l.Reset("id7", 10))
					b := MustInspect(t, l, "id7", 10)
					require.Zero(t, b.Count)
					b = MustInspect(t, l, "id7", 11)
					require.EqualValues(t, 3, b.Count)
					clock.ns.Store((window*110+109)*msec + 1)
					require.Equal(t, 79, l.Sweep())
				}
			})
			t.Run("exact with concurrent sweeps", func(t *testing.T) { exactWith(t, mask) })
			t.Run("every strategy keeps its limit", func(t *testing.T) {
				l, _ := newTestLimiter(t, Config{})
				breakHash(l, mask)
				tiers := MustTiers(t, l, Tier{3, time.Second}, Tier{4, 2 * time.Second})
				for _, s := range []Strategy{
					l.FixedWindow(), l.SlidingWindow(), l.SlidingLog(), l.TokenBucket(0), tiers,
				} {
					for i := range 40 {
						for n := range 4 {
							res := MustRun(t, s, &Request{Key: fmt.Sprint(i), Limit: 3, Duration: time.Second})
							require.Equal(t, n < 3, res.Allowed(), "%T", s)
						}
					}
				}
			})
		})
	}
}

func exactWith(t *testing.T, mask uint64) {
	const callers, each, ids, limit, windows = 16, 500, 4, 100, 5
	l, clock := newTestLimiter(t, Config{Timeout: 1, SweepEvery: 100 * time.Microsecond})
	breakHash(l, mask)
	for window := range int64(windows) {
		clock.setMs(window)
		var admitted [ids]atomic.Int64
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				for i := range each {
					res, err := l.CheckRate(fmt.Sprint(i%ids), 1, limit)
					if err != nil {
						t.Error(err)
					}
					if res.Allowed() {
						admitted[i%ids].Add(1)
					}
				}
			})
		}
		wg.Wait()
		for i := range admitted {
			assert.EqualValues(t, limit, admitted[i].Load(), "id %d in window %d", i, window)
		}
	}
}

// A run goes on from what a look saw, and decides as if it had looked by itself, whatever came
// between.
func TestRunAfterALook(t *testing.T) {
	r := Request{Key: "id", Limit: 5, Duration: time.Hour}
	other := Request{Key: "other", Limit: 5, Duration: time.Hour}
	type looking = Counter
	hits := func(s looking, r Request, n int) {
		for range n {
			_, err := s.Run(t.Context(), &r)
			require.NoError(t, err)
		}
	}
	for name, make := range map[string]func(*Limiter) looking{
		"fixed window":   func(l *Limiter) looking { return l.FixedWindow() },
		"sliding window": func(l *Limiter) looking { return l.SlidingWindow() },
		"token bucket":   func(l *Limiter) looking { return l.TokenBucket(0) },
		"counter":        func(l *Limiter) looking { return l.Counter() },
		"calendar":       func(l *Limiter) looking { return l.Calendar(Hour, nil) },
	} {
		for between, c := range map[string]struct {
			change func(s looking)
			want   State
			total  uint64
			err    error
		}{
			"nothing":      {func(looking) {}, Allow, 3, nil},
			"one hit":      {func(s looking) { hits(s, r, 1) }, Allow, 4, nil},
			"the last hit": {func(s looking) { hits(s, r, 3) }, Deny, 5, nil},
			"a reset": {func(s looking) {
				require.NoError(t, ops.Reset(t.Context(), s, &r))
			}, Allow, 1, nil},
			"another caller": {func(s looking) {
				require.NoError(t, ops.Reset(t.Context(), s, &r))
				hits(s, other, 2)
			}, 0, 0, ErrFull},
		} {
			t.Run(name+"/"+between, func(t *testing.T) {
				l, _ := newTestLimiter(t, Config{SweepEvery: time.Hour, MaxBuckets: 1}) // one slot
				s := make(l)
				hits(s, r, 2)
				op := &Op{Verb: OpPeek, Request: r, Deciding: true}
				s.Do(t.Context(), []*Op{op})
				require.NoError(t, op.Err)
				require.NotNil(t, op.call.Slot)
				c.change(s)
				op.Verb = OpTake
				s.Do(t.Context(), []*Op{op})
				res, err := op.Result, op.Err
				if c.err == nil {
					require.NoError(t, err)
					assert.Equal(t, Result{State: c.want, TotalRequests: c.total, ExpiresAt: res.ExpiresAt}, res)
					return
				}
				require.ErrorIs(t, err, c.err)
				seen, err := ops.Peek(t.Context(), s, &other)
				require.NoError(t, err)
				assert.EqualValues(t, 3, seen.TotalRequests, "two hits, and the one that the look would add")
			})
		}
	}
}

// A decision on a key that has a bucket takes no lock, whatever the length of its ID and however
// many scales are in use.
func TestKnownKeyTakesNoLock(t *testing.T) {
	l, _ := newTestLimiter(t, Config{SweepEvery: time.Hour})
	a, b := SharingScales(l)
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
	for i := range l.buckets.Shards() {
		l.buckets.Shards()[i].Lock()
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
	for i := range l.buckets.Shards() {
		l.buckets.Shards()[i].Unlock()
	}
	require.True(t, locked, "a new key took no lock")
	require.True(t, (<-fresh).Allowed())
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

func TestNeverExceedsCapacity(t *testing.T) {
	const capacity, callers = 100, 64
	l, _ := newTestLimiter(t, Config{MaxBuckets: capacity})
	var admitted, full atomic.Int64
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range 100 {
				switch _, err := l.CheckRate(strconv.Itoa(c*100+i), 1000, 1); err {
				case nil:
					admitted.Add(1)
				case ErrFull:
					full.Add(1)
				default:
					t.Error(err)
				}
				if n := l.room.Used(); n > capacity {
					t.Errorf("%d buckets, at most %d", n, capacity)
				}
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, capacity, admitted.Load())
	assert.EqualValues(t, callers*100-capacity, full.Load())
	assert.EqualValues(t, capacity, l.room.Used())
}

// Whatever a reclaim removes in however many shards, Stats counts.
func TestReclaimedBucketsAreSwept(t *testing.T) {
	const n = 64
	l, clock := newTestLimiter(t, Config{})
	require.Greater(t, len(l.buckets.Shards()), 1)
	l.room.Max = n // after New, so that there are as many shards as in a large table
	for i := range n {
		MustCheck(t, l, strconv.Itoa(i), 10, 1)
	}
	clock.setMs(10)
	for i := range n {
		MustCheck(t, l, strconv.Itoa(i), 10, 1)
		s := l.Stats()
		require.EqualValues(t, n+i+1, s.Swept+uint64(s.Buckets))
	}
}

// together returns ops of limits for a known caller, and their takings.
func together(t *testing.T, all ...*Limit) (ops []*Op, takings []taking) {
	t.Helper()
	for _, m := range all {
		require.True(t, m.Allow("k"))
		op := &Op{Counter: CounterOf(m), Verb: OpTakeAll, Request: Request{Key: "k"}}
		t1 := taking{}
		require.True(t, t1.find(op, op.Counter.(onSlots).onSlots()))
		ops, takings = append(ops, op), append(takings, t1)
	}
	return ops, takings
}

// If a limit fails after others were taken from, those get it back.
func TestTakeEachGivesBackIfOneFails(t *testing.T) {
	l, now := Manual(t)
	first, second := l.SlidingWindow().Limit(9, time.Hour), l.SlidingWindow().Limit(9, time.Minute)
	_, all := together(t, first, second)
	*now = now.Add(2 * time.Minute)
	require.True(t, second.Allow("k")) // in another period: the bucket is to be found again
	all[1].op.Key = ""
	_, ok := takeEach(all, l.clock.Read())
	assert.False(t, ok)
	out, err := first.Peek(t.Context(), "k")
	require.NoError(t, err)
	assert.EqualValues(t, 1, out.TotalRequests)
}

// Ops of two Limiters, more than a few, or of a caller who is not known, are to be taken apart, and
// none counts.
func TestTakenApart(t *testing.T) {
	l, _ := Manual(t)
	other, _ := Manual(t)
	m := l.SlidingWindow().Limit(9, time.Minute)
	for name, with := range map[string]*Op{
		"a limit of another Limiter": {Counter: CounterOf(other.SlidingWindow().Limit(9, time.Minute)),
			Request: Request{Key: "k"}},
		"a caller who is not known": {Counter: CounterOf(l.FixedWindow().Limit(9, time.Minute)),
			Request: Request{Key: "new"}},
		"no limit": {Counter: l.FixedWindow(), Request: Request{Key: "k", Limit: 9, Duration: time.Minute}},
	} {
		t.Run(name, func(t *testing.T) {
			if with.Key == "k" {
				require.NoError(t, Do(t.Context(), with.Counter, &Op{Request: with.Request}))
			}
			ops, _ := together(t, m)
			before := MustPeek(t, m, &Request{Key: "k"}).TotalRequests
			with.Verb = OpTakeAll
			ops = append(ops, with)
			ops[0].Counter.Do(t.Context(), ops)
			require.ErrorIs(t, ops[0].Err, errors.ErrUnsupported)
			assert.Equal(t, before, MustPeek(t, m, &Request{Key: "k"}).TotalRequests)
		})
	}
	ops, _ := together(t, m, l.FixedWindow().Limit(1, time.Hour), l.Counter().Limit(1, time.Hour),
		l.TokenBucket(0).Limit(1, time.Hour), l.FixedWindow().Limit(1, time.Minute))
	ops[0].Counter.Do(t.Context(), ops)
	require.ErrorIs(t, ops[0].Err, errors.ErrUnsupported)
}

// Expired logs of one strategy make room for those of another.
func TestBytesAreReclaimedFromOtherStrategies(t *testing.T) {
	for name, run := range map[string]func(*Limiter, *Request) error{
		"Tiers": func(l *Limiter, r *Request) error {
			_, err := l.Tiers(Tier{1, time.Second}).Run(t.Context(), r)
			return err
		},
		"LeakyBucket": func(l *Limiter, r *Request) error {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := l.LeakyBucket(2)
			if _, err := s.Run(ctx, r); err != nil {
				return err
			}
			if err := ops.Charge(ctx, s, &Request{Key: r.Key, Limit: 1, Duration: time.Second}); err != nil {
				return err
			}
			time.AfterFunc(10*time.Millisecond, cancel)
			if _, err := s.Run(ctx, r); err != context.Canceled { // waits
				return cmp.Or(err, errors.New("it did not wait"))
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, clock := newTestLimiter(t, Config{MaxBuckets: 100})
			s := l.SlidingLog()
			for err := error(nil); err == nil; {
				_, err = s.Run(t.Context(), &Request{Key: "a", Limit: 1 << 40, Duration: time.Second})
			}
			for err := error(nil); err == nil; {
				_, err = s.Run(t.Context(), &Request{Key: "b", Limit: 1 << 40, Duration: time.Second})
			}
			l.room.Bytes.Store(l.room.MaxBytes) // no byte is left for the ring to grow
			r := &Request{Key: "c", Limit: 1, Duration: time.Second}
			require.ErrorIs(t, run(l, r), ErrFull)
			clock.setMs(5000)
			require.NoError(t, run(l, r))
			require.Positive(t, l.Stats().Swept)
		})
	}
}

func TestWaitersAreBoundedInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := MustNew(t, Config{MaxBuckets: 1})
		l.room.MaxBytes = 5 * 256
		r := &Request{Key: "id", Limit: 1, Duration: time.Hour}
		ctx, cancel := context.WithCancel(t.Context())
		var waiting errgroup.Group
		_, err := l.LeakyBucket(100).Run(ctx, r)
		require.NoError(t, err)
		for range 5 {
			waiting.Go(func() error {
				_, err := l.LeakyBucket(100).Run(ctx, r)
				return err
			})
		}
		synctest.Wait()
		_, err = l.LeakyBucket(100).Run(ctx, r)
		require.ErrorIs(t, err, ErrFull)
		assert.EqualValues(t, 1, l.Stats().Allowed,
			"waiting requests are not counted yet, as counts never fall")
		cancel()
		require.ErrorIs(t, waiting.Wait(), context.Canceled)
		assert.Zero(t, BytesInUse(l))
		assert.EqualValues(t, 1, l.Stats().Allowed, "canceled requests are not counted")
	})
}

func TestParams(t *testing.T) {
	for _, c := range []struct {
		name string
		r    Request
		want params
	}{
		{"a cost of 0 is 1", Request{Key: "k", Limit: 9, Duration: time.Second},
			params{Scale: 1000, Limit: 9, Cost: 1}},
		{"a limit over int64 is the largest int64",
			Request{Key: "k", Limit: math.MaxUint64, Duration: time.Second},
			params{Scale: 1000, Limit: math.MaxInt64, Cost: 1}},
		{"so is a cost", Request{Key: "k", Cost: math.MaxUint64, Duration: time.Second},
			params{Scale: 1000, Cost: math.MaxInt64}},
		{"a millisecond is the least duration", Request{Key: "k", Duration: time.Millisecond, Meta: "m"},
			params{Scale: 1, Cost: 1}},
		{"a year is the largest", Request{Key: "k", Duration: maxScale * time.Millisecond},
			params{Scale: maxScale, Cost: 1}},
		{"a key of 1 KiB", Request{Key: strings.Repeat("k", 1024), Duration: time.Second},
			params{Scale: 1000, Cost: 1}},
	} {
		s := reader{l: Hourly(t), most: math.MaxInt64}
		got, err := s.parse(&c.r)
		require.NoError(t, err, c.name)
		assert.Equal(t, c.want, got, c.name)
	}
}

func TestLargeLimitsAndCostsCountAsTheMost(t *testing.T) {
	const most = maxCount
	l, _ := newTestLimiter(t, Config{})
	s := newSlotStrategy(l, engine.CounterKind)
	for _, c := range []struct {
		name                    string
		limit, cost             uint64
		wantedLimit, wantedCost int64
	}{
		{"small numbers stay", 5, 3, 5, 3},
		{"the most stays", most, most, most, most},
		{"a large limit becomes the most", most + 1, 3, most, 3},
		{"a large cost within a large limit becomes the most", most + 1, most + 1, most, most},
		{"a small cost over the limit stays over it", 3, 4, 3, 4},
		{"a large cost over a small limit stays over it", 3, most + 9, 3, most},
		{"a large cost over the most as limit stays over it", most, most + 1, most - 1, most},
		{"a large cost over a large limit stays over it", most + 1, most + 2, most - 1, most},
		{"the largest numbers", math.MaxUint64, math.MaxUint64, most, most},
		{"limit 0", 0, math.MaxUint64, 0, most},
	} {
		p, err := s.parse(&Request{Key: "k", Limit: c.limit, Cost: c.cost, Duration: time.Second})
		require.NoError(t, err, c.name)
		assert.Equal(t, params{Scale: 1000, Limit: c.wantedLimit, Cost: c.wantedCost}, p, c.name)
		assert.Equal(t, c.cost > c.limit, p.ExceedsLimit(), c.name)
	}
}

// A zone may get other rules while the process runs: the window that has begun keeps its end.
func TestCalendarTakesTheNewRulesOfAZone(t *testing.T) {
	of := func(zone *time.Location) *calendar.Calendar {
		c, err := calendar.New(calendar.Day, zone)
		require.NoError(t, err)
		return &c
	}
	now := time.Date(2026, 10, 17, 12, 0, 0, 0, time.UTC)
	l := CalendarAt(t, &now)
	ws, err := l.windows.Named(windows.SeriesName{Calendar: "day@Here"}, of(time.UTC))
	require.NoError(t, err)
	at := func() time.Time { return ws.Window(now.UnixNano()).Expires.UTC() }
	before := at()
	again, err := l.windows.Named(windows.SeriesName{Calendar: "day@Here"}, of(time.FixedZone("", 3600)))
	require.NoError(t, err)
	assert.Same(t, ws, again)
	assert.Equal(t, before, at())
	now = before
	assert.Equal(t, before.Add(23*time.Hour), at())

	day := func(l *Limiter) *Calendar { return (&Calendar{newWindowStrategy(l, ws)}).described() }
	require.True(t, MustRun(t, day(l), &Request{Key: "k", Limit: 9, Cost: 7}).Allowed())
	var saved bytes.Buffer
	require.NoError(t, l.Save(&saved))
	other := CalendarAt(t, &now)
	require.ErrorIs(t, other.Load(bytes.NewReader(saved.Bytes())), ErrSnapshot,
		"the zone is not known")
	ws, err = other.windows.Named(windows.SeriesName{Calendar: "day@Here"}, of(time.FixedZone("", 7200)))
	require.NoError(t, err)
	require.NoError(t, other.Load(bytes.NewReader(saved.Bytes())))
	now = now.Add(22 * time.Hour)
	assert.EqualValues(t, 7, Counted(t, day(other), &Request{Key: "k", Limit: 9}),
		"it counts in the window that holds the end of the one before")
}

// The rules of a zone that only the program knows hold for a limit of a snapshot.
func TestSnapshotOfALimitInAZoneOfTheProgram(t *testing.T) {
	zone, err := calendar.New(calendar.Day, time.FixedZone("", 7200))
	require.NoError(t, err)
	counted := func(l *Limiter) *Limit {
		in, err := l.windows.Named(windows.SeriesName{Calendar: "day@Here"}, &zone)
		require.NoError(t, err)
		return (&Calendar{newWindowStrategy(l, in)}).described().Limit(5)
	}
	l, _ := Manual(t)
	require.True(t, counted(l).Allow("k"))
	var saved bytes.Buffer
	require.NoError(t, l.Save(&saved))
	other, _ := Manual(t)
	m := counted(other)
	require.NoError(t, other.Load(&saved))
	out, err := m.Peek(t.Context(), "k")
	require.NoError(t, err)
	assert.EqualValues(t, 1, out.TotalRequests)
}
