package engine

import (
	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/clock"
	"github.com/weirgo/weir/internal/core/slots"
	"github.com/weirgo/weir/internal/core/states"
)

// The places that are held of one caller are a bucket that has one epoch. The bits of its number:
//
//	shared  a flight of the caller decides, with its lock held
//	unnoted the bounds of the chunk may be too late for the end of the bucket
//	admitted 6: how many were admitted that are not in Table.Carried, as all were when it wraps
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

	// MaxHeld is the largest cost of the places of a caller.
	MaxHeld = heldMask - 1
)

// heldIn returns the cost held, and admittedIn the admissions, in a state word.
func heldIn(state slots.Word) int64 { return int64(state&heldMask) - 1 }

func admittedIn(state slots.Word) int64 { return int64(state & admittedMask / admittedOnce) }

// PlacesPeriod returns the period of the places of a scale, in a series.
func PlacesPeriod(scaleMs, series int64) slots.Period {
	return slots.PeriodOf(placesKind, scaleMs, series)
}

// PlaceSlots is the meaning of the slots of places.
type PlaceSlots struct{}

// End implements slots.Meaning.
func (PlaceSlots) End(_ *slots.Slot, c slots.Content) int64 {
	if c.N&(sharedBit|heldMask) == 0 {
		return algorithm.Never
	}
	return algorithm.End
}

// Counted implements slots.Meaning.
func (PlaceSlots) Counted(_ *slots.Slot, state slots.Word) (hits int64, held uint64) {
	return admittedIn(state), uint64(heldIn(state))
}

// Stays implements slots.Meaning. It notes that the bounds of a chunk are those of other buckets.
func (PlaceSlots) Stays(s *slots.Slot, state slots.Word) bool {
	return s.Swap(state, state.With(state.Count()|unnotedBit))
}

// noteIdle clears bits of a bucket of places in sh, and lowers the bounds to its end if it is idle.
func noteIdle(sh *slots.Shard, s *slots.Slot, n int, bits int64) {
	for state := s.State(); !s.Swap(state, state.With(state.Count()&^(bits|unnotedBit))); {
		state = s.State()
	}
	sh.NoteEnd(n, algorithm.Never)
}

// Places are the work in flight of all callers: places on slots, and leases in states.
type Places struct {
	Table   *slots.Table
	Flights States[*Flight] // leases
	Clock   *clock.Clock
}

// Place is a cost that is held in a slot.
type Place struct {
	Slot *slots.Slot
	At   slots.Location
	of   *Places
	back uint64 // the cost, negated
}

// PlaceAt returns the place of a cost that is held in a slot.
func (a *Places) PlaceAt(s *slots.Slot, at slots.Location, cost int64) Place {
	return Place{s, at, a, uint64(-cost)}
}

// Hold admits a place under limit, or returns the verdict that denies it. It takes no lock, and
// reads no clock: At is not set in the verdict on an admission. It reports false, and has decided
// nothing, if the caller is not known, or shared: if a flight is to decide.
func (a *Places) Hold(
	h *Place, id string, p *slots.Period, cost, limit int64,
) (v Verdict, shared, ok bool) {
	slot, state, at := a.Table.Find(id, p)
	if slot == nil || cost > limit {
		return v, cost > limit, false
	}
	for epoch := state.Epoch(); state.Epoch() == epoch && state&sharedBit == 0; {
		held, was := heldIn(state), state
		if cost <= limit-held {
			if a.add(slot, state, slots.Word(cost)) {
				*h = Place{slot, at, a, uint64(-cost)}
				return Verdict{Allowed: true, Total: held + cost}, false, true
			}
			state = slot.State()
		} else if state = slot.State(); state == was { // the key was that of this epoch
			a.Table.Denied.Add(a.Table.Denied.One(), 1)
			return Verdict{Total: held, At: algorithm.Never}, false, true
		}
	}
	return v, state&sharedBit != 0, false
}

