package weir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/internal/core/engine"
	"github.com/weirgo/weir/internal/core/foroverload"
	"github.com/weirgo/weir/internal/core/slots"
	"github.com/weirgo/weir/internal/core/windows"
)

// DeniedError is the error of [Hold] for a request that is denied. It wraps [ErrLimit] if the
// request can never pass, since its Cost is over the limit.
type DeniedError struct {
	Result Result
	Limit  *Limit // that denied; nil without one
	Never  bool   // the cost is over the limit
}

// Error implements error.
func (e *DeniedError) Error() string {
	what := "weir: denied"
	if e.Limit != nil {
		what += " by " + e.Limit.String()
	}
	until := "one is released"
	switch at := e.Result.ExpiresAt; {
	case e.Never:
		return what + ": the cost can never pass"
	case e.Limit != nil && !e.Limit.decider().inFlight: // of a limits.All
		return what + " until " + at.Round(0).String()
	case !at.IsZero():
		until = at.Round(0).String() + " at the latest" // without a monotonic reading
	}
	return fmt.Sprintf("%s: %d in flight, until %s", what, e.Result.TotalRequests, until)
}

// Unwrap returns ErrLimit, or nil.
func (e *DeniedError) Unwrap() error {
	if e.Never {
		return ErrLimit
	}
	return nil
}

// denial returns the error for a denial of r by c, for m if that is not nil.
func denial(c Counter, m *Limit, r *Request, res *Result) *DeniedError {
	a := c.About()
	limit := r.Limit
	if a.Bound {
		limit = a.Numbers.Limit
	}
	// a wrapper may have changed them: a cost that is denied where nothing is in flight is over them
	over := max(1, r.Cost) > limit || res.TotalRequests == 0
	return &DeniedError{*res, m, over && res.ExpiresAt.IsZero()}
}

// Hold admits r, and keeps it admitted until Release:
//
//	r := &weir.Request{Key: user, Limit: 4, Duration: time.Minute}
//	held, err := weir.Hold(ctx, limiter.InFlight(), r)
//	if err != nil { … } // errors.As finds a *weir.DeniedError for a denial
//	defer held.Release(ctx)
//
// s is a [Counter] that can [OpHold]: [InFlight], redislimit's, or a fallback of both; with another
// Hold fails with [errors.ErrUnsupported]. Its other errors are a [*DeniedError], and the errors of
// s. The end of ctx does not end the hold.
//
// Duration is the lease. In this process a place needs none, and ends with its Release, or with the
// process. A place elsewhere is renewed three times in each Duration, and more often after an
// error, until its release. If the process dies its places are given back by themselves, one
// Duration after the last renewal. So the Duration must be three times as long as the pauses of a
// process and the outages of its store, which may come just before a renewal and end just after the
// next try; seconds to minutes. One goroutine renews all places of a Strategy, with up to 16 calls
// at one time.
//
// Hold is small enough to be inlined: the Held takes no allocation where it does not escape.
func Hold(ctx context.Context, s Strategy, r *Request) (*Held, error) {
	return new(Held).hold(ctx, s, r)
}

// Hold admits work of key until its release, as the function [Hold] does. It fails with
// [errors.ErrUnsupported] unless the limit is one on work in flight.
func (m *Limit) Hold(ctx context.Context, key string) (*Held, error) {
	return new(Held).hold(ctx, m, &Request{Key: key})
}

// HoldWait is Hold, and waits its turn, as the function [HoldWait] does.
func (m *Limit) HoldWait(ctx context.Context, key string) (*Held, error) {
	return HoldWait(ctx, m, &Request{Key: key})
}

// hold is Hold, which returns h.
func (h *Held) hold(ctx context.Context, s Strategy, r *Request) (*Held, error) {
	m, _ := s.(*Limit)
	c := CounterOf(s)
	if own, ok := c.(*InFlight); ok {
		v, err := own.hold(&h.place, r)
		switch {
		case err != nil:
			return nil, err
		case !v.Allowed:
			return nil, denial(c, m, r, own.l.result(v))
		}
		return h, nil
	}
	op := &Op{Counter: c, Verb: OpHold, Request: *r} // so that r stays on the stack
	c.Do(ctx, []*Op{op})
	switch {
	case op.Err != nil:
		return nil, op.Err
	case !op.Result.Allowed():
		return nil, denial(c, m, &op.Request, &op.Result)
	}
	return HeldBy(op), nil
}

