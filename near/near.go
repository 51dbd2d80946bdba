package near

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/stores/callers"
)

// DefaultSkew is the default of LeaseConfig.Skew and DenialsConfig.Skew.
const DefaultSkew = 10 * time.Millisecond

// cache is a wrapped Counter, and what is known of its callers.
type cache[V any] struct {
	counter weir.Counter
	about   *weir.About
	callers *callers.Table[V]
	skew    time.Duration
	now     func() time.Time
}

// cacheOf returns the cache of c around s, of at most size callers. A skew of 0 stands for
// DefaultSkew, a negative one for none. It panics without s.
func cacheOf[V any](
	c weir.Counter, s weir.Strategy, size int, skew time.Duration, now func() time.Time,
	ended func(*V, time.Time) bool,
) cache[V] {
	if s == nil {
		panic("near: no strategy")
	}
	if now == nil {
		now = time.Now
	}
	counter := weir.CounterOf(s)
	about := counter.About().By(c)
	about.Verbs |= weir.VerbsOf(weir.OpLookup, weir.OpForget)
	return cache[V]{counter, about, callers.New(size, nil, ended), max(0, cmp.Or(skew, DefaultSkew)),
		now}
}

// About implements weir.Counter.
func (c *cache[V]) About() *weir.About { return c.about }

// pass has the wrapped Counter do an op.
func (c *cache[V]) pass(ctx context.Context, op *weir.Op) {
	of := op.Counter
	op.Counter = c.counter
	c.counter.Do(ctx, []*weir.Op{op})
	op.Counter = of
}

// do does the ops that are alike in every cache.
func (c *cache[V]) do(ctx context.Context, op *weir.Op) {
	switch op.Verb {
	case weir.OpReset:
		defer c.callers.Remove(&op.Request)
	case weir.OpResetPrefix: // other processes keep their blocks and denials, until they end
		defer c.callers.RemovePrefix(op.Key)
	case weir.OpForget, weir.OpLookup:
		op.Err = errUnknown
		if op.Verb == weir.OpForget {
			c.callers.Remove(&op.Request)
			op.Err = nil
		}
		if !c.counter.About().Verbs.Has(op.Verb) {
			return
		}
	}
	c.pass(ctx, op)
}

// errUnknown is the error of an OpLookup that takes a round trip.
var errUnknown = fmt.Errorf("near: nothing is known of the caller: %w", errors.ErrUnsupported)

// find calls f with what is known of r's caller, with a lock held, if there is something.
func (c *cache[V]) find(r *weir.Request, f func(known *V, now time.Time)) {
	now := c.now()
	c.callers.Find(r, now, func(known *V) { f(known, now) })
}

// cost returns r.Cost, of which 0 means 1.
func cost(r *weir.Request) uint64 { return max(1, r.Cost) }

// less returns a Result that counts n less.
func less(res *weir.Result, n uint64) *weir.Result {
	own := *res
	own.TotalRequests -= min(own.TotalRequests, n)
	return &own
}
