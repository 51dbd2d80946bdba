package weir

import (
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// checkTable checks the invariants of a table that is not in use, and returns the number of its
// buckets.
func checkTable(t *testing.T, tab *table) (live int) {
	t.Helper()
	for i := range tab.shards {
		sh := &tab.shards[i]
		checkIndex(t, sh)
		checkChunks(t, sh)
		live += sh.buckets
	}
	return live
}

// checkIndex compares the words of a shard with its slots.
func checkIndex(t *testing.T, sh *shard) {
	t.Helper()
	x := sh.index.Load()
	filled, words := 0, map[int]bool{}
	for _, w := range x.words {
		if w != emptyWord {
			filled++
		}
		if w != emptyWord && w != tombstoneWord {
			words[int(w&slotMask)-2] = true
		}
	}
	require.Equal(t, sh.filled, filled)
	require.LessOrEqual(t, 4*filled, 3*len(x.words), "at most three quarters full")
	require.Equal(t, 1, bits.OnesCount(uint(len(x.words))), "a power of two")
	if len(x.words) > minIndex {
		require.Less(t, len(x.words), 32*sh.buckets, "an index that is much too large is replaced")
	}
	live := 0
	for n, s := range sh.slots(0, len(sh.chunks)) {
		live++
		require.True(t, words[n], "slot %d has no word", n)
		id := string(x.appendID(nil, s))
		k, scale, number := unpackPeriod(s.load(lowWord), s.load(restWord), s.load(tailWord))
		p := periodOf(k, scale, number)
		found, state, at := x.find(sh.hasher.pack(id), id, &p)
		require.Same(t, s, found)
		require.Equal(t, n, at)
		require.Equal(t, s.load(stateWord), state)
		if k == fixedKind {
			require.Equal(t, generation(state), generation(s.load(deniedWord)))
			require.Equal(t, generation(state), generation(s.load(usedWord)))
		}
	}
	require.Equal(t, sh.buckets, live)
	require.Len(t, words, live, "words of slots that are not live")
}

// checkChunks checks that every slot is either in use or free.
func checkChunks(t *testing.T, sh *shard) {
	t.Helper()
	x := sh.index.Load()
	used := map[int]bool{}
	for n, s := range sh.slots(0, len(sh.chunks)) {
		used[n] = true
		part, left := int(s.load(restWord)&countMask), int(s.load(tailWord)&lenMask)
		if left <= inlineID {
			continue
		}
		for left -= headID; left > 0; left -= partBytes {
			require.False(t, used[part], "slot %d is used twice", part)
			used[part] = true
			require.Zero(t, x.slot(part).load(stateWord)&countMask, "a part of an ID is not live")
			part = int(x.slot(part).load(deniedWord) & countMask)
		}
	}
	for i := range sh.chunks {
		c := &sh.chunks[i]
		for j := range chunkSlots {
			free := c.free[j/64]>>(j%64)&1 == 1
			gone := x.chunks[i].Load() == nil
			require.Equal(t, !used[i*chunkSlots+j], free || gone, "slot %d of chunk %d", j, i)
		}
		if i < sh.open {
			require.True(t, c.closed || c.free == [2]uint64{}, "chunk %d has a free slot, before %d", i,
				sh.open)
		}
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
			require.EqualValues(t, l.capacity.used(), checkTable(t, l.buckets)+checkTable(t, l.callers))
		}
	}
	clock.ns.Add(int64(time.Hour))
	l.Sweep()
	for i := range l.buckets.shards {
		sh := &l.buckets.shards[i]
		require.Same(t, noIndex, sh.index.Load(), "an empty shard holds nothing")
		require.Nil(t, sh.chunks)
		require.Zero(t, sh.filled)
		require.Zero(t, sh.open)
	}
}

// The index doubles before it is three quarters full, and shrinks when few buckets are left.
func TestIndexGrowsAndShrinks(t *testing.T) {
	l, clock := newTestLimiter(t, Config{SweepEvery: time.Hour, Timeout: 1, MaxBuckets: 10_000})
	require.Len(t, l.buckets.shards, 1)
	sh := &l.buckets.shards[0]
	var sizes []int
	note := func() {
		if n := len(sh.index.Load().words); len(sizes) == 0 || sizes[len(sizes)-1] != n {
			sizes = append(sizes, n)
		}
	}
	for i := range 100 {
		_, err := l.CheckRate(strings.Repeat("k", i+1), 10, 1)
		require.NoError(t, err)
		note()
		checkTable(t, l.buckets)
	}
	require.Equal(t, []int{16, 32, 64, 128, 256}, sizes)
	sizes = nil
	for i := range 2 {
		_, err := l.CheckRate(strings.Repeat("k", i+1), 1000, 1)
		require.NoError(t, err)
	}
	note()
	clock.setMs(11)
	l.Sweep()
	note()
	require.Equal(t, []int{256, 16}, sizes)
	checkTable(t, l.buckets)
}

// The word of a removed bucket, and the tombstones before it, become empty if the next word is.
func TestRemovalLeavesNoTombstonesAtTheEnd(t *testing.T) {
	l, _ := newTestLimiter(t, Config{SweepEvery: time.Hour, MaxBuckets: 100})
	sh := &l.buckets.shards[0]
	ids := []string{"a", "b", "c", "d", "e", "f", "g"}
	for round := range 20 {
		for _, id := range ids {
			_, err := l.CheckRate(id, 1000, 1)
			require.NoError(t, err)
		}
		rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		for _, id := range ids {
			require.NoError(t, l.Reset(id, 1000))
			checkIndex(t, sh)
		}
		require.Zero(t, sh.filled, "round %d", round)
	}
}
