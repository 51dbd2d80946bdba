package near

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
)

// DefaultDenials is the default of DenialsConfig.Size.
const DefaultDenials = 1 << 14

// DenialsConfig bounds [Denials]. The zero value of a field is its default.
type DenialsConfig struct {
	// Size is how many denials are kept, each of one key in one Duration; about 250 bytes each. When
	// there are too many, one that was not repeated for long goes. Default DefaultDenials.
	Size int

	// Skew is how far off the wrapped strategy's instants may be by Now, on Redis up to a round trip:
	// a denial ends that much before the instant it states. Default DefaultSkew; negative: not at all.
	Skew time.Duration

	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Denials is a Strategy that repeats denials. Make one with [NewDenials]. It is safe for
// concurrent use.
type Denials struct {
	cache[denial]
	repeated atomic.Uint64
}

// denial is immutable.
type denial struct {
	limit, cost uint64
	res         weir.Result
}

// NewDenials returns a Strategy that repeats each denial of s, until the instant it states, to the
// same request: the same key, Duration, Limit and Cost; its TotalRequests is as of the decision. An
// attack on a full window then costs s nothing. It never denies a request that s would admit,
// except after a Refund, a Reset or a request at a higher Limit of a token bucket by another
// process, of which it does not know, and after s lost its counts. So it is not for InFlight, where
// a release may come long before that instant. A flood of keys evicts denials, which costs one
// decision of s each. It panics without s, and with a negative Size.
func NewDenials(s weir.Strategy, cfg DenialsConfig) *Denials {
	if cfg.Size < 0 {
		panic("near: Denials with a negative number")
	}
	d := new(Denials)
	d.cache = cacheOf[denial](d, s, cmp.Or(cfg.Size, DefaultDenials), cfg.Skew, cfg.Now, nil)
	return d
}

// Repeated returns how many denials were repeated.
func (d *Denials) Repeated() uint64 { return d.repeated.Load() }

// Limit returns the limit of n in d by d's strategy. It panics where [weir.NewLimit] fails.
func (d *Denials) Limit(n uint64, per time.Duration) *weir.Limit {
	return weir.MustLimit(d, n, per)
}

// Run implements weir.Strategy.
func (d *Denials) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	if res := d.known(r); res != nil {
		return res, nil
	}
	return weir.Run(ctx, d, r)
}

// Do implements weir.Counter.
func (d *Denials) Do(ctx context.Context, ops []*weir.Op) {
	for _, op := range ops {
		d.one(ctx, op)
	}
}

func (d *Denials) one(ctx context.Context, op *weir.Op) {
	removals := uint64(0)
	switch op.Verb {
	case weir.OpTake, weir.OpPeek, weir.OpLookup:
		if op.Backlog != nil {
			defer d.callers.Remove(&op.Request)
			break
		}
		if res := d.known(&op.Request); res != nil {
			op.Result, op.Source, op.Err = *res, weir.FromDenials, nil
			op.Receipt, op.Left = weir.Receipt{Of: d}, 0
			return
		}
		removals = d.callers.Removals(&op.Request)
	case weir.OpCatchUp:
		if op.Backlog.Reset {
			defer d.callers.Remove(&op.Request)
		}
	case weir.OpReturn:
		if op.Receipt.Of == any(d) { // of a denial
			op.Err = nil
			return
		}
		defer d.callers.Remove(&op.Request)
	}
	d.do(ctx, op)
	if op.Verb == weir.OpTake && op.Backlog == nil && op.Err == nil {
		d.learn(&op.Request, &op.Result, removals)
	}
}

// learn stores res, if it is a denial, in place of an earlier one, which is out of date, as it is
// after an admission. So is res if there were removals since its call began.
func (d *Denials) learn(r *weir.Request, res *weir.Result, removals uint64) {
	now := d.now()
	d.callers.Update(r, now, func(*denial) *denial {
		if res.Allowed() || res.ExpiresAt.Sub(now) <= d.skew || d.callers.Removals(r) != removals {
			return nil
		}
		return &denial{r.Limit, cost(r), *res}
	})
}

// known returns the denial that holds for r, or nil.
func (d *Denials) known(r *weir.Request) (res *weir.Result) {
	d.find(r, func(kept *denial, now time.Time) {
		if kept.limit == r.Limit && kept.cost == cost(r) && kept.res.ExpiresAt.Sub(now) > d.skew {
			res = less(&kept.res, 0)
			d.repeated.Add(1)
		}
	})
	return res
}
