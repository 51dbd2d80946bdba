package weir

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weirgo/weir/internal/slow"
)

// A slot is one cache line, and a chunk is a size class of the allocator, so no memory is wasted.
func TestSizes(t *testing.T) {
	assert.EqualValues(t, 64, reflect.TypeFor[slot]().Size())
	assert.EqualValues(t, 8192, reflect.TypeFor[chunk]().Size())
}

// Services decide on known IDs for each request. An allocation would cost more than the rest of the
// decision.
func TestKnownIDAllocatesNothing(t *testing.T) {
	l, _ := newTestLimiter(t, Config{})
	long := strings.Repeat("a long id ", 20)
	sliding := l.SlidingWindow().Limit(1<<40, time.Second)
	tokens := l.TokenBucket(0).Limit(1<<40, time.Second)
	fixed := l.FixedWindow().Limit(1<<40, time.Second)
	many := make([]*Limit, 200)
	for i := range many {
		many[i] = l.TokenBucket(0).Limit(1<<40+uint64(i), time.Second).Named("one")
	}
	for name, f := range map[string]func(){
		"admitted":       func() { l.CheckRate("id", 1000, math.MaxInt64) },
		"denied":         func() { l.CheckRate("full", 1000, 1) },
		"never to pass":  func() { l.CheckRate("id", 1000, 0) },
		"with a long ID": func() { l.CheckRate(long, 1000, math.MaxInt64) },
		"fixed window":   func() { fixed.Allow("id") },
		"sliding window": func() { sliding.Allow("id") },
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
		tab := newTable(&capacity{max: c.max}, false)
		require.Len(t, tab.shards, c.shards, "MaxBuckets %d", c.max)
		for _, hash := range []uint64{0, rand.Uint64(), math.MaxUint64} { // every hash has a shard
			require.Less(t, tab.number(hash), c.shards)
		}
		require.Equal(t, c.shards-1, tab.number(math.MaxUint64), "MaxBuckets %d", c.max)
		require.Zero(t, tab.number(math.MaxUint32), "the low half is for the index")
	}
}

func TestShardsFillEvenly(t *testing.T) {
	l, _ := newTestLimiter(t, Config{SweepEvery: time.Hour})
	const each = 100
	n := each * len(l.buckets.shards)
	for i := range n {
		_, err := l.CheckRate(strconv.Itoa(i), 1000, 1)
		require.NoError(t, err)
	}
	for i := range l.buckets.shards {
		assert.InDelta(t, each, l.buckets.shards[i].buckets, 6*math.Sqrt(each))
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
		tab := newTable(&capacity{max: 1 << 20}, false)
		require.Len(t, tab.shards, shards)
		var load [shards]int
		for _, id := range flood {
			load[tab.number(tab.hash(id))]++
		}
		const mean = float64(n) / shards
		for _, got := range load {
			assert.Less(t, float64(got), mean+8*math.Sqrt(mean))
		}
	}
}

// IDs that differ in two bytes spread, at every length at which the hash function changes.
func TestSimilarIDsSpread(t *testing.T) {
	const n, places = 1024, 32
	h := newHasher()
	for _, length := range []int{2, 7, 8, 9, 15, 16, 17, 22, 23, 64} {
		for _, at := range []int{0, length / 3, length - 2} {
			id := make([]byte, length)
			// by the bits for the shard, the place in its index, and the tag
			var shards, low, tags [places]int
			seen := map[uint64]bool{}
			for i := range n {
				id[at], id[at+1] = byte(i), byte(i>>8)
				hash := h.hash(string(id))
				if hash != h.hashBytes(id) || seen[hash] {
					t.Fatalf("%d bytes, changed at %d: %x again, or not of bytes", length, at, hash)
				}
				seen[hash] = true
				shards[hash>>32%places]++
				low[hash%places]++
				tags[hash>>27%places]++
			}
			for i := range places {
				for _, got := range [][places]int{shards, low, tags} {
					require.InDelta(t, n/places, got[i], 3*n/places/2, "%d bytes, changed at %d", length, at)
				}
			}
		}
	}
}

