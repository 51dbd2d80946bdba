package weir

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/weirgo/weir/internal/remainder"
)

// Reservation is an estimate that was taken, and is corrected when the cost is known. Make one with
// [Reserve]. It is safe for concurrent use.
type Reservation struct {
	result     Result
	admissions []admission
	done       atomic.Bool
}

// refundCharger is what a Strategy must offer for a Reservation.
type refundCharger interface {
	Refunder
	Charger
}

// returnOf returns what gives a part of an admission back, by give: in all no more than was taken, and
// nothing after a denial. give gets a request for the part, and how much was given back before.
func returnOf(r *Request, taken *Result, give func(q *Request, before int64) error) Return {
	if !taken.Allowed() {
		return func(context.Context, uint64) error { return nil }
	}
	whole := *r // r is the caller's
	whole.Cost = max(1, r.Cost)
	var rest remainder.Remainder
	rest.Set(whole.Cost)
	return func(_ context.Context, cost uint64) error {
		q := whole
		var before uint64
		if q.Cost, before = rest.Take(cost); q.Cost == 0 {
			return nil
		}
		return give(&q, clampCost(whole.Cost-before))
	}
}

// Reserve has s decide on r, whose Cost is an estimate. Commit it when the cost is known, or Cancel
// it; a Reservation that is neither committed nor cancelled stands until its period ends:
//
//	res, err := weir.Reserve(ctx, s, r) // r.Cost is the estimate
//	if err != nil { … }
//	if !res.Allowed() { … }
//	defer res.Cancel(ctx)
//	tokens := generate()
//	return res.Commit(ctx, tokens)
//
// A denial is in the Reservation and not an error; there is nothing to commit then. The errors are
// those of s. It fails with [errors.ErrUnsupported], and takes nothing, if s is not a [Refunder]
// and a [Charger]: the strategies of this package, of redislimit and of fallback are, and a Policy
// and All are if those in them are.
//
// What is given back is given back to the admission itself where s is an [Admitter], as those strategies
// are: not to one that came later, nor after a Reset. With a strategy that refunds and charges exactly,
// at most the limit is admitted, and what commits exceeded their estimates by.
func Reserve(ctx context.Context, s Strategy, r *Request) (*Reservation, error) {
	for _, leaf := range leaves(s) {
		if _, ok := leaf.(refundCharger); !ok {
			return nil, fmt.Errorf("weir: Reserve: %T cannot refund and charge: %w", leaf, errors.ErrUnsupported)
		}
	}
	q := *r // r is the caller's again when Reserve returns
	res, admissions, err := take(ctx, s, &q, nil, byAdmit)
	if err != nil {
		return nil, err
	}
	return &Reservation{result: *res, admissions: admissions}, nil
}

// Result returns the decision on the estimate.
func (v *Reservation) Result() Result { return v.result }

// Allowed reports whether the estimate was admitted.
func (v *Reservation) Allowed() bool { return v.result.Allowed() }

// Commit corrects the reservation to the cost that it came to. Of an estimate that was too high the
// rest is given back, within the period that it was taken from; after that nothing is, since it
// counts no more. What exceeds the estimate is charged to the current period, without asking
// whether it fits. Commit(ctx, 0) gives everything back.
//
// The first Commit or Cancel counts; later ones do nothing and return nil, even if the first
// failed: whether a lost call was counted is unknown. An error means that the estimate may stand as
// it is. That ctx has ended does not matter, so that a client that hangs up is charged too.
func (v *Reservation) Commit(ctx context.Context, actual uint64) error {
	if v.done.Swap(true) || len(v.admissions) == 0 {
		return nil
	}
	estimate := max(1, v.admissions[0].request.Cost)
	switch {
	case actual == estimate:
		return nil
	case actual < estimate:
		return refundAll(ctx, v.admissions, estimate-actual)
	}
	var errs []error
	for _, p := range v.admissions {
		q := *p.request
		q.Cost = actual - estimate
		errs = append(errs, p.strategy.(Charger).Charge(context.WithoutCancel(ctx), &q))
	}
	return errors.Join(errs...)
}

// Cancel gives everything back: it is Commit of 0.
func (v *Reservation) Cancel(ctx context.Context) error { return v.Commit(ctx, 0) }
