package fallback

import (
	"context"
	"fmt"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/wrap"
)

// Charge adds r.Cost whether it fits or not, so that weir.Reserve can settle on a Fallback. Primary
// is charged, and local with its share, so that it continues from there. If primary is no
// weir.Charger the error is errors.ErrUnsupported. While primary does not answer, local alone is
// charged, if it is a weir.Charger, and primary before it next decides for that key. A charge whose
// answer was lost may be counted by both.
func (f *Fallback) Charge(ctx context.Context, r *weir.Request) error {
	if err := f.validate(ctx, r); err != nil {
		return err
	}
	a := f.ledger.open(r, f.cfg.Now())
	defer a.users.Add(-1)
	_, err := f.call(ctx, f.breaker(r.Key), a, r,
		func(ctx context.Context, r *weir.Request) (*weir.Result, error) {
			return nil, f.primary.Charge(ctx, r)
		})
	if err != nil && err != errUndecided {
		return err
	}
	n := f.sharedAmong(a)
	own := *f.toShare(r, n)
	if err == nil {
		a.mu.Lock()
		a.counted.total += min(wrap.Cost(r), ^a.counted.total)
		a.mu.Unlock()
		own.Cost = share(wrap.Cost(r), n)
		_ = f.local.Charge(ctx, &own) // if local has no room for the key, it denies its requests too
		return nil
	}
	if err := wrap.Supported(f.local.Charge(ctx, &own)); err != nil {
		return fmt.Errorf("fallback: local: %w", err)
	}
	own.Cost = 1
	counted, err := f.local.Peek(ctx, &own)
	if err != nil {
		counted = new(weir.Result)
	}
	f.recordDebt(a, r, n, counted)
	return nil
}
