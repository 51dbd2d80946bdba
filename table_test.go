package weir

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weirgo/weir/internal/core/room"
	"github.com/weirgo/weir/internal/core/slots"
)

// checkTable checks the invariants of a table that is not in use, and returns the number of its
// buckets.
func checkTable(t *testing.T, tab *table) (live int) {
	t.Helper()
	for i := range tab.shards {
		n, err := tab.shards[i].Check()
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

func TestShardsOfATable(t *testing.T) {
	for _, c := range []struct {
		max    int64
		shards int
	}{
		{1, 1}, {shardSlots, 1}, {shardSlots + 1, 2}, {1 << 20, 64}, {5_000_000, 256},
		{math.MaxInt64, maxShards},
	} {
		tab := newTable(&room.Room{Max: c.max}, nil, callerSlots{})
		require.Len(t, tab.shards, c.shards, "MaxBuckets %d", c.max)
		for _, hash := range []uint64{0, rand.Uint64(), math.MaxUint64} { // every hash has a shard
			require.Less(t, tab.shardNumber(hash), c.shards)
		}
		require.Equal(t, c.shards-1, tab.shardNumber(math.MaxUint64), "MaxBuckets %d", c.max)
		require.Zero(t, tab.shardNumber(math.MaxUint32), "the low half is for the index")
	}
}

func TestShardsFillEvenly(t *testing.T) {
	l, _ := newTestLimiter(t, Config{SweepEvery: time.Hour})
	const each = 100
	n := each * len(l.buckets.shards)
	for i := range n {
		MustCheck(t, l, strconv.Itoa(i), 1000, 1)
	}
	for i := range l.buckets.shards {
		n, err := l.buckets.shards[i].Check()
		require.NoError(t, err)
		assert.InDelta(t, each, n, 6*math.Sqrt(each))
	}
}

// IDs with equal top bits of an unseeded hash spread like others in 20 processes.
func TestFloodAimedAtOneShard(t *testing.T) {
	const n, shards = 1000, 64
	var flood []string
	for i := 0; len(flood) < n; i++ {
		id := strconv.Itoa(i)
		h := fnv.New64a()
		h.Write([]byte(id))
		if h.Sum64()>>58 == 0 {
			flood = append(flood, id)
		}
	}
	for range 20 {
		tab := newTable(&room.Room{Max: 1 << 20}, nil, callerSlots{})
		require.Len(t, tab.shards, shards)
		var load [shards]int
		for _, id := range flood {
			load[tab.shardNumber(tab.Hash(id))]++
		}
		const mean = float64(n) / shards
		for _, got := range load {
			assert.Less(t, float64(got), mean+8*math.Sqrt(mean))
		}
	}
}

// A window must not begin at a reading of the clock from before the latest removal. A later reading
// is used, even if the clock has stepped back.
func TestInsertionNeedsAReadingSinceTheLatestRemoval(t *testing.T) {
	l, _ := newTestLimiter(t, Config{SweepEvery: time.Hour})
	tab := l.buckets
	p := slots.PeriodOf(fixedKind, 10, 0)
	k := tab.Pack("id")
	sh := &tab.shards[tab.shardNumber(k.Hash)]
	lock := func(at *reading) error {
		c, err := tab.lock(k, "id", &p, at, true)
		if err == nil {
			require.Nil(t, c.Slot)
			c.Insert(slots.Content{})
			c.NoteEnd(0)
			c.Remove()
		}
		return err
	}
	horizon := &sh.Horizon
	at := reading{now: 5, horizon: math.MinInt64}
	require.NoError(t, lock(&at), "nothing was removed")
	*horizon = 5
	require.NoError(t, lock(&at), "read at that instant")
	*horizon = 10
	require.ErrorIs(t, lock(&at), errEarlier)
	require.EqualValues(t, 10, at.horizon)
	*horizon = 20
	at.now = 12
	require.ErrorIs(t, lock(&at), errEarlier, "removed since the clock was read again")
	at.now = 15
	require.NoError(t, lock(&at), "the clock went back")
	require.Zero(t, checkTable(t, tab), "no slot remains in use")
	_, err := tab.lock(k, "id", &p, &reading{now: 0, horizon: math.MinInt64}, false)
	require.ErrorIs(t, err, errEarlier, "a lookup at a reading before the removal")
}

// A hit on a slot whose bucket was removed is not counted, neither as a hit nor as a denial of the
// slot's next bucket.
func TestStaleHitsFail(t *testing.T) {
	l, clock := newTestLimiter(t, Config{SweepEvery: time.Hour, Timeout: 1})
	MustCheck(t, l, "old", 10, 5)
	w := l.windows.Running(0, 10)
	s, state, _ := l.buckets.find("old", &w.Fixed)
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
	before := liveHeap()
	const n = 20_000
	for i := range n {
		MustCheck(t, l, fmt.Sprintf("a long id of client number %d", i), 10, 1)
	}
	full := liveHeap() - before
	require.Greater(t, full, int64(n*128))
	clock.setMs(15)
	MustCheck(t, l, "another", 10, 1)
	require.Equal(t, n, l.Sweep())
	assert.Less(t, liveHeap()-before, full/50, "of %d bytes", full)
	require.Equal(t, 1, checkTable(t, l.buckets))
	res := MustCheck(t, l, "another", 10, 1)
	assert.False(t, res.Allowed(), "a live bucket is kept")
}

// The slot numbers of a shard are limited. Beyond that, new buckets fail with ErrFull, and existing
// ones keep working.
func TestShardWithoutSlotNumbersIsFull(t *testing.T) {
	l, _ := newTestLimiter(t, Config{SweepEvery: time.Hour})
	MustCheck(t, l, "known", 1000, 1)
	for i := range l.buckets.shards {
		l.buckets.shards[i].MaxChunks = -1
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
	require.Len(t, l.buckets.shards, 1)
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

func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
