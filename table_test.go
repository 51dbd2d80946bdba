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
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A bucket's entry is one cache line, and all of these are size classes, which waste nothing.
func TestSizes(t *testing.T) {
	if strconv.IntSize != 64 {
		t.Skip("the sizes are those of a 64-bit machine")
	}
	assert.EqualValues(t, 64, reflect.TypeFor[entry[bucket]]().Size())
	assert.EqualValues(t, 48, reflect.TypeFor[entry[arrival]]().Size())
}

// A decision on a known id is what a service pays for each request: an allocation would cost more than all of it, and
// the collector's share beside.
func TestKnownIDAllocatesNothing(t *testing.T) {
	l, _ := newTestLimiter(t, Config{})
	long := strings.Repeat("a long id ", 20)
	strategy := l.FixedWindow()
	for name, f := range map[string]func(){
		"admitted":             func() { l.CheckRate("id", 1000, math.MaxInt64) },
		"denied":               func() { l.CheckRate("full", 1000, 1) },
		"denied for ever":      func() { l.CheckRate("id", 1000, 0) },
		"with a long id":       func() { l.CheckRate(long, 1000, math.MaxInt64) },
		"decided as a request": func() { strategy.Decide(t.Context(), &Request{Key: "id", Limit: 1 << 40, Duration: 1e9}) },
	} {
		f() // makes the bucket
		assert.Zero(t, testing.AllocsPerRun(100, f), name)
	}
}

func TestShardsOfATable(t *testing.T) {
	for _, c := range []struct{ max, shards int64 }{
		{1, 1}, {1 << 14, 1}, {1<<14 + 1, 2}, {1 << 20, 64}, {1 << 24, 1024}, {math.MaxInt32, 1024},
	} {
		room := &room{max: c.max}
		tab := newTable[bucket](room, nil)
		require.Len(t, tab.shards, int(c.shards), "MaxBuckets %d", c.max)
		for range 1000 { // every hash has a shard
			require.NotNil(t, tab.shard(place{hash: rand.Uint64()}))
		}
		require.NotNil(t, tab.shard(place{hash: math.MaxUint64}))
	}
}

func TestShardsFillEvenly(t *testing.T) {
	tab := newTable[bucket](&room{max: 1 << 20}, nil)
	counts := make(map[*shard[bucket]]int)
	const n = 64 * 1000
	for i := range n {
		counts[tab.shard(tab.place("10.0."+strconv.Itoa(i), periodOf(1000, 5).salt()))]++
	}
	require.Len(t, counts, 64)
	for _, c := range counts {
		assert.InDelta(t, 1000, c, 200, "six sigma of a fair spread")
	}
}

// Keys that were chosen to meet in one shard, by whoever knows FNV-1a or the seed of another process, are spread here
// like any others.
func TestChosenKeysSpreadOverShards(t *testing.T) {
	const each = 300 // aimed keys a shard
	victim := newTable[bucket](&room{max: 1 << 20}, nil)
	known := newTable[bucket](&room{max: 1 << 20}, nil)
	n := each * len(victim.shards)
	for name, aimed := range map[string]func(id string) bool{
		"at FNV-1a": func(id string) bool {
			h := fnv.New64a()
			h.Write([]byte(id))
			return h.Sum64()>>58 == 0
		},
		"at a known seed": func(id string) bool { return known.shard(known.place(id, 0)) == &known.shards[0] },
	} {
		loads := make(map[*shard[bucket]]int)
		for i, found := 0, 0; found < n; i++ {
			if id := strconv.Itoa(i); aimed(id) {
				found++
				loads[victim.shard(victim.place(id, 0))]++
			}
		}
		most := 0
		for _, load := range loads {
			most = max(most, load)
		}
		assert.LessOrEqual(t, float64(most), each+6*math.Sqrt(each), "aimed %s", name)
	}
}

