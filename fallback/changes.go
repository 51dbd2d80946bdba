package fallback

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/wrap"
)

// Charge adds r.Cost whether it fits or not, so that weir.Reserve can settle on a Fallback. Primary
// is charged, and local with its share, so that it continues from there. If primary is no
// weir.Charger the error is errors.ErrUnsupported. While primary does not answer, local alone is
// charged, if it is a weir.Charger, and primary before it next decides for that key. A charge whose
// answer was lost may be counted by both.
func (f *Fallback) Charge(ctx context.Context, r *weir.Request) error {
	if err := f.validate(ctx, r); err != nil {
		return err
	}
	a := f.ledger.open(r, f.cfg.Now())
	defer a.users.Add(-1)
	p, err := f.change(ctx, a, r, f.primary.Charge)
	if err != nil && err != errUndecided {
		return err
	}
	n := f.sharedAmong(a)
	own := *f.toShare(r, n)
	if err == nil {
		a.mu.Lock()
		a.counted.total += min(wrap.Cost(r), ^a.counted.total)
		a.mu.Unlock()
		own.Cost = share(wrap.Cost(r), n)
		_ = f.local.Charge(ctx, &own) // if local has no room for the key, it denies its requests too
		return nil
	}
	if err := wrap.Supported(f.local.Charge(ctx, &own)); err != nil {
		return fmt.Errorf("fallback: local: %w", err)
	}
	own.Cost = 1
	counted, err := f.local.Peek(ctx, &own)
	if err != nil {
		counted = new(weir.Result)
	}
	f.recordDebt(a, r, n, counted, p)
	return nil
}

// Refund takes back the cost that Run admitted for r with the Result taken. The part that local
// admitted and primary has not been charged with is given back to local and not charged; the rest
// goes to primary, if it is a weir.Refunder. A refund that primary does not receive is lost: the
// caller is denied a little early. So are refunds in a period in which local admitted something
// that primary is never charged with (see Stats.Dropped): primary must not give back what it has
// not counted.
func (f *Fallback) Refund(ctx context.Context, r *weir.Request, taken *weir.Result) error {
	return f.refundBy(ctx, r, taken, f.primary.Refund)
}

func (f *Fallback) refundBy(ctx context.Context, r *weir.Request, taken *weir.Result, primary refunder) error {
	if err := f.validate(ctx, r); err != nil {
		return err
	}
	now := f.cfg.Now()
	if f.exceeds(r) || !taken.Allowed() || !taken.ExpiresAt.After(now) {
		return nil
	}
	a := f.ledger.open(r, now)
	defer a.users.Add(-1)
	return f.refund(ctx, a, r, taken, primary, func(ctx context.Context, own *weir.Request) error {
		return f.local.Refund(ctx, own, taken)
	})
}

// refund is Refund of an admission that counts, which takes the part of local back by local.
func (f *Fallback) refund(ctx context.Context, a *account, r *weir.Request, taken *weir.Result,
	primary refunder, local func(context.Context, *weir.Request) error) error {
	rest := *r
	rest.Cost = wrap.Cost(r)
	counted := taken.ExpiresAt.After(f.ledger.unrecordedNow().until)
	a.mu.Lock()
	rest.Cost -= a.refund(rest.Cost, f.cfg.Now())
	if counted {
		a.counted.total -= min(a.counted.total, rest.Cost) // or primary would be seeded with it after an outage
	}
	a.mu.Unlock()
	if own := *f.toShare(r, f.sharedAmong(a)); rest.Cost < wrap.Cost(r) {
		own.Cost = wrap.Cost(r) - rest.Cost
		if err := wrap.Supported(local(ctx, &own)); err != nil {
			return err
		}
	}
	if rest.Cost == 0 || !counted {
		return nil
	}
	was := *taken // the call may outlive its caller
	return f.refundPrimary(ctx, a, &rest, func(ctx context.Context, r *weir.Request) error {
		return primary(ctx, r, &was)
	})
}

// refundPrimary has primary take cost back by op. What primary does not receive is lost.
func (f *Fallback) refundPrimary(
	ctx context.Context, a *account, r *weir.Request, op func(context.Context, *weir.Request) error,
) error {
	_, err := f.change(ctx, a, r, op)
	if err == errUndecided {
		return nil
	}
	return wrap.Supported(err)
}

// Reset sets the count of r.Key in r.Duration to zero: here, in primary and in local, each as far
// as it is a weir.Resetter. While primary does not answer, the reset is recorded for a day, or for
// two Durations if that is longer, and primary resets before it next decides for that key; without
// room in the ledger the error is weir.ErrFull. The Results of decisions under way are not
// recorded; a charge under way may still arrive.
func (f *Fallback) Reset(ctx context.Context, r *weir.Request) error {
	if err := f.validate(ctx, r); err != nil {
		return err
	}
	f.primary.Forget(r)
	now := f.cfg.Now()
	a, number := f.ledger.open(r, now), f.ledger.numbers.Add(1)
	defer a.users.Add(-1)
	a.restart(number, now.Add(max(2*r.Duration, 2*f.longest, 24*time.Hour)))
	_, err := f.change(ctx, a, r, func(ctx context.Context, r *weir.Request) error {
		return f.resetPrimary(ctx, r, a, number)
	})
	switch err := wrap.Supported(err); {
	case err == errUndecided && a.temporary:
		return fmt.Errorf("fallback: no answer from primary, and no room to record the reset: %w", weir.ErrFull)
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

// resetPrimary resets primary, which a no longer waits for then, unless it was reset again and has
// another number.
func (f *Fallback) resetPrimary(ctx context.Context, r *weir.Request, a *account, number uint64) error {
	err := f.primary.Reset(ctx, r)
	a.mu.Lock()
	defer a.mu.Unlock()
	if wrap.Supported(err) == nil && a.number == number {
		a.reset = time.Time{}
	}
	return err
}

// change has primary change a count. Its errors are those of call.
func (f *Fallback) change(
	ctx context.Context, a *account, r *weir.Request, op func(context.Context, *weir.Request) error,
) (*pending, error) {
	_, p, err := f.call(ctx, f.breaker(r.Key), a, r,
		func(ctx context.Context, r *weir.Request) (*weir.Result, error) { return nil, op(ctx, r) })
	return p, err
}
