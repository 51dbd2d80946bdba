package near

import (
	"context"
	"hash/maphash"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
)

// DefaultDenials is the default of DenialsConfig.Size.
const DefaultDenials = 1 << 14

// maxDenials bounds DenialsConfig.Size: 10 bytes a denial are allocated at once.
const maxDenials = 1 << 28

// DenialsConfig bounds a [DenialCache]. The zero value of a field is its default.
type DenialsConfig struct {
	// Size is how many denials are kept: about 150 bytes each, 10 of them from the start. When there are too many, the one
	// that ends first goes. Default DefaultDenials; at most 1<<28.
	Size int

	// Skew is how far the wrapped strategy's clock may be from Now: a denial ends that much before the instant it states.
	// Default DefaultSkew; negative: the clocks agree.
	Skew time.Duration

	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// DenialCache is a Strategy that repeats denials. Make one with [Denials]. It is safe for concurrent use.
type DenialCache struct {
	inner
	cfg      DenialsConfig
	hash     maphash.Seed
	sets     []denialSet
	repeated atomic.Uint64
}

// ways is how many denials a set holds. With one, two attackers of the same set would evict each other for ever.
const ways = 4

// denialSet holds the denials of the keys that hash to it. It needs no lock.
type denialSet struct {
	ways [ways]atomic.Pointer[denial]

	// drops counts the drops. A denial decided before a drop and stored after it is out of date.
	drops atomic.Uint64
}

// denial is immutable.
type denial struct {
	key         string
	duration    time.Duration
	limit, cost uint64
	res         weir.Result
	until       time.Time
}

// Denials returns a Strategy that repeats each denial of s, until the instant it states, to the same request: the same
// key, Duration, Limit and Cost; its TotalRequests is as of the decision. An attack on a full window then costs s nothing.
// It never denies what s would admit,
// except after a Refund or Reset by another process, which it cannot notice, and after s lost its counts. Flooding it with
// keys evicts denials, which costs one decision of s each. It panics without s.
func Denials(s weir.Strategy, cfg DenialsConfig) *DenialCache {
	if s == nil {
		panic("near: Denials of no strategy")
	}
	if cfg.Size <= 0 {
		cfg.Size = DefaultDenials
	}
	cfg.Skew, cfg.Now = settings(cfg.Skew, cfg.Now)
	sets := make([]denialSet, (min(cfg.Size, maxDenials)+ways-1)/ways)
	return &DenialCache{inner: wrap(s), cfg: cfg, hash: maphash.MakeSeed(), sets: sets}
}

// Repeated returns how many denials were repeated.
func (d *DenialCache) Repeated() uint64 { return d.repeated.Load() }

// Run implements weir.Strategy.
func (d *DenialCache) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	if res, by := d.Lookup(r); by != Nowhere {
		return res, nil
	}
	return d.decide(r, func() (*weir.Result, error) { return d.inner.Run(ctx, r) })
}

// Reconcile implements weir.Reconciler.
func (d *DenialCache) Reconcile(ctx context.Context, r *weir.Request, b *weir.Backlog) (*weir.Result, error) {
	return d.decide(r, func() (*weir.Result, error) { return d.inner.Reconcile(ctx, r, b) })
}

// decide has the wrapped strategy decide, and keeps its denial.
func (d *DenialCache) decide(r *weir.Request, by func() (*weir.Result, error)) (*weir.Result, error) {
	drops := d.set(r).drops.Load()
	res, err := by()
	if err == nil && res != nil {
		d.keep(r, res, drops)
	}
	return res, err
}

// Lookup decides on r if that takes no round trip.
func (d *DenialCache) Lookup(r *weir.Request) (*weir.Result, Source) {
	if res := d.find(r); res != nil {
		d.repeated.Add(1)
		return res, FromDenials
	}
	return d.inner.Lookup(r)
}

// find returns a copy of the denial that holds for r, or nil.
func (d *DenialCache) find(r *weir.Request) *weir.Result {
	s := d.set(r)
	for i := range s.ways {
		kept := s.ways[i].Load()
		if !kept.concerns(r) || kept.limit != r.Limit || kept.cost != cost(r) || !d.cfg.Now().Before(kept.until) {
			continue
		}
		res := kept.res
		return &res
	}
	return nil
}

// set goes by key and Duration only, so that a Reset finds it.
func (d *DenialCache) set(r *weir.Request) *denialSet {
	return &d.sets[(maphash.String(d.hash, r.Key)^uint64(r.Duration))%uint64(len(d.sets))]
}

// concerns reports whether k was given for r's key.
func (k *denial) concerns(r *weir.Request) bool {
	return k != nil && k.key == r.Key && k.duration == r.Duration
}

// keep stores a denial. An admission ends the one stored for its key, whose figures are out of date.
func (d *DenialCache) keep(r *weir.Request, res *weir.Result, drops uint64) {
	until := res.ExpiresAt.Add(-d.cfg.Skew)
	switch {
	case res.Allowed():
		d.drop(r)
		return
	case !until.After(d.cfg.Now()):
		return
	}
	s := d.set(r)
	kept := &denial{strings.Clone(r.Key), r.Duration, r.Limit, cost(r), *res, until}
	way := s.victim(r)
	way.Store(kept)
	// Store first, then look: a drop that is not seen here sees kept.
	if s.drops.Load() != drops {
		way.CompareAndSwap(kept, nil)
	}
}

// victim returns the way for r's denial: that of its last denial, an empty one, or the one that ends first.
func (s *denialSet) victim(r *weir.Request) *atomic.Pointer[denial] {
	var first *denial
	way := &s.ways[0]
	for i := range s.ways {
		kept := s.ways[i].Load()
		if kept.concerns(r) {
			return &s.ways[i]
		}
		if i == 0 || first != nil && (kept == nil || kept.until.Before(first.until)) {
			first, way = kept, &s.ways[i]
		}
	}
	return way
}

// drop forgets the denial of r's key, and any that is being decided.
func (d *DenialCache) drop(r *weir.Request) {
	s := d.set(r)
	s.drops.Add(1)
	for i := range s.ways {
		if kept := s.ways[i].Load(); kept.concerns(r) {
			s.ways[i].CompareAndSwap(kept, nil)
		}
	}
}

// Forget drops what is kept here of r's key.
func (d *DenialCache) Forget(r *weir.Request) {
	d.drop(r)
	d.inner.Forget(r)
}

// Peek implements weir.Peeker.
func (d *DenialCache) Peek(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	if res := d.find(r); res != nil {
		return res, nil
	}
	return d.inner.Peek(ctx, r)
}

// Refund implements weir.Refunder.
func (d *DenialCache) Refund(ctx context.Context, r *weir.Request, taken *weir.Result) error {
	defer d.drop(r)
	return d.inner.Refund(ctx, r, taken)
}

// Reset implements weir.Resetter.
func (d *DenialCache) Reset(ctx context.Context, r *weir.Request) error {
	defer d.drop(r)
	return d.inner.Reset(ctx, r)
}
