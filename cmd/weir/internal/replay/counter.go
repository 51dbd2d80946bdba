package replay

import (
	"math"
	"math/bits"

	"github.com/weirgo/weir/internal/arith"
)

// The state of one caller under the strategies that need no more than a few numbers. weir's own
// strategies keep the same in their tables; here a caller has a number, which is its place, and a
// decision takes a tenth of the time. TestJudgesSayWhatWeirSays holds each to the original.

// window counts the requests in a fixed window.
type window struct {
	number int64 // of the window: since the Unix epoch
	n      uint64
}

// slide counts the requests in a window and in the one before it.
type slide struct {
	window
	prev uint64
}

// noWindow is the number of the window of a caller who was not met.
const noWindow = math.MinInt64

// at goes to the window that ns is in.
func (w *window) at(ns, length int64) {
	if number, _ := arith.FloorDiv(ns, length); number != w.number {
		w.number, w.n = number, 0
	}
}

// at goes to the window that ns is in and returns the estimate of the requests in the last length:
// those of the window before, weighted by the part of it that is still covered, to the millisecond
// and rounded up, and those of the window.
func (s *slide) at(ns, length int64) uint64 {
	number, into := arith.FloorDiv(ns, length)
	switch number {
	case s.number:
	case s.number + 1:
		s.number, s.prev, s.n = number, s.n, 0
	default:
		s.number, s.prev, s.n = number, 0, 0
	}
	if s.prev == 0 {
		return s.n
	}
	scale := uint64(length / 1e6)
	hi, lo := bits.Mul64(s.prev, scale-uint64(into/1e6))
	weighted, rest := bits.Div64(hi, lo, scale)
	if rest > 0 {
		weighted++
	}
	return weighted + s.n
}

// bucket is a token bucket or a leaky one: the instant at which it is full again, or empty.
type bucket struct{ full int64 }

// noBucket is the bucket of a caller who was not met.
const noBucket = math.MinInt64

// used returns how many tokens are missing at ns, rounded up.
func (b *bucket) used(ns, interval int64) uint64 {
	missing := max(b.full, ns) - ns
	if missing == 0 {
		return 0
	}
	return uint64(missing-1)/uint64(interval) + 1
}

// take takes a token at ns.
func (b *bucket) take(ns, interval int64) {
	if b.full = max(b.full, ns); b.full > math.MaxInt64-interval {
		b.full = math.MaxInt64
		return
	}
	b.full += interval
}

// interval returns the time between two tokens, in nanoseconds.
func interval(limit uint64, length int64) int64 { return (length-1)/int64(max(limit, 1)) + 1 }
