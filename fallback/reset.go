package fallback

import (
	"context"
	"fmt"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/wrap"
)

// Reset forgets r.Key in r.Duration: here, in primary and in local, each as far as it is a weir.Resetter. While primary
// does not answer, the reset is noted, and primary resets before it decides for that key again; without room in the ledger
// the error is weir.ErrFull. Decisions of primary that are under way are not learned from; a charge that is under way may
// still arrive.
func (f *Fallback) Reset(ctx context.Context, r *weir.Request) error {
	if err := f.validate(ctx, r); err != nil {
		return err
	}
	f.primary.Forget(r)
	a, noted := f.ledger.replace(r, f.cfg.Now())
	b, err := f.breakers.of(r.Key), errUndecided
	if b.closed() {
		q := *r // the call may outlive its caller
		_, err = f.call(ctx, b, func(ctx context.Context) (*weir.Result, error) {
			err := f.primary.Reset(ctx, &q)
			if wrap.Supported(err) == nil {
				f.update(&q, a, func() { a.reset = false })
			}
			return &weir.Result{}, err
		})
	}
	switch err = wrap.Supported(err); {
	case err == errUndecided && !noted:
		return fmt.Errorf("fallback: primary does not answer, and there is no room to note the reset: %w", weir.ErrFull)
	case err != nil && err != errUndecided:
		return err
	}
	return wrap.Supported(f.local.Reset(ctx, r))
}
