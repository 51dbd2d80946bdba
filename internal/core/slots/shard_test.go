package slots

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/ids"
	"github.com/weirgo/weir/internal/core/room"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// counts is the meaning of a number that is a count, until the instant in the first still word.
type counts struct{}

func (counts) End(_ *Slot, c Content) int64 { return c.Still1 }

func (counts) Counted(_ *Slot, state Word) (hits int64, held uint64) { return state.Count(), 0 }

func (counts) Stays(*Slot, Word) bool { return true }

// newShard returns a shard of its own table.
func newShard(tallied bool) *Shard {
	h := ids.NewHasher()
	sh := new(Shard)
	sh.Init(&h, new(atomic.Pointer[Index]), counts{}, tallied, room.New(1<<20, func() {}))
	return sh
}

// lock returns a key, whose shard is locked.
func lock(sh *Shard, id string, p *Period) Locked { return sh.LockKey(sh.hasher.Pack(id), id, p) }

// insert makes the bucket of a key that has none, with a count of 0.
func insert(sh *Shard, id string, p *Period) {
	sh.room.Take()
	c := lock(sh, id, p)
	c.Insert(Content{})
	c.NoteEnd(0)
	c.Unlock()
}

// remove removes a bucket that does not change meanwhile.
func remove(sh *Shard, id string, p *Period) {
	c := lock(sh, id, p)
	c.Remove()
}

func check(t *testing.T, sh *Shard) {
	t.Helper()
	_, err := sh.Check()
	require.NoError(t, err)
}

// A slot is one cache line, and a chunk is a size class of the allocator, so no memory is wasted.
func TestSizes(t *testing.T) {
	assert.EqualValues(t, 64, reflect.TypeFor[Slot]().Size())
	assert.EqualValues(t, 8192, reflect.TypeFor[chunk]().Size())
}

// Random insertions, hits, changes of the epoch, removals and sweeps match a Go map, with IDs of
// all lengths in few positions, and keep the invariants.
func TestShardIsAMap(t *testing.T) {
	for name, mask := range map[string]uint64{"hashed": ^uint64(0), "all alike": 0, "16 values": 15} {
		for _, tallied := range []bool{false, true} {
			t.Run(fmt.Sprint(name, tallied), func(t *testing.T) {
				sh := newShard(tallied)
				sh.hasher.Mask = mask
				random := rand.New(rand.NewPCG(1, 2))
				model := map[string]int64{}
				p := PeriodOf(2, 1000, 0)
				for step := range slow.N(600, 2000, 20_000) {
					id := testID(idLengths[random.IntN(len(idLengths))]) + strconv.Itoa(random.IntN(12))
					want, known := model[id]
					s, state, _ := sh.index.Load().Find(sh.hasher.Pack(id), id, &p)
					require.Equal(t, known, s != nil, "step %d", step)
					if known {
						require.Equal(t, want, state.Count())
					}
					switch action := random.IntN(4); {
					case !known && action < 2:
						insert(sh, id, &p)
						model[id] = 0
					case known && action == 0:
						remove(sh, id, &p)
						delete(model, id)
					case known && action == 1 && !tallied:
						c := lock(sh, id, &p)
						next := Content{N: want, Still1: c.Have.Still1 + 1}
						done, err := c.Replace(next)
						require.NoError(t, err)
						require.True(t, done)
						c.Unlock()
					case known:
						require.True(t, s.Swap(state, state.With(want+1)))
						model[id]++
					}
					require.EqualValues(t, len(model), sh.room.Used())
					if step%20 == 0 {
						check(t, sh)
					}
				}
				check(t, sh)
				sh.Sweep(algorithm.End-1, 0)
				require.Zero(t, sh.room.Used())
				require.Same(t, noIndex, sh.index.Load(), "an empty shard holds nothing")
				require.Nil(t, sh.chunks)
				require.Zero(t, sh.filled)
				require.Zero(t, sh.open)
			})
		}
	}
}