// HeldBy returns the work that op, an [OpHold], has admitted. A place elsewhere is renewed from
// then on, until its release.
func HeldBy(op *Op) *Held {
	if own, ok := op.Receipt.Of.(*Held); ok { // of an InFlight, which may be inside of a wrapper
		return own
	}
	k := &kept{id: newWaitID(op.Counter, &op.Request)}
	lease := cmp.Or(op.Counter.About().Numbers.Duration, op.Duration)
	k.Start(k.id.Of, lease, &remotePlace{*op})
	return &Held{kept: k}
}

// remotePlace is a place elsewhere, by the op that took it.
type remotePlace struct{ op Op }

func (p *remotePlace) do(ctx context.Context, v Verb) error {
	p.op.Verb = v
	p.op.Counter.Do(ctx, []*Op{&p.op})
	return p.op.Err
}

// Renew implements renewal.Place.
func (p *remotePlace) Renew(ctx context.Context) (held bool, err error) {
	err = p.do(ctx, OpRenew)
	return err == nil && p.op.Result.Allowed(), err
}

// Release implements renewal.Place.
func (p *remotePlace) Release(ctx context.Context) error { return p.do(ctx, OpRelease) }

// HoldWait is Hold, and waits its turn as [Wait] does: in order of arrival, behind those who wait
// for the same limit in this process. It fails with ctx, and at once if the deadline leaves no time
// for another try.
//
// In this process the first who waits sleeps until something is released. Elsewhere the first asks
// again after pauses of random length that double, from 5 ms to 250 ms at most; a release by the
// same process ends the pause. One try is under way for each limit and process.
func HoldWait(ctx context.Context, s Strategy, r *Request) (held *Held, err error) {
	c := newWaitCaller(ctx, CounterOf(s), r, nil)
	own, local := c.counter.(*InFlight)
	c.holds = true
	if !local {
		c.tries = 2 * minTry
	}
	c.decide = func(ctx context.Context, r *Request) (res *Result, err error) {
		if local {
			c.freed = nil
		}
		for {
			var denied *DeniedError
			held, err = Hold(ctx, c.counter, r)
			switch {
			case err == nil:
				return &Result{State: Allow}, nil
			case !errors.As(err, &denied):
				return nil, err
			case denied.Never:
				return nil, fmt.Errorf("%w: a cost of %d can never pass", ErrLimit, c.Cost)
			case !local, c.freed != nil:
				return &denied.Result, nil
			}
			// then once more: something may have been given back before
			c.freed, err = own.freed(r)
			if err != nil {
				return nil, err
			}
		}
	}
	err = c.wait(ctx)
	if err != nil {
		return nil, err
	}
	return held, nil
}

// The places of the callers of package overload.
func init() {
	foroverload.Of = func(limiter any) (foroverload.Places, error) {
		return newGuardPlaces(limiter.(*Limiter))
	}
}

// guardPlaces are the places of the callers of one overload.Guard, in a series of its own. A
// snapshot has them as leases, which end at once.
type guardPlaces struct{ *InFlight }

func newGuardPlaces(l *Limiter) (p guardPlaces, err error) {
	number := strconv.FormatInt(l.guards.Add(1), 10)
	in, err := l.named(windows.SeriesName{Name: "overload " + number}, nil)
	if err != nil {
		return p, err
	}
	p.InFlight = l.InFlight()
	p.duration, p.in.Series, p.in.Scale = time.Millisecond, in.Number, 1
	return p, nil
}

// Hold implements [foroverload.Places].
func (p guardPlaces) Hold(key string, most uint64) (h foroverload.Held, holds int64, err error) {
	var at engine.Place
	v, err := p.hold(&at, &Request{Key: key, Limit: most})
	return foroverload.Held{Slot: at.Slot, At: uint64(at.At)}, v.Total, err
}

// Holds implements [foroverload.Places].
func (p guardPlaces) Holds(key string) (int64, error) {
	op := Op{Verb: OpPeek, Request: Request{Key: key, Duration: p.duration}} // denied
	p.Do(context.Background(), []*Op{&op})
	return int64(op.Result.TotalRequests), op.Err
}

// Release implements [foroverload.Places].
func (p guardPlaces) Release(h foroverload.Held) {
	at := p.l.stores.Places.PlaceAt(h.Slot, slots.Location(h.At), 1)
	at.Release()
}

// Read implements [foroverload.Places].
func (p guardPlaces) Read() int64 { return p.l.clock.Read() }

// Closed implements [foroverload.Places].
func (p guardPlaces) Closed() bool { return p.l.closed.Load() }

