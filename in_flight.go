package weir

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/slots"
	"github.com/weirgo/weir/internal/core/states"
)

// InFlight bounds the work that is in flight at one time. Make one with [Limiter.InFlight].
type InFlight struct {
	stateStrategy[*flight]
	// of the first Hold; kept, since to compute it takes a fifth of a Hold
	first atomic.Pointer[leasePeriod]
}

// leasePeriod is the period of the places with a Duration.
type leasePeriod struct {
	duration time.Duration
	slots.Period
}

// InFlight returns a Strategy that bounds how much of a caller's work is in flight at one time: the
// cost admitted and not yet released is at most Limit. [Hold] admits work until it is released.
//
// Run takes a lease: it counts until it is given back by [OpReturn], and ends by itself
// one Duration later, as when the process that took it has died. What Hold admits in this process
// does not end by itself: it ends with the process, or a Release. A snapshot has it as leases. So a
// Duration of one key counts separately from another here too.
//
// The ExpiresAt of a denial is when enough leases end, as a release may come sooner. It is the zero
// time if that needs places that are held, of which nobody knows when they are released. Reset
// takes the leases back, and not the places that are held.
//
// It keeps one number for all the places of a caller, and about 330 bytes and 16 for each lease
// where there are leases, within the bounds of [Limiter.SlidingLog]. Hold takes no lock for a known
// caller who has no lease and for whom nobody waits in HoldWait; other decisions take the caller's
// lock. Limits and costs over 1,099,511,627,774 (2^40-2) count as that.
func (l *Limiter) InFlight() *InFlight {
	return (&InFlight{stateStrategy: stateStrategy[*flight]{
		reader: reader{l: l, most: maxHeld}, algorithm: leases{}, table: &l.flights, forget: dropLeases,
	}}).described()
}

// flight is one caller's work in flight where there are leases, or somebody waits for a place. It
// has an entry only as long as that is so, and no room of its own: its slot has taken that.
type flight struct {
	algorithm.Log // the leases
	l             *Limiter
	key           states.Key
	// the places, with sharedBit; nil: this is not kept, and alone says what they are
	slot  *slots.Slot
	at    location      // of slot
	alone int64         // the cost of the places, as it was found
	freed chan struct{} // closed when something is given back; nil if nobody waits for that
}

// held returns the cost of the places.
func (f *flight) held() int64 {
	if f.slot == nil {
		return f.alone
	}
	return heldIn(f.slot.State())
}

// Attach implements [states.Beside]: the slot holds the places.
func (f *flight) Attach(kept bool) (ok bool) {
	if f.slot != nil {
		return true
	}
	places := f.l.places
	packed, p := places.Pack(f.key.ID), placesPeriod(f.key.Scale, f.key.Series)
	shard := places.shardNumber(packed.Hash)
	c := places.shards[shard].LockKey(packed, f.key.ID, &p)
	defer c.Unlock()
	if c.Slot == nil {
		return !kept
	}
	state := c.State
	f.alone = heldIn(state)
	for ; kept && !c.Swap(state, state|sharedBit); state = c.Slot.State() {
	}
	if kept {
		f.slot, f.at = c.Slot, location(shard)<<32|location(c.N)
	}
	return true
}

// Make implements [states.Beside].
func (f *flight) Make() error { return makePlaces(f.l, f.key) }

