package weir

import (
	"errors"
	"sync/atomic"

	"github.com/weirgo/weir/internal/core/ids"
	"github.com/weirgo/weir/internal/core/room"
	"github.com/weirgo/weir/internal/core/slots"
	"github.com/weirgo/weir/internal/core/tally"
)

// table is a sharded hash table from <kind, ID, scale, window number> to slots. A known key is
// found without a lock. Inserting, rolling to another epoch, removing, growing and sweeping happen
// under one mutex a shard.
//
// No hit is lost: an epoch ends by a compare-and-swap of the state word, so a concurrent hit either
// is in the final count, or fails by the generation and searches again.
//
// No window begins twice: a key that is not found is searched again under the mutex, where
// Shard.Horizon is the latest clock reading at which an expired bucket of the shard was removed or
// a key was reported absent. A caller whose reading is earlier reads the clock again. So it makes
// no bucket for a window that was removed, and decides at no instant before one already reported.
// Reset does not raise it: the window goes on.
type table struct {
	ids.Hasher

	// of hits that no slot counts
	allowed tally.Tally // of token buckets; less cost-1 of a hit that a slot counts by its cost
	places  tally.Tally // 64 at a time, each from one slot of places
	denied  tally.Tally // of all but fixed windows

	// one a shard, apart from the shards: readers share no line with writers
	indexes []atomic.Pointer[slots.Index]
	shards  []slots.Shard
	room    *room.Room
	janitor *janitor
}

// location is where a slot of a table is: the number of the shard 32, that of the slot 32.
type location uint64

const (
	shardSlots = 20_000 // buckets of a full shard, whose index is rebuilt in half a millisecond
	maxShards  = 1 << 13
)

func newTable(r *room.Room, j *janitor, m slots.Meaning) *table {
	_, tallied := m.(windowSlots)
	n := 1
	for int64(n)*shardSlots < r.Max && n < maxShards {
		n *= 2
	}
	t := &table{
		Hasher:  ids.NewHasher(),
		indexes: make([]atomic.Pointer[slots.Index], n),
		shards:  make([]slots.Shard, n),
		room:    r,
		janitor: j,
	}
	for i := range t.shards {
		t.shards[i].Init(&t.Hasher, &t.indexes[i], m, tallied, r)
	}
	return t
}

// find returns the slot of a key, with its state as read before the key was compared, and its
// location; nil if there is none.
func (t *table) find(id string, p *slots.Period) (s *slots.Slot, state slots.Word, at location) {
	var i, n int
	if len(id) > ids.Inline {
		k := t.Pack(id)
		i = t.shardNumber(k.Hash)
		s, state, n = slots.FindLong(t.indexes[i].Load(), k, id, p)
	} else {
		k := t.PackShort(id)
		i = t.shardNumber(k.Hash)
		s, state, n = t.indexes[i].Load().FindShort(k, len(id), p)
	}
	return s, state, location(i)<<32 | location(n)
}

// findLongBytes is find for an ID of more than ids.Inline bytes that is no string, without the
// location.
func (t *table) findLongBytes(id []byte, p *slots.Period) (s *slots.Slot, state slots.Word) {
	k := t.PackBytes(id)
	s, state, _ = slots.FindLong(t.indexes[t.shardNumber(k.Hash)].Load(), k, id, p)
	return s, state
}

// shardNumber returns the number of a hash's shard. An index uses the low half of the hash.
func (t *table) shardNumber(hash uint64) int { return int(hash>>32) & (len(t.indexes) - 1) }

// errEarlier reports a reading of the clock that is too early to decide by: from before the
// horizon.
var errEarlier = errors.New("weir: clock was read before the horizon")

// reading is an instant that a caller has read.
type reading struct {
	now int64

	// horizon is that of the shard when an earlier reading failed with errEarlier; math.MinInt64
	// before that. now was read since: it is not compared with this horizon again.
	horizon int64
}

