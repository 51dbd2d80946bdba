package near

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/wrap"
)

// DefaultBlock is the default of LeaseConfig.Block.
const DefaultBlock = 16

// DefaultKeys is the default of LeaseConfig.Keys.
const DefaultKeys = 1 << 16

// LeaseConfig bounds [Leases]. The zero value of a field is its default.
type LeaseConfig struct {
	// Block is how much cost at most is taken at once: the wrapped strategy sees one Block-th of the
	// traffic. Default DefaultBlock. What is left of a block when its window ends was denied to
	// others.
	Block int

	// Instances is how many processes lease from the same counts. Near the limit blocks get smaller,
	// so that each of them finds some budget. Default: that of a fallback.Fallback inside or around,
	// and otherwise 1.
	Instances int

	// InstancesFunc, if set, is called in place of Instances for each caller that needs a block. Below
	// 1 it does not know, and Instances holds.
	InstancesFunc func() int

	// Skew is how far off the wrapped strategy's instants may be by Now, on Redis up to a round trip:
	// a lease ends that much before its window. Durations should be many times as long. Default
	// DefaultSkew; negative: not at all.
	Skew time.Duration

	// Keys bounds how many leases there are, each of one key in one Duration; about 300 bytes each.
	// When there are too many, one that was not used for long is removed: its rest is not admitted to
	// anyone. Default DefaultKeys.
	Keys int

	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Leases is a Strategy that admits from blocks of budget. Make one with [NewLeases]. It is safe for
// concurrent use.
type Leases struct {
	// the wrapped Strategy, and the leases by caller
	cache[lease]

	cfg    LeaseConfig
	lapser Lapser                     // nil: nothing can be leased
	burst  uint64                     // of a token bucket; 0: the request's Limit
	fleet  atomic.Pointer[func() int] // InstancesFunc, or that of a fallback

	leased, fetched atomic.Uint64
}

// Lapser is a strategy of which [NewLeases] can take blocks: cost that it admitted at once may be
// used one by one until it lapses. FixedWindow, SlidingWindow and TokenBucket of weir and
// redislimit are Lapsers, and NewLeases finds them inside of wrappers that have a method Unwrap()
// weir.Strategy.
type Lapser interface {
	// Lapse returns until when cost that was admitted for r can be used, if its Result had this
	// ExpiresAt. If each is 0 all of it can be used until then, which is the end of a window of
	// r.Duration. Otherwise the hits lapse one after the other, as their tokens flow in again: the
	// last at until, and each of the others sooner than the next by each. It reports false if the cost
	// is only for r, at once.
	Lapse(r *weir.Request, expires time.Time) (until time.Time, each time.Duration, ok bool)
}

// NewLeases returns a Strategy that takes blocks of up to cfg.Block from s and admits from them
// without asking s. It never admits more than s does: s has counted each block, and what is left of
// a block is used no longer than it counts. That is
//
//   - in a fixed window until the window ends,
//   - in a sliding window until then, too; the rest counts in the next window, as the one before,
//   - in a token bucket until its tokens have flowed in again, one after the other; then they can
//     be taken from the bucket once more, so that slow callers save less, but lose nothing. A block
//     taken while another is not used up lapses as if it had been taken right after that one.
//     A burst should be more than flows in within some five round trips: callers of one block ask
//     again together, and what flows in meanwhile and does not fit is lost.
//
// A Refund to a token bucket moves no token that others hold, so that after one a block of each
// instance may be admitted beside; so it is after a request of another instance at a higher Limit.
// A request at another Limit here ends the block. With other strategies, where neither s nor what
// it wraps is a [Lapser], each request is passed on. So it is with a weir.Limit, whose numbers are
// its own: make the Limit of the Leases, by weir.NewLimit.
//
// The callers of a key that find too little left wait for one block together, each until its own
// context ends. The next is for all who still wait, even if that is more than cfg.Block. So never
// more than cfg.Block of a key is held unused, but for what was taken for callers whose contexts
// ended meanwhile, or who were overtaken by smaller requests. A request that three calls did not
// suffice for is passed on: so where more is asked for than is admitted, a decision takes up to
// five round trips. Requests in the last cfg.Skew of a window, and those whose Cost exceeds their
// Limit, are passed on at once.
//
// It panics without s, and with a negative number in cfg.
func NewLeases(s weir.Strategy, cfg LeaseConfig) *Leases {
	if min(cfg.Block, cfg.Instances, cfg.Keys) < 0 {
		panic("near: Lease with a negative number")
	}
	cfg.Block = cmp.Or(cfg.Block, DefaultBlock)
	l := &Leases{cfg: cfg, burst: wrap.Burst(s),
		cache: cacheOf(s, cmp.Or(cfg.Keys, DefaultKeys), cfg.Skew, cfg.Now, (*lease).ended)}
	if !wrap.OwnLimits(s) {
		l.lapser, _ = weir.As[Lapser](s)
	}
	l.fleet.Store(&cfg.InstancesFunc)
	if f, ok := weir.As[interface{ Instances() int }](s); ok {
		l.ShareWith(f.Instances)
	}
	return l
}

// ShareWith sets what is called for the number of instances if the LeaseConfig does not have it.
// fallback.New calls it for leases inside of its primary.
func (l *Leases) ShareWith(instances func() int) {
	if l.cfg.InstancesFunc == nil && l.cfg.Instances == 0 {
		l.fleet.Store(&instances)
	}
}

// LeaseStats counts the decisions and fetches of [Leases].
type LeaseStats struct {
	Leased  uint64 // decisions without a round trip
	Fetched uint64 // blocks requested, granted or not
	Keys    int    // leases held now
}

// Stats returns the counts so far.
func (l *Leases) Stats() LeaseStats {
	return LeaseStats{Leased: l.leased.Load(), Fetched: l.fetched.Load(), Keys: l.callers.Len()}
}

// Run implements weir.Strategy.
func (l *Leases) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	if res, err := l.decide(ctx, r); res != nil || err != nil {
		return res, err
	}
	return l.Strategy.Run(ctx, r)
}

