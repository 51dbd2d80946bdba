package weir

import (
	"errors"
	"iter"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
)

// table is a sharded hash table from <kind, ID, scale, window number> to slots. A known key is
// found without a lock. Inserting, removing, growing and sweeping happen under one mutex a shard.
//
// No hit is lost: a bucket is removed by a compare-and-swap of its state word, so a concurrent hit
// either is in the final count, or fails by the generation and searches again.
//
// No window begins twice: a key that is not found is searched again under the mutex, where horizon
// is the latest clock reading at which an expired bucket of the shard was removed or a key was
// reported absent. A caller whose reading is earlier reads the clock again. So it makes no bucket
// for a window that was removed, and decides at no instant before one already reported. Reset does
// not raise horizon: the window goes on.
type table struct {
	hasher
	indexes  []atomic.Pointer[index] // one a shard, apart from the shards: readers share no line with writers
	shards   []shard
	capacity *capacity
}

type shard struct {
	hasher   *hasher
	capacity *capacity
	index    *atomic.Pointer[index] // replaced under mu
	earliest atomic.Int64           // at most the instant at which the first bucket expires; written under mu

	mu      sync.Mutex
	chunks  []chunkInfo // guarded by mu; of index.chunks
	open    int         // guarded by mu; no chunk before it has a slot to take
	buckets int         // guarded by mu
	filled  int         // guarded by mu; words of the index that are not empty
	horizon int64       // guarded by mu; the latest instant at which a bucket was removed or not found

	allowed, denied uint64 // guarded by mu; of removed buckets, and hits that no bucket tallies
}

const (
	shardSlots = 20_000 // buckets of a full shard, whose index is rebuilt in half a millisecond
	maxShards  = 1 << 13
)

func newTable(c *capacity) *table {
	n := 1
	for int64(n)*shardSlots < c.max && n < maxShards {
		n *= 2
	}
	t := &table{
		hasher:   newHasher(),
		indexes:  make([]atomic.Pointer[index], n),
		shards:   make([]shard, n),
		capacity: c,
	}
	for i := range t.shards {
		t.indexes[i].Store(noIndex)
		sh := &t.shards[i]
		sh.hasher, sh.capacity, sh.index = &t.hasher, c, &t.indexes[i]
		sh.earliest.Store(maxInstant)
		sh.horizon = math.MinInt64
	}
	return t
}

// number returns the number of a hash's shard. An index uses the low half of the hash.
func (t *table) number(hash uint64) int { return int(hash>>32) & (len(t.indexes) - 1) }

// cell is a key's slot with its shard locked. slot is nil where there is none.
type cell struct {
	*slot
	shard *shard
	n     int  // number of the slot
	fresh bool // lock has made it
}

// errEarlier reports a reading of the clock from before the horizon.
var errEarlier = errors.New("weir: clock was read before the horizon")

// reading is an instant that a caller has read.
type reading struct {
	now     int64
	stamp   uint64 // of now, in a fixed window
	horizon int64  // the horizon for which the clock was read again; math.MinInt64 for none
}

// lock returns the cell of a key. If it has no slot and create is set, lock makes one with a count
// of 0. It fails with ErrFull, and with errEarlier if the caller is to read the clock again: then
// it has set at.horizon. A reading made after that is taken even if the clock went back. On an
// error the mutex is free.
func (t *table) lock(k packedID, id string, p *period, at *reading, create bool) (cell, error) {
	sh := &t.shards[t.number(k.hash)]
	for {
		sh.mu.Lock()
		c := cell{shard: sh}
		c.slot, _, c.n = sh.index.Load().find(k, id, p)
		var err error
		switch {
		case c.slot != nil:
			return c, nil
		case at.now < sh.horizon && at.horizon != sh.horizon:
			at.horizon, err = sh.horizon, errEarlier
		case !create:
			sh.horizon = max(sh.horizon, at.now) // that there is no bucket was reported for this instant
			return c, nil
		case (len(sh.chunks)+2)*chunkSlots > maxSlots: // of long IDs, or of more than maxShards can hold
			err = ErrFull
		case t.capacity.tryTake():
			c.slot, c.n = sh.insert(k, id, p, at.stamp)
			c.fresh = true
			return c, nil
		}
		sh.mu.Unlock()
		if err == nil && !t.capacity.janitor.reclaim(at.now) {
			err = ErrFull
		}
		if err != nil {
			return cell{}, err
		}
	}
}

