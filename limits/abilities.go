package limits

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/forlimits"
)

// inside is what package weir gives to this one.
var inside = forlimits.Steps.(forlimits.Weir[weir.Strategy, weir.Request, weir.Result, weir.Limit,
	weir.Tier, weir.Place, weir.Held])

// turn is when a Limit decides.
type turn uint8

const (
	elsewhere turn = iota // first: by another process, or a Strategy that is not known
	inProcess             // in a Limiter of this process
	last                  // it cannot give back
)

// abilities is a Strategy with what is known of it. It is immutable.
type abilities struct {
	strategy weir.Strategy

	// The optional interfaces; nil if Strategy has none.
	local    forlimits.Local[weir.Request, weir.Result]
	peeker   weir.Peeker
	refunder weir.Refunder
	admitter weir.Admitter
	charger  weir.Charger
	batcher  Batcher

	store any // of batcher
	turn  turn
	burst uint64 // of a token bucket

	inFlight bool // it bounds work in flight: only Holding, or what gives back, may take of it
}

// abilitiesOf looks the optional interfaces of s up.
func abilitiesOf(s weir.Strategy) abilities {
	b := abilities{strategy: s, local: inside.LocalOf(s), inFlight: inside.InFlight(s)}
	inner := b.inspect(s)
	b.peeker = both[weir.Peeker](s, inner)
	b.refunder = both[weir.Refunder](s, inner)
	b.admitter = both[weir.Admitter](s, inner)
	b.charger = both[weir.Charger](s, inner)
	if batcher, ok := s.(Batcher); ok {
		if store, of := batcher.Store(); equal(of, s) && equal(store, store) {
			b.batcher, b.store = batcher, store
		}
	}
	if b.refunder == nil && b.admitter == nil {
		b.turn = last
	}
	return b
}

// both returns s as a T, if inner, which it wraps, is one too: a wrapper may have every method.
func both[T any](s, inner weir.Strategy) (t T) {
	if _, ok := inner.(T); ok {
		t, _ = s.(T)
	}
	return t
}

// inspect sets turn and burst, which may be those of a wrapped Strategy, and returns the innermost.
// One walk takes less time than an As for each, which [Decide] would pay for each Strategy.
func (b *abilities) inspect(s weir.Strategy) (inner weir.Strategy) {
	if _, ok := s.(interface{ Limiter() *weir.Limiter }); ok {
		b.turn = inProcess
	}
	if of, ok := s.(interface{ Burst() uint64 }); ok {
		b.burst = cmp.Or(b.burst, of.Burst())
	}
	if w, ok := s.(weir.Wrapper); ok {
		return b.inspect(w.Unwrap())
	}
	return s
}

func (b *abilities) unsupported(what string) error {
	return fmt.Errorf("limits: %s cannot %s: %w", weir.NameOf(b.strategy), what, errors.ErrUnsupported)
}

// equal reports whether a == b. Where that panics, on types that cannot be compared, it is false.
func equal(a, b any) (ok bool) {
	defer func() { _ = recover() }()
	return a == b
}
