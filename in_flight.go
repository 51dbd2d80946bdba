package weir

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/internal/core/engine"
	"github.com/weirgo/weir/internal/core/renewal"
	"github.com/weirgo/weir/internal/core/slots"
	"github.com/weirgo/weir/internal/core/states"
	"github.com/weirgo/weir/internal/core/turns"
)

// InFlight bounds the work that is in flight at one time. Make one with [Limiter.InFlight].
type InFlight struct {
	stateStrategy[*engine.Flight]
	// of the first Hold; kept, since to compute it takes a fifth of a Hold
	first atomic.Pointer[leasePeriod]
}

// leasePeriod is the period of the places with a Duration.
type leasePeriod struct {
	duration time.Duration
	slots.Period
}

// InFlight returns a Strategy that bounds how much of a caller's work is in flight at one time: the
// cost admitted and not yet released is at most Limit. [Hold] admits work until its release.
//
// Run takes a lease, which counts until [OpReturn] gives it back, and ends by itself one Duration
// later, as when the process that took it has died. A hold in this process does not end by itself,
// only with the process or a Release. A snapshot has such holds as leases. So a Duration of one key
// counts separately from another here too.
//
// The ExpiresAt of a denial is when enough leases end, as a release may come sooner. It is the zero
// time if that needs places that are held, whose release nobody can foresee. Reset takes the leases
// back, and not the places that are held.
//
// InFlight keeps one number for all the places of a caller, and about 330 bytes and 16 for each
// lease where there are leases, within the bounds of [Limiter.SlidingLog]. Hold takes no lock for a
// known caller who has no lease and for whom nobody waits in HoldWait; other decisions take the
// caller's lock. Limits and costs over 1,099,511,627,774 (2^40-2) count as that.
func (l *Limiter) InFlight() *InFlight {
	return (&InFlight{stateStrategy: stateStrategy[*engine.Flight]{
		reader: reader{l: l, most: engine.MaxHeld}, in: l.stores.Places.Flights,
	}}).described()
}

// hold admits a place, or returns the verdict that denies it. It takes no lock for a known caller
// of whom only places are held, and reads no clock to admit one: At is not set then.
func (s *InFlight) hold(h *engine.Place, r *Request) (v verdict, err error) {
	most, lease := s.numbers(r)
	w := s.first.Load()
	if w == nil || w.duration != lease || uint(len(r.Key)-1) >= maxID || s.l.closed.Load() {
		p, err := s.parse(r)
		if err != nil {
			return v, err
		}
		w = &leasePeriod{lease, engine.PlacesPeriod(p.Scale, s.in.Series)}
		s.first.CompareAndSwap(nil, w)
	}
	limit, cost := int64(min(most, engine.MaxHeld)), int64(min(max(1, r.Cost), engine.MaxHeld+1))
	v, shared, ok := s.l.stores.Places.Hold(h, r.Key, &w.Period, cost, limit)
	if !ok {
		return s.holdLocked(h, r, &w.Period, shared)
	}
	return v, nil
}

// holdLocked is hold after a search without a slot to add to, and decides with the lock of the
// flight. Without shared there was no slot at all: holdLocked makes one, and calls hold again.
func (s *InFlight) holdLocked(
	h *engine.Place, r *Request, w *slots.Period, shared bool,
) (v verdict, err error) {
	if !shared {
		err = s.l.stores.Places.Make(r.Key, w)
		if err != nil {
			return v, s.l.fail(err)
		}
		return s.hold(h, r)
	}
	p, err := s.parse(r)
	if err != nil {
		return v, err
	}
	v, err = engine.HoldShared(h, s.in, r.Key, p)
	return v, s.l.fail(err)
}

// Do implements [Counter].
func (s *InFlight) Do(ctx context.Context, ops []*Op) {
	for _, op := range ops {
		switch op.Verb {
		case OpHold:
			s.admit(op)
		case OpRenew: // no hold ends by itself
			op.Err, op.Result = nil, Result{State: Allow}
		case OpRelease:
			op.Err = nil
			if held, ok := op.Receipt.Of.(*Held); ok {
				op.Err = held.Release(ctx)
			}
		default:
			s.do(ctx, op, &s.in)
		}
	}
}

// admit does an OpHold.
func (s *InFlight) admit(op *Op) {
	h := new(Held)
	v, err := s.hold(&h.place, &op.Request)
	if err != nil {
		op.setErr(err)
		return
	}
	op.Receipt = Receipt{}
	if v.Allowed {
		v.At = noInstant // until it is released
		op.Receipt.Of = h
	}
	op.Left, op.Source, op.Err = s.l.setResult(&op.Result, v, v.At), FromLocal, nil
}

// freed returns a channel that is closed when something that counts for r is given back, or nil if
// nothing counts.
func (s *InFlight) freed(r *Request) (<-chan struct{}, error) {
	p, err := s.parse(r)
	if err != nil {
		return nil, err
	}
	h, err := s.in.Lock(r.Key, p.Scale, true, present)
	if err != nil {
		return nil, s.l.fail(err)
	}
	defer h.Unlock(states.Seen)
	return h.State.Freed(), nil
}

// described sets the About of s.
func (s *InFlight) described() *InFlight {
	s.describe(s, About{
		Name: "in flight", InFlight: true, Verbs: VerbsOf(OpHold, OpRenew, OpRelease),
	})
	return s
}

// Limit returns the limit of n in flight, for [Limit.Hold]. Its leases, of Unwrap and after a
// snapshot was loaded, are of a minute, and with [NewLimit] of its d. Methods that take a hit which
// nobody releases, such as its Allow, Take, Run and Wait, fail with [errors.ErrUnsupported].
func (s *InFlight) Limit(n uint64) *Limit { return MustLimit(s, n, time.Minute) }

func (s *InFlight) bind(m *Limit) (Counter, error) {
	of := s.l.InFlight()
	of.duration = m.d
	err := of.bindTo(m.seriesName(), m.numbers(), &of.in.Keys)
	return of.described(), err
}

// Held is work that was admitted, and is in flight until Release. Make one with [Hold] or
// [HoldWait]. It is safe for concurrent use.
type Held struct {
	place    engine.Place // in this process
	released atomic.Bool
	kept     *kept // a place elsewhere; nil: in this process
}

// kept is a place elsewhere, which is renewed.
type kept struct {
	renewal.Kept
	id turns.ID // of those who wait for it
}

// Release ends the hold. The first call counts; later ones do nothing and return nil, as does
// one after the place was lost. An error means that the place may count until its lease ends. That
// ctx has ended does not matter.
func (h *Held) Release(ctx context.Context) error {
	switch {
	case h.released.Swap(true):
		return nil
	case h.kept != nil:
		return h.kept.release(ctx)
	}
	h.place.Release()
	return nil
}

// release gives the place back, and wakes the first who waits for it.
func (k *kept) release(ctx context.Context) error {
	defer turns.Signal(k.id)
	return k.Release(context.WithoutCancel(ctx))
}

// Lost returns a channel that is closed if the lease ended before its renewal and the place was
// given to others: then more than the limit may be in flight, until this work ends too. In this
// process a place is never lost, and the channel is nil.
func (h *Held) Lost() <-chan struct{} {
	if h.kept == nil {
		return nil
	}
	return h.kept.Lost()
}