// A generation is never reused: a slot without unused generations closes its chunk, which is freed
// with its last bucket.
func TestGenerationsNeverReturn(t *testing.T) {
	sh := newShard(false)
	p := PeriodOf(2, 1000, 0)
	insert(sh, "keeper", &p)
	first := sh.index.Load().chunks[0].Load()
	seen := map[*Slot]map[uint64]bool{}
	for i := 0; !sh.chunks[0].closed; i++ {
		require.Less(t, i, 1<<17)
		insert(sh, "id", &p)
		c := lock(sh, "id", &p)
		if seen[c.Slot] == nil {
			seen[c.Slot] = map[uint64]bool{}
		}
		generation := c.Slot.State().Epoch()
		require.False(t, seen[c.Slot][generation], "generation %d", generation)
		seen[c.Slot][generation] = true
		c.Remove()
	}
	require.Len(t, seen, 1)
	insert(sh, "id", &p)
	c := lock(sh, "id", &p)
	c.Unlock()
	require.EqualValues(t, 1, c.N/chunkSlots, "a closed chunk hands out no slot")
	require.Same(t, first, sh.index.Load().chunks[0].Load(), "the chunk still has a bucket")
	remove(sh, "keeper", &p)
	require.Nil(t, sh.index.Load().chunks[0].Load(), "a closed and empty chunk is freed")
	for i := range first {
		require.False(t, first[i].State().Live(), "freed memory has no live slot")
	}
	insert(sh, "another", &p)
	d := lock(sh, "another", &p)
	d.Unlock()
	require.Zero(t, d.N/chunkSlots, "the number is reused with new memory")
	require.Zero(t, d.Slot.State().Epoch())
	require.NotSame(t, first, sh.index.Load().chunks[0].Load())
	check(t, sh)
}

// The index doubles before it is three quarters full, and shrinks when few buckets are left.
func TestIndexGrowsAndShrinks(t *testing.T) {
	sh := newShard(false)
	var sizes []int
	note := func() {
		if n := len(sh.index.Load().words); len(sizes) == 0 || sizes[len(sizes)-1] != n {
			sizes = append(sizes, n)
		}
	}
	p, kept := PeriodOf(0, 10, 0), PeriodOf(0, 1000, 0)
	for i := range 100 {
		insert(sh, strings.Repeat("k", i+1), &p)
		note()
		check(t, sh)
	}
	require.Equal(t, []int{16, 32, 64, 128, 256}, sizes)
	sizes = nil
	for i := range 2 {
		id := strings.Repeat("k", i+1)
		insert(sh, id, &kept)
		c := lock(sh, id, &kept)
		_, err := c.Replace(Content{Still1: 100})
		require.NoError(t, err)
		c.Unlock()
	}
	note()
	require.Equal(t, 100, sh.Sweep(50, 1))
	note()
	require.Equal(t, []int{256, 16}, sizes)
	check(t, sh)
}

// The word of a removed bucket, and the tombstones before it, become empty if the next word is.
func TestRemovalLeavesNoTombstonesAtTheEnd(t *testing.T) {
	sh := newShard(true)
	p := PeriodOf(0, 1000, 0)
	ids := []string{"a", "b", "c", "d", "e", "f", "g"}
	for round := range 20 {
		for _, id := range ids {
			insert(sh, id, &p)
		}
		rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		for _, id := range ids {
			remove(sh, id, &p)
			check(t, sh)
		}
		require.Zero(t, sh.filled, "round %d", round)
	}
}

// A hit that comes between the load of the state and the release, or the roll, is not lost: both
// fail, and change nothing.
func TestReleaseAndRollFailAfterAHit(t *testing.T) {
	for _, tallied := range []bool{false, true} {
		sh := newShard(tallied)
		p := PeriodOf(0, 1000, 0)
		insert(sh, "id", &p)
		c := lock(sh, "id", &p)
		require.True(t, c.Swap(c.State, c.State.With(c.Have.N+1))) // as a hit does, without the mutex
		before := *c.Slot
		assert.False(t, c.Shard.Release(c.Slot, c.N, c.State))
		next := c.Have
		next.Still2++
		done, err := c.Replace(next)
		require.NoError(t, err)
		assert.False(t, done)
		assert.Equal(t, before, *c.Slot)
		assert.EqualValues(t, 1, sh.room.Used())
		c.Unlock()
	}
}

