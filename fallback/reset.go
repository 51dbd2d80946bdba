package fallback

import (
	"context"
	"fmt"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/wrap"
)

// Reset sets the count of r.Key in r.Duration to zero: here, in primary and in local, each as far
// as it is a weir.Resetter. While primary does not answer, the reset is recorded for a day, or for
// two Durations if that is longer, and primary resets before it next decides for that key; without
// room in the ledger the error is weir.ErrFull. The Results of decisions under way are not
// recorded; a charge under way may still arrive.
func (f *Fallback) Reset(ctx context.Context, r *weir.Request) error {
	if err := f.validate(ctx, r); err != nil {
		return err
	}
	f.primary.Forget(r)
	now := f.cfg.Now()
	a, number := f.ledger.open(r, now), f.ledger.numbers.Add(1)
	defer a.users.Add(-1)
	a.restart(number, now.Add(max(2*r.Duration, 2*f.longest, 24*time.Hour)))
	_, err := f.call(ctx, f.breaker(r.Key), a, r,
		func(ctx context.Context, r *weir.Request) (*weir.Result, error) {
			return nil, f.resetPrimary(ctx, r, a, number)
		})
	switch err := wrap.Supported(err); {
	case err == errUndecided && a.temporary:
		return fmt.Errorf("fallback: primary does not answer, and there is no room to record the reset: %w",
			weir.ErrFull)
	case err != nil && err != errUndecided:
		return err
	}
	return wrap.Supported(f.local.Reset(ctx, r))
}

// resetPrimary resets primary, which a no longer waits for then, unless it was reset again and has
// another number.
func (f *Fallback) resetPrimary(ctx context.Context, r *weir.Request, a *account, number uint64) error {
	err := f.primary.Reset(ctx, r)
	a.mu.Lock()
	defer a.mu.Unlock()
	if wrap.Supported(err) == nil && a.number == number {
		a.reset = time.Time{}
	}
	return err
}
