package near

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/wrap"
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
	size := cmp.Or(cfg.Size, DefaultDenials)
	return &Denials{cache: cacheOf[denial](s, size, cfg.Skew, cfg.Now, nil)}
}

// Repeated returns how many denials were repeated.
func (d *Denials) Repeated() uint64 { return d.repeated.Load() }

// Run implements weir.Strategy.
func (d *Denials) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	if res := d.known(r); res != nil {
		return res, nil
	}
	removals := d.callers.Removals(r)
	res, err := d.Strategy.Run(ctx, r)
	d.learn(r, res, removals)
	return res, err
}

// Admit implements weir.Admitter.
func (d *Denials) Admit(
	ctx context.Context, r *weir.Request,
) (*weir.Result, weir.Return, error) {
	if res := d.known(r); res != nil {
		return res, func(context.Context, uint64) error { return nil }, nil
	}
	q, removals := *r, d.callers.Removals(r) // r is the caller's
	res, giveBack, err := d.Strategy.Admit(ctx, r)
	d.learn(r, res, removals)
	if err != nil || giveBack == nil {
		return res, nil, err
	}
	return res, func(ctx context.Context, cost uint64) error {
		defer d.callers.Remove(&q)
		return giveBack(ctx, cost)
	}, nil
}

// Reconcile implements weir.Reconciler.
func (d *Denials) Reconcile(
	ctx context.Context, r *weir.Request, b *weir.Backlog,
) (*weir.Result, error) {
	defer d.callers.Remove(r)
	return d.Strategy.Reconcile(ctx, r, b)
}

// learn stores res, if it is a denial, in place of an earlier one, which is out of date, as it is
// after an admission. So is res if there were removals since its call began. It is nil if that
// failed.
func (d *Denials) learn(r *weir.Request, res *weir.Result, removals uint64) {
	if res == nil {
		return
	}
	now := d.now()
	d.callers.Update(r, now, func(*denial) *denial {
		if res.Allowed() || res.ExpiresAt.Sub(now) <= d.skew || d.callers.Removals(r) != removals {
			return nil
		}
		return &denial{r.Limit, wrap.Cost(r), *res}
	})
}

// Lookup returns the denial that holds for r, or what the wrapped strategy decides without a round
// trip, or nil.
func (d *Denials) Lookup(r *weir.Request) *weir.Result {
	if res := d.known(r); res != nil {
		return res
	}
	return d.Strategy.Lookup(r)
}

// known returns the denial that holds for r, or nil.
func (d *Denials) known(r *weir.Request) (res *weir.Result) {
	d.find(r, func(kept *denial, now time.Time) {
		if kept.limit == r.Limit && kept.cost == wrap.Cost(r) && kept.res.ExpiresAt.Sub(now) > d.skew {
			res = less(&kept.res, 0)
			d.repeated.Add(1)
		}
	})
	return res
}

// Peek implements weir.Peeker.
func (d *Denials) Peek(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	if res := d.known(r); res != nil {
		return res, nil
	}
	return d.Strategy.Peek(ctx, r)
}

// Refund implements weir.Refunder.
func (d *Denials) Refund(ctx context.Context, r *weir.Request, taken *weir.Result) error {
	defer d.callers.Remove(r)
	return d.Strategy.Refund(ctx, r, taken)
}
