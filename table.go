package weir

import (
	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/clock"
	"github.com/weirgo/weir/internal/core/engine"
	"github.com/weirgo/weir/internal/core/room"
	"github.com/weirgo/weir/internal/core/slots"
	"github.com/weirgo/weir/internal/core/states"
	"github.com/weirgo/weir/internal/core/tally"
	"github.com/weirgo/weir/internal/core/windows"
)

// tables are where a Limiter keeps its buckets. Those that fit a slot are in three tables of slots;
// the states of no fixed size are in a table for each kind of state.
type tables struct {
	buckets *slots.Table  // of fixed windows, one for each window: the window is in the key
	callers *slots.Table  // of sliding windows, token buckets and counters, one a caller
	stores  engine.Stores // which decide on them, and the tables of states
}

// open makes the tables, and the stores that decide on them.
func (t *tables) open(c *clock.Clock, w *windows.Windows, r *room.Room, j *janitor) {
	t.buckets = slots.NewTable(r, j.reclaim, contents{}, true)
	t.callers = slots.NewTable(r, j.reclaim, contents{}, false)
	t.stores.Clock, t.stores.Windows = c, w
	for k, a := range engine.Algorithms {
		t.stores.Slots[k] = engine.Slots{Table: t.callers, Clock: c, Windows: w,
			Kind: slots.Kind(k), Algorithm: a}
	}
	t.stores.Slots[engine.FixedKind].Table = t.buckets
	shared := &states.Limits{Clock: c, Room: r, Full: j.reclaim, FullBytes: j.reclaimBytes}
	t.stores.OpenStates(shared, slots.NewTable(r, j.reclaim, engine.PlaceSlots{}, false))
}

// all returns the tables.
func (t *tables) all() []sweeper {
	in := &t.stores
	return []sweeper{t.buckets, t.callers, in.Places.Table, in.Logs.Table, in.Lists.Table,
		in.Tiers.Table, in.Queues.Table, in.Places.Flights.Table}
}

// sums adds up the decisions that were made on all buckets.
func (t *tables) sums() (sums tally.Sums) {
	for _, table := range t.all() {
		table.SumUp(&sums)
	}
	return sums
}

// contents are the meaning of the slots of buckets and callers.
type contents struct{}

// End implements slots.Meaning. The window of a fixed window is in the key.
func (contents) End(s *slots.Slot, c slots.Content) int64 {
	k, scale, number := s.Period()
	switch {
	case k != engine.FixedKind:
		return engine.Algorithms[k].Expires(c, scale)
	case scale > maxScale:
		return windows.OfMilli(number)
	}
	return algorithm.WindowStart(number+1, scale)
}

// Counted implements slots.Meaning.
func (contents) Counted(s *slots.Slot, state slots.Word) (hits int64, held uint64) {
	k, _, _ := s.Period()
	return state.Count() * engine.PerCost[k], 0
}

// Stays implements slots.Meaning.
func (contents) Stays(*slots.Slot, slots.Word) bool { return true }
