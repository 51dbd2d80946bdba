package near

import (
	"cmp"
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/callers"
	"github.com/weirgo/weir/internal/wrap"
)

// The defaults of LeaseConfig. DefaultSkew is the default of DenialsConfig, too.
const (
	DefaultBlock = 16
	DefaultKeys  = 1 << 16
	DefaultSkew  = 10 * time.Millisecond
)

// LeaseConfig bounds [Leases]. The zero value of a field is its default.
type LeaseConfig struct {
	// Block is how much cost at most is taken at once: the wrapped strategy sees one Block-th of the
	// traffic. Default DefaultBlock. What is left of a block when its window ends was denied to
	// others.
	Block int

	// Instances is how many processes lease from the same counts. Near the limit blocks get smaller,
	// so that each of them finds some budget. Default 1.
	Instances int

	// InstancesFunc, if set, is called for each block in place of Instances. Below 1 counts as 1.
	InstancesFunc func() int

	// Skew is how far the wrapped strategy's clock may be from Now: a lease ends that much before its
	// window. Durations should be many times as long. Default DefaultSkew; negative: the clocks agree.
	Skew time.Duration

	// Keys bounds how many leases there are, each of one key in one Duration; about 200 bytes each.
	// When there are too many, one that was not used for long is removed: its rest is not admitted to
	// anyone. Default DefaultKeys.
	Keys int

	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Leases is a Strategy that admits from blocks of budget. Make one with [Lease]. It is safe for
// concurrent use.
type Leases struct {
	inner
	cfg     LeaseConfig
	leases  *callers.Table[lease]
	fetches singleflight.Group

	// fixed is whether the last admission showed that the wrapped strategy is a fixed window. While it
	// is not, requests are passed on.
	fixed atomic.Bool
	first chan struct{} // the first request to receive is passed on alone; closed when it has its answer

	leased, fetched atomic.Uint64
}

// lease is the budget of a key in one window.
type lease struct {
	until time.Time // the end of the window
	spent uint64    // the last known count of the window, less left
	left  uint64    // of the blocks, which the wrapped strategy has counted
}

// Lease returns a Strategy that takes blocks of up to cfg.Block from s and admits from them without
// asking s. It never admits more than s does: s has counted each block. While one caller fetches a
// block, others with the same request wait for it, each until its own context ends, and at most 10
// seconds.
//
// Only a fixed window that is aligned to the Unix epoch can be leased. The first admission shows
// whether s is one; with any other strategy every request is passed on. So it is with one that has
// limits of its own, such as a weir.Policy: put a Policy around the Lease. So are requests in the
// last cfg.Skew of a window, and those whose Cost exceeds their Limit.
//
// It panics without s, and with a negative number in cfg.
func Lease(s weir.Strategy, cfg LeaseConfig) *Leases {
	if s == nil || min(cfg.Block, cfg.Instances, cfg.Keys) < 0 {
		panic("near: Lease of no strategy, or with a negative number")
	}
	cfg.Block = cmp.Or(cfg.Block, DefaultBlock)
	if cfg.InstancesFunc == nil {
		cfg.InstancesFunc = func() int { return cfg.Instances }
	}
	cfg.Skew, cfg.Now = settings(cfg.Skew, cfg.Now)
	ended := func(h *lease, now time.Time) bool { return !now.Add(cfg.Skew).Before(h.until) }
	keys := callers.New(cmp.Or(cfg.Keys, DefaultKeys), nil, ended)
	l := &Leases{inner: wrap.Of(s), cfg: cfg, leases: keys, first: make(chan struct{}, 1)}
	l.first <- struct{}{}
	return l
}

// inner is a wrapped strategy with every optional interface.
type inner = wrap.Strategy

// settings returns a skew and a clock with their defaults: 0 stands for DefaultSkew, a negative
// skew for none.
func settings(skew time.Duration, now func() time.Time) (time.Duration, func() time.Time) {
	if now == nil {
		now = time.Now
	}
	return max(0, cmp.Or(skew, DefaultSkew)), now
}

// LeaseStats counts the decisions and fetches of [Leases].
type LeaseStats struct {
	Leased  uint64 // decisions without a round trip
	Fetched uint64 // blocks requested, granted or not
	Keys    int    // leases held now
}

// Stats returns the counts so far.
func (l *Leases) Stats() LeaseStats {
	return LeaseStats{Leased: l.leased.Load(), Fetched: l.fetched.Load(), Keys: l.leases.Len()}
}

// Run implements weir.Strategy. The first request is passed on alone: its answer shows whether
// there are blocks to take, and one that was passed on beside the first block would be counted in
// no order with it.
func (l *Leases) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return l.run(ctx, r, l.pass)
}

