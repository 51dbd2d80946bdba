package weir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/weirgo/weir/internal/core/renewal"
	"github.com/weirgo/weir/internal/core/turns"
)

// Held is work that was admitted, and is in flight until Release. Make one with [Hold] or
// [HoldWait]. It is safe for concurrent use.
type Held struct {
	place    // in this process
	released atomic.Bool
	kept     *kept // a place elsewhere; nil: it is in this process
}

// kept is a place elsewhere, which is renewed.
type kept struct {
	renewal.Kept
	id turns.ID // of those who wait for it
}

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
//	if err != nil { … } // errors.As finds a *weir.DeniedError, if it is denied
//	defer held.Release(ctx)
//
// s is a [Counter] that can [OpHold]: [InFlight], that of redislimit, or a fallback of both; with
// another it fails with [errors.ErrUnsupported]. Its other errors are a [*DeniedError], and
// those of s. That ctx ends does not end what is held.
//
// Duration is the lease. In this process a place needs none: it ends with its Release, or with the
// process. A place elsewhere is renewed three times in each Duration, and more often after an
// error, until it is released. If the process dies its places are given back by themselves, one
// Duration after they were last renewed. So the Duration must be three times as long as the pauses
// of a process and the outages of its store, which may come just before a renewal and end just
// after the next try; seconds to minutes. One goroutine renews all places of a Strategy, with up to
// 16 calls at one time.
//
// Hold is small enough to be inlined: what it returns takes no allocation where it does not escape.
func Hold(ctx context.Context, s Strategy, r *Request) (*Held, error) {
	return new(Held).hold(ctx, s, r)
}

// Hold admits work of key until it is released, as the function [Hold] does. It fails with
// [errors.ErrUnsupported] unless the limit is one on work in flight.
func (m *Limit) Hold(ctx context.Context, key string) (*Held, error) {
	return new(Held).hold(ctx, m, &Request{Key: key})
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
// then on, until it is released.
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

// Release ends what is held. The first call counts; later ones do nothing and return nil, as does
// one after the place was lost. An error means that it may count until its lease ends. That ctx has
// ended does not matter.
func (h *Held) Release(ctx context.Context) error {
	switch {
	case h.released.Swap(true):
		return nil
	case h.kept != nil:
		return h.kept.release(ctx)
	}
	h.place.release()
	return nil
}

// release gives the place back, and wakes the first who waits for it.
func (k *kept) release(ctx context.Context) error {
	defer turns.Signal(k.id)
	return k.Release(context.WithoutCancel(ctx))
}

// Lost returns a channel that is closed if the lease ended before it was renewed and the place was
// given to others: then more than the limit may be in flight, until this work ends too. In this
// process a place is never lost, and the channel is nil.
func (h *Held) Lost() <-chan struct{} {
	if h.kept == nil {
		return nil
	}
	return h.kept.Lost()
}

// HoldWait is Hold, and waits its turn as [Wait] does: in order of arrival, behind those who wait
// for the same limit in this process. It fails with ctx, and at once if the deadline leaves no time
// for another try.
//
// In this process the first who waits sleeps until something is released. Elsewhere it asks again
// after pauses of random length that double, from 5 ms to 250 ms at most; what is released by the
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

// HoldWait is Hold, and waits its turn, as the function [HoldWait] does.
func (m *Limit) HoldWait(ctx context.Context, key string) (*Held, error) {
	return HoldWait(ctx, m, &Request{Key: key})
}
