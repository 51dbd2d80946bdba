package weir

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"
)

// turn is when a Limit decides.
type turn uint8

const (
	elsewhere turn = iota // first: by another process, or a Strategy that is not known
	inProcess             // in a Limiter of this process
	last                  // it cannot give back
)

// abilities is a Strategy with what is known of it. It is immutable.
type abilities struct {
	strategy Strategy

	// The optional interfaces; nil if Strategy has none.
	local    local
	peeker   Peeker
	refunder Refunder
	admitter Admitter
	charger  Charger
	batcher  Batcher

	store any // of batcher
	turn  turn
	burst uint64 // of a token bucket
}

// local is implemented by the strategies of this package.
type local interface {
	// run is Run, and look is Peek, that set res, and return how long it holds. After an error res is
	// undefined. If at is not noSight, the look is part of a decision; if it is not finalLook either,
	// a look that admits may set it instead of res, for a run that follows at once.
	run(r *Request, res *Result, at *sight) (left time.Duration, err error)
	look(r *Request, res *Result, at *sight) (left time.Duration, err error)

	// itself returns the Strategy: a type that embeds it, and may have another Run, inherits these.
	itself() Strategy
}

// abilitiesOf looks the optional interfaces of s up.
func abilitiesOf(s Strategy) abilities {
	b := abilities{strategy: s}
	if own, ok := s.(local); ok && own.itself() == s {
		b.local = own
	}
	inner := b.inspect(s)
	b.peeker = both[Peeker](s, inner)
	b.refunder = both[Refunder](s, inner)
	b.admitter = both[Admitter](s, inner)
	b.charger = both[Charger](s, inner)
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
func both[T any](s, inner Strategy) (t T) {
	if _, ok := inner.(T); ok {
		t, _ = s.(T)
	}
	return t
}

// inspect sets turn and burst, which may be those of a wrapped Strategy, and returns the innermost.
// One walk takes less time than an As for each, which [Decide] would pay for each Strategy.
func (b *abilities) inspect(s Strategy) (inner Strategy) {
	if _, ok := s.(inLimiter); ok {
		b.turn = inProcess
	}
	if of, ok := s.(sized); ok {
		b.burst = cmp.Or(b.burst, of.Burst())
	}
	if w, ok := s.(Wrapper); ok {
		return b.inspect(w.Unwrap())
	}
	return s
}

func (b *abilities) name() string { return NameOf(b.strategy) }

func (b *abilities) unsupported(what string) error {
	return fmt.Errorf("weir: %s cannot %s: %w", b.name(), what, errors.ErrUnsupported)
}

// NameOf returns the plain name of s, such as "sliding window": that of a [Named] Strategy, or of
// the one that s wraps, or what String returns. The name of any other is its type.
func NameOf(s Strategy) string {
	switch s := s.(type) {
	case Named:
		return s.Algorithm()
	case Wrapper:
		return NameOf(s.Unwrap())
	case fmt.Stringer:
		return s.String()
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", s), "*")
}
