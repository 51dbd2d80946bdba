package fallback

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/breaker"
	"github.com/weirgo/weir/internal/wrap"
)

// instances returns N.
func (f *Fallback) instances() uint64 {
	if f.cfg.InstancesFunc != nil {
		if n := f.cfg.InstancesFunc(); n > 0 {
			return uint64(n)
		}
	}
	return uint64(f.cfg.Instances)
}

// share returns one Nth of total, rounded up. As limits and counts are both rounded up, their
// difference is never more than one Nth of what remains, rounded up.
func share(total, n uint64) uint64 { return total/n + min(1, total%n) }

// toShare returns r with one nth of its limit.
func (f *Fallback) toShare(r *weir.Request, n uint64) *weir.Request {
	if n == 1 || f.cfg.OwnLimits {
		return r
	}
	own := *r
	own.Limit = share(r.Limit, n)
	return &own
}

// fromShare turns local's Result on its share of r into one on r: the shares of others count as
// used.
func (f *Fallback) fromShare(b *breaker.Breaker, r, own *weir.Request, res *weir.Result) *weir.Result {
	if r == own {
		return res
	}
	res.TotalRequests += min(r.Limit-own.Limit, math.MaxUint64-res.TotalRequests)
	if !res.Allowed() && res.ExpiresAt.IsZero() && wrap.Cost(r) <= r.Limit {
		res.ExpiresAt = b.Next(f.cfg.Now()) // over the share, not over the limit: it passes when primary is back
	}
	return res
}

// seedLocal raises local's count to this instance's share of primary's. An error is ignored: a
// local without room for the count has none for the caller's requests either.
func (f *Fallback) seedLocal(ctx context.Context, r *weir.Request, n uint64, res *weir.Result) {
	if f.localSeeder == nil || res.TotalRequests == 0 || res.ExpiresAt.IsZero() {
		return
	}
	counted := *res
	counted.TotalRequests = share(res.TotalRequests, n)
	_ = f.localSeeder.Seed(ctx, f.toShare(r, n), &counted)
}

// runLocal decides on r without primary, by run, which is a method of local. If it counts, what it
// admits is recorded; p is the call of primary that did not decide, or nil.
func (f *Fallback) runLocal(
	ctx context.Context, b *breaker.Breaker, a *account, r *weir.Request, run operation, p *pending, counts bool,
) (*weir.Result, Source, error) {
	if f.cfg.OnFail != FailLocal {
		return f.policy(b, r), FromPolicy, nil
	}
	n := f.sharedAmong(a)
	own := f.toShare(r, n)
	res, err := run(ctx, own)
	if err != nil {
		return nil, Nobody, fmt.Errorf("fallback: local cannot decide either: %w", err)
	}
	if res.Allowed() && counts {
		f.recordDebt(a, r, n, res, p)
	}
	return f.fromShare(b, r, own, res), FromLocal, nil
}

// sharedAmong returns the number of instances that share the limit of a's caller: N, or an earlier,
// larger N of the same period.
func (f *Fallback) sharedAmong(a *account) uint64 {
	n, now := f.instances(), f.cfg.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sharing.among(n, now)
}

// recordDebt records that local admitted r, of a limit shared out to n instances, in the period
// that res is of.
func (f *Fallback) recordDebt(a *account, r *weir.Request, n uint64, res *weir.Result, p *pending) {
	now := f.cfg.Now()
	until, _ := f.periodEnd(r, res, now)
	if a.temporary {
		f.ledger.drop(wrap.Cost(r), n, now, until)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sharing.hold(n, until)
	p.owe(a, wrap.Cost(r), until, now)
}

// periodEnd returns when nothing counts any more of the period that res is of, and whether that is
// a window. The ExpiresAt of a denial is sooner, unless the period is a window, aligned to the Unix
// epoch, that has begun on clocks that differ by up to 10 ms. That of Tiers may be a shorter
// tier's.
func (f *Fallback) periodEnd(r *weir.Request, res *weir.Result, now time.Time) (end time.Time, window bool) {
	end = res.ExpiresAt
	window = r.Duration > 0 && end.UnixNano()%int64(r.Duration) == 0 &&
		end.Sub(now) <= r.Duration+10*time.Millisecond
	if !window && !res.Allowed() {
		end = now.Add(r.Duration)
	}
	return later(end, now.Add(f.longest)), window
}

// exceeds reports whether the Cost of r exceeds its Limit, so that r can never pass.
func (f *Fallback) exceeds(r *weir.Request) bool { return wrap.Cost(r) > r.Limit && !f.cfg.OwnLimits }

// policy returns the Result of Config.OnFail.
func (f *Fallback) policy(b *breaker.Breaker, r *weir.Request) *weir.Result {
	switch {
	case f.exceeds(r):
		return &weir.Result{}
	case f.cfg.OnFail == FailOpen:
		return &weir.Result{State: weir.Allow, TotalRequests: wrap.Cost(r), ExpiresAt: f.cfg.Now()}
	}
	return &weir.Result{TotalRequests: r.Limit, ExpiresAt: b.Next(f.cfg.Now())}
}
