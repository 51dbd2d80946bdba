package fallback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/wrap"
	"github.com/weirgo/weir/limits"
)

// Charge adds r.Cost whether it fits or not, so that limits.Reserve can settle on a Fallback.
// Primary is charged, and local with its share, so that it continues from there. If primary is no
// weir.Charger the error is errors.ErrUnsupported. While primary does not answer, local alone is
// charged, if it is a weir.Charger, and primary before it next decides for that key. A charge whose
// answer was lost may be counted by both.
func (f *Fallback) Charge(ctx context.Context, r *weir.Request) error {
	if err := f.validate(ctx, r); err != nil {
		return err
	}
	v := f.visit(r, time.Time{})
	defer v.end()
	charged := v.chargeRate()
	_, err := v.call(ctx, calling(limits.OpCharge, nil))
	charged(err == nil)
	if err != nil && err != errUndecided {
		return err
	}
	n := v.sharedAmong()
	own := *v.toShare(n)
	if err == nil {
		v.a.recount(wrap.Cost(r), 0)
		own.Cost = share(wrap.Cost(r), n)
		_ = f.local.Charge(ctx, &own) // if local has no room for the key, it denies its requests too
		v.a.mu.Lock()
		defer v.a.mu.Unlock()
		v.inWindow(&own, own.Cost).admit()
		return nil
	}
	if err := wrap.Supported(f.local.Charge(ctx, &own)); err != nil {
		return fmt.Errorf("fallback: local: %w", err)
	}
	own.Cost = 1
	counted, _ := f.local.Peek(ctx, &own) // without it, the debt counts for a Duration
	v.a.mu.Lock()
	defer v.a.mu.Unlock()
	v.inWindow(&own, wrap.Cost(r)).admit()
	v.recordDebt(n, &own, cmp.Or(counted, new(weir.Result)))
	return nil
}

// Refund takes back the cost that Run admitted for r with the Result taken. The part that local
// admitted and primary has not been charged with is given back to local and not charged; the rest
// goes to primary, if it is a weir.Refunder. A refund that primary does not receive is lost: the
// caller is denied a little early. So are refunds in a period in which local admitted something
// that primary is never charged with (see Stats.Dropped): primary must not give back what it has
// not counted.
func (f *Fallback) Refund(ctx context.Context, r *weir.Request, taken *weir.Result) error {
	if err := f.validate(ctx, r); err != nil {
		return err
	}
	if f.exceeds(r) || !taken.Allowed() || !taken.ExpiresAt.After(f.cfg.Now()) {
		return nil
	}
	v := f.visit(r, time.Time{})
	defer v.end()
	return v.refund(ctx, taken)
}

// refund takes the cost of the request back, in the period that taken is of: from local as far as
// primary has not been charged with it, and from primary.
func (v *visit) refund(ctx context.Context, taken *weir.Result) error {
	counted, cost := taken.ExpiresAt.After(v.ledger.unrecordedNow().until), wrap.Cost(v.r)
	v.a.mu.Lock()
	owed := v.a.debts.Refund(cost, v.cfg.Now())
	if owed > 0 {
		v.inWindow(v.r, owed).takeBack(algorithm.Never)
	}
	v.a.mu.Unlock()
	if counted {
		v.a.recount(0, cost-owed)
	}
	if owed > 0 {
		own := *v.toShare(v.sharedAmong())
		own.Cost = owed
		if _, err := v.doLocal(ctx, limits.OpRefund, &own, taken); wrap.Supported(err) != nil {
			return err
		}
	}
	if owed == cost || !counted {
		return nil
	}
	rest, was := *v.r, *taken // the call may outlive its caller
	rest.Cost, v.r = cost-owed, &rest
	return v.takeBack(ctx, &was)
}

