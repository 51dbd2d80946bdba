package fallback

import (
	"context"
	"fmt"

	"github.com/weirgo/weir"
)

// instances is N.
func (f *Fallback) instances() uint64 {
	if f.cfg.InstancesFunc != nil {
		return uint64(max(1, f.cfg.InstancesFunc()))
	}
	return uint64(f.cfg.Instances)
}

// share is one Nth of total, rounded up. Rounded so for the limit and for what is spent of it, the difference of the two
// is never more than one Nth of what remains, rounded up.
func share(total, n uint64) uint64 {
	if total == 0 {
		return 0
	}
	return (total-1)/n + 1
}

// part returns r as local is asked: with this instance's share of the limit.
func part(r *weir.Request, n uint64) *weir.Request {
	if n == 1 {
		return r
	}
	p := *r
	p.Limit = share(limit(r), n)
	return &p
}

// warm tells local what primary answered. That local has no room for it is no error: it has none for the caller either.
func (f *Fallback) warm(ctx context.Context, r *weir.Request, res *weir.Result) {
	if f.warmed == nil || res.TotalRequests == 0 || res.ExpiresAt.IsZero() {
		return
	}
	n := f.instances()
	known := *res
	known.TotalRequests = share(res.TotalRequests, n)
	if err := f.warmed.Seed(ctx, part(r, n), &known); err != nil {
		f.stats.cold.Add(1)
	}
}

// without decides on r when primary cannot.
func (f *Fallback) without(ctx context.Context, r *weir.Request) (*weir.Result, Source, error) {
	if f.cfg.OnFail != FailLocal {
		return f.policy(r), FromPolicy, nil
	}
	n := f.instances()
	mine := part(r, n)
	res, err := f.local.Run(ctx, mine)
	if err != nil {
		return nil, Nobody, fmt.Errorf("fallback: local cannot decide either: %w", err)
	}
	if res.Allowed() {
		f.owe(r, res)
	}
	return f.whole(r, mine, res), FromLocal, nil
}

// whole turns local's Result on its share of r into one on r.
func (f *Fallback) whole(r, mine *weir.Request, res *weir.Result) *weir.Result {
	if r == mine {
		return res
	}
	res.TotalRequests = plus(res.TotalRequests, limit(r)-mine.Limit)
	if !res.Allowed() && res.ExpiresAt.IsZero() && cost(r) <= limit(r) {
		// It is over the share, not over the limit: it passes when primary is back.
		res.ExpiresAt = f.breaker.next(f.cfg.Now())
	}
	return res
}

// owe notes in the ledger what local has admitted, or at least that it has.
func (f *Fallback) owe(r *weir.Request, res *weir.Result) {
	if f.charger == nil && f.refunder == nil {
		return // nobody will ask
	}
	now, c := f.cfg.Now(), caller{r.Key, r.Duration}
	page, a := f.ledger.open(c)
	defer page.mu.Unlock()
	if f.charger != nil {
		if a == nil {
			a = f.ledger.admit(page, c, now)
		}
		if a != nil {
			a.owe(r, cost(r), res.ExpiresAt, now)
			return
		}
		f.ledger.dropped.Add(cost(r))
	}
	page.unowed = later(page.unowed, res.ExpiresAt)
}

// policy is the Result that OnFail stands for.
func (f *Fallback) policy(r *weir.Request) *weir.Result {
	now := f.cfg.Now()
	switch {
	case cost(r) > limit(r):
		return &weir.Result{}
	case f.cfg.OnFail == FailOpen:
		return &weir.Result{State: weir.Allow, TotalRequests: cost(r), ExpiresAt: now}
	}
	return &weir.Result{TotalRequests: limit(r), ExpiresAt: f.breaker.next(now)}
}
