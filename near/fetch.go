package near

import (
	"context"
	"fmt"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/wrap"
)

// fetchTimeout bounds a fetch. After it another one for the same request may start, even if the
// first still hangs. A caller waits longer for one, for waitTimeout: a process that gets no CPU for
// a second is no failure of the wrapped strategy.
const fetchTimeout, waitTimeout = time.Second, 10 * time.Second

// fetch takes a block, or waits for a caller that does so for the same request, and decides on r.
// It returns neither a Result nor an error if r is to be decided from the lease, which now has a
// block. The fetch continues without its caller, as others wait for it too.
func (l *Leases) fetch(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	var own *weir.Result // set if this caller takes the block
	q, removals := *r, l.leases.Removals(r)
	name := fmt.Sprint(removals, " ", r.Limit, " ", wrap.Cost(r), " ", r.Duration, " ", r.Key)
	done := l.fetches.DoChan(name, func() (any, error) {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchTimeout)
		defer cancel()
		defer context.AfterFunc(bounded, func() { l.fetches.Forget(name) })()
		res, err := l.take(bounded, &q, removals)
		if res != nil && !res.Allowed() {
			return *res, nil // for each caller with the same request
		}
		own = res
		return nil, err
	})
	wait, cancel := context.WithTimeout(ctx, waitTimeout)
	defer cancel()
	select {
	case <-wait.Done(): // done may never receive: the strategy hangs, or has ended its goroutine
		return nil, fmt.Errorf("near: %w", wait.Err())
	case got := <-done:
		if denial, ok := got.Val.(weir.Result); ok {
			return &denial, nil
		}
		return own, got.Err
	}
}

// take takes a block from the wrapped strategy, and a smaller one if there is not enough, and
// decides on r. It returns neither a Result nor an error if others took too much of the block.
func (l *Leases) take(ctx context.Context, r *weir.Request, removals uint64) (res *weir.Result, err error) {
	defer func() {
		if p := recover(); p != nil { // singleflight would end the process
			res, err = nil, fmt.Errorf("near: %T panicked: %v", l.Unwrap(), p)
		}
	}()
	held := l.held(r)
	if held.take(r) != nil {
		return nil, nil // a block has come since r was looked up
	}
	need := wrap.Cost(r) - min(wrap.Cost(r)-1, held.left)
	for block := max(need, l.block(held.spent+held.left, r.Limit)); ; {
		q := *r
		q.Cost = block
		l.fetched.Add(1)
		if res, err = l.inner.Run(ctx, &q); err != nil {
			return nil, err
		}
		if res.Allowed() {
			return l.lend(r, block, res, removals), nil
		}
		// A smaller block is of use only if it fits into the rest of the window and covers need.
		room := r.Limit - min(r.Limit, res.TotalRequests)
		if block == need || room < need {
			return l.answer(r, res, nil)
		}
		block = max(need, min(block/2, l.block(res.TotalRequests, r.Limit)))
	}
}

// block returns how much to take at once: cfg.Block while there is plenty, and less near the limit,
// so that the other instances find some budget too.
func (l *Leases) block(total, limit uint64) uint64 {
	left, instances := limit-min(limit, total), uint64(max(1, l.cfg.InstancesFunc()))
	return max(1, min(uint64(l.cfg.Block), left/2/instances))
}

// lend adds a block to the lease of r's key and decides on r from it. A block that cannot be lent,
// as the window is about to end or the key was reset meanwhile, is for r alone.
func (l *Leases) lend(r *weir.Request, block uint64, res *weir.Result, removals uint64) (own *weir.Result) {
	leasable := l.detect(r, res)
	l.leases.Update(r, l.cfg.Now(), func(h *lease) *lease {
		if !leasable || l.leases.Removals(r) != removals {
			if block >= wrap.Cost(r) {
				own = res
			}
			return h
		}
		if h == nil || !h.until.Equal(res.ExpiresAt) {
			h = &lease{until: res.ExpiresAt}
		}
		// r was admitted: no more than its limit counts
		total := max(res.TotalRequests, min(h.spent+h.left, r.Limit))
		h.left += block
		h.spent = total - min(total, h.left)
		own = h.take(r)
		return h
	})
	return own
}

// leasable reports whether r may be decided from a lease now: its window must not be about to end.
func (l *Leases) leasable(r *weir.Request) bool {
	now, ms := l.cfg.Now(), r.Duration.Milliseconds()
	return l.fixed.Load() && wrap.Cost(r) <= r.Limit && ms > 0 &&
		now.UnixMilli()/ms == now.Add(l.cfg.Skew).UnixMilli()/ms
}

// detect reports whether the window of an answer can be leased, and records for an admission
// whether the wrapped strategy is a fixed window.
//
// If a window ends more than a Duration from now, either it has not begun, on a clock that is
// ahead, or the strategy counts this window and the next, as a sliding window does. Until an end
// excludes the latter nothing is leased.
func (l *Leases) detect(r *weir.Request, res *weir.Result) bool {
	if !res.Allowed() || r.Duration < time.Millisecond || wrap.OwnLimits(l.Unwrap()) {
		return false
	}
	left, most := res.ExpiresAt.Sub(l.cfg.Now()), r.Duration-l.cfg.Skew
	if l.fixed.Load() {
		most = r.Duration + l.cfg.Skew
	}
	fixed := left <= most && res.ExpiresAt.UnixNano()%(r.Duration.Milliseconds()*int64(time.Millisecond)) == 0
	l.fixed.Store(fixed)
	return fixed && left > l.cfg.Skew
}
