package weir

import (
	"errors"
	"math"
	"sync/atomic"

	"github.com/weirgo/weir/internal/tally"
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

	// of hits that no slot counts
	allowed tally.Tally // of token buckets, less the cost over 1 that slots count: it may wrap around
	places  tally.Tally // 64 at a time, each from one slot
	denied  tally.Tally // of all but fixed windows

	// one a shard, apart from the shards: readers share no line with writers
	indexes  []atomic.Pointer[index]
	shards   []shard
	capacity *capacity
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

// find returns the slot of a key, with its state as read before the key was compared, and its
// location; nil if there is none.
func (t *table) find(id string, p *period) (s *slot, state uint64, at location) {
	var i, n int
	if len(id) > inlineID {
		k := t.pack(id)
		i = t.number(k.hash)
		s, state, n = t.indexes[i].Load().find(k, id, p)
	} else {
		k := t.packShort(id)
		i = int(k.hash>>32) & (len(t.indexes) - 1)
		s, state, n = t.indexes[i].Load().findShort(k, len(id), p)
	}
	return s, state, location(i)<<32 | location(n)
}

// findLongBytes is find for an ID of more than inlineID bytes that is no string, without the
// location.
func (t *table) findLongBytes(id []byte, p *period) (s *slot, state uint64) {
	k := packedID{word(id), word(id[8:]), 0, t.hashBytes(id)}
	s, state, _ = findLong(t.indexes[t.number(k.hash)].Load(), k, id, p)
	return s, state
}

// number returns the number of a hash's shard. An index uses the low half of the hash.
func (t *table) number(hash uint64) int { return int(hash>>32) & (len(t.indexes) - 1) }

// errEarlier reports a reading of the clock from before the horizon.
var errEarlier = errors.New("weir: clock was read before the horizon")

// reading is an instant that a caller has read.
type reading struct {
	now int64

	// horizon is that of the shard when an earlier reading failed with errEarlier; math.MinInt64
	// before that. now was read since: it is not compared with this horizon again.
	horizon int64
}

// lock returns the cell of a key, with the shard's mutex held. If the key has no slot, and create
// is set, it takes capacity for the slot that the caller is to insert. On an error the mutex is
// free.
//
// It fails with ErrFull. It fails with errEarlier if the key has no slot and at.now is before the
// horizon: the caller reads the clock, and calls lock again with the same at, in which the horizon
// is set. The new reading is accepted even if the clock went back; otherwise the caller would
// repeat until the clock has come to the horizon.
func (t *table) lock(
	k packedID, id string, p *period, at *reading, create bool,
) (c cell, err error) {
	sh := &t.shards[int(k.hash>>32)&(len(t.shards)-1)]
	for {
		sh.mu.Lock()
		c = cell{shard: sh, packedID: k, id: id, key: *p}
		c.slot, c.state, c.n = sh.index.Load().find(k, id, p)
		switch {
		case c.slot != nil:
			return c, nil
		case at.now < sh.horizon && at.horizon != sh.horizon:
			at.horizon, err = sh.horizon, errEarlier
		case !create:
			sh.horizon = max(sh.horizon, at.now) // no bucket may be made for an earlier instant from now on
			return c, nil
		case len(sh.chunks) > maxChunks:
			err = ErrFull
		case t.capacity.tryTake():
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

// admit replaces the state of a slot by that after a hit, of which n is what the slot does not
// count. It adds n to allowed if it is negative, and before the hit: Stats is never too high then.
func (t *table) admit(s *slot, state, next uint64, n int64) bool {
	if n >= 0 {
		return atomic.CompareAndSwapUint64(&s[stateWord], state, next)
	}
	return t.admitCost(s, state, next, n)
}

func (t *table) admitCost(s *slot, state, next uint64, n int64) bool {
	sum := t.allowed.Stripe() // one word, so that no reader sees only that n is taken back
	sum.Add(n)
	if atomic.CompareAndSwapUint64(&s[stateWord], state, next) {
		return true
	}
	sum.Add(-n)
	return false
}

// stats holds a shard's mutex, so that no bucket is missed or counted twice. Places are read before
// the slots, and allowed after them, so that hits under way make Allowed too low, which
// Limiter.Stats mends, and never too high.
func (t *table) stats(sum *Stats) {
	sum.Allowed += t.places.Load()
	sum.Denied += t.denied.Load()
	for i := range t.shards {
		sh := &t.shards[i]
		sh.mu.Lock()
		sum.Allowed += sh.allowed
		sum.Denied += sh.denied
		for _, s := range sh.slots(0, len(sh.chunks)) {
			state := s.load(stateWord)
			sum.Allowed += s.admitted(state)
			if sh.tallied {
				sum.Denied += s.load(deniedWord) & countMask
			} else if s.hasPlaces() {
				sum.Held += uint64(heldIn(state))
			}
		}
		sh.mu.Unlock()
	}
	sum.Allowed += t.allowed.Load()
}
