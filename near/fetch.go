package near

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/weirgo/weir"
)

// hungFetch is how long a fetch may take before another one for the same key may start.
const hungFetch = time.Second

// outcome is a fetch's result as far as it concerns those who waited for it.
type outcome struct {
	denied      *weir.Result // nil unless need was denied at limit
	need, limit uint64
}

// fetch asks for a block, or waits for the caller who does. It returns the decision on r, or neither a Result nor an
// error: then a block came that has to be taken from, or the other caller's time was up.
func (l *Leases) fetch(ctx context.Context, r *weir.Request, held *lease) (*weir.Result, error) {
	var own *weir.Result // set by the fetch, if it is this caller's
	leader := false
	name := strconv.FormatInt(int64(r.Duration), 10) + ":" + r.Key
	q := *r // the fetch may outlive the call
	done := l.fetches.DoChan(name, func() (any, error) {
		leader = true
		hung := time.AfterFunc(hungFetch, func() { l.fetches.Forget(name) })
		defer hung.Stop()
		detached, cancel := detach(ctx)
		defer cancel()
		var out outcome
		var err error
		own, out, err = l.ask(detached, &q, held)
		return out, err
	})
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("near: %w", ctx.Err())
	case got := <-done:
		switch {
		case leader:
			return own, got.Err
		case errors.Is(got.Err, context.DeadlineExceeded) && ctx.Err() == nil:
			return nil, nil // the other caller's deadline is not this one's
		case got.Err != nil:
			return nil, got.Err
		}
		return l.shared(r, held, got.Val.(outcome)), nil
	}
}

// detach returns ctx with its deadline and values but without its cancellation: others wait for the fetch too.
func detach(ctx context.Context) (context.Context, context.CancelFunc) {
	detached := context.WithoutCancel(ctx)
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithDeadline(detached, deadline)
	}
	return detached, func() {}
}

// shared is the denial of another caller's fetch, if it answers r too: r lacks no less, at no higher limit.
func (l *Leases) shared(r *weir.Request, held *lease, out outcome) *weir.Result {
	sh, k := l.locked(r)
	defer sh.mu.Unlock()
	if out.denied == nil || sh.leases[k] != held || r.Limit > out.limit || cost(r) < held.left+out.need ||
		!l.cfg.Now().Before(out.denied.ExpiresAt) {
		return nil
	}
	return held.withoutRest(out.denied)
}

// ask takes a block from the wrapped strategy, and a smaller one if there is not enough. The Result is the decision on r,
// nil if others took too much of the block.
func (l *Leases) ask(ctx context.Context, r *weir.Request, held *lease) (res *weir.Result, out outcome, err error) {
	defer func() {
		if p := recover(); p != nil { // singleflight would end the process
			res, err = nil, fmt.Errorf("near: %T panicked: %v", l.Unwrap(), p)
		}
	}()
	before := l.held(r)
	need := cost(r) - min(cost(r)-1, before.left)
	for block := max(need, l.block(before.total, r.Limit)); ; {
		q := *r
		q.Cost = block
		l.fetched.Add(1)
		res, err := l.inner.Run(ctx, &q)
		switch {
		case err != nil:
			return nil, outcome{}, err
		case res == nil:
			return nil, outcome{}, fmt.Errorf("near: %T returned nothing", l.Unwrap())
		case res.Allowed():
			return l.granted(ctx, r, held, &q, res), outcome{}, nil
		}
		// A fixed window has room for what it has not counted. A smaller block is of use only if it covers need.
		room := r.Limit - min(r.Limit, res.TotalRequests)
		if block == need || room < need {
			return before.withoutRest(res), outcome{res, need, r.Limit}, nil
		}
		block = max(need, min(block/2, l.block(res.TotalRequests, r.Limit)))
	}
}

// block returns how much to take at once: cfg.Block while there is plenty, and less near the limit, so that the other
// instances find some budget too.
func (l *Leases) block(total, limit uint64) uint64 {
	instances := l.cfg.Instances
	if l.cfg.InstancesFunc != nil {
		instances = l.cfg.InstancesFunc()
	}
	if total >= limit {
		return 1
	}
	return max(1, min(uint64(l.cfg.Block), (limit-total)/(2*uint64(max(1, instances)))))
}

// granted decides on r from the block q.
func (l *Leases) granted(ctx context.Context, r *weir.Request, held *lease, q *weir.Request, res *weir.Result) *weir.Result {
	if !aligned(r, res.ExpiresAt) {
		l.unaligned.Store(true)
	} else if own, ok := l.lend(r, held, q, res); ok {
		return own
	}
	// The block can be lent to nobody else. If it covers r, the wrapped strategy has decided on r.
	rest, covered := *q, q.Cost >= cost(r)
	if covered {
		rest.Cost -= cost(r)
	}
	if rest.Cost > 0 && l.inner.Refund(ctx, &rest, res) == nil {
		res.TotalRequests -= min(res.TotalRequests, rest.Cost)
	}
	if covered {
		return res
	}
	return nil
}

// lend adds the block q to the lease and decides on r from it. It reports whether the block could be lent or need not be
// given back.
func (l *Leases) lend(r *weir.Request, held *lease, q *weir.Request, res *weir.Result) (*weir.Result, bool) {
	notBefore := l.postpone(r, res.ExpiresAt)
	sh, k := l.locked(r)
	defer sh.mu.Unlock()
	held.notBefore = later(held.notBefore, notBefore)
	switch {
	case sh.leases[k] != held && q.Cost >= cost(r):
		return res, true // reset or evicted meanwhile: for r alone
	case sh.leases[k] != held:
		return nil, true
	case !notBefore.IsZero():
		return nil, false
	}
	if !held.until.Equal(res.ExpiresAt) {
		held.until, held.total, held.granted, held.left = res.ExpiresAt, 0, 0, 0
	}
	held.raise(res)
	held.granted += q.Cost
	held.left += q.Cost
	return held.take(r), true
}

// postpone returns the zero time if a window that ends at end can be leased now, and else when to try again.
//
// An end more than a Duration away is that of a window that has not begun, on a clock that is ahead; or the wrapped
// strategy counts this window and the next, as a sliding window does. After the first such end, a window is leased only
// when its end excludes the latter.
func (l *Leases) postpone(r *weir.Request, end time.Time) time.Time {
	now, skew := l.cfg.Now(), l.cfg.Skew
	most := r.Duration + skew
	if l.ahead.Load() {
		most = r.Duration - skew
	}
	switch {
	case end.Sub(now) > most:
		l.ahead.Store(true)
		return end.Add(skew - r.Duration)
	case !now.Add(skew).Before(end): // as good as over
		return later(end, now).Add(skew)
	}
	return time.Time{}
}

// aligned reports whether a whole number of r's Durations lie between the Unix epoch and t.
func aligned(r *weir.Request, t time.Time) bool {
	return t.UnixMilli()%r.Duration.Milliseconds() == 0 && t.Nanosecond()%int(time.Millisecond) == 0
}
