package slots

import (
	"errors"
	"sync/atomic"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/ids"
	"github.com/weirgo/weir/internal/core/room"
	"github.com/weirgo/weir/internal/core/tally"
)

// Table is a sharded hash table from <kind, ID, scale, window number> to slots. A known key is
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
type Table struct {
	ids.Hasher

	// of hits that no slot counts
	Allowed tally.Tally // of token buckets; less cost-1 of a hit that a slot counts by its cost
	Carried tally.Tally // that slots have counted, and count no more
	Denied  tally.Tally // where slots have no tallies

	// one a shard, apart from the shards: readers share no line with writers
	indexes []atomic.Pointer[Index]
	shards  []Shard
	room    *room.Room
	full    func(now int64) bool
}

// Location is where a slot of a table is: the number of the shard 32, that of the slot 32.
type Location uint64

// LocationOf returns the location of the slot n of a shard.
func LocationOf(shard, n int) Location { return Location(shard)<<32 | Location(n) }

const (
	shardSlots = 20_000 // buckets of a full shard, whose index is rebuilt in half a millisecond
	maxShards  = 1 << 13
)

// NewTable makes a table, in which tallied slots have no still words: see [Slot]. full removes
// expired buckets where r has no room, and reports whether there is room again.
func NewTable(r *room.Room, full func(now int64) bool, m Meaning, tallied bool) *Table {
	n := 1
	for int64(n)*shardSlots < r.Max && n < maxShards {
		n *= 2
	}
	t := &Table{
		Hasher:  ids.NewHasher(),
		indexes: make([]atomic.Pointer[Index], n),
		shards:  make([]Shard, n),
		room:    r,
		full:    full,
	}
	for i := range t.shards {
		t.shards[i].Init(&t.Hasher, &t.indexes[i], m, tallied, r)
	}
	return t
}

// Shards returns the shards.
func (t *Table) Shards() []Shard { return t.shards }

// Index returns the index of a hash's shard.
func (t *Table) Index(hash uint64) *Index { return t.indexes[t.ShardNumber(hash)].Load() }

// Find returns the slot of a key, with its state as read before the key was compared, and its
// location; nil if there is none.
func (t *Table) Find(id string, p *Period) (s *Slot, state Word, at Location) {
	var i, n int
	if len(id) > ids.Inline {
		k := t.Pack(id)
		i = t.ShardNumber(k.Hash)
		s, state, n = FindLong(t.indexes[i].Load(), k, id, p)
	} else {
		k := t.PackShort(id)
		i = t.ShardNumber(k.Hash)
		s, state, n = t.indexes[i].Load().FindShort(k, len(id), p)
	}
	return s, state, LocationOf(i, n)
}

// FindLongBytes is Find for an ID of more than ids.Inline bytes that is no string, without the
// location.
func (t *Table) FindLongBytes(id []byte, p *Period) (s *Slot, state Word) {
	k := t.PackBytes(id)
	s, state, _ = FindLong(t.indexes[t.ShardNumber(k.Hash)].Load(), k, id, p)
	return s, state
}

// ShardNumber returns the number of a hash's shard. An index uses the low half of the hash.
func (t *Table) ShardNumber(hash uint64) int { return int(hash>>32) & (len(t.indexes) - 1) }

// ErrEarlier reports a reading of the clock that is too early to decide by: from before the
// horizon.
var ErrEarlier = errors.New("weir: clock was read before the horizon")

// Reading is an instant that a caller has read.
type Reading struct {
	Now int64

	// Horizon is that of the shard when an earlier reading failed with ErrEarlier; algorithm.Never
	// before that. Now was read since: it is not compared with this horizon again.
	Horizon int64
}

// NewReading returns the reading of an instant that was not compared with a horizon.
func NewReading(now int64) Reading { return Reading{now, algorithm.Never} }

// Lock locks the shard of a key. If the key has no slot, and create is set, it takes room for the
// slot that the caller is to insert. On an error the mutex is free.
//
// It fails with room.ErrFull. It fails with ErrEarlier if the key has no slot and at.Now is before
// the horizon: the caller reads the clock, and calls Lock again with the same at, in which the
// horizon is set. The new reading is accepted even if the clock went back; otherwise the caller
// would repeat until the clock has come to the horizon.
func (t *Table) Lock(
	k ids.Packed, id string, p *Period, at *Reading, create bool,
) (c Locked, err error) {
	sh := &t.shards[t.ShardNumber(k.Hash)]
	for {
		c = sh.LockKey(k, id, p)
		switch {
		case c.Slot != nil:
			return c, nil
		case at.Now < sh.Horizon && at.Horizon != sh.Horizon:
			at.Horizon, err = sh.Horizon, ErrEarlier
		case !create:
			sh.Horizon = max(sh.Horizon, at.Now) // no bucket may be made for an earlier instant from now on
			return c, nil
		case sh.Full(): // also with room in the table: no bucket of others gives it up at once
			err = room.ErrFull
		case t.room.Take():
			return c, nil
		}
		sh.Unlock()
		if err == nil && !t.full(at.Now) {
			err = room.ErrFull
		}
		if err != nil {
			return Locked{}, err
		}
	}
}

// Admit replaces the state of a slot by that after a hit, of which n is what the slot does not
// count. Only a negative n is added to Allowed here, before the hit, so that Stats is never too
// high; a positive one the caller adds after it.
func (t *Table) Admit(s *Slot, state, next Word, n int64) bool {
	if n >= 0 {
		return s.Swap(state, next)
	}
	return t.admitCost(s, state, next, n)
}

func (t *Table) admitCost(s *Slot, state, next Word, n int64) bool {
	sum := t.Allowed.Stripe() // one word, so that no reader sees only that n is taken back
	sum.Add(n)
	if s.Swap(state, next) {
		return true
	}
	sum.Add(-n)
	return false
}

// SumUp adds the decisions that were made on the buckets. Carried is read before the slots, and
// Allowed after them, so that hits under way make Allowed too low, which weir.Stats mends, and
// never too high.
func (t *Table) SumUp(sum *tally.Sums) {
	sum.Allowed += t.Carried.Load()
	sum.Denied += t.Denied.Load()
	for i := range t.shards {
		t.shards[i].SumUp(sum)
	}
	sum.Allowed += t.Allowed.Load()
}

// Sweep removes the buckets that expired timeout ago at now, and returns their number.
func (t *Table) Sweep(now, timeout int64) (removed int) {
	for i := range t.shards {
		removed += t.shards[i].Sweep(now, timeout)
	}
	return removed
}

// Reclaim removes some buckets that have expired at now. It returns 0 if it found none, or has used
// up budget: a number of slots to look at, which it lowers.
func (t *Table) Reclaim(now int64, budget *int) (removed int) {
	for i := range t.shards {
		if removed = t.shards[i].Reclaim(now, budget); removed > 0 || *budget <= 0 {
			break
		}
	}
	return removed
}

// HasBytes reports whether buckets hold bytes of the room: slots hold none.
func (t *Table) HasBytes() bool { return false }

// Soonest returns an instant at or before the one at which the first bucket expires.
func (t *Table) Soonest() int64 {
	soonest := algorithm.End
	for i := range t.shards {
		soonest = min(soonest, t.shards[i].Soonest())
	}
	return soonest
}

// ShardOf returns the shard of a location, and the number of the slot.
func (t *Table) ShardOf(at Location) (sh *Shard, n int) {
	return &t.shards[at>>32], int(uint32(at))
}
