package fallback

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/algorithm"
)

// charge begins an OpCharge, so that limits.Reserve can settle on a Fallback. Primary is charged,
// and local with its share, so that it continues from there. If primary cannot charge, the error is
// errors.ErrUnsupported. While primary does not answer, local alone is charged, if it can be, and
// primary before it next decides for that key. A charge whose answer was lost may be counted by
// both.
func (f *Fallback) charge(op *weir.Op) *visit {
	v := f.visitBy(op, &op.Request)
	v.rated = v.chargeRate()
	return v
}

// charged finishes an OpCharge.
func (v *visit) charged(ctx context.Context, err error) error {
	v.rated(err == nil)
	if err != nil && err != errUndecided {
		return err
	}
	n, cost := v.sharedAmong(), costOf(v.r)
	own := *v.toShare(n)
	if err == nil {
		v.a.recount(cost, 0)
		own.Cost = share(cost, n)
		if v.local != nil { // if it has no room for the key, it denies its requests too
			_ = by(ctx, v.local, &weir.Op{Verb: weir.OpCharge, Request: own})
		}
		v.a.mu.Lock()
		defer v.a.mu.Unlock()
		v.inWindow(&own, own.Cost).admit()
		return nil
	}
	counted := new(weir.Result) // without it, the debt counts for a Duration
	if v.local != nil {
		op := &weir.Op{Verb: weir.OpCharge, Request: own}
		if err := supported(by(ctx, v.local, op)); err != nil {
			return fmt.Errorf("fallback: local: %w", err)
		}
		op.Verb, op.Cost = weir.OpPeek, 1
		if by(ctx, v.local, op) == nil {
			counted = &op.Result
		}
	}
	v.a.mu.Lock()
	defer v.a.mu.Unlock()
	v.inWindow(&own, cost).admit()
	v.recordDebt(n, &own, counted)
	return nil
}

// kept is what a Receipt of an OpTake is of.
type kept struct {
	number uint64 // of the account
	source weir.Source
	result weir.Result

	// primary is set by the call of primary, which may be late unless primary or what is known of it
	// has decided.
	primary, local weir.Receipt
}

// giveBack begins an OpReturn. Without a Receipt the part that local admitted and primary has not
// been charged with is given back to local and not charged; the rest goes to primary, if it can
// take it. With one it goes back to primary by the Receipt of primary, and to local by that of
// local, as far as primary was not charged with it; nothing after a reset here, and no more than
// was taken. What primary does not receive is lost: the caller is denied a little early. So is what
// is given back without a Receipt in a period in which local admitted something that primary is
// never charged with (see Stats.Dropped): primary must not give back what it has not counted.
func (f *Fallback) giveBack(ctx context.Context, op *weir.Op) *visit {
	k, ok := op.Receipt.Of.(*kept)
	if !ok {
		if f.exceeds(&op.Request) || !op.Result.Allowed() || !op.Result.ExpiresAt.After(f.cfg.Now()) {
			return nil
		}
		return f.visitBy(op, &op.Request).refund(ctx, &op.Result, new(weir.Receipt))
	}
	r, left := op.Request, op.Receipt.Cost
	r.Cost = min(costOf(&r), left)
	op.Receipt.Cost -= r.Cost
	if r.Cost == 0 {
		return nil
	}
	v := f.visitBy(op, &r)
	counts := k.result.ExpiresAt.After(f.cfg.Now()) && v.a.number == k.number
	switch {
	case counts && k.source == weir.FromLocal:
		return v.refund(ctx, &k.result, &k.local)
	case k.source == weir.FromLocal || k.source == weir.FromOnFail,
		// it would give back what counts no more
		!counts && (k.source != weir.FromPrimary || k.primary.Of == nil):
		v.end()
		return nil
	case counts:
		v.a.recount(0, r.Cost)
	}
	v.kept = &kept{primary: k.primary} // for this part: its call may outlast the wait for it
	v.kept.primary.Cost = min(k.primary.Cost, left)
	v.takeBack(&k.result)
	return v
}

// refund takes the cost of the request back, in the period that taken is of: from local, by a
// Receipt, as far as primary has not been charged with it. The visit that it returns is to call
// primary for the rest; nil: there is none.
func (v *visit) refund(ctx context.Context, taken *weir.Result, local *weir.Receipt) *visit {
	counted, cost := taken.ExpiresAt.After(v.ledger.unrecordedNow().until), costOf(v.r)
	v.a.mu.Lock()
	owed := v.a.debts.Refund(cost, v.cfg.Now())
	if owed > 0 {
		v.inWindow(v.r, owed).takeBack(algorithm.Never)
	}
	v.a.mu.Unlock()
	if counted {
		v.a.recount(0, cost-owed)
	}
	if owed > 0 && v.local != nil {
		own := *v.toShare(v.sharedAmong())
		own.Cost = owed
		op := &weir.Op{Verb: weir.OpReturn, Request: own, Result: *taken, Receipt: *local}
		v.op.Err = supported(by(ctx, v.local, op))
		*local = op.Receipt
	}
	if owed == cost || !counted || v.op.Err != nil {
		v.end()
		return nil
	}
	rest := *v.r
	rest.Cost, v.r = cost-owed, &rest
	v.takeBack(taken)
	return v
}

// reset does an OpReset: here, in primary and in local, each as far as it can. While primary does
// not answer, the reset is recorded for a day, or for two Durations if that is longer, and primary
// resets before it next decides for that key; without room in the ledger the error is weir.ErrFull.
// Requests and charges under way count as from before the reset; one that primary receives after it
// counts there.
func (f *Fallback) reset(ctx context.Context, r *weir.Request) error {
	if err := f.validate(ctx, r); err != nil {
		return err
	}
	if f.primary.About().Verbs.Has(weir.OpForget) {
		_ = by(ctx, f.primary, &weir.Op{Verb: weir.OpForget, Request: *r})
	}
	v := f.visit(r, f.cfg.Now().Add(max(2*r.Duration, 2*f.longest, 2*f.window, 24*time.Hour)))
	defer v.end()
	_, err := v.call(ctx, (*visit).catchUp)
	v.a.mu.Lock()
	v.a.back.end(err == nil, v.began.Add(v.length()))
	v.a.mu.Unlock()
	switch err := supported(err); {
	case err == errUndecided && v.a.temporary:
		return fmt.Errorf("fallback: no answer from primary, and no room to record the reset: %w",
			weir.ErrFull)
	case err != nil && err != errUndecided:
		return err
	}
	if f.local == nil {
		return nil
	}
	return supported(by(ctx, f.local, &weir.Op{Verb: weir.OpReset, Request: *r}))
}

// resetPrefix is one of primary and, if that can, of local, and a reset of each caller that is
// known here, which may be owed something. The count is primary's. While primary does not answer
// the error is primary's, and what is done is as if by reset: repeat it then, for the callers that
// are known elsewhere. It is not bounded by Config.Timeout.
func (f *Fallback) resetPrefix(ctx context.Context, op *weir.Op) error {
	errs := []error{by(ctx, f.primary, op)}
	if f.local != nil {
		here := &weir.Op{Verb: weir.OpResetPrefix, Request: op.Request}
		errs = append(errs, supported(by(ctx, f.local, here)))
	}
	for r := range f.ledger.Prefix(op.Key) {
		errs = append(errs, f.reset(ctx, r))
	}
	return errors.Join(errs...)
}
