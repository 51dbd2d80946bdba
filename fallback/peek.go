package fallback

import (
	"context"
	"errors"
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
	b := f.breakers.of(r.Key)
	if f.upToDate(b, r) {
		if res, err := f.peekPrimary(ctx, r); err != errUndecided {
			return res, err
		}
	}
	if f.cfg.OnFail != FailLocal {
		return f.policy(b, r), nil
	}
	return f.peekLocal(ctx, b, r)
}

// upToDate reports whether primary may be asked about r and has missed nothing of its caller.
func (f *Fallback) upToDate(b *breaker, r *weir.Request) bool {
	if !b.closed() {
		return false
	}
	now := f.cfg.Now()
	p, a := f.ledger.lock(callerOf(r))
	defer p.mu.Unlock()
	return a == nil || !a.behind(b.epoch.Load(), now)
}

func (f *Fallback) peekPrimary(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	p, ok := f.primary.(weir.Peeker)
	if !ok {
		return nil, unsupported("Peeker")
	}
	q := *r
	// That primary can read does not show that it can count: no breaker.
	return f.call(ctx, nil, func(ctx context.Context) (*weir.Result, error) { return p.Peek(ctx, &q) })
}

func (f *Fallback) peekLocal(ctx context.Context, b *breaker, r *weir.Request) (*weir.Result, error) {
	p, ok := f.local.(weir.Peeker)
	if !ok {
		return nil, unsupported("Peeker")
	}
	own := f.toShare(r, f.sharedAmong(r))
	res, err := p.Peek(ctx, own)
	if err == nil && res == nil {
		err = errNothing
	}
	if err != nil {
		return nil, fmt.Errorf("fallback: local: %w", err)
	}
	return f.fromShare(b, r, own, res), nil
}

func unsupported(what string) error {
	return fmt.Errorf("fallback: not a weir.%s: %w", what, errors.ErrUnsupported)
}
