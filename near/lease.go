package near

import (
	"cmp"
	"context"
	"fmt"
	"hash/maphash"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/weirgo/weir"
)

// The defaults of LeaseConfig.
const (
	DefaultBlock = 16
	DefaultKeys  = 1 << 16
)

// LeaseConfig bounds [Leases]. The zero value of a field is its default.
type LeaseConfig struct {
	// Block is how much cost at most is taken at once: the wrapped strategy sees one Block-th of the traffic. Default
	// DefaultBlock. What is left of a block when its window ends was denied to others.
	Block int

	// Instances is how many processes lease from the same counts. Near the limit blocks get smaller, so that each of them
	// finds some budget. Default 1.
	Instances int

	// InstancesFunc, if set, is called for each block in place of Instances. Below 1 counts as 1.
	InstancesFunc func() int

	// Skew is how far the wrapped strategy's clock may be from Now: a lease ends that much before its window. Durations
	// should be many times as long. Default DefaultSkew; negative: the clocks agree.
	Skew time.Duration

	// Keys bounds how many leases there are, each of one key in one Duration; about 200 bytes each. When there are too
	// many, one that was not used for long goes: what was left of it is given out to nobody. Default DefaultKeys.
	Keys int

	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Leases is a Strategy that admits from blocks of budget. Make one with [Lease]. It is safe for concurrent use.
type Leases struct {
	inner
	cfg     LeaseConfig
	hash    maphash.Seed
	shards  [shards]shard
	fetches singleflight.Group

	// unaligned is set by the first answer that shows that the wrapped strategy is no fixed window: then nothing is leased.
	unaligned atomic.Bool

	// ahead is set by the first answer about a window that has not begun. See postpone.
	ahead atomic.Bool

	leased, fetched atomic.Uint64
}

const shards = 64

// shard is a part of the leases.
type shard struct {
	mu     sync.Mutex
	leases map[leaseKey]*lease // guarded by mu, as are the leases
}

type leaseKey struct {
	key      string
	duration time.Duration
}

// lease is what a key was granted in one window. A Reset removes it, so that a block fetched before is recognized.
type lease struct {
	until   time.Time // the end of the window
	total   uint64    // the last known count of the window, all blocks included
	granted uint64    // the sum of the blocks
	left    uint64    // of granted

	notBefore time.Time // nothing can be leased before
	used      time.Time // for eviction
}

// Lease returns a Strategy that takes blocks of up to cfg.Block from s and admits from them without asking s. It never
// admits more than s does: s has counted each block. While one caller fetches a block for a key, others with that key wait
// for it, each until its own context ends.
//
// Only a fixed window that is aligned to the Unix epoch can be leased. With any other strategy the first answer shows it,
// and from then on every request is passed on. Requests whose Cost exceeds their Limit are passed on too.
//
// It panics without s, and with a negative number in cfg.
func Lease(s weir.Strategy, cfg LeaseConfig) *Leases {
	if s == nil || min(cfg.Block, cfg.Instances, cfg.Keys) < 0 {
		panic("near: Lease of no strategy, or with a negative number")
	}
	cfg.Block, cfg.Instances, cfg.Keys = cmp.Or(cfg.Block, DefaultBlock), cmp.Or(cfg.Instances, 1), cmp.Or(cfg.Keys, DefaultKeys)
	cfg.Skew, cfg.Now = settings(cfg.Skew, cfg.Now)
	l := &Leases{inner: wrap(s), cfg: cfg, hash: maphash.MakeSeed()}
	for i := range l.shards {
		l.shards[i].leases = map[leaseKey]*lease{}
	}
	return l
}

// LeaseStats is what a [Leases] has done so far.
type LeaseStats struct {
	Leased  uint64 // decisions without a round trip
	Fetched uint64 // blocks asked for, granted or not
	Keys    int    // leases held now
}

// Stats returns what l has done so far.
func (l *Leases) Stats() LeaseStats {
	s := LeaseStats{Leased: l.leased.Load(), Fetched: l.fetched.Load()}
	for i := range l.shards {
		l.shards[i].mu.Lock()
		s.Keys += len(l.shards[i].leases)
		l.shards[i].mu.Unlock()
	}
	return s
}

// Run implements weir.Strategy.
func (l *Leases) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("near: %w", err)
		}
		if res, by := l.Lookup(r); by != Nowhere {
			return res, nil
		}
		held := l.acquire(r)
		if held == nil {
			return l.inner.Run(ctx, r)
		}
		if res, err := l.fetch(ctx, r, held); res != nil || err != nil {
			return res, err
		}
	}
}