func TestAllBucketsOfAnIDAreInOneShard(t *testing.T) {
	tab := newTable[bucket](&room{max: 1 << 20}, nil)
	home := tab.shard(tab.place("id", 0))
	for n := range int64(1000) {
		require.Same(t, home, tab.shard(tab.place("id", periodOf(n+1, n).salt())))
	}
}

// hashes are the working hash and broken ones: 16 digests for all keys, and one.
var hashes = map[string]uint64{"hash": math.MaxUint64, "hash & 15": 15, "hash = 0": 0}

// key is a key of the tables under test: few enough to collide, alike enough to be mistaken.
type key struct {
	id            string
	scale, number int64
}

func keys() (ks []key) {
	for _, id := range []string{"a", "b", "\x00", "a\x00", strings.Repeat("a", inline), strings.Repeat("a", inline+1),
		strings.Repeat("a", inline) + "b", strings.Repeat("a", inline+nearby), strings.Repeat("a", inline+nearby+1)} {
		for _, scale := range []int64{1, 2, sliding.scale(1)} {
			for number := int64(-1); number <= 1; number++ {
				ks = append(ks, key{id, scale, number})
			}
		}
	}
	return ks
}

func (k key) period() period { return periodOf(k.scale, k.number) }

func (t *table[S, P]) put(k key) (*entry[S], error) { return t.insert(t.at(k), k.id, k.period()) }

func (t *table[S, P]) at(k key) place { return t.place(k.id, k.period().salt()) }

func newTestTable(bits uint64, size int64) *table[bucket, *bucket] {
	l := &Limiter{}
	l.room = room{max: size, janitor: &l.janitor}
	l.janitor = janitor{clock: &l.clock, room: &l.room}
	l.janitor.running.Store(true) // no goroutine here
	tab := newTable[bucket](&l.room, nil)
	tab.hasher.bits = bits
	return tab
}

func TestTableIsAMap(t *testing.T) {
	for name, bits := range hashes {
		t.Run(name, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(3, bits))
			tab, model := newTestTable(bits, 1000), map[key]*entry[bucket]{}
			ks := keys()
			for range 20_000 {
				k := ks[rnd.IntN(len(ks))]
				p, known := tab.at(k), model[k]
				require.Same(t, known, tab.find(p, k.id, k.period()), "%v", k)
				if rnd.IntN(2) == 0 {
					e, err := tab.put(k)
					require.NoError(t, err)
					require.Equal(t, k, key{e.id(), e.period().scale(), e.period().number()})
					if known != nil {
						require.Same(t, known, e, "a known key was inserted again")
					}
					model[k] = e
				} else if known != nil {
					require.True(t, tab.remove(p, known))
					require.False(t, tab.remove(p, known), "removed twice")
					delete(model, k)
				}
				require.EqualValues(t, len(model), tab.room.inUse())
			}
			seen := map[key]*entry[bucket]{}
			for e := range tab.all() {
				seen[key{e.id(), e.period().scale(), e.period().number()}] = e
			}
			require.Equal(t, model, seen)
		})
	}
}

// Every caller adds its hits to an entry that others remove. A hit on a removed entry moves on to the next one, as the
// limiter's do, so that none is lost and none counted twice.
func TestTableBesideRemoval(t *testing.T) {
	for name, bits := range hashes {
		t.Run(name, func(t *testing.T) {
			const callers, each = 8, 3000
			tab, all := newTestTable(bits, 1000), keys()
			ks := append(all[:3:3], all[len(all)-3:]...) // short ids and long ones
			var removed atomic.Int64
			var wg sync.WaitGroup
			for c := range callers {
				wg.Go(func() {
					rnd := rand.New(rand.NewPCG(uint64(c), bits))
					for range each {
						k := ks[rnd.IntN(len(ks))]
						p := tab.at(k)
						for {
							e, err := tab.put(k)
							if err != nil {
								t.Error(err)
								return
							}
							if _, ok := e.state.take(1, math.MaxInt64, 0); ok {
								break
							}
							tab.remove(p, e)
						}
						if rnd.IntN(4) == 0 {
							if e := tab.find(p, k.id, k.period()); e != nil {
								removed.Add(max(0, e.state.count.Swap(gone)))
								tab.remove(p, e)
							}
						}
					}
				})
			}
			wg.Wait()
			total, entries := removed.Load(), int64(0)
			for e := range tab.all() {
				total += max(0, e.state.count.Load())
				entries++
			}
			assert.EqualValues(t, callers*each, total)
			assert.Equal(t, entries, tab.room.inUse(), "room is taken for what is there")
		})
	}
}