// A bucket whose slot has used its generations goes on in another slot, or stays as it is if there
// is none.
func TestABucketMovesToAnotherSlot(t *testing.T) {
	for _, id := range []string{"id", testID(300)} {
		sh := newShard(false)
		p := PeriodOf(2, 1000, 0)
		insert(sh, id, &p)
		c := lock(sh, id, &p)
		first, identity := c.Slot, c.Identity()
		next, full := c.Have, 0
		for i := 0; c.Slot == first; i++ {
			require.Less(t, i, 1<<17)
			next.Still2++
			most := sh.MaxChunks
			if c.State.next().Epoch() == lastGeneration && full == 0 {
				sh.MaxChunks = -1
				full++
			}
			done, err := c.Replace(next)
			if sh.MaxChunks = most; full == 1 {
				require.ErrorIs(t, err, room.ErrFull)
				full++
				continue
			}
			require.NoError(t, err)
			require.True(t, done)
			c.State = c.Slot.State()
			c.NoteEnd(next.Still1)
			require.Equal(t, next, c.Content(c.State))
			require.Equal(t, identity, c.Identity())
			c.Have = next
		}
		require.Equal(t, 2, full)
		c.Unlock()
		check(t, sh)
	}
}

// A reader without a lock sees the words of one epoch if the generation is the same before and
// after: it never sees a live slot with a still word of the epoch before.
func TestWordsOfOneEpochAreSeenTogether(t *testing.T) {
	for range slow.N(5, 20, 100) {
		sh := newShard(false)
		p := PeriodOf(2, 1000, 0)
		insert(sh, "id", &p)
		c := lock(sh, "id", &p)
		s := c.Slot
		var over atomic.Bool
		var torn atomic.Int64
		var reader sync.WaitGroup
		reader.Go(func() {
			for !over.Load() {
				state := s.State()
				got := s.Content(state)
				if state.Live() && s.State().Epoch() == state.Epoch() &&
					(got.N != got.Still1 || got.N != got.Still2) {
					torn.Add(1)
				}
			}
		})
		for n := int64(1); n < lastGeneration-2; n++ {
			c.State = s.State()
			c.Have = c.Content(c.State)
			done, err := c.Replace(Content{N: n, Still1: n, Still2: n})
			require.NoError(t, err)
			require.True(t, done)
		}
		c.Unlock()
		over.Store(true)
		reader.Wait()
		require.Zero(t, torn.Load())
	}
}

// Every slot that a removed bucket had gets another generation, those with parts of its ID too: a
// search that is late may still read them. A chunk with a slot whose generations are used up is
// closed.
func TestRemovedPartsOfAnIDGetAnotherGeneration(t *testing.T) {
	p := PeriodOf(2, 1000, 0)
	id := strings.Repeat("long", 250)
	for _, tallied := range []bool{false, true} {
		sh := newShard(tallied)
		insert(sh, id, &p)
		c := sh.index.Load().chunks[0].Load()
		used := 0
		for n := range c {
			if sh.chunks[0].free[n/64]>>(n%64)&1 == 0 {
				used++
			}
		}
		require.Equal(t, 1+(len(id)-ids.Head+partBytes-1)/partBytes, used)
		remove(sh, id, &p)
		raised := 0
		for n := range c {
			if epoch := c[n].State().Epoch(); epoch > 0 {
				raised++
				assert.EqualValues(t, 1, epoch)
			}
		}
		assert.Equal(t, used, raised)

		insert(sh, id, &p)
		part := sh.index.Load().slot(int(sh.index.Load().slot(0).load(restWord) & countMask))
		part[stateWord] = (lastGeneration - 1) << CountBits
		remove(sh, id, &p)
		assert.Nil(t, sh.index.Load().chunks[0].Load(), "it is closed, and empty")
		insert(sh, id, &p)
		check(t, sh)
	}
}
