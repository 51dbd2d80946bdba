package fallback

import (
	"context"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/wrap"
)

// Refund gives back what Run took for r and reported in taken. What local admitted and primary has not charged is given
// back to local, and is then not charged; the rest goes to primary, if it is a weir.Refunder. A refund that primary does
// not get is lost: the caller is denied a little early. So are refunds while local's admissions of the same period are
// in no account (Stats.Dropped, or a primary that cannot be charged): primary must not give back what it has not counted.
func (f *Fallback) Refund(ctx context.Context, r *weir.Request, taken *weir.Result) error {
	if err := f.validate(ctx, r); err != nil {
		return err
	}
	now := f.cfg.Now()
	if !taken.Allowed() || !taken.ExpiresAt.After(now) {
		return nil
	}
	rest := wrap.Cost(r)
	counted := taken.ExpiresAt.After(f.ledger.unrecordedNow().until)
	f.ledger.Find(r, now, func(a *account) {
		if a == nil {
			return
		}
		rest -= a.forgive(rest, now)
		if counted {
			a.counted.total -= min(a.counted.total, rest) // lest primary is seeded with it after an outage
		}
	})
	if own := *f.toShare(r, f.sharedAmong(r)); rest < wrap.Cost(r) {
		own.Cost = wrap.Cost(r) - rest
		if err := wrap.Supported(f.local.Refund(ctx, &own, taken)); err != nil {
			return err
		}
	}
	b := f.breakers.of(r.Key)
	if rest == 0 || !counted || !b.closed() {
		return nil
	}
	q, was := *r, *taken // the call may outlive its caller
	q.Cost = rest
	_, err := f.call(ctx, b, func(ctx context.Context) (*weir.Result, error) {
		return &was, f.primary.Refund(ctx, &q, &was)
	})
	if err == errUndecided {
		return nil
	}
	return wrap.Supported(err)
}