// decide decides on r, or returns nothing if it is to be passed on.
func (l *Leases) decide(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	res := l.Lookup(r)
	if res == nil && ctx.Err() == nil && l.leasable(r) {
		return l.fetch(ctx, r)
	}
	return res, nil
}

// leasable reports whether r may be decided from a lease now: its window must not be about to end.
func (l *Leases) leasable(r *weir.Request) bool {
	if l.lapser == nil || r.Limit == 0 || wrap.Cost(r) > l.limit(r) {
		return false
	}
	now, ms := l.now(), r.Duration.Milliseconds()
	_, each, ok := l.lapser.Lapse(r, now)
	return ok && ms > 0 && (each > 0 || now.UnixMilli()/ms == now.Add(l.skew).UnixMilli()/ms)
}

// limit returns how much r's key can be admitted at once.
func (l *Leases) limit(r *weir.Request) uint64 { return cmp.Or(l.burst, r.Limit) }

// Admit implements weir.Admitter. What was admitted from a lease returns as by Refund, if the key
// was not reset here since. It fails with errors.ErrUnsupported, and takes nothing, where r is to
// be passed on to a strategy that is none.
func (l *Leases) Admit(ctx context.Context, r *weir.Request) (*weir.Result, weir.Return, error) {
	removals := l.callers.Removals(r)
	res, err := l.decide(ctx, r)
	switch {
	case err != nil:
		return nil, nil, err
	case res == nil:
		return l.Strategy.Admit(ctx, r)
	}
	return res, wrap.Returning(r, res, func(ctx context.Context, r *weir.Request,
		taken *weir.Result) error {
		if l.callers.Removals(r) != removals {
			return nil
		}
		return l.Refund(ctx, r, taken)
	}), nil
}

// Lookup decides on r if that takes no round trip, or returns nil.
func (l *Leases) Lookup(r *weir.Request) (res *weir.Result) {
	var left uint64
	l.find(r, func(b *lease, now time.Time) { res, left = l.take(b, r, now), b.Left(now) })
	switch {
	case res != nil:
		l.leased.Add(1)
	case left == 0: // else a denial may be older than a Refund to this lease
		res = l.Strategy.Lookup(r)
	}
	return res
}

