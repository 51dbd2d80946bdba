package limits

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/weirgo/weir"
)

// Reservation is an estimate that was taken, and is corrected when the cost is known. Make one with
// [Reserve]. It is safe for concurrent use.
type Reservation struct {
	result   weir.Result
	attempts Attempts
	done     atomic.Bool
}

// Reserve has s decide on r, whose Cost is an estimate. Commit it when the cost is known, or Cancel
// it; a Reservation that is neither committed nor cancelled stands until its period ends:
//
//	res, err := limits.Reserve(ctx, s, r) // r.Cost is the estimate
//	if err != nil { … }
//	if !res.Allowed() { … }
//	defer res.Cancel(ctx)
//	tokens := generate()
//	return res.Commit(ctx, tokens)
//
// A denial is in the Reservation and not an error; there is nothing to commit then. The errors are
// those of s. It fails with [errors.ErrUnsupported], and takes nothing, if s cannot [weir.OpReturn]
// and [weir.OpCharge]: the strategies of weir, of redislimit and of fallback can, and a Limit and
// All can if those in them can. ReserveAll fails as [Decide] does, too.
//
// What is given back is given back to the admission itself: not to one that came later, nor after a
// Reset. With a strategy that refunds and charges exactly, at most the limit is admitted, and what
// commits exceeded their estimates by.
//
// For a cost that is known afterwards to another process, such as a proxy that asks by Envoy's
// protocol, see "costs: afterwards" in package rules: there the request passes while something is
// left, and its cost is counted when it ends, without an estimate.
func Reserve(ctx context.Context, s weir.Strategy, r *weir.Request) (*Reservation, error) {
	return ReserveAll(ctx, weir.Ask{Strategy: s, Request: *r})
}

// ReserveAll is Reserve of several asks, decided as by [Decide]: all are admitted, or none. Commit
// and Cancel correct each; CommitEach corrects them to different costs, as of one request and its
// tokens.
func ReserveAll(ctx context.Context, asks ...weir.Ask) (*Reservation, error) {
	attempts := make(Attempts, len(asks)) // the Reservation keeps them
	for i, ask := range asks {
		attempts[i].askFor(&ask)
		if !attempts[i].reservable() {
			return nil, fmt.Errorf("limits: Reserve: %w", attempts[i].unsupported("refund and charge"))
		}
	}
	if err := attempts.checkCounts(); err != nil {
		return nil, err
	}
	return reserve(ctx, attempts)
}

// reservable reports whether the Counter can give back and charge.
func (l *Attempt) reservable() bool {
	return l.about != nil && l.has(weir.OpReturn) && l.has(weir.OpCharge)
}

// reserve decides on attempts, which the Reservation keeps.
func reserve(ctx context.Context, attempts Attempts) (*Reservation, error) {
	for i := range attempts {
		attempts[i].Keep = true
	}
	if err := attempts.decide(ctx); err != nil {
		return nil, err
	}
	v := &Reservation{result: weir.Result{State: weir.Allow}, attempts: attempts}
	if i := attempts.Binding(); i >= 0 {
		v.result = attempts[i].Result
	}
	return v, nil
}

// Result returns the decision on the estimate: the one that binds.
func (v *Reservation) Result() weir.Result { return v.result }

// Allowed reports whether the estimate was admitted.
func (v *Reservation) Allowed() bool { return v.result.Allowed() }

// Commit corrects the reservation to the cost that it came to. Of an estimate that was too high the
// rest is given back, within the period that it was taken from; after that nothing is, since it
// counts no more. What exceeds the estimate is charged to the current period, without asking
// whether it fits. Commit(ctx, 0) gives everything back.
//
// The first Commit, CommitEach or Cancel counts; later ones do nothing and return nil, even if the
// first failed: whether a lost call was counted is unknown. An error means that the estimate may
// stand as it is. That ctx has ended does not matter, so that a client that hangs up is charged
// too.
func (v *Reservation) Commit(ctx context.Context, actual uint64) error {
	return v.commit(ctx, func(int) uint64 { return actual })
}

// CommitEach is Commit with a cost for each Ask of ReserveAll. It fails, and changes nothing, if
// there are more or fewer.
func (v *Reservation) CommitEach(ctx context.Context, actual ...uint64) error {
	if len(actual) != len(v.attempts) {
		return fmt.Errorf("limits: %d costs for %d asks", len(actual), len(v.attempts))
	}
	return v.commit(ctx, func(i int) uint64 { return actual[i] })
}

// Cancel gives everything back: it is Commit of 0.
func (v *Reservation) Cancel(ctx context.Context) error { return v.Commit(ctx, 0) }

func (v *Reservation) commit(ctx context.Context, actual func(i int) uint64) error {
	if v.done.Swap(true) || !v.Allowed() {
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	errs := make([]error, len(v.attempts))
	for i := range v.attempts {
		m := &v.attempts[i]
		switch estimate, actual := m.cost(), actual(i); {
		case actual < estimate:
			errs[i] = m.giveBack(ctx, estimate-actual)
		case actual > estimate:
			errs[i] = m.charge(ctx, actual-estimate)
		}
	}
	return errors.Join(errs...)
}
