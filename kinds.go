package weir

import (
	"time"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/bounds"
	"github.com/weirgo/weir/internal/core/slots"
	"github.com/weirgo/weir/internal/core/windows"
)

const (
	maxID    = bounds.MaxKey // bytes
	maxCount = algorithm.MaxCount
	maxScale = bounds.MaxScale // ms: a larger scale stands for a series of windows

	msec       = int64(time.Millisecond)
	maxInstant = algorithm.End
	noInstant  = algorithm.Never
	present    = algorithm.End // of a decision: it is made as of its reading of the clock
)

type (
	params  = algorithm.Params
	verdict = algorithm.Verdict
)

// The kinds of buckets that fit a slot. Those of fixed windows, and of places, have a table of
// their own each.
const (
	fixedKind slots.Kind = windows.Kind + iota
	slidingKind
	tokenKind
	counterKind
	placesKind = fixedKind
)

// slotAlgorithm is the arithmetic of a strategy whose state fits a slot: pure functions from a
// content to the next one.
type slotAlgorithm interface {
	// Decide returns the verdict on p at now, and the content after it: after a denial c itself, but
	// of a token bucket at another rate. algorithm.None admits each cost up to the limit, so that the
	// room that was taken for it is used.
	Decide(c slots.Content, p params, now int64) (verdict, slots.Content)

	// Full returns when nothing counts, at the numbers of p, if nothing more is admitted: now, or
	// later.
	Full(c slots.Content, p params, now int64) int64

	// Admit counts p.Cost at now, whether it fits or not.
	Admit(c slots.Content, p params, now int64) slots.Content

	// Refund takes back what was admitted for p, and was to expire at the instant given.
	Refund(c slots.Content, p params, now, expires int64) slots.Content

	// Raise raises the count at now to total, the count of another store, which expires at the instant
	// given. It never lowers it.
	Raise(c slots.Content, p params, now, expires, total int64) slots.Content

	// Merge raises the counts of c to those of a saved content of the same key. The clock may be up to
	// ahead behind the one that saved it.
	Merge(c, saved slots.Content, scaleMs, now, ahead int64) slots.Content

	// Expires returns the instant from which a content counts nothing, if it is not used again.
	Expires(c slots.Content, scaleMs int64) int64
}

// slotAlgorithms are those of each kind, for what needs no params.
var slotAlgorithms = [...]slotAlgorithm{
	fixedKind:   new(algorithm.FixedWindow),
	slidingKind: new(algorithm.SlidingWindow),
	tokenKind:   new(algorithm.TokenBucket),
	counterKind: new(algorithm.Counter),
}

// perCost is how much of Content.N Stats counts for a cost of 1, by kind: none if N is no count.
var perCost = [...]int64{fixedKind: 1, slidingKind: 1, tokenKind: 0, counterKind: 1}

// windowSlots is the meaning of the slots of fixed windows. The window is in the key.
type windowSlots struct{ callerSlots }

// End implements slots.Meaning.
func (windowSlots) End(s *slots.Slot, c slots.Content) int64 {
	_, scale, number := s.Period()
	if scale > maxScale {
		return windows.OfMilli(number)
	}
	c.Still1 = algorithm.WindowStart(number, scale)
	return slotAlgorithms[fixedKind].Expires(c, scale)
}

// Counted implements slots.Meaning.
func (windowSlots) Counted(_ *slots.Slot, state slots.Word) (hits int64, held uint64) {
	return state.Count(), 0
}

// callerSlots is the meaning of the slots that a caller keeps from period to period.
type callerSlots struct{}

// End implements slots.Meaning.
func (callerSlots) End(s *slots.Slot, c slots.Content) int64 {
	k, scale, _ := s.Period()
	return slotAlgorithms[k].Expires(c, scale)
}

// Counted implements slots.Meaning.
func (callerSlots) Counted(s *slots.Slot, state slots.Word) (hits int64, held uint64) {
	k, _, _ := s.Period()
	return state.Count() * perCost[k], 0
}

// Stays implements slots.Meaning.
func (callerSlots) Stays(*slots.Slot, slots.Word) bool { return true }

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

// noteIdle clears bits of a bucket of places in sh, and lowers the bounds to its end if it is idle.
func noteIdle(sh *slots.Shard, s *slots.Slot, n int, bits int64) {
	for state := s.State(); !s.Swap(state, state.With(state.Count()&^(bits|unnotedBit))); {
		state = s.State()
	}
	sh.NoteEnd(n, noInstant)
}