// run is Run, which passes r on by pass.
func (l *Leases) run(
	ctx context.Context, r *weir.Request, pass func(context.Context, *weir.Request) (*weir.Result, error),
) (*weir.Result, error) {
	if res := l.Lookup(r); res != nil {
		return res, nil
	}
	select {
	case _, alone := <-l.first:
		if alone {
			defer close(l.first)
			return pass(ctx, r)
		}
	case <-ctx.Done():
		return nil, fmt.Errorf("near: %w", ctx.Err())
	}
	for ctx.Err() == nil && l.leasable(r) {
		if res, err := l.fetch(ctx, r); res != nil || err != nil {
			return res, err
		}
		if res := l.Lookup(r); res != nil {
			return res, nil
		}
	}
	return pass(ctx, r)
}

func (l *Leases) pass(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	res, err := l.inner.Run(ctx, r)
	return l.answer(r, res, err)
}

// Admit implements weir.Admitter. What was admitted from a lease returns to the lease, as by Refund, if
// the key was not reset here since. It fails with errors.ErrUnsupported, and takes nothing, where r is
// to be passed on to a strategy that is none.
func (l *Leases) Admit(ctx context.Context, r *weir.Request) (*weir.Result, weir.Return, error) {
	removals := l.leases.Removals(r)
	var passed weir.Return
	res, err := l.run(ctx, r, func(ctx context.Context, r *weir.Request) (res *weir.Result, err error) {
		res, passed, err = l.inner.Admit(ctx, r)
		return l.answer(r, res, err)
	})
	switch {
	case err != nil:
		return nil, nil, err
	case !res.Allowed():
		return res, wrap.Returning(0, nil), nil
	}
	q, taken := *r, *res
	return res, wrap.Returning(wrap.Cost(r), func(ctx context.Context, cost uint64) error {
		rest, known := q, l.leases.Removals(&q) == removals
		rest.Cost = cost
		switch {
		case passed == nil && known:
			return l.Refund(ctx, &rest, &taken)
		case passed == nil:
			return nil
		case known:
			l.withLease(&q, func(h *lease) { h.uncount(cost, taken.ExpiresAt) })
		}
		return passed(ctx, cost)
	}), nil
}

// Lookup decides on r if that takes no round trip, or returns nil.
func (l *Leases) Lookup(r *weir.Request) (res *weir.Result) {
	var left uint64
	l.withLease(r, func(h *lease) { res, left = h.take(r), h.left })
	switch {
	case res != nil:
		l.leased.Add(1)
	case left == 0: // else a denial may be from before that was given back
		res, _ = l.answer(r, l.inner.Lookup(r), nil)
	}
	return res
}

// answer returns a Result of the wrapped strategy on r as a Result of l.
func (l *Leases) answer(r *weir.Request, res *weir.Result, err error) (*weir.Result, error) {
	if err != nil || res == nil {
		return nil, err
	}
	l.detect(r, res)
	l.withLease(r, func(h *lease) { res = h.withoutRest(res) })
	return res, nil
}

// withLease calls f with the lease of r's key, with a lock held, if there is one and its window is
// not about to end.
func (l *Leases) withLease(r *weir.Request, f func(*lease)) { l.leases.Find(r, l.cfg.Now(), f) }

