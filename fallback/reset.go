package fallback

import (
	"context"
	"fmt"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/wrap"
)

// Reset sets the count of r.Key in r.Duration to zero: here, in primary and in local, each as far
// as it is a weir.Resetter. While primary does not answer, the reset is recorded, and primary
// resets before it next decides for that key; without room in the ledger the error is weir.ErrFull.
// The Results of decisions under way are not recorded; a charge under way may still arrive.
func (f *Fallback) Reset(ctx context.Context, r *weir.Request) error {
	if err := f.validate(ctx, r); err != nil {
		return err
	}
	f.primary.Forget(r)
	// A new account: decisions that began with the old one are not recorded.
	a := &account{number: f.ledger.opened.Add(1), reset: true}
	recorded := f.ledger.Update(r, f.cfg.Now(), func(*account) *account { return a })
	err := wrap.Supported(f.apply(ctx, r, func(ctx context.Context, r *weir.Request) error { return f.resetPrimary(ctx, r, a) }))
	switch {
	case err == errUndecided && !recorded:
		return fmt.Errorf("fallback: primary does not answer, and there is no room to record the reset: %w", weir.ErrFull)
	case err != nil && err != errUndecided:
		return err
	}
	return wrap.Supported(f.local.Reset(ctx, r))
}

// resetPrimary resets primary, which a's key no longer waits for then.
func (f *Fallback) resetPrimary(ctx context.Context, r *weir.Request, a *account) error {
	err := f.primary.Reset(ctx, r)
	if wrap.Supported(err) == nil {
		f.ledger.update(r, f.cfg.Now(), a, func(a *account) { a.reset = false })
	}
	return err
}
