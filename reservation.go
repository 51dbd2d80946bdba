package weir

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
)

// Reservation is an estimate that was taken, or denied, and is corrected when the cost is known.
// Make one with [Limit.Reserve], or of several limits with limits.Reserve. The Outcome is the
// decision on the estimate, of several limits that of the one that binds. It is safe for concurrent
// use.
type Reservation struct {
	Outcome
	ops  []*Op // that took the estimate, each with its Receipt
	done atomic.Bool
}

// Reserve takes estimate hits of key at once, of which 0 means 1. Commit it when the cost is known,
// or Cancel it; a Reservation that is neither committed nor cancelled stands until its period ends:
//
//	res, err := tokens.Reserve(ctx, user, 4000)
//	if err != nil { … }
//	if !res.Allowed() { … }
//	defer res.Cancel(ctx)
//	return res.Commit(ctx, generate())
//
// A denial is in the Reservation and not an error; there is nothing to commit then. It fails as
// Take does, and with [errors.ErrUnsupported], and takes nothing, if the Strategy cannot [OpReturn]
// and [OpCharge], or bounds work in flight. The strategies of weir, of redislimit and of fallback
// can.
//
// What is given back is given back to the admission itself: not to one that came later, nor after a
// Reset. With a Strategy that gives back and charges exactly, at most the limit is admitted, and
// what commits exceeded their estimates by.
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

// CommitEach is Commit with a cost for each limit of a Reservation of several. It fails, and
// changes nothing, if there are more or fewer.
func (v *Reservation) CommitEach(ctx context.Context, actual ...uint64) error {
	if len(actual) != len(v.ops) {
		return fmt.Errorf("weir: CommitEach: %d costs for %d limits", len(actual), len(v.ops))
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
