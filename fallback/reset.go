package fallback

import (
	"context"
	"fmt"

	"github.com/weirgo/weir"
)

// Reset forgets r.Key in r.Duration: here, in primary and in local, each as far as it is a weir.Resetter. While primary
// does not answer, the reset is noted, and primary resets before it decides for that key again; without room in the ledger
// the error is weir.ErrFull. Decisions of primary that are under way are not learned from; a charge that is under way may
// still arrive.
func (f *Fallback) Reset(ctx context.Context, r *weir.Request) error {
	if err := f.validate(ctx, r); err != nil {
		return err
	}
	if f.near != nil {
		f.near.Forget(r)
	}
	if err := f.resetPrimary(ctx, r); err != nil {
		return err
	}
	if local, ok := f.local.(weir.Resetter); ok {
		return local.Reset(ctx, r)
	}
	return nil
}

// resetPrimary replaces the caller's account by one that notes the reset, and has primary reset.
func (f *Fallback) resetPrimary(ctx context.Context, r *weir.Request) error {
	p, a := f.ledger.lockOrAdd(callerOf(r), f.cfg.Now())
	if a != nil {
		a = p.replace(callerOf(r))
		a.reset = f.resetter != nil
	}
	p.mu.Unlock()
	b := f.breakers.of(r.Key)
	if f.resetter == nil {
		return nil
	}
	err := errUndecided
	if b.closed() {
		q := *r // the call may outlive its caller
		_, err = f.call(ctx, b, func(ctx context.Context) (*weir.Result, error) {
			err := f.resetter.Reset(ctx, &q)
			if err == nil && a != nil {
				f.update(&q, a, func() { a.reset = false })
			}
			return &weir.Result{}, err
		})
	}
	if err == errUndecided && a == nil {
		return fmt.Errorf("fallback: primary does not answer, and there is no room to note the reset: %w", weir.ErrFull)
	}
	if err == errUndecided {
		return nil
	}
	return err
}
