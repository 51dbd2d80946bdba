package weir

import (
	"github.com/weirgo/weir/internal/core/slots"
)

// The places that are held of one caller are a bucket that has one epoch. The bits of its number:
//
//	shared  a flight of the caller decides, with its lock held
//	unnoted the bounds of the chunk may be too late for the end of the bucket
//	admitted 6: how many were admitted that are not in table.places, as all were when it wraps
//	held    40: the cost of the places
//
// While a place is held, or shared is set, the slot is not released: so a place is given back by an
// atomic addition, without a search.
const (
	sharedBit    = 1 << 47
	unnotedBit   = 1 << 46
	admittedOnce = 1 << 40
	admittedMask = unnotedBit - admittedOnce
	heldMask     = admittedOnce - 1
	maxHeld      = heldMask - 1
)

// heldIn returns the cost held, and admittedIn the admissions, in a state word.
func heldIn(state slots.Word) int64 { return int64(state&heldMask) - 1 }

func admittedIn(state slots.Word) int64 { return int64(state & admittedMask / admittedOnce) }

func placesPeriod(scaleMs, series int64) slots.Period {
	return slots.PeriodOf(placesKind, scaleMs, series)
}

// placeSlots is the meaning of the slots of places.
type placeSlots struct{}

// End implements slots.Meaning.
func (placeSlots) End(_ *slots.Slot, c slots.Content) int64 {
	if c.N&(sharedBit|heldMask) == 0 {
		return noInstant
	}
	return maxInstant
}

// Counted implements slots.Meaning.
func (placeSlots) Counted(_ *slots.Slot, state slots.Word) (hits int64, held uint64) {
	return admittedIn(state), uint64(heldIn(state))
}

// Stays implements slots.Meaning. It notes that the bounds of a chunk are those of other buckets.
func (placeSlots) Stays(s *slots.Slot, state slots.Word) bool {
	return s.Swap(state, state.With(state.Count()|unnotedBit))
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

// noteIdle clears bits of a bucket of places in sh, and lowers the bounds to its end if it is idle.
func noteIdle(sh *slots.Shard, s *slots.Slot, n int, bits int64) {
	for state := s.State(); !s.Swap(state, state.With(state.Count()&^(bits|unnotedBit))); {
		state = s.State()
	}
	sh.NoteEnd(n, noInstant)
}
