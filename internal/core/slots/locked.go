package slots

import (
	"sync/atomic"

	"github.com/weirgo/weir/internal/core/ids"
	"github.com/weirgo/weir/internal/core/room"
)

// Locked is a key whose shard is locked, and its slot. The slot is nil if there is no bucket.
type Locked struct {
	*Slot
	N     int     // the number of the slot
	State Word    // as read last: a hit may have changed it since
	Have  Content // with State
	Shard *Shard
	ID    string
	key   Period
	k     ids.Packed
}

// Identity distinguishes a bucket from the others of its key. The zero value is no bucket's.
type Identity struct{ mark, slot uint64 }

// Words returns the identity as two numbers.
func (i Identity) Words() [2]int64 { return [2]int64{int64(i.mark), int64(i.slot)} }

// Identity returns that of the bucket. In a tallied shard it is the mark, the slot and the
// generation: that of two buckets is the same only if the clock stood still while a sweep freed the
// memory of the first.
func (c *Locked) Identity() Identity {
	if c.Slot == nil {
		return Identity{}
	}
	id := Identity{mark: c.Mark()}
	if c.Shard.tallied {
		id.slot = highBits(c.load(stateWord)) | uint64(c.N+1)
	}
	return id
}

// Replace changes the content from c.Have to next. If there is no bucket it makes one. It begins
// another epoch only if a still word differs. It reports false if a hit came in between, and reads
// the content again. It fails with room.ErrFull, and has changed nothing then, if the slot's
// generations are used up and there is no other slot. It leaves Shard.Moved to the caller.
func (c *Locked) Replace(next Content) (done bool, err error) {
	switch {
	case c.Slot == nil:
		c.Insert(next)
		done = true
	case next.Still1 == c.Have.Still1 && next.Still2 == c.Have.Still2:
		done = c.Swap(c.State, c.State.With(next.N))
	case c.State.next().Epoch() == lastGeneration && c.Shard.Full():
		return false, room.ErrFull
	default:
		done = c.roll(c.State, next)
	}
	if !done {
		c.State = c.Slot.State()
		c.Have = c.Content(c.State)
	}
	return done, nil
}

// Insert makes the bucket of a key that has none.
func (c *Locked) Insert(first Content) { c.insertMarked(first, 0) }

// insertMarked is Insert of a bucket that moves here, unless mark is 0.
func (c *Locked) insertMarked(first Content, mark uint64) {
	sh := c.Shard
	if x := sh.index.Load(); 4*(sh.filled+1) > 3*len(x.words) {
		sh.rebuild()
	}
	n, s := sh.take()
	k := c.k
	if len(c.ID) > ids.Inline {
		k.C = uint64(sh.insertParts(c.ID[ids.Head:]))
	}
	epoch := s.load(stateWord) &^ countMask
	tallies := uint64(0)
	if sh.tallied {
		tallies, mark = epoch, uint64(first.Still2) // the last use is the first one
	} else if mark == 0 {
		sh.marks++
		mark = sh.marks
	}
	s.write(lowWord, c.key.low)
	s.write(idWord, k.A)
	s.write(idWord2, k.B)
	s.write(restWord, c.key.mid|k.C)
	s.write(tailWord, mark<<16|c.key.high|uint64(len(c.ID)))
	s.write(stillWord1, tallies|uint64(first.Still1))
	s.write(stillWord2, tallies|uint64(first.Still2))
	// Readers look at the state first. It is stored after the other words, and the index word last.
	atomic.StoreUint64(&s[stateWord], epoch|uint64(first.N+1))
	if sh.index.Load().put(uint32(k.Hash^c.key.Salt), n) {
		sh.filled++
	}
	sh.buckets++
	c.Slot, c.N = s, n
}

// roll begins another epoch of a bucket. Hits without a lock rely on the order: first the
// generation, then the still words, last the number, which makes the slot live again. A slot with
// one generation left moves its bucket to another slot.
func (c *Locked) roll(state Word, next Content) bool {
	s, then := c.Slot, state.next()
	if !s.kill(state) {
		return false
	}
	if then.Epoch() == lastGeneration {
		mark := s.Mark()
		c.Shard.unlink(s, c.N)
		c.insertMarked(next, mark)
		return true
	}
	atomic.StoreUint64(&s[stillWord1], uint64(next.Still1))
	atomic.StoreUint64(&s[stillWord2], uint64(next.Still2))
	atomic.StoreUint64(&s[stateWord], uint64(then.With(next.N)))
	return true
}

// Remove removes the bucket, if there is one, whatever it counts, and unlocks the shard.
func (c *Locked) Remove() {
	for c.Slot != nil && !c.Shard.Release(c.Slot, c.N, c.Slot.State()) {
	}
	c.Unlock()
}

// Unlock unlocks the shard.
func (c *Locked) Unlock() { c.Shard.Unlock() }

// End returns the instant at which the bucket expires with another content.
func (c *Locked) End(of Content) int64 { return c.Shard.End(c.Slot, of) }

// NoteEnd notes that the bucket is new, or may expire sooner than before.
func (c *Locked) NoteEnd(end int64) { c.Shard.NoteEnd(c.N, end) }