// Lookup decides on r if that takes no round trip.
func (l *Leases) Lookup(r *weir.Request) (res *weir.Result, by Source) {
	l.withLease(r, func(h *lease) { res = h.take(r) })
	if res != nil {
		l.leased.Add(1)
		return res, FromLease
	}
	if res, by = l.inner.Lookup(r); res != nil {
		l.withLease(r, func(h *lease) { res = h.withoutRest(res) })
	}
	return res, by
}

// leasable reports whether r may be decided from a lease. Invalid requests are left to the wrapped strategy.
func (l *Leases) leasable(r *weir.Request) bool {
	return cost(r) <= r.Limit && !l.unaligned.Load() &&
		len(r.Key) > 0 && len(r.Key) <= maxKey && r.Duration >= time.Millisecond
}

// locked locks the shard of r's key and returns it. The caller unlocks it.
func (l *Leases) locked(r *weir.Request) (*shard, leaseKey) {
	sh := &l.shards[maphash.String(l.hash, r.Key)%shards]
	sh.mu.Lock()
	return sh, leaseKey{r.Key, r.Duration}
}

// withLease calls f with the lease of r's key, if there is one whose window runs.
func (l *Leases) withLease(r *weir.Request, f func(*lease)) {
	now := l.cfg.Now()
	sh, k := l.locked(r)
	defer sh.mu.Unlock()
	if h := sh.leases[k]; h != nil && h.live(now, l.cfg.Skew) {
		h.used = now
		f(h)
	}
}

// held returns a copy of the lease of r's key, with nothing left if there is none.
func (l *Leases) held(r *weir.Request) (held lease) {
	l.withLease(r, func(h *lease) { held = *h })
	return held
}

// live reports whether the lease's window still runs.
func (h *lease) live(now time.Time, skew time.Duration) bool { return now.Add(skew).Before(h.until) }

// spent returns the count of the window without what is left here.
func (h *lease) spent() uint64 { return h.total - min(h.total, h.left) }

// take decides on r, or returns nil if too little is left. A limit lower than that of the blocks holds at once.
func (h *lease) take(r *weir.Request) *weir.Result {
	switch c := cost(r); {
	case c > h.left || c > r.Limit:
		return nil
	case h.spent() > r.Limit-c:
		return &weir.Result{TotalRequests: h.spent(), ExpiresAt: h.until}
	default:
		h.left -= c
		return &weir.Result{State: weir.Allow, TotalRequests: h.spent(), ExpiresAt: h.until}
	}
}

// raise notes a count of the window.
func (h *lease) raise(counted *weir.Result) {
	if h.until.Equal(counted.ExpiresAt) {
		h.total = max(h.total, counted.TotalRequests)
	}
}

// withoutRest is a Result of the wrapped strategy on the window of h, without what is left here.
func (h *lease) withoutRest(res *weir.Result) *weir.Result {
	own := *res
	if h.until.Equal(own.ExpiresAt) {
		own.TotalRequests -= min(own.TotalRequests, h.left)
	}
	return &own
}

// withRest is a Result of this Strategy as the wrapped one counts: with what is left here.
func (h *lease) withRest(res *weir.Result) *weir.Result {
	if res == nil || !h.until.Equal(res.ExpiresAt) {
		return res
	}
	all := *res
	all.TotalRequests += h.left
	return &all
}