// held returns a copy of the lease of r's key, with nothing left if there is none.
func (l *Leases) held(r *weir.Request) (held lease) {
	l.withLease(r, func(h *lease) { held = *h })
	return held
}

// take admits r, or returns nil if too little is left. A limit lower than that of the blocks holds
// at once.
func (h *lease) take(r *weir.Request) *weir.Result {
	c := wrap.Cost(r)
	if c > h.left || c > r.Limit || h.spent > r.Limit-c {
		return nil
	}
	h.left -= c
	h.spent += c
	return &weir.Result{State: weir.Allow, TotalRequests: h.spent, ExpiresAt: h.until}
}

// withoutRest returns a Result of the wrapped strategy less the rest of the lease, and records its
// count. A Result from before the last block does not count that rest.
func (h *lease) withoutRest(res *weir.Result) *weir.Result {
	own := *res
	if h.until.Equal(own.ExpiresAt) && own.TotalRequests >= h.spent+h.left {
		own.TotalRequests -= h.left
		h.spent = own.TotalRequests
	}
	return &own
}

// uncount takes cost that the wrapped strategy takes back from the last known count.
func (h *lease) uncount(cost uint64, until time.Time) {
	if h.until.Equal(until) {
		h.spent -= min(h.spent, cost)
	}
}

// withRest returns a Result of this Strategy plus the rest of the lease, as the wrapped strategy
// counts.
func (h lease) withRest(res *weir.Result) *weir.Result {
	if res == nil || !h.until.Equal(res.ExpiresAt) {
		return res
	}
	all := *res
	all.TotalRequests += h.left
	return &all
}

// Forget removes the lease of r's key.
func (l *Leases) Forget(r *weir.Request) {
	l.leases.Remove(r)
	l.inner.Forget(r)
}

// Peek implements weir.Peeker.
func (l *Leases) Peek(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	held, lacking := l.held(r), *r
	lacking.Cost = max(1, wrap.Cost(r)-min(wrap.Cost(r), held.left)) // the rest is counted already
	if res := held.take(r); res != nil {
		return res, nil
	}
	res, err := l.inner.Peek(ctx, &lacking)
	if err == nil && !res.Allowed() {
		res = held.withoutRest(res)
	}
	return res, err
}

// Refund implements weir.Refunder. While the key has a lease the cost returns to it, and otherwise
// to the wrapped strategy.
func (l *Leases) Refund(ctx context.Context, r *weir.Request, taken *weir.Result) error {
	rest := *r
	rest.Cost = wrap.Cost(r)
	l.withLease(r, func(h *lease) {
		if taken.Allowed() && h.until.Equal(taken.ExpiresAt) && rest.Cost <= r.Limit {
			back := min(rest.Cost, h.spent)
			h.spent, h.left, rest.Cost = h.spent-back, h.left+back, rest.Cost-back
		}
	})
	if rest.Cost == 0 {
		return nil
	}
	return l.inner.Refund(ctx, &rest, taken)
}

// Reset implements weir.Resetter.
func (l *Leases) Reset(ctx context.Context, r *weir.Request) error {
	defer l.Forget(r)
	return l.inner.Reset(ctx, r)
}

// Seed implements weir.Seeder. The count includes the rest of the lease.
func (l *Leases) Seed(ctx context.Context, r *weir.Request, counted *weir.Result) error {
	return l.inner.Seed(ctx, r, l.held(r).withRest(counted))
}

// Charge implements weir.Charger.
func (l *Leases) Charge(ctx context.Context, r *weir.Request) error {
	err := l.inner.Charge(ctx, r)
	if err == nil {
		l.withLease(r, func(h *lease) { h.spent += min(wrap.Cost(r), ^(h.spent + h.left)) })
	}
	return err
}

// Reconcile implements weir.Reconciler.
func (l *Leases) Reconcile(ctx context.Context, r *weir.Request, b *weir.Backlog) (*weir.Result, error) {
	all := *b
	all.Counted = l.held(r).withRest(b.Counted)
	res, err := l.inner.Reconcile(ctx, r, &all)
	return l.answer(r, res, err)
}