// lock locks the shard of a key. If the key has no slot, and create is set, it takes room for the
// slot that the caller is to insert. On an error the mutex is free.
//
// It fails with room.ErrFull. It fails with errEarlier if the key has no slot and at.now is before
// the horizon: the caller reads the clock, and calls lock again with the same at, in which the
// horizon is set. The new reading is accepted even if the clock went back; otherwise the caller
// would repeat until the clock has come to the horizon.
func (t *table) lock(
	k ids.Packed, id string, p *slots.Period, at *reading, create bool,
) (c slots.Locked, err error) {
	sh := &t.shards[t.shardNumber(k.Hash)]
	for {
		c = sh.LockKey(k, id, p)
		switch {
		case c.Slot != nil:
			return c, nil
		case at.now < sh.Horizon && at.horizon != sh.Horizon:
			at.horizon, err = sh.Horizon, errEarlier
		case !create:
			sh.Horizon = max(sh.Horizon, at.now) // no bucket may be made for an earlier instant from now on
			return c, nil
		case sh.Full(): // also with room in the table: no bucket of others gives it up at once
			err = room.ErrFull
		case t.room.Take():
			return c, nil
		}
		sh.Unlock()
		if err == nil && !t.janitor.reclaim(at.now) {
			err = room.ErrFull
		}
		if err != nil {
			return slots.Locked{}, err
		}
	}
}

// admit replaces the state of a slot by that after a hit, of which n is what the slot does not
// count. Only a negative n is added to allowed here, before the hit, so that Stats is never too
// high; a positive one the caller adds after it.
func (t *table) admit(s *slots.Slot, state, next slots.Word, n int64) bool {
	if n >= 0 {
		return s.Swap(state, next)
	}
	return t.admitCost(s, state, next, n)
}

func (t *table) admitCost(s *slots.Slot, state, next slots.Word, n int64) bool {
	sum := t.allowed.Stripe() // one word, so that no reader sees only that n is taken back
	sum.Add(n)
	if s.Swap(state, next) {
		return true
	}
	sum.Add(-n)
	return false
}

// addPlace admits a cost to a slot with this state. It reports false if the state is another by
// now.
func (t *table) addPlace(s *slots.Slot, state, cost slots.Word) bool {
	next := state + cost + admittedOnce
	if state&admittedMask == admittedMask {
		next = state + cost - admittedMask
	}
	added := s.Swap(state, next)
	if added && next&admittedMask == 0 {
		t.places.Add(t.places.One(), admittedIn(state)+1)
	}
	return added
}

// SumUp implements sweeper. Places are read before the slots, and allowed after them, so that hits
// under way make Allowed too low, which Limiter.Stats mends, and never too high.
func (t *table) SumUp(sum *tally.Sums) {
	sum.Allowed += t.places.Load()
	sum.Denied += t.denied.Load()
	for i := range t.shards {
		t.shards[i].SumUp(sum)
	}
	sum.Allowed += t.allowed.Load()
}

// Sweep implements sweeper.
func (t *table) Sweep(now, timeout int64) (removed int) {
	for i := range t.shards {
		removed += t.shards[i].Sweep(now, timeout)
	}
	return removed
}

// Reclaim implements sweeper.
func (t *table) Reclaim(now int64, budget *int) (removed int) {
	for i := range t.shards {
		if removed = t.shards[i].Reclaim(now, budget); removed > 0 || *budget <= 0 {
			break
		}
	}
	return removed
}

// HasBytes implements sweeper.
func (t *table) HasBytes() bool { return false }

// Soonest implements sweeper.
func (t *table) Soonest() int64 {
	soonest := maxInstant
	for i := range t.shards {
		soonest = min(soonest, t.shards[i].Soonest())
	}
	return soonest
}

// shardOf returns the shard of a location, and the number of the slot.
func (t *table) shardOf(at location) (sh *slots.Shard, n int) {
	return &t.shards[at>>32], int(uint32(at))
}
