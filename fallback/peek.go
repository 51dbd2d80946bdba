package fallback

import (
	"context"
	"fmt"

	"github.com/weirgo/weir"
)

// Peek returns the Result that Run would return, and counts nothing. It calls primary, or local
// where local would decide or primary is still to be charged. It starts no probe, and the breaker
// ignores how it ends. If the one it calls is no weir.Peeker, the error is errors.ErrUnsupported.
func (f *Fallback) Peek(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	if err := f.validate(ctx, r); err != nil {
		return nil, err
	}
	b, now, behind := f.breakers.of(r.Key), f.cfg.Now(), false
	f.ledger.Find(r, now, func(a *account) { behind = a.behind(b.epoch.Load(), now) })
	if b.closed() && !behind {
		// No breaker: a primary that can be read may still be unable to count.
		if res, err := f.call(ctx, nil, r, f.primary.Peek); err != errUndecided {
			return res, err
		}
	}
	if f.cfg.OnFail != FailLocal {
		return f.policy(b, r), nil
	}
	own := f.toShare(r, f.sharedAmong(r))
	res, err := f.local.Peek(ctx, own)
	if err != nil {
		return nil, fmt.Errorf("fallback: local: %w", err)
	}
	return f.fromShare(b, r, own, res), nil
}
