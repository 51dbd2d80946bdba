package fallback

import (
	"context"
	"fmt"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/wrap"
)

// Charge adds r.Cost without asking whether it fits, so that weir.Reserve can settle on a Fallback. It goes to primary; if
// that is no weir.Charger the error is errors.ErrUnsupported. While primary does not answer, local is charged, if it is one,
// and primary before it decides for that caller again, as with what local admits. A charge whose answer was lost may be
// counted by both.
func (f *Fallback) Charge(ctx context.Context, r *weir.Request) error {
	if err := f.validate(ctx, r); err != nil {
		return err
	}
	if b := f.breakers.of(r.Key); b.closed() {
		q := *r // the call may outlive its caller
		_, err := f.call(ctx, b, func(ctx context.Context) (*weir.Result, error) {
			return &weir.Result{}, f.primary.Charge(ctx, &q)
		})
		if err == nil {
			f.learnCharge(ctx, r)
		}
		if err != errUndecided {
			return err
		}
	}
	return f.chargeLocal(ctx, r)
}

// learnCharge has local, and the last known count, follow a charge of primary's.
func (f *Fallback) learnCharge(ctx context.Context, r *weir.Request) {
	n := f.sharedAmong(r)
	if own := *f.toShare(r, n); f.localSeeder != nil {
		own.Cost = share(wrap.Cost(r), n)
		_ = f.local.Charge(ctx, &own) // without room it has none for the caller either
	}
	now := f.cfg.Now()
	f.ledger.Find(r, now, func(a *account) {
		if a != nil && a.counted.until.After(now) {
			a.counted.total += min(wrap.Cost(r), ^a.counted.total)
		}
	})
}

// chargeLocal charges local, and notes the debt to primary.
func (f *Fallback) chargeLocal(ctx context.Context, r *weir.Request) error {
	n := f.sharedAmong(r)
	own := f.toShare(r, n)
	if f.cfg.OnFail == FailLocal {
		if err := wrap.Supported(f.local.Charge(ctx, own)); err != nil {
			return fmt.Errorf("fallback: local: %w", err)
		}
	}
	f.recordDebt(r, n, &weir.Result{ExpiresAt: f.periodEnd(ctx, own)})
	return nil
}

// periodEnd returns when what local has counted of r's caller counts no more, as far as it can say.
func (f *Fallback) periodEnd(ctx context.Context, own *weir.Request) time.Time {
	one, now := *own, f.cfg.Now()
	one.Cost = 1
	if res, err := f.local.Peek(ctx, &one); err == nil && res != nil && res.ExpiresAt.After(now) {
		return res.ExpiresAt
	}
	return now.Add(own.Duration)
}