// IDs of the same words have different hashes if the order of the words or the length differs.
func TestOrderAndLengthAreHashed(t *testing.T) {
	h := newHasher()
	seen := map[uint64]string{}
	ids := []string{"aaaaaaaabbbbbbbb", "bbbbbbbbaaaaaaaa", "aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"}
	for n := range inlineID + 2 {
		ids = append(ids, string(make([]byte, n)))
	}
	for _, id := range ids {
		hash := h.hash(id)
		require.NotContains(t, seen, hash, "%q and %q", id, seen[hash])
		seen[hash] = id
	}
}

// Random insertions, lookups and removals match a Go map, with IDs of all lengths in few positions.
func TestTableIsAMap(t *testing.T) {
	for name, mask := range hashes {
		t.Run(name, func(t *testing.T) {
			l, _ := newTestLimiter(t, Config{SweepEvery: time.Hour}) // nothing else accesses the shards
			tab := l.callers
			tab.mask = mask
			random := rand.New(rand.NewPCG(1, 2))
			model := map[string]int64{}
			p := periodOf(tokenKind, 1000, 0)
			for step := range slow.N(600, 2000, 40_000) {
				id := testID(idLengths[random.IntN(len(idLengths))]) + strconv.Itoa(random.IntN(12))
				if len(id) > maxID {
					continue
				}
				want, known := model[id]
				s, _, _ := tab.indexes[tab.number(tab.hash(id))].Load().find(tab.pack(id), id, &p)
				require.Equal(t, known, s != nil, "step %d", step)
				create := random.IntN(2) == 0
				c, err := tab.lock(tab.pack(id), id, &p, &reading{}, create)
				require.NoError(t, err)
				require.Equal(t, known, c.slot != nil)
				switch {
				case !known && !create:
				case known && random.IntN(3) == 0:
					require.Equal(t, want, count(c.slot.load(stateWord)))
					c.shard.release(c.slot, c.n, c.load(stateWord))
					delete(model, id)
				case known:
					require.Equal(t, want, count(c.slot.load(stateWord)))
					require.True(t, c.slot.swap(c.load(stateWord), want+1))
					model[id]++
				default:
					c.insert(content{}, 0)
					require.Zero(t, count(c.slot.load(stateWord)))
					model[id] = 0
				}
				c.shard.mu.Unlock()
				require.EqualValues(t, len(model), l.capacity.used())
			}
			for id := range model {
				c, err := tab.lock(tab.pack(id), id, &p, &reading{}, false)
				require.NoError(t, err)
				c.shard.release(c.slot, c.n, c.load(stateWord))
				c.shard.mu.Unlock()
			}
			require.Zero(t, l.capacity.used())
			for i := range tab.shards {
				sh := &tab.shards[i]
				require.Zero(t, sh.buckets)
				for j := range sh.chunks {
					require.True(t, sh.chunks[j].empty(), "a slot of a removed bucket was not freed")
				}
			}
		})
	}
}

// A window must not begin at a reading of the clock from before the latest removal. A later reading
// is used, even if the clock has stepped back.
func TestInsertionNeedsAReadingSinceTheLatestRemoval(t *testing.T) {
	l, _ := newTestLimiter(t, Config{SweepEvery: time.Hour})
	tab := l.buckets
	p := periodOf(fixedKind, 10, 0)
	k := tab.pack("id")
	sh := &tab.shards[tab.number(k.hash)]
	lock := func(at *reading) error {
		c, err := tab.lock(k, "id", &p, at, true)
		if err == nil {
			require.Nil(t, c.slot)
			c.insert(content{}, 0)
			c.shard.release(c.slot, c.n, c.load(stateWord))
			c.shard.mu.Unlock()
		}
		return err
	}
	horizon := &sh.horizon
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
	require.True(t, sh.chunks[0].empty(), "no slot remains in use")
	_, err := tab.lock(k, "id", &p, &reading{now: 0, horizon: math.MinInt64}, false)
	require.ErrorIs(t, err, errEarlier, "a lookup at a reading before the removal")
}

