package fallback

import (
	"context"
	"fmt"

	"github.com/weirgo/weir"
)

// Reset forgets r.Key in r.Duration: here, in primary and in local, each as far as it is a weir.Resetter. While primary
// cannot be told, it is noted, and told before it decides for that key again; with weir.ErrFull there is no room to note
// it. A Reset that fails may be done in part. What primary was asked before a Reset and answers after it is not learnt.
func (f *Fallback) Reset(ctx context.Context, r *weir.Request) error {
	if err := sound(ctx, r); err != nil {
		return err
	}
	defer f.denials.drop(r)
	if err := f.resetPrimary(ctx, r, f.clear(r)); err != nil {
		return err
	}
	if p, ok := f.local.(weir.Resetter); ok {
		return p.Reset(ctx, r)
	}
	return nil
}

// resetPrimary has primary forget r's caller: through the ledger, if it is noted there, for a charge that is under way
// must arrive before.
func (f *Fallback) resetPrimary(ctx context.Context, r *weir.Request, noted bool) error {
	if f.resetter == nil {
		return nil
	}
	err := errCannot
	if f.breaker.gate.Load() == 0 { // it uses up no probe
		q := *r
		_, err = f.put(ctx, f.patience(ctx), func(ctx context.Context, t ticket) (*weir.Result, error) {
			if !noted {
				return &weir.Result{}, f.resetter.Reset(ctx, &q)
			}
			_, err := f.settle(ctx, &q, t.doubts)
			return &weir.Result{}, err
		})
	}
	switch {
	case err != errCannot:
		return err
	case noted:
		return nil
	}
	return fmt.Errorf("fallback: primary cannot be told to reset, and there is no room to note it: %w", weir.ErrFull)
}

// clear empties the account of r's caller and notes in it that primary, if it can, is to forget the caller too. It reports
// whether there is an account.
func (f *Fallback) clear(r *weir.Request) bool {
	c := caller{r.Key, r.Duration}
	page, a := f.ledger.open(c)
	defer page.mu.Unlock()
	page.resets++
	if a == nil && f.resetter != nil {
		a = f.ledger.admit(page, c, f.cfg.Now())
	}
	if a == nil {
		return false
	}
	a.last, a.debts, a.lease = tally{}, nil, lease{}
	a.reset, a.since = f.resetter != nil, page.resets
	return true
}

// stale reports whether what was asked at resets, the page's number then, was asked before a Reset of a. Without an
// account any Reset since may have been its caller's, and one that is new may have been there before.
func (p *page) stale(a *account, resets uint64) bool {
	if a == nil {
		return p.resets > resets
	}
	return a.since > resets
}
