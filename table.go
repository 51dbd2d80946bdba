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
// found without a lock. Inserting, rolling to another epoch, removing, growing and sweeping happen
// under one mutex a shard.
//
// No hit is lost: an epoch ends by a compare-and-swap of the state word, so a concurrent hit either
// is in the final count, or fails by the generation and searches again.
//
// No window begins twice: a key that is not found is searched again under the mutex, where horizon
// is the latest clock reading at which an expired bucket of the shard was removed or a key was
// reported absent. A caller whose reading is earlier reads the clock again. So it makes no bucket
// for a window that was removed, and decides at no instant before one already reported. Reset does
// not raise horizon: the window goes on.
type table struct {
	hasher
	tallied bool // true for fixed windows: Stats adds up their counts, and tally is not used
	tally   tally

	// extraCost is the admitted cost of fixed windows less their admitted hits: costs over 1, charges
	// and refunds. A hit of cost 1 does not write it: Stats adds up the buckets' counts instead.
	extraCost atomic.Int64

	indexes  []atomic.Pointer[index] // one a shard, apart from the shards: readers share no line with writers
	shards   []shard
	capacity *capacity
}

type shard struct {
	tallied  bool // as the table
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
	marks   uint64      // guarded by mu; the last serial number of a bucket; not used for fixed windows

	allowed, denied uint64 // guarded by mu; of removed fixed windows, and hits that no bucket tallies
}

// tally counts the hits of buckets that keep no sum of them: a sliding window drops its older
// counts, and a token bucket holds an instant. It has cache lines of its own, so that counting a
// hit does not invalidate those that decisions read.
type tally struct {
	_       [64]byte
	allowed atomic.Uint64
	_       [56]byte
	denied  atomic.Uint64
	_       [56]byte
}

// moved notes a change of a count that is no hit of cost 1. Stats subtracts it from the sum of the
// counts.
func (t *table) moved(by int64) {
	if t.tallied && by != 0 {
		t.extraCost.Add(by)
	}
}

const (
	shardSlots = 20_000 // buckets of a full shard, whose index is rebuilt in half a millisecond
	maxShards  = 1 << 13

	// maxChunks leaves two chunks for a bucket with a long ID. Only long IDs, or more buckets than
	// maxShards are made for, come to it.
	maxChunks = maxSlots/chunkSlots - 2
)

func newTable(c *capacity, tallied bool) *table {
	n := 1
	for int64(n)*shardSlots < c.max && n < maxShards {
		n *= 2
	}
	t := &table{
		hasher:   newHasher(),
		tallied:  tallied,
		indexes:  make([]atomic.Pointer[index], n),
		shards:   make([]shard, n),
		capacity: c,
	}
	for i := range t.shards {
		t.indexes[i].Store(noIndex)
		sh := &t.shards[i]
		sh.tallied, sh.hasher, sh.capacity, sh.index = tallied, &t.hasher, c, &t.indexes[i]
		sh.earliest.Store(maxInstant)
		sh.horizon = math.MinInt64
	}
	return t
}

