package near

import (
	"cmp"
	"context"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/wrap"
	"github.com/weirgo/weir/internal/stores/callers"
)

// DefaultSkew is the default of LeaseConfig.Skew and DenialsConfig.Skew.
const DefaultSkew = 10 * time.Millisecond

// cache is a wrapped strategy with every optional interface, and what is known of its callers.
type cache[V any] struct {
	wrap.Strategy
	callers *callers.Table[V]
	skew    time.Duration
	now     func() time.Time
}

// cacheOf returns a cache of at most size callers. A skew of 0 stands for DefaultSkew, a negative
// one for none. It panics without s.
func cacheOf[V any](
	s weir.Strategy, size int, skew time.Duration, now func() time.Time,
	ended func(*V, time.Time) bool,
) cache[V] {
	if s == nil {
		panic("near: no strategy")
	}
	if now == nil {
		now = time.Now
	}
	return cache[V]{wrap.Of(s), callers.New(size, nil, ended), max(0, cmp.Or(skew, DefaultSkew)), now}
}

// find calls f with what is known of r's caller, with a lock held, if there is something.
func (c *cache[V]) find(r *weir.Request, f func(known *V, now time.Time)) {
	now := c.now()
	c.callers.Find(r, now, func(known *V) { f(known, now) })
}

// Forget removes what is known of r.Key in r.Duration.
func (c *cache[V]) Forget(r *weir.Request) {
	c.callers.Remove(r)
	c.Strategy.Forget(r)
}

// Reset implements weir.Resetter.
func (c *cache[V]) Reset(ctx context.Context, r *weir.Request) error {
	defer c.callers.Remove(r)
	return c.Strategy.Reset(ctx, r)
}

// ResetPrefix implements weir.PrefixResetter. Other processes keep the blocks and denials that they
// have, until they end.
func (c *cache[V]) ResetPrefix(
	ctx context.Context, prefix string, progress func(seen, reset int),
) (reset int, err error) {
	defer c.callers.RemovePrefix(prefix)
	return c.Strategy.ResetPrefix(ctx, prefix, progress)
}

// less returns a Result that counts n less.
func less(res *weir.Result, n uint64) *weir.Result {
	own := *res
	own.TotalRequests -= min(own.TotalRequests, n)
	return &own
}