// Reservation is an estimate that was taken, or denied, and is corrected when the cost is known.
// Make one with [Limit.Reserve], or of several limits with limits.Reserve. The Outcome is the
// decision on the estimate, of several limits by the one that binds. A Reservation is safe for
// concurrent use.
type Reservation struct {
	Outcome
	ops  []*Op // that took the estimate, each with its Receipt
	done atomic.Bool
}

// Reserve takes estimate hits of key at once, of which 0 means 1. Commit the Reservation when the
// cost is known, or Cancel it; one that is neither committed nor cancelled stands until its period
// ends:
//
//	res, err := tokens.Reserve(ctx, user, 4000)
//	if err != nil { … }
//	if !res.Allowed() { … }
//	defer res.Cancel(ctx)
//	return res.Commit(ctx, generate())
//
// A denial is in the Reservation and not an error; there is nothing to commit then. Reserve fails
// as Take does, and with [errors.ErrUnsupported], and takes nothing, if the Strategy cannot
// [OpReturn] and [OpCharge], or bounds work in flight. The strategies of weir, of redislimit and of
// fallback can.
//
// Cost is given back to the admission itself: not to one that came later, nor after a
// Reset. With a Strategy that gives back and charges exactly, at most the limit is admitted, and
// the excess of commits over their estimates.
//
// For a cost that is known afterwards to another process, such as a proxy that asks by Envoy's
// protocol, see "costs: afterwards" in package rules: there the request passes while something is
// left, and its cost is counted when it ends, without an estimate.
func (m *Limit) Reserve(ctx context.Context, key string, estimate uint64) (*Reservation, error) {
	d := m.decider()
	switch {
	case d.inFlight:
		return nil, m.unreleasable()
	case !d.about.Verbs.Has(OpReturn), !d.about.Verbs.Has(OpCharge):
		return nil, fmt.Errorf("weir: %v cannot refund and charge: %w", d.about, errors.ErrUnsupported)
	}
	op := &Op{Counter: d.counter, Request: Request{Key: key, Cost: estimate}, Keep: true, Full: true}
	d.counter.Do(ctx, []*Op{op})
	if op.Err != nil {
		return nil, op.Err
	}
	return ReservationOf(m.Outcome(ctx, op), op), nil
}

// ReservationOf returns the Reservation of ops that were admitted, or denied, together, each an
// [OpTake] with Keep: for packages that decide on several limits. It keeps the ops.
func ReservationOf(out Outcome, ops ...*Op) *Reservation {
	return &Reservation{Outcome: out, ops: ops}
}

// Commit corrects the reservation to the actual cost. Of an estimate that was too high the rest is
// given back, within the period of the estimate; after that nothing is, since the estimate counts
// no more. An excess is charged to the current period, whether it fits or not. Commit(ctx, 0) gives
// everything back.
//
// The first Commit, CommitEach or Cancel counts; later ones do nothing and return nil, even if the
// first failed: whether a lost call was counted is unknown. An error means that the estimate may
// stand as it is. That ctx has ended does not matter, so that a client that hangs up is charged
// too.
func (v *Reservation) Commit(ctx context.Context, actual uint64) error {
	return v.commit(ctx, func(int) uint64 { return actual })
}

// CommitEach is Commit with a cost for each limit of a Reservation of several. It fails, and
// changes nothing, if there are more or fewer.
func (v *Reservation) CommitEach(ctx context.Context, actual ...uint64) error {
	if len(actual) != len(v.ops) {
		return fmt.Errorf("weir: CommitEach: %d costs for %d limits", len(actual), len(v.ops))
	}
	return v.commit(ctx, func(i int) uint64 { return actual[i] })
}

// Cancel gives everything back, as Commit of 0 does.
func (v *Reservation) Cancel(ctx context.Context) error { return v.Commit(ctx, 0) }

func (v *Reservation) commit(ctx context.Context, actual func(i int) uint64) error {
	if v.done.Swap(true) || !v.Allowed() {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	errs := make([]error, len(v.ops))
	for i, op := range v.ops {
		estimate, actual := max(1, op.Cost), actual(i)
		switch {
		case actual < estimate:
			op.Verb, op.Cost = OpReturn, estimate-actual
			op.Counter.Do(ctx, []*Op{op})
			errs[i] = op.Err
		case actual > estimate:
			more := &Op{Counter: op.Counter, Verb: OpCharge, Request: op.Request}
			more.Cost = actual - estimate
			op.Counter.Do(ctx, []*Op{more})
			errs[i] = more.Err
		}
	}
	return errors.Join(errs...)
}