// Peek implements weir.Peeker.
func (l *Leases) Peek(ctx context.Context, r *weir.Request) (res *weir.Result, err error) {
	left, q := uint64(0), *r
	l.find(r, func(b *lease, now time.Time) {
		own := *b
		own.pace(r.Limit)
		left, q.Cost = own.Left(now), own.Lacking(wrap.Cost(r), now)
		res = l.take(&own, r, now)
	})
	if res != nil {
		return res, nil
	}
	res, err = l.Strategy.Peek(ctx, &q)
	if err == nil && !res.Allowed() {
		res = less(res, left)
	}
	return res, err
}

// Refund implements weir.Refunder. While the key has a lease the cost returns to it, as far as that
// then has at most a Block left, and otherwise to the wrapped strategy.
func (l *Leases) Refund(ctx context.Context, r *weir.Request, taken *weir.Result) error {
	rest := *r
	rest.Cost = wrap.Cost(r)
	if taken.Allowed() && rest.Cost <= l.limit(r) {
		l.find(r, func(b *lease, now time.Time) {
			rest.Cost = b.GiveBack(taken, rest.Cost, uint64(l.cfg.Block), now)
		})
	}
	if rest.Cost == 0 {
		return nil
	}
	return l.Strategy.Refund(ctx, &rest, taken)
}

// withRest returns a count of this Strategy plus what is left, as the wrapped strategy counts.
func (l *Leases) withRest(r *weir.Request, counted *weir.Result) *weir.Result {
	all := *counted
	l.find(r, func(b *lease, now time.Time) { all.TotalRequests += b.Left(now) })
	return &all
}

// Seed implements weir.Seeder. The count includes the rest of the lease.
func (l *Leases) Seed(ctx context.Context, r *weir.Request, counted *weir.Result) error {
	return l.Strategy.Seed(ctx, r, l.withRest(r, counted))
}

// Charge implements weir.Charger.
func (l *Leases) Charge(ctx context.Context, r *weir.Request) error {
	err := l.Strategy.Charge(ctx, r)
	if err == nil {
		l.find(r, func(b *lease, _ time.Time) { b.Charge(wrap.Cost(r)) })
	}
	return err
}

// Reconcile implements weir.Reconciler.
func (l *Leases) Reconcile(
	ctx context.Context, r *weir.Request, b *weir.Backlog,
) (*weir.Result, error) {
	if b.Reset {
		defer l.callers.Remove(r)
	}
	all := *b
	if b.Counted != nil {
		all.Counted = l.withRest(r, b.Counted)
	}
	return l.Strategy.Reconcile(ctx, r, &all)
}

// fetch decides on r when a flight has brought enough; it starts one if there is none. It returns
// nothing if r is to be passed on.
func (l *Leases) fetch(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	w, b := &waiter{request: *r, done: make(chan struct{})}, (*lease)(nil)
	now, instances := l.now(), wrap.Instances(l.cfg.Instances, *l.fleet.Load())
	l.callers.Update(r, now, func(found *lease) *lease {
		b = found
		if b == nil || b.calls > 0 && now.Sub(b.began) >= fetchTimeout {
			b = new(lease)
		}
		b.waiting, b.instances = append(b.waiting, w), instances
		if b.calls == 0 {
			flight{l, b, context.WithoutCancel(ctx)}.proceed(new(call), now)
		}
		return b
	})
	select {
	case <-w.done:
	case <-ctx.Done():
		defer l.callers.Lock(r).Unlock()
		if n := slices.Index(b.waiting, w); n >= 0 { // no answer came first
			b.waiting, w.err = slices.Delete(b.waiting, n, n+1), fmt.Errorf("near: %w", ctx.Err())
		}
	}
	return w.res, w.err
}

// take admits r, or returns nil if too little is left, or what is left is of another rate.
func (l *Leases) take(b *lease, r *weir.Request, now time.Time) *weir.Result {
	b.pace(r.Limit)
	return b.Take(wrap.Cost(r), l.limit(r), now)
}
