package near

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/bounds"
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
	leases bool                       // else nothing can be leased
	burst  uint64                     // of a token bucket; 0: the request's Limit
	fleet  atomic.Pointer[func() int] // InstancesFunc, or that of a fallback

	leased, fetched atomic.Uint64
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
// A request at another Limit here ends the block.
//
// Other strategies are not leased from: each request is passed on. So it is with a weir.Limit,
// whose numbers are its own: make the Limit of the Leases, by [Leases.Limit].
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
	l := &Leases{cfg: cfg}
	l.cache = cacheOf(l, s, cmp.Or(cfg.Keys, DefaultKeys), cfg.Skew, cfg.Now, (*lease).ended)
	_, _, leases := l.about.Until(new(weir.Request), time.Time{})
	l.leases, l.burst = leases && !l.about.Bound, l.about.Burst
	l.fleet.Store(&cfg.InstancesFunc)
	if l.about.Instances != nil {
		l.shareWith(l.about.Instances)
	}
	l.about.ShareWith = l.shareWith
	return l
}

// shareWith sets what is called for the number of instances if the LeaseConfig does not have it.
// fallback.New calls it for leases inside of its primary.
func (l *Leases) shareWith(instances func() int) {
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

// Limit returns the limit of n in d by l. It panics where [weir.NewLimit] fails.
func (l *Leases) Limit(n uint64, d time.Duration) *weir.Limit { return weir.MustLimit(l, n, d) }

// Run implements weir.Strategy.
func (l *Leases) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	res, _ := l.known(r)
	if res != nil {
		return res, nil
	}
	return weir.Run(ctx, l, r)
}

// Do implements weir.Counter.
func (l *Leases) Do(ctx context.Context, ops []*weir.Op) {
	for _, op := range ops {
		l.one(ctx, op)
	}
}

func (l *Leases) one(ctx context.Context, op *weir.Op) {
	switch {
	case op.Backlog != nil && (op.Verb == weir.OpTake || op.Verb == weir.OpCatchUp):
		l.catchUp(ctx, op)
	case op.Verb == weir.OpTake:
		l.take(ctx, op)
	case op.Verb == weir.OpLookup:
		l.lookup(ctx, op)
	case op.Verb == weir.OpPeek:
		l.peek(ctx, op)
	case op.Verb == weir.OpReturn:
		l.giveBack(ctx, op)
	case op.Verb == weir.OpCharge:
		l.pass(ctx, op)
		if op.Err == nil {
			l.charge(&op.Request, cost(&op.Request))
		}
	default:
		l.do(ctx, op)
	}
}

// charge records that the wrapped strategy has counted n more.
func (l *Leases) charge(r *weir.Request, n uint64) {
	l.find(r, func(b *lease, _ time.Time) { b.Charge(n) })
}

// The numbers of a Receipt.
const (
	receiptRemovals = 0 // of the key, before the admission
	receiptExpires  = 1 // ExpiresAt, in Unix ns
)

// decided sets the outcome of an op that a lease has decided. What was admitted from a lease is
// given back as without a Receipt, if the key was not reset here since.
func (l *Leases) decided(op *weir.Op, res *weir.Result, by weir.Source, removals uint64) {
	op.Result, op.Source, op.Left, op.Err = *res, by, 0, nil
	op.Receipt = weir.Receipt{Of: l, N: [4]int64{receiptRemovals: int64(removals),
		receiptExpires: res.ExpiresAt.UnixNano()}}
	if res.Allowed() {
		op.Receipt.Cost = cost(&op.Request)
	}
}

// take does an OpTake: from a lease, or inside.
func (l *Leases) take(ctx context.Context, op *weir.Op) {
	op.Verb = weir.OpLookup
	l.lookup(ctx, op)
	op.Verb = weir.OpTake
	if op.Err == nil {
		return
	}
	if ctx.Err() == nil && l.leasable(&op.Request) {
		removals := l.callers.Removals(&op.Request)
		w := l.fetch(ctx, &op.Request)
		op.Err = w.err
		if w.res != nil {
			l.decided(op, w.res, w.by, removals)
		}
		if w.res != nil || w.err != nil {
			return
		}
	}
	l.pass(ctx, op)
}

// leasable reports whether r may be decided from a lease now: its window must not be about to end.
func (l *Leases) leasable(r *weir.Request) bool {
	if !l.leases || r.Limit == 0 || cost(r) > l.limit(r) {
		return false
	}
	now, ms := l.now(), r.Duration.Milliseconds()
	_, each, ok := l.about.Until(r, now)
	return ok && ms > 0 && (each > 0 || now.UnixMilli()/ms == now.Add(l.skew).UnixMilli()/ms)
}