// add admits a cost to a slot with this state. It reports false if the state is another by now.
func (a *Places) add(s *slots.Slot, state, cost slots.Word) bool {
	next := state + cost + admittedOnce
	if state&admittedMask == admittedMask {
		next = state + cost - admittedMask
	}
	added := s.Swap(state, next)
	if added && next&admittedMask == 0 {
		a.Table.Carried.Add(a.Table.Carried.One(), admittedIn(state)+1)
	}
	return added
}

// Make makes the bucket of a caller's places, if there is none. The next sweep may remove it.
func (a *Places) Make(id string, p *slots.Period) error {
	packed := a.Table.Pack(id)
	for at := slots.NewReading(0); ; {
		at.Now = a.Clock.Read()
		c, err := a.Table.Lock(packed, id, p, &at, true)
		switch {
		case err == slots.ErrEarlier:
			continue
		case err != nil:
			return err
		case c.Slot == nil:
			c.Insert(slots.Content{})
			c.NoteEnd(algorithm.Never)
		}
		c.Unlock()
		return nil
	}
}

// newFlight returns the flight of a caller.
func (a *Places) newFlight(k states.Key) *Flight {
	return &Flight{of: a, id: k.ID, period: PlacesPeriod(k.Scale, k.Series)}
}

// Release gives the place back. Then the slot may be another bucket's at any time.
func (p *Place) Release() {
	if state := p.Slot.Add(p.back); state&(sharedBit|unnotedBit) != 0 {
		p.released(state)
	}
}

// released wakes the callers that wait for the place, and notes that the bucket is idle. state is
// the state word after the release. If the bucket is another by now, that does no harm.
func (p *Place) released(state slots.Word) {
	if state&sharedBit == 0 && heldIn(state) > 0 {
		return
	}
	sh, n := p.of.Table.ShardOf(p.At)
	sh.Lock()
	var key states.Key
	state = p.Slot.State()
	if state.Live() && sh.Slot(n) == p.Slot {
		noteIdle(sh, p.Slot, n, 0)
		if state&sharedBit != 0 {
			_, key.Scale, key.Series = p.Slot.Period()
			key.ID = string(sh.AppendID(nil, p.Slot))
		}
	}
	sh.Unlock()
	if key.ID == "" {
		return
	}
	if h, _ := p.of.Flights.Table.Lock(key, false, Present); h.Entry != nil {
		h.State.wake()
		h.Unlock(states.Seen)
	}
}

// Flight is one caller's work in flight where there are leases, or somebody waits for a place. It
// has an entry only as long as that is so, and no room of its own: its slot has taken that.
type Flight struct {
	algorithm.Log // the leases
	of            *Places
	id            string
	period        slots.Period // of the slot
	// the places, with sharedBit; nil: the flight is not kept, and alone is their cost
	slot  *slots.Slot
	at    slots.Location // of slot
	alone int64          // the cost of the places, as it was found
	freed chan struct{}  // closed when something is given back; nil: no caller waits
}

// Held returns the cost of the places.
func (f *Flight) Held() int64 {
	if f.slot == nil {
		return f.alone
	}
	return heldIn(f.slot.State())
}

// place returns the place of a cost that was admitted.
func (f *Flight) place(cost int64) Place { return f.of.PlaceAt(f.slot, f.at, cost) }

// Attach implements [states.Beside]: the slot holds the places.
func (f *Flight) Attach(kept bool) (ok bool) {
	if f.slot != nil {
		return true
	}
	places := f.of.Table
	packed := places.Pack(f.id)
	shard := places.ShardNumber(packed.Hash)
	c := places.Shards()[shard].LockKey(packed, f.id, &f.period)
	defer c.Unlock()
	if c.Slot == nil {
		return !kept
	}
	state := c.State
	f.alone = heldIn(state)
	for ; kept && !c.Swap(state, state|sharedBit); state = c.Slot.State() {
	}
	if kept {
		f.slot, f.at = c.Slot, slots.LocationOf(shard, c.N)
	}
	return true
}

