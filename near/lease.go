package near

import (
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
	passthrough
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

// optional is every interface that a wrapper offers.
type optional interface {
	weir.Strategy
	weir.Peeker
	weir.Refunder
	weir.Resetter
	weir.Seeder
	weir.Charger
	weir.Reconciler
}

var _ optional = (*Leases)(nil)

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

// lease is what a key was granted in one window. A Reset replaces it, so that a block fetched before is recognized.
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
	if s == nil || cfg.Block < 0 || cfg.Instances < 0 || cfg.Keys < 0 {
		panic("near: Lease of no strategy, or with a negative number")
	}
	cfg.Block, cfg.Instances, cfg.Keys = orDefault(cfg.Block, DefaultBlock), orDefault(cfg.Instances, 1), orDefault(cfg.Keys, DefaultKeys)
	cfg.Skew = skewOf(cfg.Skew)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	l := &Leases{passthrough: passthrough{s}, cfg: cfg, hash: maphash.MakeSeed()}
	for i := range l.shards {
		l.shards[i].leases = map[leaseKey]*lease{}
	}
	return l
}

func orDefault(n, def int) int {
	if n == 0 {
		return def
	}
	return n
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
		sh := &l.shards[i]
		sh.mu.Lock()
		s.Keys += len(sh.leases)
		sh.mu.Unlock()
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
func (l *Leases) Lookup(r *weir.Request) (*weir.Result, Source) {
	left := uint64(0)
	if l.leasable(r) {
		res, rest := l.take(r)
		if res != nil {
			l.leased.Add(1)
			return res, FromLease
		}
		left = rest
	}
	res, by := l.lookup(r)
	if res != nil && left > 0 {
		res.TotalRequests -= min(res.TotalRequests, left)
	}
	return res, by
}

// leasable reports whether r may be decided from a lease. Invalid requests are left to the wrapped strategy.
func (l *Leases) leasable(r *weir.Request) bool {
	return cost(r) <= r.Limit && !l.unaligned.Load() &&
		len(r.Key) > 0 && len(r.Key) <= maxKey && r.Duration >= time.Millisecond
}

// take decides on r from its lease, if that has enough left. It returns the rest otherwise.
func (l *Leases) take(r *weir.Request) (res *weir.Result, left uint64) {
	now := l.cfg.Now()
	sh, k := l.shard(r)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	held := sh.leases[k]
	if held == nil {
		return nil, 0
	}
	held.used = now
	if !held.live(now, l.cfg.Skew) {
		return nil, 0
	}
	return held.take(r), held.left
}

// live reports whether the lease's window still runs.
func (h *lease) live(now time.Time, skew time.Duration) bool { return now.Add(skew).Before(h.until) }

// spent returns the count of the window without what is left here.
func (h *lease) spent() uint64 { return h.total - min(h.total, h.left) }

// take decides on r, or returns nil if too little is left. A limit lower than that of the blocks holds at once.
func (h *lease) take(r *weir.Request) *weir.Result {
	switch c := cost(r); {
	case c > h.left:
		return nil
	case h.spent() > r.Limit-c:
		return &weir.Result{TotalRequests: h.spent(), ExpiresAt: h.until}
	default:
		h.left -= c
		return &weir.Result{State: weir.Allow, TotalRequests: h.spent(), ExpiresAt: h.until}
	}
}

// grant adds a block. The first one of a window replaces the lease of the window before.
func (h *lease) grant(block uint64, res *weir.Result) {
	if !h.until.Equal(res.ExpiresAt) {
		h.until, h.total, h.granted, h.left = res.ExpiresAt, 0, 0, 0
	}
	h.total = max(h.total, res.TotalRequests)
	h.granted += block
	h.left += block
}

// withoutRest is a Result of the wrapped strategy on the window of h, without what is left here.
func (h *lease) withoutRest(res *weir.Result) *weir.Result {
	own := *res
	if h.until.Equal(own.ExpiresAt) {
		own.TotalRequests -= min(own.TotalRequests, h.left)
	}
	return &own
}

func (l *Leases) shard(r *weir.Request) (*shard, leaseKey) {
	return &l.shards[maphash.String(l.hash, r.Key)%shards], leaseKey{r.Key, r.Duration}
}

// acquire returns the lease of r's key, made if need be, or nil if nothing can be leased to r now.
func (l *Leases) acquire(r *weir.Request) *lease {
	if !l.leasable(r) {
		return nil
	}
	now := l.cfg.Now()
	sh, k := l.shard(r)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	held := sh.leases[k]
	if held == nil {
		if len(sh.leases) > (l.cfg.Keys-1)/shards {
			sh.evict()
		}
		k.key = strings.Clone(k.key) // it may be a part of a long header
		held = &lease{used: now}
		sh.leases[k] = held
	}
	if !held.live(now, l.cfg.Skew) {
		// The window is over, or as good as over.
		held.notBefore = later(held.notBefore, held.until)
		held.until, held.total, held.granted, held.left = time.Time{}, 0, 0, 0
	}
	if now.Before(held.notBefore) {
		return nil
	}
	return held
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
	sh, k := l.shard(r)
	sh.mu.Lock()
	delete(sh.leases, k)
	sh.mu.Unlock()
	l.forget(r)
}

// Peek implements weir.Peeker.
func (l *Leases) Peek(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	held := l.held(r)
	lacking := *r
	if l.leasable(r) {
		if res := held.take(r); res != nil {
			return res, nil
		}
		lacking.Cost = cost(r) - held.left // the rest is counted already
	}
	res, err := l.peek(ctx, &lacking)
	if err != nil || res.Allowed() {
		return res, err
	}
	return held.withoutRest(res), nil
}

// Refund implements weir.Refunder. What was taken from a lease returns to it: refunding twice gains nothing, for a lease
// never holds more than was granted.
func (l *Leases) Refund(ctx context.Context, r *weir.Request, taken *weir.Result) error {
	sh, k := l.shard(r)
	sh.mu.Lock()
	h := sh.leases[k]
	if h != nil && taken.Allowed() && h.granted > 0 && h.until.Equal(taken.ExpiresAt) {
		h.left = min(h.granted, h.left+cost(r))
		sh.mu.Unlock()
		return nil
	}
	sh.mu.Unlock()
	return l.refund(ctx, r, taken)
}

// Reset implements weir.Resetter.
func (l *Leases) Reset(ctx context.Context, r *weir.Request) error {
	defer l.Forget(r)
	return l.reset(ctx, r)
}

// Seed implements weir.Seeder. A store that lost its counts is told of what is left of the lease too.
func (l *Leases) Seed(ctx context.Context, r *weir.Request, counted *weir.Result) error {
	all := l.withRest(r, counted)
	err := l.seed(ctx, r, all)
	if err == nil {
		l.learn(r, func(h *lease) { h.raise(all) })
	}
	return err
}

// Charge implements weir.Charger.
func (l *Leases) Charge(ctx context.Context, r *weir.Request) error {
	err := l.passthrough.Charge(ctx, r)
	if err == nil {
		l.learn(r, func(h *lease) { h.total += cost(r) })
	}
	return err
}

// Reconcile implements weir.Reconciler.
func (l *Leases) Reconcile(ctx context.Context, r *weir.Request, b *weir.Backlog) (*weir.Result, error) {
	own := *b
	own.Counted = l.withRest(r, b.Counted)
	res, err := l.reconcile(ctx, r, &own)
	if err != nil || res == nil {
		return res, err
	}
	l.learn(r, func(h *lease) {
		h.raise(res)
		res = h.withoutRest(res)
	})
	return res, nil
}

// raise notes a count of the window.
func (h *lease) raise(counted *weir.Result) {
	if h.until.Equal(counted.ExpiresAt) {
		h.total = max(h.total, counted.TotalRequests)
	}
}

// learn calls f with the live lease of r's key, if there is one.
func (l *Leases) learn(r *weir.Request, f func(*lease)) {
	now := l.cfg.Now()
	sh, k := l.shard(r)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if h := sh.leases[k]; h != nil && h.live(now, l.cfg.Skew) {
		f(h)
	}
}

// held returns a copy of the live lease of r's key, with nothing left if there is none.
func (l *Leases) held(r *weir.Request) (held lease) {
	l.learn(r, func(h *lease) { held = *h })
	return held
}

// withRest adds what is left of the lease to a count that this Strategy reported.
func (l *Leases) withRest(r *weir.Request, counted *weir.Result) *weir.Result {
	if counted == nil {
		return nil
	}
	all := *counted
	if h := l.held(r); h.until.Equal(all.ExpiresAt) {
		all.TotalRequests += h.left
	}
	return &all
}
