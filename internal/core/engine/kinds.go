package engine

import (
	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/slots"
	"github.com/weirgo/weir/internal/core/windows"
)

// The kinds of buckets that fit a slot. Fixed windows have a table of their own, and so have
// places.
const (
	FixedKind slots.Kind = windows.Kind + iota
	SlidingKind
	TokenKind
	CounterKind
	Kinds
	placesKind = FixedKind
)

// SlotAlgorithm is the arithmetic of a strategy whose state fits a slot: pure functions from a
// content to the next one.
type SlotAlgorithm interface {
	// Decide returns the verdict on p at now, and the content after it: after a denial c itself, but
	// of a token bucket at another rate. algorithm.None admits each cost up to the limit, so that the
	// room that was taken for it is used.
	Decide(c slots.Content, p Params, now int64) (Verdict, slots.Content)

	// Full returns when nothing counts, at the numbers of p, if nothing more is admitted: now, or
	// later.
	Full(c slots.Content, p Params, now int64) int64

	// Admit counts p.Cost at now, whether it fits or not.
	Admit(c slots.Content, p Params, now int64) slots.Content

	// Refund takes back what was admitted for p, and was to expire at the instant given.
	Refund(c slots.Content, p Params, now, expires int64) slots.Content

	// Raise raises the count at now to total, the count of another store, which expires at the instant
	// given. It never lowers it.
	Raise(c slots.Content, p Params, now, expires, total int64) slots.Content

	// Merge raises the counts of c to those of a saved content of the same key. The clock may be up to
	// ahead behind the one that saved it.
	Merge(c, saved slots.Content, scaleMs, now, ahead int64) slots.Content

	// Expires returns the instant from which a content counts nothing, if it is not used again.
	Expires(c slots.Content, scaleMs int64) int64
}

// Algorithms are the algorithms by kind. A token bucket with a burst has one of its own.
var Algorithms = [Kinds]SlotAlgorithm{
	FixedKind:   new(algorithm.FixedWindow),
	SlidingKind: new(algorithm.SlidingWindow),
	TokenKind:   new(algorithm.TokenBucket),
	CounterKind: new(algorithm.Counter),
}

// PerCost is how much of Content.N Stats counts for a cost of 1, by kind: none if N is no count.
var PerCost = [Kinds]int64{FixedKind: 1, SlidingKind: 1, TokenKind: 0, CounterKind: 1}