// noteEnd lowers earliest for a bucket that is new, or may expire sooner than before.
func (sh *shard) noteEnd(n int, end int64) {
	info := &sh.chunks[n/chunkSlots]
	info.earliest = min(info.earliest, end)
	if end < sh.earliest.Load() {
		sh.earliest.Store(end)
	}
}

// insert makes a slot for a key that has none, with a count of 0.
func (sh *shard) insert(k packedID, id string, p *period, stamp uint64) (*slot, int) {
	if x := sh.index.Load(); 4*(sh.filled+1) > 3*len(x.words) {
		sh.rebuild()
	}
	n, s := sh.take()
	if len(id) > inlineID {
		k.c = uint64(sh.insertParts(id[headID:]))
	}
	s.write(lowWord, p.low)
	s.write(idWord, k.a)
	s.write(idWord2, k.b)
	s.write(restWord, p.mid|k.c)
	s.write(tailWord, stamp<<16|p.high|uint64(len(id)))
	state := s.load(stateWord)
	s.write(deniedWord, generation(state))
	s.write(usedWord, generation(state)|stamp)
	// Readers look at the state first. It is stored after the other words, and the index word last.
	atomic.StoreUint64(&s[stateWord], state+1)
	if sh.index.Load().put(uint32(k.hash^p.salt), n) {
		sh.filled++
	}
	sh.buckets++
	return s, n
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
	k, scale, number := unpackPeriod(s.load(lowWord), s.load(restWord), s.load(tailWord))
	return uint32(sh.hasher.hashBytes(id) ^ periodOf(k, scale, number).salt)
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

// release removes the bucket in a slot. Hits without a lock rely on the order: first the state, by
// a compare-and-swap that yields the final count; then the other generations; last the index.
func (sh *shard) release(s *slot, n int) {
	at := sh.position(s)
	state := s.load(stateWord)
	for !atomic.CompareAndSwapUint64(&s[stateWord], state, nextGeneration(state)) {
		state = s.load(stateWord)
	}
	next := nextGeneration(state)
	if denied := atomic.SwapUint64(&s[deniedWord], next); s.kind() == fixedKind {
		sh.allowed += uint64(count(state))
		sh.denied += denied & countMask
	}
	atomic.StoreUint64(&s[usedWord], next)
	x := sh.index.Load()
	sh.filled -= x.remove(at, n)
	sh.buckets--
	sh.capacity.give()
	rest, length := s.load(restWord), int(s.load(tailWord)&lenMask)
	sh.free(n, next)
	if length <= inlineID {
		return
	}
	for part := rest; length > headID; length -= partBytes {
		n := int(part & countMask)
		s := x.slot(n)
		part = s.load(deniedWord)
		next := nextGeneration(s.load(stateWord))
		atomic.StoreUint64(&s[stateWord], next) // so that write uses atomic stores
		sh.free(n, next)
	}
}

func nextGeneration(state uint64) uint64 { return generation(state) + 1<<countBits }

func (s *slot) kind() kind {
	k, _, _ := unpackPeriod(0, s.load(restWord), s.load(tailWord))
	return k
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

// stats holds a shard's mutex, so that no bucket is missed or counted twice.
func (t *table) stats() (allowed, denied uint64) {
	for i := range t.shards {
		sh := &t.shards[i]
		sh.mu.Lock()
		allowed += sh.allowed
		denied += sh.denied
		for _, s := range sh.slots(0, len(sh.chunks)) {
			if s.kind() == fixedKind {
				allowed += uint64(count(s.load(stateWord)))
				denied += s.load(deniedWord) & countMask
			}
		}
		sh.mu.Unlock()
	}
	return allowed, denied
}