// Make implements [states.Beside].
func (f *Flight) Make() error { return f.of.Make(f.id, &f.period) }

// Detach implements [states.Beside]: Places.Hold decides on the places again, without a lock.
func (f *Flight) Detach() (idle bool) {
	f.wake()
	if f.slot == nil {
		return false
	}
	sh, n := f.of.Table.ShardOf(f.at)
	sh.Lock()
	defer sh.Unlock()
	for state := f.slot.State(); heldIn(state) == 0; state = f.slot.State() {
		if sh.Release(f.slot, n, state) {
			return true
		}
	}
	noteIdle(sh, f.slot, n, sharedBit)
	return false
}

// Restore takes the leases of saved; the places and the waiters stay.
func (f *Flight) Restore(saved *Flight) { f.Log = saved.Log }

// Used returns the cost in flight.
func (f *Flight) Used() int64 { return f.Log.Used() + f.Held() }

// Expires returns when f is no longer needed: when the last lease ends, unless somebody waits for a
// place.
func (f *Flight) Expires(scaleMs int64) int64 {
	if f.freed != nil && f.Held() > 0 {
		return algorithm.End
	}
	return f.Log.Expires(scaleMs)
}

// Growth is described at algorithm.Log. No Meta is kept.
func (f *Flight) Growth(string) int64 { return f.Log.Growth("") }

// Freed returns a channel that is closed when something is given back, or nil if nothing counts.
func (f *Flight) Freed() <-chan struct{} {
	if f.freed == nil && f.Used() > 0 {
		f.freed = make(chan struct{})
	}
	return f.freed
}

// wake has the waiters look again.
func (f *Flight) wake() {
	if f.freed != nil {
		close(f.freed)
		f.freed = nil
	}
}

// dropLeases takes the leases back, and no place that is held.
func dropLeases(h states.Locked[*Flight]) {
	h.State.Log = algorithm.Log{}
	h.State.wake()
}

// Leases bind the arithmetic of an algorithm.InFlight to a flight.
type Leases struct{ algorithm.InFlight }

// Advance implements [StateAlgorithm].
func (a Leases) Advance(f *Flight, p Params, now int64) { a.InFlight.Advance(&f.Log, p, now) }

// Decide implements [StateAlgorithm].
func (a Leases) Decide(f *Flight, p Params, now int64) Verdict {
	return a.InFlight.Decide(&f.Log, f.Held(), p, now)
}

// Full implements [StateAlgorithm].
func (a Leases) Full(f *Flight, p Params, now int64) int64 {
	return a.InFlight.Full(&f.Log, f.Held(), p, now)
}

// Admit implements [StateAlgorithm].
func (a Leases) Admit(f *Flight, p Params, now int64, _ string) { f.Add(now, p.Cost, "") }

// Refund implements [StateAlgorithm].
func (a Leases) Refund(f *Flight, p Params, now int64, t algorithm.Taken, _ string) {
	a.InFlight.Refund(&f.Log, p, now, t, "")
	f.wake()
}

// Raise implements [StateAlgorithm].
func (a Leases) Raise(f *Flight, p Params, now, expires, total int64, _ string) {
	a.InFlight.Raise(&f.Log, p, now, expires, total-f.Held(), "")
}

// HoldShared is Hold where a flight decides. It fails with room.ErrFull.
func HoldShared(h *Place, in States[*Flight], id string, p Params) (Verdict, error) {
	in.Algorithm = sharedPlaces{}
	c := Call{Params: p, AsOf: Present, WantMark: true}
	v, _, err := in.Count(id, "", &c)
	if v.Allowed {
		*h = c.Mark.Of.(*states.Entry[*Flight]).State().place(p.Cost)
	}
	return v, err
}

// sharedPlaces admit places that are held where a flight decides.
type sharedPlaces struct{ Leases }

// Admit implements [StateAlgorithm].
func (sharedPlaces) Admit(f *Flight, p Params, _ int64, _ string) { f.slot.Add(uint64(p.Cost)) }