// Detach implements [states.Beside]: Hold decides on the places again, without a lock.
func (f *flight) Detach() (idle bool) {
	f.wake()
	if f.slot == nil {
		return false
	}
	sh, n := f.l.places.shardOf(f.at)
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

// Restore takes the leases of saved; the places, and who waits, stay.
func (f *flight) Restore(saved *flight) { f.Log = saved.Log }

// Used returns the cost in flight.
func (f *flight) Used() int64 { return f.Log.Used() + f.held() }

// Expires returns when f is no longer needed: when the last lease ends, unless somebody waits for a
// place.
func (f *flight) Expires(scaleMs int64) int64 {
	if f.freed != nil && f.held() > 0 {
		return maxInstant
	}
	return f.Log.Expires(scaleMs)
}

// Growth is described at algorithm.Log. No Meta is kept.
func (f *flight) Growth(string) int64 { return f.Log.Growth("") }

// wake has those who wait look again.
func (f *flight) wake() {
	if f.freed != nil {
		close(f.freed)
		f.freed = nil
	}
}

// leases binds the arithmetic of an algorithm.InFlight to those who wait.
type leases struct{ algorithm.InFlight }

func (a leases) Advance(f *flight, p params, now int64) { a.InFlight.Advance(&f.Log, p, now) }

func (a leases) Decide(f *flight, p params, now int64) verdict {
	return a.InFlight.Decide(&f.Log, f.held(), p, now)
}

func (a leases) Full(f *flight, p params, now int64) int64 {
	return a.InFlight.Full(&f.Log, f.held(), p, now)
}

func (a leases) Admit(f *flight, p params, now int64, _ string) { f.Add(now, p.Cost, "") }

func (a leases) Refund(f *flight, p params, now int64, t algorithm.Taken, _ string) {
	a.InFlight.Refund(&f.Log, p, now, t, "")
	f.wake()
}

func (a leases) Raise(f *flight, p params, now, expires, total int64, _ string) {
	a.InFlight.Raise(&f.Log, p, now, expires, total-f.held(), "")
}

// places admits places that are held.
type places struct{ leases }

func (places) Admit(f *flight, p params, _ int64, _ string) {
	f.slot.Add(uint64(p.Cost))
}

// hold admits a place, or returns the verdict that denies it. It takes no lock for a known caller
// of whom only places are held, and reads no clock to admit one: At is not set then.
func (s *InFlight) hold(h *place, r *Request) (v verdict, err error) {
	most, lease := s.numbers(r)
	w := s.first.Load()
	if w == nil || w.duration != lease || uint(len(r.Key)-1) >= maxID || s.l.closed.Load() {
		p, err := s.parse(r)
		if err != nil {
			return v, err
		}
		w = &leasePeriod{lease, placesPeriod(p.Scale, s.series)}
		s.first.CompareAndSwap(nil, w)
	}
	limit, cost := int64(min(most, maxHeld)), min(max(1, r.Cost), maxHeld+1)
	slot, state, at := s.l.places.find(r.Key, &w.Period)
	if slot == nil || int64(cost) > limit {
		return s.holdLocked(h, r, lease, int64(cost) > limit)
	}
	for epoch := state.Epoch(); state.Epoch() == epoch && state&sharedBit == 0; {
		held, was := heldIn(state), state
		if int64(cost) <= limit-held {
			if s.l.places.addPlace(slot, state, slots.Word(cost)) {
				*h = place{slot, s.l, at, -cost}
				return verdict{Allowed: true, Total: held + int64(cost)}, nil
			}
			state = slot.State()
		} else if state = slot.State(); state == was { // the key was that of this epoch
			return s.deny(held), nil
		}
	}
	return s.holdLocked(h, r, lease, state&sharedBit != 0)
}

// holdLocked is hold after a search without a slot to add to: it decides with the lock of the
// flight. Without shared there was no slot at all: it makes that, and calls hold again.
func (s *InFlight) holdLocked(
	h *place, r *Request, lease time.Duration, shared bool,
) (v verdict, err error) {
	if !shared {
		err = makePlaces(s.l, s.key(r.Key, lease.Milliseconds()))
		if err != nil {
			return v, s.l.fail(err)
		}
		return s.hold(h, r)
	}
	held := s.stateStrategy
	held.algorithm = places{}
	v, at, err := held.decide(r, present, nil)
	if err == nil && v.Allowed {
		f := at.State
		*h = place{f.slot, s.l, f.at, -min(max(1, r.Cost), maxHeld)}
	}
	return v, err
}

// Do implements [Counter].
func (s *InFlight) Do(ctx context.Context, ops []*Op) {
	for _, op := range ops {
		switch op.Verb {
		case OpHold:
			op.Err = s.admit(op)
			op.decided()
		case OpRenew: // it does not end by itself
			op.Err, op.Result = nil, Result{State: Allow}
		case OpRelease:
			op.Err = nil
			if held, ok := op.Receipt.Of.(*Held); ok {
				op.Err = held.Release(ctx)
			}
		default:
			s.do(ctx, op)
		}
	}
}

// admit does an OpHold.
func (s *InFlight) admit(op *Op) error {
	h := new(Held)
	v, err := s.hold(&h.place, &op.Request)
	if err != nil {
		return err
	}
	op.Receipt = Receipt{}
	if v.Allowed {
		v.At = noInstant // until it is released
		op.Receipt.Of = h
	}
	op.Left = s.l.setResult(&op.Result, v, v.At)
	return nil
}

// deny tallies a denial beside places of the cost held, and returns its verdict.
func (s *InFlight) deny(held int64) verdict {
	s.l.places.denied.Add(s.l.places.denied.One(), 1)
	return verdict{Total: held, At: noInstant}
}

// freed returns a channel that is closed when something that counts for r is given back, or nil if
// nothing counts.
func (s *InFlight) freed(r *Request) (<-chan struct{}, error) {
	p, err := s.parse(r)
	if err != nil {
		return nil, err
	}
	h, err := s.lock(r.Key, p.Scale, true)
	if err != nil {
		return nil, s.l.fail(err)
	}
	defer h.Unlock(states.Seen)
	if f := h.State; f.freed == nil && f.Used() > 0 {
		f.freed = make(chan struct{})
	}
	return h.State.freed, nil
}

// dropLeases takes the leases back, and no place that is held.
func dropLeases(h states.Locked[*flight]) {
	h.State.Log = algorithm.Log{}
	h.State.wake()
}

// writeFlight writes the leases, and the places that are held as the newest of them: they end one
// Duration after the snapshot.
func writeFlight(e *encoder, f *flight) {
	at := e.now
	if f.Len() > 0 {
		at = max(at, f.Latest(0))
	}
	e.Int(at)
	e.Int(f.held())
	writeLog(e, &f.Log)
}

func readFlight(d *decoder) error {
	id, scale, plan := d.key()
	at, held := d.Any(), d.Int(0, math.MaxInt64)
	f := new(flight) // kept nowhere
	readHits(d, &f.Log)
	d.Bad = d.Bad || plan != "" || f.Len() > 0 && at < f.Latest(0)
	if held > 0 {
		f.Add(at, held, "")
	}
	return restoreState(d, &d.l.InFlight().stateStrategy, states.Key{ID: id, Scale: scale}, f)
}

// described sets what s is.
func (s *InFlight) described() *InFlight {
	s.describe(s, About{
		Name: "in flight", InFlight: true, Verbs: VerbsOf(OpHold, OpRenew, OpRelease),
	})
	return s
}

// Limit returns the limit of n in flight, for [Limit.Hold]. Its leases, of Unwrap and after a
// snapshot was loaded, are of a minute; those of [NewLimit] of its d. What would take a hit that
// nobody releases, such as its Allow, Take, Run and Wait, fails with [errors.ErrUnsupported].
func (s *InFlight) Limit(n uint64) *Limit { return mustLimit(s, n, time.Minute) }

func (s *InFlight) bind(m *Limit) (Counter, error) {
	of := s.l.InFlight()
	of.duration = m.d
	err := of.bindTo(m)
	return of.described(), err
}

// makePlaces makes the bucket of a caller's places, if there is none. The next sweep may remove it.
func makePlaces(l *Limiter, k states.Key) error {
	packed, p := l.places.Pack(k.ID), placesPeriod(k.Scale, k.Series)
	for at := (reading{horizon: math.MinInt64}); ; {
		at.now = l.clock.Read()
		c, err := l.places.lock(packed, k.ID, &p, &at, true)
		switch {
		case err == errEarlier:
			continue
		case err != nil:
			return err
		case c.Slot == nil:
			c.Insert(slots.Content{})
			c.NoteEnd(noInstant)
		}
		c.Unlock()
		return nil
	}
}

// place is a cost that is held in a slot.
type place struct {
	*slots.Slot
	l    *Limiter
	at   location
	back uint64 // the cost, negated
}

// release gives the place back. Then the slot may be another bucket's at any time.
func (p *place) release() {
	if state := p.Add(p.back); state&(sharedBit|unnotedBit) != 0 {
		p.released(state)
	}
}

// released wakes who waits for the place, and notes that the bucket is idle. state is that after
// the release. If the bucket is another by now, that does no harm.
func (p *place) released(state slots.Word) {
	if state&sharedBit == 0 && heldIn(state) > 0 {
		return
	}
	sh, n := p.l.places.shardOf(p.at)
	sh.Lock()
	var key states.Key
	state = p.State()
	if state.Live() && sh.Slot(n) == p.Slot {
		noteIdle(sh, p.Slot, n, 0)
		if state&sharedBit != 0 {
			_, key.Scale, key.Series = p.Period()
			key.ID = string(sh.AppendID(nil, p.Slot))
		}
	}
	sh.Unlock()
	if key.ID == "" {
		return
	}
	if h, _ := p.l.flights.Lock(key, false); h.Entry != nil {
		h.State.wake()
		h.Unlock(states.Seen)
	}
}