// A generation is never reused: a slot without unused generations closes its chunk, which is freed
// with its last bucket.
func TestGenerationsNeverReturn(t *testing.T) {
	l, _ := newTestLimiter(t, Config{SweepEvery: time.Hour, MaxBuckets: 1000})
	tab := l.callers
	sh := &tab.shards[0]
	p := periodOf(tokenKind, 1000, 0)
	lock := func(id string, create bool) cell {
		c, err := tab.lock(tab.pack(id), id, &p, &reading{}, create)
		require.NoError(t, err)
		if c.slot == nil && create {
			c.insert(content{}, 0)
			c.shard.noteEnd(c.n, 0)
		}
		return c
	}
	keeper := lock("keeper", true)
	keeper.shard.mu.Unlock()
	first := sh.index.Load().chunks[0].Load()
	seen := map[*slot]map[uint64]bool{}
	for i := 0; !sh.chunks[0].closed; i++ {
		require.Less(t, i, 1<<17)
		c := lock("id", true)
		if seen[c.slot] == nil {
			seen[c.slot] = map[uint64]bool{}
		}
		generation := c.slot.load(stateWord) >> countBits
		require.False(t, seen[c.slot][generation], "generation %d", generation)
		seen[c.slot][generation] = true
		c.shard.release(c.slot, c.n, c.load(stateWord))
		c.shard.mu.Unlock()
	}
	require.Len(t, seen, 1)
	c := lock("id", true)
	require.EqualValues(t, 1, c.n/chunkSlots, "a closed chunk hands out no slot")
	c.shard.mu.Unlock()
	require.Same(t, first, sh.index.Load().chunks[0].Load(), "the chunk still has a bucket")
	k := lock("keeper", false)
	require.NotNil(t, k.slot)
	k.shard.release(k.slot, k.n, k.load(stateWord))
	k.shard.mu.Unlock()
	require.Nil(t, sh.index.Load().chunks[0].Load(), "a closed and empty chunk is freed")
	for _, s := range first {
		require.Zero(t, s.load(stateWord)&countMask, "freed memory has no live slot")
	}
	d := lock("another", true)
	require.Zero(t, d.n/chunkSlots, "the number is reused with new memory")
	require.Zero(t, d.slot.load(stateWord)>>countBits)
	require.NotSame(t, first, sh.index.Load().chunks[0].Load())
	d.shard.mu.Unlock()
}

// A hit on a slot whose bucket was removed is not counted, neither as a hit nor as a denial of the
// slot's next bucket.
func TestStaleHitsFail(t *testing.T) {
	l, clock := newTestLimiter(t, Config{SweepEvery: time.Hour, Timeout: 1})
	_, err := l.CheckRate("old", 10, 5)
	require.NoError(t, err)
	w := l.window(0, 10)
	k := l.buckets.pack("old")
	s, state, _ := l.buckets.indexes[l.buckets.number(k.hash)].Load().find(k, "old", &w.fixed)
	require.NotNil(t, s)
	clock.ns.Store(10*msec + 1)
	require.Equal(t, 1, l.Sweep())
	for id := range 200 { // one of them reuses the slot of "old"
		_, err := l.CheckRate(strconv.Itoa(id), 10, 1)
		require.NoError(t, err)
	}
	before := *s
	assert.False(t, l.hit(s, state, 1, 5, 7, w, new(Result)))
	assert.False(t, l.hit(s, state, 1, 1, 7, w, new(Result)), "a denial")
	s.touch(state, 7)
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
		_, err := l.CheckRate(fmt.Sprintf("a long id of client number %d", i), 10, 1)
		require.NoError(t, err)
	}
	full := liveHeap() - before
	require.Greater(t, full, int64(n*128))
	clock.setMs(15)
	_, err := l.CheckRate("another", 10, 1)
	require.NoError(t, err)
	require.Equal(t, n, l.Sweep())
	assert.Less(t, liveHeap()-before, full/50, "of %d bytes", full)
	for i := range l.buckets.shards {
		sh := &l.buckets.shards[i]
		used := 0
		for j := range sh.index.Load().chunks {
			if sh.index.Load().chunks[j].Load() != nil {
				used++
			}
		}
		assert.LessOrEqual(t, used, 1)
		assert.LessOrEqual(t, len(sh.index.Load().words), minIndex)
	}
	res, err := l.CheckRate("another", 10, 1)
	require.NoError(t, err)
	assert.False(t, res.Allowed(), "a live bucket is kept")
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