// acquire returns the lease of r's key, made if need be, or nil if nothing can be leased to r now.
func (l *Leases) acquire(r *weir.Request) *lease {
	if !l.leasable(r) {
		return nil
	}
	now := l.cfg.Now()
	sh, k := l.locked(r)
	defer sh.mu.Unlock()
	h := sh.leases[k]
	if h == nil {
		if len(sh.leases) > (l.cfg.Keys-1)/shards {
			sh.evict()
		}
		k.key = strings.Clone(k.key) // it may be a part of a long header
		h = &lease{used: now}
		sh.leases[k] = h
	}
	if !h.live(now, l.cfg.Skew) { // the window is over, or as good as over
		*h = lease{notBefore: later(h.notBefore, h.until), used: now}
	}
	if now.Before(h.notBefore) {
		return nil
	}
	return h
}

// evict removes the least recently used of a few leases. Their order is random.
func (s *shard) evict() {
	var victim leaseKey
	var oldest *lease
	tries := 8
	for k, h := range s.leases {
		if oldest == nil || h.used.Before(oldest.used) {
			victim, oldest = k, h
		}
		if tries--; tries == 0 {
			break
		}
	}
	delete(s.leases, victim)
}

// Forget drops what is kept here of r's key.
func (l *Leases) Forget(r *weir.Request) {
	sh, k := l.locked(r)
	delete(sh.leases, k)
	sh.mu.Unlock()
	l.inner.Forget(r)
}

// Peek implements weir.Peeker.
func (l *Leases) Peek(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	held, lacking := l.held(r), *r
	if res := held.take(r); res != nil {
		return res, nil
	}
	lacking.Cost = max(1, cost(r)-min(cost(r), held.left)) // the rest is counted already
	res, err := l.inner.Peek(ctx, &lacking)
	if err != nil || res.Allowed() {
		return res, err
	}
	return held.withoutRest(res), nil
}

// Refund implements weir.Refunder. What was taken from a lease returns to it: refunding twice gains nothing, for a lease
// never holds more than was granted.
func (l *Leases) Refund(ctx context.Context, r *weir.Request, taken *weir.Result) error {
	returned := false
	l.withLease(r, func(h *lease) {
		if returned = taken.Allowed() && h.until.Equal(taken.ExpiresAt); returned {
			h.left = min(h.granted, h.left+cost(r))
		}
	})
	if returned {
		return nil
	}
	return l.inner.Refund(ctx, r, taken)
}

// Reset implements weir.Resetter.
func (l *Leases) Reset(ctx context.Context, r *weir.Request) error {
	defer l.Forget(r)
	return l.inner.Reset(ctx, r)
}

// Seed implements weir.Seeder. A store that lost its counts is told of what is left of the lease too.
func (l *Leases) Seed(ctx context.Context, r *weir.Request, counted *weir.Result) error {
	held := l.held(r)
	all := held.withRest(counted)
	err := l.inner.Seed(ctx, r, all)
	if err == nil {
		l.withLease(r, func(h *lease) { h.raise(all) })
	}
	return err
}

// Charge implements weir.Charger.
func (l *Leases) Charge(ctx context.Context, r *weir.Request) error {
	err := l.inner.Charge(ctx, r)
	if err == nil {
		l.withLease(r, func(h *lease) { h.total += cost(r) })
	}
	return err
}

// Reconcile implements weir.Reconciler.
func (l *Leases) Reconcile(ctx context.Context, r *weir.Request, b *weir.Backlog) (*weir.Result, error) {
	own, held := *b, l.held(r)
	own.Counted = held.withRest(b.Counted)
	res, err := l.inner.Reconcile(ctx, r, &own)
	if err == nil && res != nil {
		l.withLease(r, func(h *lease) {
			h.raise(res)
			res = h.withoutRest(res)
		})
	}
	return res, err
}
