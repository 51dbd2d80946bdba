package weir

import (
	"iter"
	"math/bits"
	"sync"
	"sync/atomic"
)

// shard is the slots of a part of the keys: chunks of them, and an index.
type shard struct {
	tallied  bool // for fixed windows: the slots tally denied hits
	hasher   *hasher
	capacity *capacity
	index    *atomic.Pointer[index] // replaced under mu
	// at most the instant at which the first bucket expires; written under mu
	earliest atomic.Int64

	mu      sync.Mutex
	chunks  []chunkInfo // guarded by mu; of index.chunks
	open    int         // guarded by mu; no chunk before it has a slot to take
	buckets int         // guarded by mu
	filled  int         // guarded by mu; words of the index that are not empty
	horizon int64       // guarded by mu; the latest instant at which a bucket was removed or not found
	// guarded by mu; the last serial number of a bucket; not used for fixed windows
	marks uint64

	// guarded by mu; of removed buckets, and hits that no bucket counts; allowed less what buckets
	// count that is no hit, which may wrap around
	allowed, denied uint64
}

// noteEnd lowers earliest for a bucket that is new, or may expire sooner than before.
func (sh *shard) noteEnd(n int, end int64) {
	info := &sh.chunks[n/chunkSlots]
	info.earliest = min(info.earliest, end)
	if end < sh.earliest.Load() {
		sh.earliest.Store(end)
	}
}

// write stores a word of a slot that is not live. No search ends at a slot whose state is still
// zero, and a plain store is cheaper by 8 ns.
func (s *slot) write(i int, v uint64) {
	if s.load(stateWord) == 0 {
		s[i] = v
		return
	}
	atomic.StoreUint64(&s[i], v)
}

// insertParts stores the part of a long ID beyond headID, the end first, and returns the number of
// the slot that holds its beginning.
func (sh *shard) insertParts(id string) (next int) {
	for from := (len(id) - 1) / partBytes * partBytes; from >= 0; from -= partBytes {
		n, s := sh.take()
		part := id[from:min(from+partBytes, len(id))]
		for i := lowWord; i <= tailWord; i++ {
			head := part[:min(8, len(part))]
			s.write(i, shortWord(head))
			part = part[len(head):]
		}
		s.write(deniedWord, generation(s.load(stateWord))|uint64(next))
		s.write(usedWord, generation(s.load(stateWord)))
		next = n
	}
	return next
}

// take returns a free slot.
func (sh *shard) take() (int, *slot) {
	for ; ; sh.open++ {
		if sh.open == len(sh.chunks) {
			sh.chunks = append(sh.chunks, chunkInfo{})
		}
		x := sh.index.Load()
		if sh.open == len(x.chunks) {
			x = sh.moreChunks()
		}
		info := &sh.chunks[sh.open]
		if x.chunks[sh.open].Load() == nil {
			*info = chunkInfo{free: [2]uint64{^uint64(0), ^uint64(0)}, earliest: maxInstant}
			x.chunks[sh.open].Store(new(chunk))
		}
		for i := 0; i < len(info.free) && !info.closed; i++ {
			if b := bits.TrailingZeros64(info.free[i]); b < 64 {
				info.free[i] &^= 1 << b
				n := sh.open*chunkSlots + 64*i + b
				return n, x.slot(n)
			}
		}
	}
}

// moreChunks publishes an index with room for twice as many chunks.
func (sh *shard) moreChunks() *index {
	old := sh.index.Load()
	chunks := make([]atomic.Pointer[chunk], max(1, 2*len(old.chunks)))
	x := &index{words: old.words, chunks: chunks}
	for i := range old.chunks {
		x.chunks[i].Store(old.chunks[i].Load())
	}
	sh.index.Store(x)
	return x
}

// rebuild publishes an index without tombstones, between 3/16 and 3/8 full.
func (sh *shard) rebuild() {
	old := sh.index.Load()
	size := minIndex
	for 3*size < 8*sh.buckets {
		size *= 2
	}
	x := &index{words: make([]uint32, size), chunks: old.chunks}
	for n, s := range sh.slots(0, len(sh.chunks)) {
		x.put(sh.position(s), n)
	}
	sh.filled = sh.buckets
	sh.index.Store(x)
}

// position returns the position of a slot's key in the index.
func (sh *shard) position(s *slot) uint32 {
	var buf [128]byte
	id := sh.index.Load().appendID(buf[:0], s)
	return uint32(sh.hasher.hashBytes(id) ^ periodOf(s.period()).salt)
}

// slots yields the live slots of the chunks in [first, end), with their numbers. The mutex is held.
func (sh *shard) slots(first, end int) iter.Seq2[int, *slot] {
	return func(yield func(int, *slot) bool) {
		for i := first; i < end; i++ {
			c := sh.index.Load().chunks[i].Load()
			for j := 0; c != nil && j < chunkSlots; j++ {
				if s := &c[j]; s.load(stateWord)&countMask != 0 && !yield(i*chunkSlots+j, s) {
					return
				}
			}
		}
	}
}

// visit calls f for the live slots of a chunk, with the mutex held, if there is such a chunk.
func (sh *shard) visit(i int, f func(*slot)) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if i >= len(sh.chunks) {
		return false
	}
	for _, s := range sh.slots(i, i+1) {
		f(s)
	}
	return true
}

// release removes the bucket in a slot whose state word is state. It reports false if a hit came in
// between. Hits without a lock rely on the order: first the state, by a compare-and-swap that
// yields the final count; then the tallies' generations; last the index.
func (sh *shard) release(s *slot, n int, state uint64) bool {
	if !s.kill(state) {
		return false
	}
	sh.allowed += s.admitted(state)
	if sh.tallied {
		next := nextGeneration(state)
		sh.denied += atomic.SwapUint64(&s[deniedWord], next) & countMask
		atomic.StoreUint64(&s[usedWord], next)
	}
	sh.capacity.give()
	sh.unlink(s, n)
	return true
}

// unlink takes a slot that was killed out of the index, and frees it and the parts of its ID.
func (sh *shard) unlink(s *slot, n int) {
	x := sh.index.Load()
	sh.filled -= x.remove(sh.position(s), n)
	sh.buckets--
	part, length := s.load(restWord), int(s.load(tailWord)&lenMask)
	sh.free(n, s.load(stateWord))
	if length <= inlineID {
		return
	}
	for ; length > headID; length -= partBytes {
		n := int(part & countMask)
		s := x.slot(n)
		part = s.load(deniedWord)
		next := nextGeneration(s.load(stateWord))
		atomic.StoreUint64(&s[stateWord], next) // so that write uses atomic stores
		sh.free(n, next)
	}
}

// free returns a slot to its chunk. The chunk is closed if the slot has one generation left, and
// then freed as soon as all its slots are free: generations begin again in new memory, which a
// search that still holds the old chunk does not see.
func (sh *shard) free(n int, state uint64) {
	i, j := n/chunkSlots, n%chunkSlots
	c := &sh.chunks[i]
	c.free[j/64] |= 1 << (j % 64)
	c.closed = c.closed || state>>countBits == lastGeneration
	if c.closed && c.empty() {
		sh.index.Load().chunks[i].Store(nil)
	}
	sh.open = min(sh.open, i)
}