// The slot numbers of a shard are limited. Beyond that, new buckets fail with ErrFull, and existing
// ones keep working.
func TestShardWithoutSlotNumbersIsFull(t *testing.T) {
	l, _ := newTestLimiter(t, Config{SweepEvery: time.Hour})
	sh := &l.buckets.shards[0]
	sh.chunks = make([]chunkInfo, maxChunks+1)
	p := periodOf(fixedKind, 1000, 0)
	_, err := l.buckets.lock(packedID{}, "id", &p, &reading{}, true)
	require.ErrorIs(t, err, ErrFull)
	require.Zero(t, l.capacity.used())
	sh.chunks = nil
}

func TestSweepRemovesExpiredBucketsOnly(t *testing.T) {
	l, clock := newTestLimiter(t, Config{Timeout: 1})
	_, err := l.CheckRate("short", 10, 1)
	require.NoError(t, err)
	_, err = l.CheckRate("long", 1000, 1)
	require.NoError(t, err)
	_, err = l.TokenBucket(0).Run(t.Context(),
		&Request{Key: "token", Limit: 10, Duration: time.Second})
	require.NoError(t, err)
	_, err = l.SlidingWindow().Run(t.Context(),
		&Request{Key: "sliding", Limit: 10, Duration: time.Second})
	require.NoError(t, err)
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
				tokens.Refund(t.Context(), r, res)
			}
		case 2:
			tokens.Charge(t.Context(), r)
		case 3:
			tokens.Reset(t.Context(), r)
		case 4:
			l.Sweep()
		default:
			tokens.Run(t.Context(), r)
		}
		for _, tab := range []*table{l.buckets, l.callers} {
			for i := range tab.shards {
				sh := &tab.shards[i]
				for n, s := range sh.slots(0, len(sh.chunks)) {
					require.LessOrEqual(t, sh.chunks[n/chunkSlots].earliest, s.end(s.content(s.load(stateWord))))
					require.LessOrEqual(t, sh.earliest.Load(), s.end(s.content(s.load(stateWord))))
				}
			}
		}
	}
}

func TestIDsAreCopied(t *testing.T) {
	l, _ := newTestLimiter(t, Config{})
	const n, header = 2000, 8 << 10
	before := liveHeap()
	for i := range n {
		h := fmt.Sprintf("%032d", i) + strings.Repeat(".", header)
		_, err := l.CheckRate(h[26:32], 1000, 1)
		require.NoError(t, err)
		_, err = l.CheckRate(h[:32], 1000, 1)
		require.NoError(t, err)
	}
	for i := range n {
		h := fmt.Sprintf("%032d", i) + strings.Repeat(".", header)
		r := &Request{Key: h[:40], Meta: h[:8], Limit: 1, Duration: time.Minute}
		_, err := l.SlidingLog().Run(t.Context(), r)
		require.NoError(t, err)
	}
	each := float64(liveHeap()-before) / (3 * n)
	assert.Less(t, each, 600.0,
		"bytes for each bucket: an ID or a Meta keeps its header of %d bytes in memory",
		header)
	runtime.KeepAlive(l)
}

func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
