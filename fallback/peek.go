package fallback

import (
	"context"

	"github.com/weirgo/weir"
)

// Peek returns the Result that Run would return, and counts nothing. It calls primary, or local
// where local would decide or primary is still to be charged. It starts no probe, and the breaker
// ignores how it ends. If the one it calls is no weir.Peeker, the error is errors.ErrUnsupported.
func (f *Fallback) Peek(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	if err := f.validate(ctx, r); err != nil {
		return nil, err
	}
	b, a := f.breaker(r.Key), f.ledger.open(r, f.cfg.Now()) // in this order: Partition may panic
	defer a.users.Add(-1)
	if b.closed() && !f.standing(a, b.epoch.Load()).behind {
		// No breaker: a primary that can be read may still be unable to count.
		if res, err := f.call(ctx, nil, a, r, f.primary.Peek); err != errUndecided {
			return res, err
		}
	}
	res, _, err := f.runLocal(ctx, b, a, r, f.local.Peek, false)
	return res, err
}