func TestInsertReservesRoomFirst(t *testing.T) {
	tab := newTestTable(math.MaxUint64, 2)
	k := keys()
	for _, k := range k[:2] {
		_, err := tab.put(k)
		require.NoError(t, err)
	}
	_, err := tab.put(k[2])
	require.ErrorIs(t, err, ErrFull)
	_, err = tab.put(k[0])
	require.NoError(t, err, "a known key needs no room")
	assert.EqualValues(t, 2, tab.room.inUse())
}

func TestSweepVisitsOnlyWhatMayBeOver(t *testing.T) {
	for name, bits := range hashes {
		t.Run(name, func(t *testing.T) {
			tab := newTestTable(bits, 1000)
			for number := range int64(10) {
				for i := range 5 {
					id := strconv.Itoa(i)
					_, err := tab.put(key{id, 10, number})
					require.NoError(t, err)
				}
			}
			s := &tab.shards[0]
			require.Equal(t, 10*msec, s.earliest.Load(), "the first is over at the end of window 0")
			assert.Zero(t, tab.sweep(10*msec-1, 0))
			assert.Equal(t, 5, tab.sweep(10*msec, 0), "window 0 is over")
			assert.Equal(t, 20*msec, s.earliest.Load(), "then window 1 is the first")
			assert.Zero(t, tab.sweep(20*msec-1, 0))
			assert.Equal(t, 15, tab.sweep(45*msec, 0), "windows 1 to 3")
			assert.Equal(t, 30, tab.sweep(1000*msec, 0))
			assert.Equal(t, int64(maxInstant), s.earliest.Load(), "nothing is left")
			assert.Zero(t, tab.room.inUse())
		})
	}
}

// The sweep must not miss an entry that arrives while it scans: its shard would never be looked at again.
func TestSweepForgetsNoArrival(t *testing.T) {
	tab := newTestTable(math.MaxUint64, 1<<14) // one shard
	stop := make(chan struct{})
	var sweeper sync.WaitGroup
	sweeper.Go(func() {
		for now := int64(0); ; now++ {
			select {
			case <-stop:
				return
			default:
				tab.sweep(now%3, 0) // nothing is over: earliest is raised again and again
			}
		}
	})
	var wg sync.WaitGroup
	const callers, each = 4, 2000
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				id := fmt.Sprint(c, "-", i)
				number := int64(each - i) // each is over before the last
				if _, err := tab.put(key{id, 1, number}); err != nil {
					t.Error(err)
				}
				tab.shards[0].earliest.Store(0) // let the sweeper scan
			}
		})
	}
	wg.Wait()
	close(stop)
	sweeper.Wait()
	tab.sweep(2, 0)
	require.Equal(t, 2*msec, tab.shards[0].earliest.Load(), "the first to be over is that of window 1")
	assert.Equal(t, callers*each, tab.sweep(maxInstant-1, 0))
}

func TestReclaimStopsWhenEnoughIsRemoved(t *testing.T) {
	tab := newTestTable(math.MaxUint64, 1<<20)
	for i := range 1000 {
		id := strconv.Itoa(i)
		_, err := tab.put(key{id, 1, 0})
		require.NoError(t, err)
	}
	first := tab.reclaim(msec)
	assert.Less(t, first, 100, "one shard of 64")
	assert.Equal(t, 1000-first, tab.sweep(msec, 0))
}

