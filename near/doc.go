// Package near puts strategies in front of a remote one, so that most decisions cost no round trip.
//
//   - [Lease] takes budget from the remote strategy in blocks and admits from them.
//   - [Denials] repeats a denial until the instant it states.
//
// Each wraps any weir.Strategy and is one itself, with every optional interface; a call that the wrapped strategy has no
// counterpart of fails with errors.ErrUnsupported. They compose, with each other and with package fallback:
//
//	primary := near.Lease(near.Denials(store.FixedWindow(), near.DenialsConfig{}), near.LeaseConfig{Block: 50})
//	f, err := fallback.New(primary, limiter.FixedWindow(), fallback.Config{Instances: 3})
//
// # Where to put them
//
// Inside of a fallback, as above, leases and denials are of the primary alone. They are used up or repeated during an
// outage too, before local decides, and they are no evidence of the primary's health: the breaker judges round trips
// only. This is the recommended order.
//
// Around a fallback, Lease takes blocks from whichever strategy decides. Each is counted as a whole, so during an
// outage local admits a block at once and charges it as a whole. Denials around a fallback repeats local's denials for up
// to a Duration after the primary is back, although there may be room again: more is denied than need be.
//
// Lease belongs outside of Denials: then a denial of a block is cached for that block's cost only, and a smaller request
// is still asked for.
package near

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirgo/weir"
)

// DefaultSkew is how far the clocks of this process and of the wrapped strategy may differ by default.
const DefaultSkew = 10 * time.Millisecond

// maxKey is the longest key of a weir.Request, in bytes.
const maxKey = 1024

// inner is a wrapped strategy with every optional interface.
type inner struct {
	weir.Strategy
	weir.Peeker
	weir.Refunder
	weir.Resetter
	weir.Seeder
	weir.Charger
	weir.Reconciler
	warmer
	looker
}

// warmer is fallback.Warmer.
type warmer interface {
	Warm(ctx context.Context, r *weir.Request) error
}

// looker is a strategy of this package.
type looker interface {
	Lookup(r *weir.Request) (*weir.Result, Source)
	Forget(r *weir.Request)
}

// Source says where a decision without a round trip comes from.
type Source int

// The sources of decisions.
const (
	Nowhere Source = iota // there is none
	FromLease
	FromDenials
)

func wrap(s weir.Strategy) inner {
	n := absent{s}
	return inner{
		s, or[weir.Peeker](s, n), or[weir.Refunder](s, n), or[weir.Resetter](s, n), or[weir.Seeder](s, n),
		or[weir.Charger](s, n), or[weir.Reconciler](s, n), or[warmer](s, n), or[looker](s, n),
	}
}

// or returns s as a T, or else none.
func or[T any](s weir.Strategy, none T) T {
	if t, ok := s.(T); ok {
		return t
	}
	return none
}

// Unwrap returns the wrapped strategy.
func (i inner) Unwrap() weir.Strategy { return i.Strategy }

// absent stands for the interfaces that a strategy lacks.
type absent struct{ s weir.Strategy }

func (a absent) err(what string) error {
	return fmt.Errorf("near: %T cannot %s: %w", a.s, what, errors.ErrUnsupported)
}

func (a absent) Peek(context.Context, *weir.Request) (*weir.Result, error) { return nil, a.err("peek") }
func (a absent) Reset(context.Context, *weir.Request) error                { return a.err("reset") }
func (a absent) Charge(context.Context, *weir.Request) error               { return a.err("charge") }
func (a absent) Warm(context.Context, *weir.Request) error                 { return a.err("warm up") }
func (a absent) Refund(context.Context, *weir.Request, *weir.Result) error { return a.err("refund") }
func (a absent) Seed(context.Context, *weir.Request, *weir.Result) error   { return a.err("seed") }
func (a absent) Reconcile(context.Context, *weir.Request, *weir.Backlog) (*weir.Result, error) {
	return nil, a.err("reconcile")
}
func (absent) Lookup(*weir.Request) (*weir.Result, Source) { return nil, Nowhere }
func (absent) Forget(*weir.Request)                        {}

// settings returns a skew and a clock with their defaults: 0 stands for DefaultSkew, a negative skew for none.
func settings(skew time.Duration, now func() time.Time) (time.Duration, func() time.Time) {
	if now == nil {
		now = time.Now
	}
	return max(0, cmp.Or(skew, DefaultSkew)), now
}

// cost returns r.Cost, of which 0 means 1.
func cost(r *weir.Request) uint64 { return max(1, r.Cost) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
