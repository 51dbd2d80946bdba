package fallback

import (
	"context"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/wrap"
)

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
	now := f.cfg.Now()
	if !taken.Allowed() || !taken.ExpiresAt.After(now) {
		return nil
	}
	rest := *r
	rest.Cost = wrap.Cost(r)
	counted := taken.ExpiresAt.After(f.ledger.unrecordedNow().until)
	a := f.ledger.open(r, now)
	defer a.users.Add(-1)
	a.mu.Lock()
	rest.Cost -= a.refund(rest.Cost, now)
	if counted {
		a.counted.total -= min(a.counted.total, rest.Cost) // or primary would be seeded with it after an outage
	}
	a.mu.Unlock()
	if own := *f.toShare(r, f.sharedAmong(a)); rest.Cost < wrap.Cost(r) {
		own.Cost = wrap.Cost(r) - rest.Cost
		if err := wrap.Supported(f.local.Refund(ctx, &own, taken)); err != nil {
			return err
		}
	}
	if rest.Cost == 0 || !counted {
		return nil
	}
	was := *taken // the call may outlive its caller
	_, err := f.call(ctx, f.breaker(r.Key), a, &rest,
		func(ctx context.Context, r *weir.Request) (*weir.Result, error) {
			return nil, f.primary.Refund(ctx, r, &was)
		})
	if err == errUndecided {
		return nil
	}
	return wrap.Supported(err)
}