// probe is a state that is over at the instant its number tells, and that calls a function when a sweep looks at it.
type probe struct{ looked func() }

func (p *probe) over(of period) int64                   { return of.number() }
func (p *probe) bury(_ period, over, now, _ int64) bool { p.looked(); return now >= over }
func (p *probe) settled() (allowed, denied uint64)      { return 0, 0 }

// An entry arrives while a sweep is half through its shard. Whether the sweep saw it or not, the next one must.
func TestSweepKnowsOfWhatArrivesMeanwhile(t *testing.T) {
	const others = 50
	for range 100 { // a new seed each: where the entry is in the scan is chance
		room := newTestTable(math.MaxUint64, 1<<14).room
		looks := 0
		var tab *table[probe, *probe]
		insert := func(id string, over int64) {
			_, err := tab.put(key{id, 1, over})
			require.NoError(t, err)
		}
		looked := func() {
			if looks++; looks == others/2 {
				insert("late", 10)
			}
		}
		tab = newTable[probe](room, func(p *probe) { p.looked = looked })
		for i := range others {
			insert(strconv.Itoa(i), 1000)
		}
		insert("first", 400)
		tab.sweep(500, 0)
		tab.sweep(500, 0)
		require.EqualValues(t, others, room.inUse())
	}
}

func TestRecentIndexFollowsTheTable(t *testing.T) {
	tab := newTestTable(math.MaxUint64, 1<<20)
	require.Len(t, tab.recent.Load().sets, 1, "an empty table holds none")
	var first *entry[bucket]
	for i := range 1000 {
		id := strconv.Itoa(i)
		e, err := tab.put(key{id, 1, 0})
		require.NoError(t, err)
		if i == 0 {
			first = e
		}
	}
	assert.GreaterOrEqual(t, len(tab.recent.Load().sets)*ways, 2*1000)
	p := tab.at(key{"0", 1, 0})
	require.Same(t, first, tab.find(p, "0", periodOf(1, 0)))
	set := tab.recent.Load().set(p.digest)
	require.Same(t, first, set.search(p.digest, "0", periodOf(1, 0)), "found once, it is found at once")
	require.True(t, tab.remove(p, first))
	assert.Nil(t, set.search(p.digest, "0", periodOf(1, 0)), "what was removed is held no longer")
	assert.Nil(t, tab.find(p, "0", periodOf(1, 0)))
}

func TestRecentIndexIsBounded(t *testing.T) {
	tab := newTestTable(math.MaxUint64, 1<<20)
	tab.room.used.Store(1 << 19)
	for range 100 {
		tab.grow()
	}
	assert.Equal(t, maxSets, len(tab.recent.Load().sets))
}

func TestRecentSetHoldsAsManyAsItHasWays(t *testing.T) {
	tab := newTestTable(math.MaxUint64, 1<<20)
	set := new(set[bucket])
	held := map[*entry[bucket]]place{}
	for i := range 100 * ways {
		id := strconv.Itoa(i)
		p := tab.at(key{id, 1, 0})
		e := newEntry[bucket](id, periodOf(1, 0))
		held[e] = p
		set.put(p.digest, e)
		require.Same(t, e, set.search(p.digest, id, periodOf(1, 0)), "the one put last is there")
	}
	n := 0
	for e, p := range held {
		if got := set.search(p.digest, e.id(), periodOf(1, 0)); got != nil {
			require.Same(t, e, got)
			n++
		}
		assert.Nil(t, set.search(p.digest, "another", periodOf(1, 0)), "an entry is compared in full")
	}
	assert.Equal(t, ways, n, "of those put earlier, as many as there are other ways")
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
	each := float64(liveHeap()-before) / (2 * n)
	assert.Less(t, each, 256.0, "bytes a bucket: an id cut from a header of %d bytes pins it", header)
	runtime.KeepAlive(l)
}

func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
