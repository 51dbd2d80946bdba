package fallback

import (
	"context"
	"fmt"

	"github.com/weirgo/weir"
)

// instances returns N.
func (f *Fallback) instances() uint64 {
	if f.cfg.InstancesFunc != nil {
		return uint64(max(1, f.cfg.InstancesFunc()))
	}
	return uint64(f.cfg.Instances)
}

// share returns one Nth of total, rounded up. As limits and counts are both rounded up, their difference is never more
// than one Nth of what remains, rounded up.
func share(total, n uint64) uint64 {
	if total == 0 {
		return 0
	}
	return (total-1)/n + 1
}

// toShare returns r with this instance's share of the limit.
func (f *Fallback) toShare(r *weir.Request, n uint64) *weir.Request {
	if n == 1 || f.cfg.OwnLimits {
		return r
	}
	own := *r
	own.Limit = share(r.Limit, n)
	return &own
}

// fromShare turns local's Result on its share of r into one on r: the shares of others count as used.
func (f *Fallback) fromShare(b *breaker, r, own *weir.Request, res *weir.Result) *weir.Result {
	if r == own {
		return res
	}
	res.TotalRequests = plus(res.TotalRequests, r.Limit-own.Limit)
	if !res.Allowed() && res.ExpiresAt.IsZero() && cost(r) <= r.Limit {
		res.ExpiresAt = b.next(f.cfg.Now()) // over the share, not over the limit: it passes when primary is back
	}
	return res
}

// seedLocal raises local's count to this instance's share of primary's. That local has no room for it is no error: it has
// none for the caller either.
func (f *Fallback) seedLocal(ctx context.Context, r *weir.Request, n uint64, res *weir.Result) {
	if f.localSeeder == nil || res.TotalRequests == 0 || res.ExpiresAt.IsZero() {
		return
	}
	counted := *res
	counted.TotalRequests = share(res.TotalRequests, n)
	if err := f.localSeeder.Seed(ctx, f.toShare(r, n), &counted); err != nil {
		f.stats.cold.Add(1)
	}
}

// runLocal decides on r without primary.
func (f *Fallback) runLocal(ctx context.Context, b *breaker, r *weir.Request) (*weir.Result, Source, error) {
	if f.cfg.OnFail != FailLocal {
		return f.policy(b, r), FromPolicy, nil
	}
	n := f.sharedAmong(r)
	own := f.toShare(r, n)
	res, err := f.local.Run(ctx, own)
	if err == nil && res == nil {
		err = errNothing
	}
	if err != nil {
		return nil, Nobody, fmt.Errorf("fallback: local cannot decide either: %w", err)
	}
	if res.Allowed() {
		f.recordDebt(r, n, res)
	}
	return f.fromShare(b, r, own, res), FromLocal, nil
}

// sharedAmong returns how many instances r's limit is shared out to: N, or what it was earlier in the period if that is
// more.
func (f *Fallback) sharedAmong(r *weir.Request) uint64 {
	now := f.cfg.Now()
	p, a := f.ledger.lock(callerOf(r))
	defer p.mu.Unlock()
	if a == nil {
		return p.unrecorded.among(f.instances(), now)
	}
	return a.sharing.among(f.instances(), now)
}

// recordDebt notes what local admitted.
func (f *Fallback) recordDebt(r *weir.Request, n uint64, res *weir.Result) {
	now := f.cfg.Now()
	p, a := f.ledger.lockOrAdd(callerOf(r), now)
	defer p.mu.Unlock()
	if a != nil {
		a.sharing.extend(n, res.ExpiresAt)
	}
	switch {
	case f.charger == nil && f.reconciler == nil: // primary cannot be charged
	case a != nil:
		a.owe(cost(r), res.ExpiresAt, now)
		return
	default:
		f.ledger.dropped.Add(cost(r))
	}
	p.unrecorded.extend(max(n, p.unrecorded.among(n, now)), res.ExpiresAt)
}

// policy returns the Result of Config.OnFail.
func (f *Fallback) policy(b *breaker, r *weir.Request) *weir.Result {
	now := f.cfg.Now()
	switch {
	case cost(r) > r.Limit && !f.cfg.OwnLimits:
		return &weir.Result{}
	case f.cfg.OnFail == FailOpen:
		return &weir.Result{State: weir.Allow, TotalRequests: cost(r), ExpiresAt: now}
	}
	return &weir.Result{TotalRequests: r.Limit, ExpiresAt: b.next(now)}
}
