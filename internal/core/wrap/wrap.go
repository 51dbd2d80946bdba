// Package wrap is shared by the strategies that wrap others.
package wrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/arith"
	"github.com/weirgo/weir/limits"
)

// Strategy is a wrapped strategy with every optional interface. Calls of an interface that the
// strategy lacks fail with [errors.ErrUnsupported]. A decision is nil if and only if there is an
// error.
type Strategy struct {
	weir.Strategy
	weir.Admitter
	weir.Peeker
	weir.Refunder
	weir.Resetter
	weir.PrefixResetter
	weir.Seeder
	weir.Charger
	weir.Reconciler
	weir.Forecaster
	weir.Holder
	Warmer
	Cache
}

// Warmer is fallback.Warmer.
type Warmer interface {
	Warm(ctx context.Context, r *weir.Request) error
}

// Cache is a strategy that decides on some requests without a round trip, such as those of package
// near.
type Cache interface {
	// Lookup returns the decision on r if it takes no round trip, or nil.
	Lookup(r *weir.Request) *weir.Result

	// Forget removes the cached state of r.Key in r.Duration.
	Forget(r *weir.Request)
}

// Of returns s with every optional interface. Those of a [weir.Limit] are its strategy's.
func Of(s weir.Strategy) Strategy {
	if m, ok := s.(*weir.Limit); ok {
		s = m.Unwrap()
	}
	n := absent{s}
	return Strategy{
		s, or[weir.Admitter](s, n), or[weir.Peeker](s, n), or[weir.Refunder](s, n),
		or[weir.Resetter](s, n), or[weir.PrefixResetter](s, n), or[weir.Seeder](s, n),
		or[weir.Charger](s, n),
		or[weir.Reconciler](s, n), or[weir.Forecaster](s, n), or[weir.Holder](s, n), or[Warmer](s, n),
		or[Cache](s, n),
	}
}

// or returns s as a T, or else none.
func or[T any](s weir.Strategy, none T) T {
	if t, ok := s.(T); ok {
		return t
	}
	return none
}

// Unwrap returns the strategy itself.
func (s *Strategy) Unwrap() weir.Strategy { return s.Strategy }

// Prompt is that of the strategy; see fallback.Prompt.
func (s *Strategy) Prompt() bool { return Prompt(s.Strategy) }

// Run implements weir.Strategy.
func (s *Strategy) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return s.Decided(s.Strategy.Run(ctx, r))
}

// Admit implements weir.Admitter.
func (s *Strategy) Admit(ctx context.Context, r *weir.Request) (*weir.Result, weir.Return, error) {
	res, giveBack, err := s.Admitter.Admit(ctx, r)
	res, err = s.Decided(res, err)
	return res, giveBack, err
}

// Returning returns a Return of an admission, if res is one, by refund.
func Returning(
	r *weir.Request, res *weir.Result, refund func(context.Context, *weir.Request, *weir.Result) error,
) weir.Return {
	whole, taken, cost := *r, *res, uint64(0)
	if res.Allowed() {
		cost = Cost(r)
	}
	return arith.Parts(cost, func(ctx context.Context, n, _ uint64) error {
		part := whole
		part.Cost = n
		return refund(ctx, &part, &taken)
	})
}

// Do calls the method op of s: Run or Peek with r, Refund of r with its Result taken, or Charge.
func Do(ctx context.Context, op limits.Op, s interface {
	weir.Strategy
	weir.Peeker
	weir.Refunder
	weir.Charger
}, r *weir.Request, taken *weir.Result,
) (*weir.Result, error) {
	switch op {
	case limits.OpPeek:
		return s.Peek(ctx, r)
	case limits.OpRefund:
		return nil, s.Refund(ctx, r, taken)
	case limits.OpCharge:
		return nil, s.Charge(ctx, r)
	}
	return s.Run(ctx, r)
}

// Do calls the method op.
func (s *Strategy) Do(
	ctx context.Context, op limits.Op, r *weir.Request, taken *weir.Result,
) (*weir.Result, error) {
	return Do(ctx, op, s, r, taken)
}

// Peek implements weir.Peeker.
func (s *Strategy) Peek(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return s.Decided(s.Peeker.Peek(ctx, r))
}

// Reconcile implements weir.Reconciler.
func (s *Strategy) Reconcile(
	ctx context.Context, r *weir.Request, b *weir.Backlog,
) (*weir.Result, error) {
	return s.Decided(s.Reconciler.Reconcile(ctx, r, b))
}

