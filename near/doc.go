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

// passthrough forwards the optional interfaces that a wrapper need not change.
type passthrough struct{ inner weir.Strategy }

// Unwrap returns the wrapped strategy.
func (p passthrough) Unwrap() weir.Strategy { return p.inner }

// Charge implements weir.Charger.
func (p passthrough) Charge(ctx context.Context, r *weir.Request) error {
	s, ok := p.inner.(weir.Charger)
	if !ok {
		return p.unsupported("charge")
	}
	return s.Charge(ctx, r)
}

// Warm prepares the wrapped strategy for decisions on r's key, if it has a method Warm: it connects, however long that
// takes. See fallback.Warmer.
func (p passthrough) Warm(ctx context.Context, r *weir.Request) error {
	s, ok := p.inner.(interface {
		Warm(ctx context.Context, r *weir.Request) error
	})
	if !ok {
		return p.unsupported("warm up")
	}
	return s.Warm(ctx, r)
}

// Source says where a decision without a round trip comes from.
type Source int

// The sources of decisions.
const (
	Nowhere Source = iota // there is none
	FromLease
	FromDenials
)

// lookup asks the wrapped strategy, if it answers without a round trip too.
func (p passthrough) lookup(r *weir.Request) (*weir.Result, Source) {
	if s, ok := p.inner.(interface {
		Lookup(r *weir.Request) (*weir.Result, Source)
	}); ok {
		return s.Lookup(r)
	}
	return nil, Nowhere
}

// forget drops what the wrapped strategy keeps here of r's key.
func (p passthrough) forget(r *weir.Request) {
	if s, ok := p.inner.(interface{ Forget(r *weir.Request) }); ok {
		s.Forget(r)
	}
}

func (p passthrough) peek(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	s, ok := p.inner.(weir.Peeker)
	if !ok {
		return nil, p.unsupported("peek")
	}
	return s.Peek(ctx, r)
}

func (p passthrough) refund(ctx context.Context, r *weir.Request, taken *weir.Result) error {
	s, ok := p.inner.(weir.Refunder)
	if !ok {
		return p.unsupported("refund")
	}
	return s.Refund(ctx, r, taken)
}

func (p passthrough) reset(ctx context.Context, r *weir.Request) error {
	s, ok := p.inner.(weir.Resetter)
	if !ok {
		return p.unsupported("reset")
	}
	return s.Reset(ctx, r)
}

func (p passthrough) seed(ctx context.Context, r *weir.Request, counted *weir.Result) error {
	s, ok := p.inner.(weir.Seeder)
	if !ok {
		return p.unsupported("seed")
	}
	return s.Seed(ctx, r, counted)
}

func (p passthrough) reconcile(ctx context.Context, r *weir.Request, b *weir.Backlog) (*weir.Result, error) {
	s, ok := p.inner.(weir.Reconciler)
	if !ok {
		return nil, p.unsupported("reconcile")
	}
	return s.Reconcile(ctx, r, b)
}

func (p passthrough) unsupported(what string) error {
	return fmt.Errorf("near: %T cannot %s: %w", p.inner, what, errors.ErrUnsupported)
}

// skewOf returns a skew with its default: 0 stands for DefaultSkew, a negative one for none.
func skewOf(d time.Duration) time.Duration {
	if d == 0 {
		return DefaultSkew
	}
	return max(0, d)
}

// cost returns r.Cost, of which 0 means 1.
func cost(r *weir.Request) uint64 { return max(1, r.Cost) }

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