// limit returns how much r's key can be admitted at once.
func (l *Leases) limit(r *weir.Request) uint64 { return cmp.Or(l.burst, r.Limit) }

// known returns the decision of a lease on r, or nil, and how much that has left.
func (l *Leases) known(r *weir.Request) (res *weir.Result, left uint64) {
	l.find(r, func(b *lease, now time.Time) { res, left = l.spend(b, r, now), b.Left(now) })
	if res != nil {
		l.leased.Add(1)
	}
	return res, left
}

// lookup does an OpLookup: from a lease or, if nothing is left of one, inside. A denial there may
// be older than what was given back to a lease.
func (l *Leases) lookup(ctx context.Context, op *weir.Op) {
	removals := l.callers.Removals(&op.Request)
	res, left := l.known(&op.Request)
	switch {
	case res != nil:
		l.decided(op, res, weir.FromLease, removals)
	case left == 0:
		l.do(ctx, op)
	default:
		op.Err = errUnknown
	}
}

// peek does an OpPeek.
func (l *Leases) peek(ctx context.Context, op *weir.Op) {
	left, lacking, asked := uint64(0), op.Cost, op.Cost
	var res *weir.Result
	l.find(&op.Request, func(b *lease, now time.Time) {
		own := *b
		own.pace(op.Limit)
		left, lacking = own.Left(now), own.Lacking(cost(&op.Request), now)
		res = l.spend(&own, &op.Request, now)
	})
	if res != nil {
		op.Result, op.Source, op.Left, op.Err = *res, weir.FromLease, 0, nil
		return
	}
	op.Cost = lacking
	l.pass(ctx, op)
	op.Cost = asked
	if op.Err == nil && !op.Result.Allowed() {
		op.Result = *less(&op.Result, left)
	}
}

// giveBack does an OpReturn. While the key has a lease the cost returns to it, as far as that then
// has at most a Block left, and otherwise to the wrapped strategy.
func (l *Leases) giveBack(ctx context.Context, op *weir.Op) {
	r, taken, rest := &op.Request, op.Result, cost(&op.Request)
	switch {
	case op.Receipt.Of == any(l):
		rest = min(rest, op.Receipt.Cost)
		op.Receipt.Cost -= rest
		taken = weir.Result{State: weir.Allow, ExpiresAt: time.Unix(0, op.Receipt.N[receiptExpires])}
		if uint64(op.Receipt.N[receiptRemovals]) != l.callers.Removals(r) {
			rest = 0
		}
	case op.Receipt.Of != nil:
		l.pass(ctx, op)
		return
	}
	if taken.Allowed() && rest > 0 && rest <= l.limit(r) {
		l.find(r, func(b *lease, now time.Time) {
			rest = b.GiveBack(&taken, rest, uint64(l.cfg.Block), now)
		})
	}
	op.Err = nil
	if rest > 0 {
		inside := weir.Op{Verb: op.Verb, Request: *r, Result: taken}
		inside.Cost = rest
		l.pass(ctx, &inside)
		op.Err = inside.Err
	}
}

// catchUp passes an op with a Backlog on, whose count includes the rest of the lease. An OpTake may
// charge a debt that was charged before.
func (l *Leases) catchUp(ctx context.Context, op *weir.Op) {
	b := op.Backlog
	if b.Reset {
		defer l.callers.Remove(&op.Request)
	}
	all := *b
	if b.Counted != nil { // with what is left, as the wrapped strategy counts
		counted := *b.Counted
		l.find(&op.Request, func(b *lease, now time.Time) { counted.TotalRequests += b.Left(now) })
		all.Counted = &counted
	}
	op.Backlog = &all
	l.pass(ctx, op)
	op.Backlog = b
	if op.Verb == weir.OpCatchUp && op.Err == nil && b.Total > b.Charged {
		l.charge(&op.Request, b.Total-b.Charged)
	}
}

// fetch decides on r when a flight has brought enough; it starts one if there is none. Without a
// Result and an error r is to be passed on.
func (l *Leases) fetch(ctx context.Context, r *weir.Request) *waiter {
	w, b := &waiter{request: *r, done: make(chan struct{})}, (*lease)(nil)
	now, instances := l.now(), bounds.Instances(l.cfg.Instances, *l.fleet.Load())
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
	return w
}

// spend admits r, or returns nil if too little is left, or what is left is of another rate.
func (l *Leases) spend(b *lease, r *weir.Request, now time.Time) *weir.Result {
	b.pace(r.Limit)
	return b.Take(cost(r), l.limit(r), now)
}
