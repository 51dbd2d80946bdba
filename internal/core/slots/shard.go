package slots

import (
	"iter"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/arith"
	"github.com/weirgo/weir/internal/core/ids"
	"github.com/weirgo/weir/internal/core/room"
	"github.com/weirgo/weir/internal/core/tally"
)

// Shard is the slots of a part of the keys: chunks of them, and an index.
type Shard struct {
	meaning   Meaning
	tallied   bool // the still words are tallies
	hasher    *ids.Hasher
	room      *room.Room
	index     *atomic.Pointer[Index] // replaced under the mutex
	earliest  atomic.Int64           // written under the mutex; see Soonest
	MaxChunks int                    // set by Init; see Full

	sync.Mutex             // guards all below
	chunks     []chunkInfo // of index.chunks
	open       int         // no chunk before it has a slot to take
	buckets    int
	filled     int    // words of the index that are not empty
	marks      uint64 // the last serial number of a bucket; not used if tallied
	Horizon    int64  // the latest instant at which a bucket was removed or not found

	tally.Sums // what the buckets do not count: that of removed ones, and hits without one
}

// Meaning says what the contents of the slots of a table mean.
type Meaning interface {
	// End returns the instant at which a bucket with this content expires. The shard's mutex is held.
	End(s *Slot, c Content) int64

	// Counted returns how many admitted hits a bucket with this state stands for, and the cost that is
	// held in it.
	Counted(s *Slot, state Word) (hits int64, held uint64)

	// Stays is called for a bucket whose end a sweep has found to be algorithm.End. It reports false
	// if the state is another by now. The shard's mutex is held.
	Stays(s *Slot, state Word) bool
}

// Init makes a shard, whose index readers find in x. h and r are those of its table.
func (sh *Shard) Init(
	h *ids.Hasher, x *atomic.Pointer[Index], m Meaning, tallied bool, r *room.Room,
) {
	sh.hasher, sh.index, sh.meaning, sh.tallied, sh.room = h, x, m, tallied, r
	x.Store(noIndex)
	sh.earliest.Store(algorithm.End)
	sh.Horizon = math.MinInt64
	sh.MaxChunks = maxSlots/chunkSlots - 2 // leaves two for a bucket with a long ID
}

// LockKey locks the mutex for a key.
func (sh *Shard) LockKey(k ids.Packed, id string, p *Period) Locked {
	sh.Lock()
	c := Locked{Shard: sh, ID: id, key: *p, k: k}
	c.Slot, c.State, c.N = sh.index.Load().Find(k, id, p)
	if c.Slot != nil {
		c.Have = c.Content(c.State)
	}
	return c
}

// Full reports whether the shard has more than MaxChunks, and takes no further bucket. The mutex is
// held. Only long IDs, or a million buckets in one shard, come to it.
func (sh *Shard) Full() bool { return len(sh.chunks) > sh.MaxChunks }

// Slot returns a slot by its number, or nil if there is none.
func (sh *Shard) Slot(n int) *Slot { return sh.index.Load().slot(n) }

// AppendID appends the ID of a slot. The mutex is held.
func (sh *Shard) AppendID(dst []byte, s *Slot) []byte { return sh.index.Load().appendID(dst, s) }

// SumUp adds what the shard and its buckets count. It holds the mutex, so that no bucket is missed
// or counted twice.
func (sh *Shard) SumUp(sum *tally.Sums) {
	sh.Lock()
	defer sh.Unlock()
	sum.Allowed += sh.Allowed
	sum.Denied += sh.Denied
	for _, s := range sh.All() {
		hits, held := sh.meaning.Counted(s, s.State())
		sum.Allowed += uint64(hits)
		sum.Held += held
		if sh.tallied {
			sum.Denied += s.Denied()
		}
	}
}

// Soonest returns an instant at or before the one at which the first bucket expires. It takes no
// lock.
func (sh *Shard) Soonest() int64 { return sh.earliest.Load() }

// End returns the instant at which a bucket with this content expires. The mutex is held.
func (sh *Shard) End(s *Slot, c Content) int64 { return sh.meaning.End(s, c) }

