package fallback

import (
	"context"

	"github.com/weirgo/weir"
)

// Refund gives back what Run took for r and reported in taken. What local admitted and primary has not charged is given
// back to local, and is then not charged; the rest goes to primary, if it is a weir.Refunder. A refund that primary does
// not get is lost: the caller is denied a little early. So are refunds while local's admissions of the same period are
// in no account (Stats.Dropped, or a primary that cannot be charged), that caller's and those of about one in 64 others:
// primary must not give back what it has not counted.
func (f *Fallback) Refund(ctx context.Context, r *weir.Request, taken *weir.Result) error {
	if err := f.validate(ctx, r); err != nil {
		return err
	}
	now := f.cfg.Now()
	if !taken.Allowed() || !taken.ExpiresAt.After(now) {
		return nil
	}
	p, a := f.ledger.lock(callerOf(r))
	forgiven := uint64(0)
	if a != nil {
		forgiven = a.forgive(cost(r), now)
	}
	rest := cost(r) - forgiven
	known := taken.ExpiresAt.After(p.unrecorded.until)
	if a != nil && known {
		a.counted.total -= min(a.counted.total, rest) // lest primary is told of it after an outage
	}
	p.mu.Unlock()
	if forgiven > 0 {
		if err := f.refundLocal(ctx, r, forgiven, taken); err != nil {
			return err
		}
	}
	if rest == 0 || !known {
		return nil
	}
	return f.refundPrimary(ctx, r, rest, taken)
}

func (f *Fallback) refundLocal(ctx context.Context, r *weir.Request, cost uint64, taken *weir.Result) error {
	local, ok := f.local.(weir.Refunder)
	if !ok {
		return nil
	}
	own := *f.toShare(r, f.sharedAmong(r))
	own.Cost = cost
	return local.Refund(ctx, &own, taken)
}

func (f *Fallback) refundPrimary(ctx context.Context, r *weir.Request, cost uint64, taken *weir.Result) error {
	b := f.breakers.of(r.Key)
	primary, ok := f.primary.(weir.Refunder)
	if !ok || !b.closed() {
		return nil
	}
	q, was := *r, *taken // the call may outlive its caller
	q.Cost = cost
	_, err := f.call(ctx, b, func(ctx context.Context) (*weir.Result, error) {
		return &was, primary.Refund(ctx, &q, &was)
	})
	if err == errUndecided {
		return nil
	}
	return err
}