// Decided returns either res or err, or an error if the strategy returned neither.
func (s *Strategy) Decided(res *weir.Result, err error) (*weir.Result, error) {
	switch {
	case err != nil:
		return nil, err
	case res == nil:
		return nil, fmt.Errorf("weir: %s returned neither a Result nor an error", weir.NameOf(s.Strategy))
	}
	return res, nil
}

// absent stands for the interfaces that a strategy lacks.
type absent struct{ s weir.Strategy }

func (a absent) err(what string) error {
	return fmt.Errorf("weir: %s cannot %s: %w", weir.NameOf(a.s), what, errors.ErrUnsupported)
}

func (a absent) Peek(context.Context, *weir.Request) (*weir.Result, error) {
	return nil, a.err("peek")
}
func (a absent) Reset(context.Context, *weir.Request) error { return a.err("reset") }
func (a absent) Charge(context.Context, *weir.Request) error {
	return a.err("charge")
}
func (a absent) Warm(context.Context, *weir.Request) error {
	return a.err("warm up")
}
func (a absent) Refund(context.Context, *weir.Request, *weir.Result) error {
	return a.err("refund")
}
func (a absent) Seed(context.Context, *weir.Request, *weir.Result) error { return a.err("seed") }

func (a absent) ResetPrefix(context.Context, string, func(seen, reset int)) (int, error) {
	return 0, a.err("reset a prefix")
}

func (a absent) Admit(context.Context, *weir.Request) (*weir.Result, weir.Return, error) {
	return nil, nil, a.err("admit")
}

func (a absent) Acquire(context.Context, *weir.Request) (*weir.Result, weir.Place, error) {
	return nil, nil, a.err("hold")
}

func (a absent) Reconcile(context.Context, *weir.Request, *weir.Backlog) (*weir.Result, error) {
	return nil, a.err("reconcile")
}

func (a absent) Forecast(context.Context, *weir.Request, *weir.Result) (time.Time, error) {
	return time.Time{}, a.err("forecast")
}

func (absent) Lookup(*weir.Request) *weir.Result { return nil }
func (absent) Forget(*weir.Request)              {}

// OwnLimits reports whether s, or a strategy it wraps, is known to ignore the Limit and Duration of
// requests.
func OwnLimits(s weir.Strategy) bool {
	_, tiers := weir.As[interface {
		RunTier(ctx context.Context, r *weir.Request) (*weir.Result, weir.Tier, error)
	}](s)
	bound, ok := weir.As[interface{ Bound() bool }](s)
	return tiers || ok && bound.Bound()
}

// Prompt reports whether the calls of s are known to end with the deadline of their context; see
// fallback.Prompt.
func Prompt(s weir.Strategy) bool {
	p, ok := s.(interface{ Prompt() bool })
	return ok && p.Prompt()
}

// Longest returns the longest tier of s, or of what it wraps, as far as that is known: for so long
// an admission may count, whatever its ExpiresAt.
func Longest(s weir.Strategy) time.Duration {
	if t, ok := weir.As[interface{ Longest() time.Duration }](s); ok {
		return t.Longest()
	}
	return 0
}

// Window returns about how long the windows of s, or of what it wraps, are, if that is a Calendar
// of weir or redislimit, which ignores the Duration of requests, or else 0.
func Window(s weir.Strategy) time.Duration {
	if c, ok := weir.As[interface{ Window() time.Duration }](s); ok {
		return c.Window()
	}
	return 0
}

// Key returns the key under which s, or what it wraps, counts a request for key, as far as that is
// known.
func Key(s weir.Strategy, key string) string {
	switch s := s.(type) {
	case interface {
		weir.Wrapper
		CountedKey(key string) string
	}:
		return Key(s.Unwrap(), s.CountedKey(key))
	case weir.Wrapper:
		return Key(s.Unwrap(), key)
	}
	return key
}

// Lasts reports whether a request on s is to be Lasting where it is counted.
func Lasts(s weir.Strategy) bool {
	l, ok := weir.As[interface{ Lasts() bool }](s)
	return ok && l.Lasts()
}

// Burst returns the size of the buckets of s, or of what it wraps; 0 means the request's Limit.
func Burst(s weir.Strategy) uint64 {
	if b, ok := weir.As[interface{ Burst() uint64 }](s); ok {
		return b.Burst()
	}
	return 0
}

// Supported returns err, or nil if err is errors.ErrUnsupported.
func Supported(err error) error {
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// Cost returns r.Cost, of which 0 means 1.
func Cost(r *weir.Request) uint64 { return max(1, r.Cost) }

// Instances returns the number of instances: that of count, unless that is nil or returns less than
// 1, and else n, at least 1.
func Instances(n int, count func() int) int {
	if count != nil {
		n = cmp.Or(max(0, count()), n)
	}
	return max(1, n)
}
