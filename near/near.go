package near

import (
	"cmp"
	"context"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/callers"
	"github.com/weirgo/weir/internal/wrap"
)

// DefaultSkew is the default of LeaseConfig.Skew and DenialsConfig.Skew.
const DefaultSkew = 10 * time.Millisecond

// settings returns a skew and a clock with their defaults: 0 stands for DefaultSkew, a negative
// skew for none.
func settings(skew time.Duration, now func() time.Time) (time.Duration, func() time.Time) {
	if now == nil {
		now = time.Now
	}
	return max(0, cmp.Or(skew, DefaultSkew)), now
}

// cache is a wrapped strategy with every optional interface, and what is known of its callers.
type cache[V any] struct {
	wrap.Strategy
	callers *callers.Table[V]
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