// revocably calls a method of s, but Admit in place of Run. What that returns is stored in
// giveBack, and called in place of Refund; it is nil if s is no weir.Admitter, or did not decide by
// Admit.
func revocably(s *wrap.Strategy, giveBack *weir.Return) method {
	return func(ctx context.Context, op limits.Op, r *weir.Request,
		taken *weir.Result) (res *weir.Result, err error) {
		switch {
		case op == limits.OpRefund && *giveBack != nil:
			return nil, (*giveBack)(ctx, wrap.Cost(r))
		case op == limits.OpRun:
			res, *giveBack, err = s.Admit(ctx, r)
			if !errors.Is(err, errors.ErrUnsupported) {
				return res, err
			}
		}
		return s.Do(ctx, op, r, taken)
	}
}

// Admit is Run, and returns what gives cost back where r was admitted: to primary by the Return of
// primary, and to local by that of local, as far as primary was not charged with it. What was
// charged is refunded, as by Refund. It gives nothing back after a Reset here, and no more than was
// taken; what primary does not receive is lost. Of a strategy that is no weir.Admitter it is Run
// and Refund.
func (f *Fallback) Admit(ctx context.Context, r *weir.Request) (*weir.Result, weir.Return, error) {
	if err := f.validate(ctx, r); err != nil {
		return nil, nil, err
	}
	v := f.visit(r, time.Time{})
	defer v.end()
	number := v.a.number
	var primary, local weir.Return // a call of primary that is late may still write the first
	by := *f
	by.doPrimary, by.doLocal = revocably(&f.primary, &primary), revocably(&f.local, &local)
	res, source, err := by.RunSource(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	to := by
	if source != FromPrimary {
		to.doPrimary = f.doPrimary
	}
	return res, wrap.Returning(r, res, func(ctx context.Context, r *weir.Request,
		taken *weir.Result) error {
		v := to.visit(r, time.Time{})
		defer v.end()
		counts := taken.ExpiresAt.After(f.cfg.Now()) && v.a.number == number
		switch {
		case counts && source == FromLocal:
			return v.refund(ctx, taken)
		case counts && source != FromOnFail:
			v.a.recount(0, r.Cost)
		case source != FromPrimary || primary == nil: // Refund would give back what counts no more
			return nil
		}
		return v.takeBack(ctx, taken)
	}), nil
}

// Reset sets the count of r.Key in r.Duration to zero: here, in primary and in local, each as far
// as it is a weir.Resetter. While primary does not answer, the reset is recorded for a day, or for
// two Durations if that is longer, and primary resets before it next decides for that key; without
// room in the ledger the error is weir.ErrFull. Requests and charges under way count as from before
// the reset; one that primary receives after it counts there.
func (f *Fallback) Reset(ctx context.Context, r *weir.Request) error {
	if err := f.validate(ctx, r); err != nil {
		return err
	}
	f.primary.Forget(r)
	v := f.visit(r, f.cfg.Now().Add(max(2*r.Duration, 2*f.longest, 2*f.window, 24*time.Hour)))
	defer v.end()
	_, err := v.call(ctx, (*visit).catchUp)
	v.a.mu.Lock()
	v.a.back.end(err == nil, v.began.Add(v.length()))
	v.a.mu.Unlock()
	switch err := wrap.Supported(err); {
	case err == errUndecided && v.a.temporary:
		return fmt.Errorf("fallback: no answer from primary, and no room to record the reset: %w",
			weir.ErrFull)
	case err != nil && err != errUndecided:
		return err
	}
	return wrap.Supported(f.local.Reset(ctx, r))
}

// ResetPrefix implements weir.PrefixResetter. It is one of primary and, if that can, of local, and
// a Reset of each caller that is known here, which may be owed something. The count is primary's.
// While primary does not answer the error is primary's, and what is done is as if by Reset: repeat
// it then, for the callers that are known elsewhere. It is not bounded by Config.Timeout.
func (f *Fallback) ResetPrefix(
	ctx context.Context, prefix string, progress func(seen, reset int),
) (reset int, err error) {
	reset, err = f.primary.ResetPrefix(ctx, prefix, progress)
	_, local := f.local.ResetPrefix(ctx, prefix, nil)
	errs := []error{err, wrap.Supported(local)}
	for r := range f.ledger.Prefix(prefix) {
		errs = append(errs, f.Reset(ctx, r))
	}
	return reset, errors.Join(errs...)
}