// find returns the slot of a key, with its state as read before the key was compared; nil if there is
// none.
func (t *table) find(id string, p *period) (s *slot, state uint64) {
	if len(id) > inlineID {
		k := t.pack(id)
		s, state, _ = t.indexes[t.number(k.hash)].Load().find(k, id, p)
		return s, state
	}
	k := t.packShort(id)
	s, state, _ = t.indexes[int(k.hash>>32)&(len(t.indexes)-1)].Load().findShort(k, len(id), p)
	return s, state
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

// identity distinguishes a bucket from the others of its key. The zero value is no bucket's.
type identity struct{ mark, slot uint64 }

// identity returns that of the bucket in a cell. In a fixed window it is the stamp of its creation, its
// slot and the generation: that of two buckets is the same only if the clock stood still while a sweep
// freed the memory of the first.
func (c *cell) identity() identity {
	id := identity{mark: c.load(tailWord) >> 16}
	if c.shard.tallied {
		id.slot = generation(c.load(stateWord)) | uint64(c.n+1)
	}
	return id
}

// errEarlier reports a reading of the clock from before the horizon.
var errEarlier = errors.New("weir: clock was read before the horizon")

// reading is an instant that a caller has read.
type reading struct {
	now int64

	// horizon is that of the shard when an earlier reading failed with errEarlier; math.MinInt64
	// before that. now was read since: it is not compared with this horizon again.
	horizon int64
}

// fresh is a bucket that is to be made.
type fresh struct {
	content
	mark uint64 // of a fixed window; lock sets that of others
	end  int64  // when it expires
}

// lock returns the cell of a key, with the shard's mutex held. If the key has no slot, and first is
// not nil, lock makes it. On an error the mutex is free.
//
// It fails with ErrFull. It fails with errEarlier if the key has no slot and at.now is before the
// horizon: the caller reads the clock, and calls lock again with the same at, in which the horizon
// is set. The new reading is accepted even if the clock went back; otherwise the caller would
// repeat until the clock has come to the horizon.
func (t *table) lock(k packedID, id string, p *period, at *reading, first *fresh) (cell, error) {
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
		case first == nil:
			sh.horizon = max(sh.horizon, at.now) // no bucket may be made for an earlier instant from now on
			return c, nil
		case len(sh.chunks) > maxChunks:
			err = ErrFull
		case t.capacity.tryTake():
			if !sh.tallied {
				sh.marks++
				first.mark = sh.marks
			}
			c.slot, c.n = sh.insert(k, id, p, first.content, first.mark)
			c.fresh = true
			sh.noteEnd(c.n, first.end)
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

// insert makes a slot for a key that has none.
func (sh *shard) insert(k packedID, id string, p *period, first content, mark uint64) (*slot, int) {
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
	s.write(tailWord, mark<<16|p.high|uint64(len(id)))
	epoch := s.load(stateWord) &^ countMask
	tallies := epoch
	if !sh.tallied {
		tallies = 0
	}
	s.write(stillWord1, tallies|uint64(first.Still1))
	s.write(stillWord2, tallies|uint64(first.Still2))
	// Readers look at the state first. It is stored after the other words, and the index word last.
	atomic.StoreUint64(&s[stateWord], epoch|uint64(first.N+1))
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

// replace changes the content of a slot from have, which was read with the state word state, to
// next. It begins another epoch only if a still word differs. It reports false if a hit came in
// between. It fails with ErrFull, and has changed nothing then, if the slot's generations are used
// up and there is no other slot.
func (sh *shard) replace(c *cell, k packedID, id string, p *period, state uint64, have, next content) (bool, error) {
	switch {
	case next == have:
		return true, nil
	case next.Still1 == have.Still1 && next.Still2 == have.Still2:
		return c.slot.swap(state, next.N), nil
	case nextGeneration(state)>>countBits == lastGeneration && len(sh.chunks) > maxChunks:
		return false, ErrFull
	}
	return sh.roll(c, k, id, p, state, next), nil
}

// roll begins another epoch of a bucket. Hits without a lock rely on the order: first the generation,
// then the still words, last the number, which makes the slot live again. A slot with one generation
// left moves its bucket to another slot.
func (sh *shard) roll(c *cell, k packedID, id string, p *period, state uint64, next content) bool {
	s, then := c.slot, nextGeneration(state)
	if !s.kill(state) {
		return false
	}
	if then>>countBits == lastGeneration {
		mark := s.load(tailWord) >> 16
		sh.unlink(s, c.n)
		c.slot, c.n = sh.insert(k, id, p, next, mark)
		return true
	}
	atomic.StoreUint64(&s[stillWord1], uint64(next.Still1))
	atomic.StoreUint64(&s[stillWord2], uint64(next.Still2))
	atomic.StoreUint64(&s[stateWord], then|uint64(next.N+1))
	return true
}

// release removes the bucket in a slot whose state word is state. It reports false if a hit came in
// between. Hits without a lock rely on the order: first the state, by a compare-and-swap that yields
// the final count; then the tallies' generations; last the index.
func (sh *shard) release(s *slot, n int, state uint64) bool {
	if !s.kill(state) {
		return false
	}
	if sh.tallied {
		next := nextGeneration(state)
		sh.allowed += uint64(count(state))
		sh.denied += atomic.SwapUint64(&s[deniedWord], next) & countMask
		atomic.StoreUint64(&s[usedWord], next)
	}
	sh.capacity.give()
	sh.unlink(s, n)
	return true
}

// remove removes the bucket in a cell, if there is one, whatever it counts, and unlocks the shard.
func (c *cell) remove() {
	for c.slot != nil && !c.shard.release(c.slot, c.n, c.load(stateWord)) {
	}
	c.shard.mu.Unlock()
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

// stats holds a shard's mutex, so that no bucket is missed or counted twice.
func (t *table) stats() (allowed, denied uint64) {
	allowed, denied = t.tally.allowed.Load(), t.tally.denied.Load()
	for i := range t.shards {
		sh := &t.shards[i]
		sh.mu.Lock()
		allowed += sh.allowed
		denied += sh.denied
		if t.tallied {
			for _, s := range sh.slots(0, len(sh.chunks)) {
				allowed += uint64(count(s.load(stateWord)))
				denied += s.load(deniedWord) & countMask
			}
		}
		sh.mu.Unlock()
	}
	return allowed, denied
}
