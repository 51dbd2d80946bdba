package weir

import (
	"context"
	"math"

	"github.com/weirgo/weir/internal/algorithm"
)

// InFlight bounds the work that is in flight at one time. Make one with [Limiter.InFlight].
type InFlight struct {
	stateStrategy[flight]
	places stateStrategy[flight] // the same, whose admissions are places that are held
}

// InFlight returns a Strategy that bounds how much of a caller's work is in flight at one time: the
// cost admitted and not yet released is at most Limit. [Hold] admits work until it is released.
//
// Run takes a lease: it counts until it is given back by Refund or a [Return], and ends by itself one
// Duration later, as when the process that took it has died. What Hold admits in this process does
// not end by itself: it ends with the process, or a Release. A snapshot has it as leases. So a
// Duration of one key counts separately from another here too.
//
// The ExpiresAt of a denial is when enough leases end, or one Duration from now if that needs places
// that are held: the latest instant that is promised, as a release may come sooner. Reset takes the
// leases back, and not the places that are held.
//
// It keeps 16 bytes for each lease, within the bounds of [Limiter.SlidingLog], and a number for all
// the places of a caller. A decision takes the caller's lock.
func (l *Limiter) InFlight() *InFlight {
	of := func(a stateAlgorithm[flight]) stateStrategy[flight] {
		return stateStrategy[flight]{
			reader: reader{l: l, most: math.MaxInt64}, algorithm: a, states: l.flights(),
		}
	}
	return &InFlight{of(leases{}), of(places{})}
}

// flight is one caller's work in flight.
type flight struct {
	algorithm.Log               // the leases
	held          int64         // the cost of the places that are held
	freed         chan struct{} // closed when something is given back; nil if nobody waits for that
}

// Used returns the cost in flight.
func (f *flight) Used() int64 { return f.Log.Used() + f.held }

// Expires returns when the last lease ends, if no place is held.
func (f *flight) Expires(scaleMs int64) int64 {
	if f.held > 0 {
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
	return a.InFlight.Decide(&f.Log, f.held, p, now)
}

func (a leases) Admit(f *flight, p params, now int64, _ string) { f.Add(now, p.Cost, "") }

func (a leases) Refund(f *flight, p params, now int64, t algorithm.Taken, _ string) {
	a.InFlight.Refund(&f.Log, p, now, t, "")
	f.wake()
}

func (a leases) Raise(f *flight, p params, now, expires, total int64, _ string) {
	a.InFlight.Raise(&f.Log, p, now, expires, total-f.held, "")
}

// places admits places that are held.
type places struct{ leases }

func (places) Admit(f *flight, p params, _ int64, _ string) { f.held += p.Cost }

// hold admits a place, or returns the verdict that denies it.
func (s *InFlight) hold(r *Request) (*Held, verdict, error) {
	p, err := s.parse(r)
	if err != nil {
		return nil, verdict{}, err
	}
	key := stateKey{id: r.Key, scale: p.Scale}
	if e := s.states.shard(key).find(key); e != nil && holdKnown(e, p) {
		return &Held{entry: e, cost: p.Cost}, verdict{Allowed: true}, nil
	}
	return s.admit(r)
}

// admit is hold with a verdict on what is admitted, too.
func (s *InFlight) admit(r *Request) (*Held, verdict, error) {
	v, at, err := s.places.decide(r)
	if err != nil || !v.Allowed {
		return nil, v, err
	}
	return &Held{entry: at.entry, cost: clampCost(max(1, r.Cost))}, v, nil
}

// holdKnown admits a place of a caller that has no leases, for which it needs no clock. It reports
// false if it cannot tell.
func holdKnown(e *entry, p params) (held bool) {
	e.mu.Lock()
	f := e.state.(*flight)
	if held = !e.removed && f.Len() == 0 && p.Cost <= p.Limit-f.held; held {
		f.held += p.Cost
		e.shard.allowed.Add(1)
	}
	e.mu.Unlock()
	return held
}

// release gives a place back.
func release(e *entry, cost int64) {
	e.mu.Lock()
	f := e.state.(*flight)
	f.held -= cost
	f.wake()
	e.shard.expiry.note(max(f.Expires(e.key.scale), e.latest))
	e.mu.Unlock()
}

// freed returns a channel that is closed when something that counts for r is given back, or nil if
// nothing counts.
func (s *InFlight) freed(r *Request) (<-chan struct{}, error) {
	_, h, err := s.find(r)
	if err != nil || h.entry == nil {
		return nil, err
	}
	defer s.states.unlock(h.handle, seen)
	if h.state.freed == nil {
		h.state.freed = make(chan struct{})
	}
	return h.state.freed, nil
}

// Acquire implements [Holder].
func (s *InFlight) Acquire(_ context.Context, r *Request) (*Result, Place, error) {
	h, v, err := s.admit(r)
	switch {
	case err != nil:
		return nil, nil, err
	case h == nil:
		return s.l.result(v), nil, nil
	}
	return s.l.result(v), (*ownPlace)(h), nil
}

// Reset implements [Resetter]: it takes the leases back.
func (s *InFlight) Reset(_ context.Context, r *Request) error {
	_, h, err := s.find(r)
	if err == nil {
		s.reset(h)
	}
	return err
}

// ResetPrefix implements [PrefixResetter]: it takes the leases back.
func (s *InFlight) ResetPrefix(
	ctx context.Context, prefix string, progress func(seen, reset int),
) (reset int, err error) {
	return s.resetPrefix(ctx, prefix, progress, s.reset)
}

// reset drops the leases of a caller, if there is one, and unlocks it.
func (s *InFlight) reset(h lockedState[flight]) {
	if h.entry != nil {
		h.state.Log = algorithm.Log{}
		h.state.wake()
	}
	s.states.unlock(h.handle, changed)
}

// saveFlight writes the leases, and the places that are held as the newest of them: they end one Duration
// after the snapshot.
func saveFlight(e *encoder, f *flight) {
	at := e.now
	if f.Len() > 0 {
		at = max(at, f.Latest(0))
	}
	e.int(at)
	e.int(f.held)
	saveLog(e, &f.Log)
}

func (d *decoder) flight() error {
	id, scale, plan := d.key()
	at, held := d.instant(), d.int(0, math.MaxInt64)
	f := new(flight)
	d.hits(&f.Log)
	d.bad = d.bad || plan != "" || f.Len() > 0 && at < f.Latest(0)
	if held > 0 {
		f.Add(at, held, "")
	}
	return restore(d, &d.l.InFlight().stateStrategy, stateKey{id: id, scale: scale}, f)
}

// Algorithm implements [Named].
func (s *InFlight) Algorithm() string { return "in flight" }

func (s *InFlight) itself() Strategy { return s }
