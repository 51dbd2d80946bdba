package fallback

import (
	"cmp"
	"context"
	"fmt"

	"github.com/weirgo/weir"
)

// Peek returns the Result that Run would give, and counts nothing. It asks primary, or local where local would decide or
// primary is still to be charged with what local admitted. It starts no probe and does not count for the breaker. If the
// one to ask is no weir.Peeker, the error is errors.ErrUnsupported.
func (f *Fallback) Peek(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	if err := f.validate(ctx, r); err != nil {
		return nil, err
	}
	b, now, behind := f.breakers.of(r.Key), f.cfg.Now(), false
	f.ledger.Find(r, now, func(a *account) { behind = a != nil && a.behind(b.epoch.Load(), now) })
	if b.closed() && !behind {
		q := *r // the call may outlive its caller
		// That primary can read does not show that it can count: no breaker.
		res, err := f.call(ctx, nil, func(ctx context.Context) (*weir.Result, error) { return f.primary.Peek(ctx, &q) })
		if err != errUndecided {
			return res, err
		}
	}
	if f.cfg.OnFail != FailLocal {
		return f.policy(b, r), nil
	}
	own := f.toShare(r, f.sharedAmong(r))
	res, err := f.local.Peek(ctx, own)
	if err != nil || res == nil {
		return nil, fmt.Errorf("fallback: local: %w", cmp.Or(err, errNothing))
	}
	return f.fromShare(b, r, own, res), nil
}