// NoteEnd notes that a bucket is new, or may expire sooner than before. The mutex is held.
func (sh *Shard) NoteEnd(n int, end int64) {
	info := &sh.chunks[n/chunkSlots]
	info.earliest = min(info.earliest, end)
	if end < sh.earliest.Load() {
		sh.earliest.Store(end)
	}
}

// insertParts stores what follows the head of a long ID, the end first, and returns the number of
// the slot that holds its beginning.
func (sh *Shard) insertParts(id string) (next int) {
	for from := (len(id) - 1) / partBytes * partBytes; from >= 0; from -= partBytes {
		n, s := sh.take()
		part := id[from:min(from+partBytes, len(id))]
		for i := lowWord; i <= tailWord; i++ {
			head := part[:min(8, len(part))]
			s.write(i, ids.ShortWord(head))
			part = part[len(head):]
		}
		s.write(deniedWord, highBits(s.load(stateWord))|uint64(next))
		s.write(usedWord, highBits(s.load(stateWord)))
		next = n
	}
	return next
}

// take returns a free slot.
func (sh *Shard) take() (int, *Slot) {
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
			*info = chunkInfo{free: [2]uint64{^uint64(0), ^uint64(0)}, earliest: algorithm.End}
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
func (sh *Shard) moreChunks() *Index {
	old := sh.index.Load()
	x := &Index{old.words, make([]atomic.Pointer[chunk], max(1, 2*len(old.chunks)))}
	for i := range old.chunks {
		x.chunks[i].Store(old.chunks[i].Load())
	}
	sh.index.Store(x)
	return x
}

// rebuild publishes an index without tombstones, between 3/16 and 3/8 full.
func (sh *Shard) rebuild() {
	old := sh.index.Load()
	size := minIndex
	for 3*size < 8*sh.buckets {
		size *= 2
	}
	x := &Index{words: make([]uint32, size), chunks: old.chunks}
	for n, s := range sh.All() {
		x.put(sh.position(s), n)
	}
	sh.filled = sh.buckets
	sh.index.Store(x)
}

// position returns the position of a slot's key in the index.
func (sh *Shard) position(s *Slot) uint32 {
	var buf [128]byte
	id := sh.index.Load().appendID(buf[:0], s)
	return uint32(sh.hasher.HashBytes(id) ^ PeriodOf(s.Period()).Salt)
}

// All yields the live slots, with their numbers. The mutex is held.
func (sh *Shard) All() iter.Seq2[int, *Slot] { return sh.slots(0, len(sh.chunks)) }

// slots yields the live slots of the chunks in [first, end), with their numbers. The mutex is held.
func (sh *Shard) slots(first, end int) iter.Seq2[int, *Slot] {
	return func(yield func(int, *Slot) bool) {
		for i := first; i < end; i++ {
			c := sh.index.Load().chunks[i].Load()
			for j := 0; c != nil && j < chunkSlots; j++ {
				if s := &c[j]; s.State().Live() && !yield(i*chunkSlots+j, s) {
					return
				}
			}
		}
	}
}

// Visit calls f for the live slots of a chunk, with the mutex held. It reports false if there is no
// such chunk.
func (sh *Shard) Visit(i int, f func(n int, s *Slot)) bool {
	sh.Lock()
	defer sh.Unlock()
	if i >= len(sh.chunks) {
		return false
	}
	for n, s := range sh.slots(i, i+1) {
		f(n, s)
	}
	return true
}

// Release removes the bucket in a slot whose state word is state, and gives its room back. It
// reports false if a hit came in between. The mutex is held. Hits without a lock rely on the order:
// first the state, by a compare-and-swap that yields the final count; then the tallies'
// generations; last the index.
func (sh *Shard) Release(s *Slot, n int, state Word) bool {
	if !s.kill(state) {
		return false
	}
	hits, _ := sh.meaning.Counted(s, state)
	sh.Moved(-hits, 0)
	if sh.tallied {
		next := uint64(state.next())
		sh.Denied += atomic.SwapUint64(&s[deniedWord], next) & countMask
		atomic.StoreUint64(&s[usedWord], next)
	}
	sh.room.Give()
	sh.unlink(s, n)
	return true
}

// unlink takes a slot that was killed out of the index, and frees it and the parts of its ID.
func (sh *Shard) unlink(s *Slot, n int) {
	x := sh.index.Load()
	sh.filled -= x.remove(sh.position(s), n)
	sh.buckets--
	part, length := s.load(restWord), s.IDLen()
	sh.free(n, s.State())
	if length <= ids.Inline {
		return
	}
	for ; length > ids.Head; length -= partBytes {
		n := int(part & countMask)
		s := x.slot(n)
		part = s.load(deniedWord)
		next := s.State().next()
		atomic.StoreUint64(&s[stateWord], uint64(next)) // so that write uses atomic stores
		sh.free(n, next)
	}
}

// free returns a slot to its chunk. The chunk is closed if the slot has one generation left, and
// then freed as soon as all its slots are free: generations begin again in new memory, which a
// search that still holds the old chunk does not see.
func (sh *Shard) free(n int, state Word) {
	i, j := n/chunkSlots, n%chunkSlots
	c := &sh.chunks[i]
	c.free[j/64] |= 1 << (j % 64)
	c.closed = c.closed || state.Epoch() == lastGeneration
	if c.closed && c.empty() {
		sh.index.Load().chunks[i].Store(nil)
	}
	sh.open = min(sh.open, i)
}

// Sweep removes the buckets that expired timeout ago, and frees the chunks that are empty then. It
// holds the mutex for one chunk at a time.
func (sh *Shard) Sweep(now, timeout int64) (removed int) {
	sh.Lock()
	defer sh.Unlock()
	for c := 0; c < len(sh.chunks); c++ {
		removed += sh.sweepChunk(c, now, timeout)
		sh.Unlock()
		sh.Lock()
	}
	sh.findEarliest()
	sh.trim()
	return removed
}

// Reclaim removes some buckets that have expired at now. It returns 0 if it found none, or has used
// up budget: a number of slots to look at, which it lowers.
func (sh *Shard) Reclaim(now int64, budget *int) (removed int) {
	if sh.earliest.Load() > now {
		return 0
	}
	sh.Lock()
	defer sh.Unlock()
	for i := range sh.chunks {
		if sh.chunks[i].earliest > now {
			continue
		}
		removed = sh.sweepChunk(i, now, 0)
		*budget -= chunkSlots
		if removed > 0 || *budget <= 0 {
			break
		}
	}
	sh.findEarliest()
	return removed
}

// findEarliest raises earliest to the earliest of the chunks.
func (sh *Shard) findEarliest() {
	earliest := algorithm.End
	for i := range sh.chunks {
		earliest = min(earliest, sh.chunks[i].earliest)
	}
	sh.earliest.Store(earliest)
}

// sweepChunk removes the buckets of one chunk that expired timeout ago.
func (sh *Shard) sweepChunk(i int, now, timeout int64) (removed int) {
	if sh.chunks[i].earliest > now {
		return 0
	}
	earliest := algorithm.End
	for n, s := range sh.slots(i, i+1) {
		for {
			state := s.State()
			end := sh.End(s, s.Content(state))
			if now < arith.Add(end, timeout) {
				if end == algorithm.End && !sh.meaning.Stays(s, state) {
					continue
				}
				earliest = min(earliest, end)
				break
			}
			sh.Horizon = max(sh.Horizon, now)
			if sh.Release(s, n, state) { // else a late hit came, and may have moved the end
				removed++
				break
			}
		}
	}
	sh.chunks[i].earliest = earliest
	return removed
}

// trim frees the chunks without buckets, and the index if it is much too large.
func (sh *Shard) trim() {
	if sh.buckets == 0 {
		sh.chunks, sh.open, sh.filled = nil, 0, 0
		sh.index.Store(noIndex)
		return
	}
	x := sh.index.Load()
	for i := range sh.chunks {
		if sh.chunks[i].empty() {
			x.chunks[i].Store(nil)
		}
	}
	for last := len(sh.chunks) - 1; x.chunks[last].Load() == nil; last-- {
		sh.chunks = sh.chunks[:last]
	}
	sh.open = min(sh.open, len(sh.chunks))
	if len(x.words) > minIndex && 16*sh.buckets < len(x.words) {
		sh.rebuild()
	}
}
