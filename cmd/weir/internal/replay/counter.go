package replay

import (
	"math"
	"math/bits"

	"github.com/weirgo/weir/internal/arith"
)

// The types below are the state of one caller for strategies that need only a few numbers. weir's
// own strategies keep the same state in tables; here a caller's number is its index, and a decision
// takes a tenth of the time. TestJudgesSayWhatWeirSays compares each with weir's strategy.

// window counts the requests in a fixed window.
type window struct {
	number int64 // of the window, counted from the Unix epoch
	n      uint64
}

// slide counts the requests in a window and in the previous one.
type slide struct {
	window
	prev uint64
}

// noWindow is the window number of a caller without requests.
const noWindow = math.MinInt64

// at moves to the window of ns.
func (w *window) at(ns, length int64) {
	if number, _ := arith.FloorDiv(ns, length); number != w.number {
		w.number, w.n = number, 0
	}
}

// at moves to the window of ns and returns the estimated number of requests in the last length:
// those of this window plus those of the previous window, weighted by the part of it that is still
// covered, to the millisecond and rounded up.
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

// bucket is a token bucket or a leaky bucket: the instant when it is full or, for a leaky bucket,
// empty again.
type bucket struct{ full int64 }

// noBucket is the bucket of a caller without requests.
const noBucket = math.MinInt64

// used returns the number of tokens missing at ns, rounded up.
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

// interval returns the nanoseconds between two tokens.
func interval(limit uint64, length int64) int64 { return (length-1)/int64(max(limit, 1)) + 1 }
