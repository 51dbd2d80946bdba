package fallback

import (
	"math"
	"math/bits"
	"sync/atomic"

	"github.com/weirgo/weir"
)

// sum is a sum of costs, which may exceed a cost's range. The zero sum is empty.
type sum struct{ high, low uint64 }

func (s *sum) add(cost uint64) {
	var carry uint64
	s.low, carry = bits.Add64(s.low, cost, 0)
	s.high += carry
}

// sub subtracts a cost that was added.
func (s *sum) sub(cost uint64) {
	var borrow uint64
	s.low, borrow = bits.Sub64(s.low, cost, 0)
	s.high -= borrow
}

// cost returns the sum, at most the largest cost.
func (s *sum) cost() uint64 {
	if s.exceeds() {
		return math.MaxUint64
	}
	return s.low
}

// exceeds reports whether the sum is over the largest cost, and so over every limit.
func (s *sum) exceeds() bool { return s.high > 0 }

// costOf returns r.Cost, of which 0 means 1.
func costOf(r *weir.Request) uint64 { return max(1, r.Cost) }

// plus returns the sum of two costs, at most the largest cost.
func plus(a, b uint64) uint64 { return a + min(b, math.MaxUint64-a) }

// tally is a sum of costs that ends at the largest cost. A tally is safe for concurrent use.
type tally struct{ n atomic.Uint64 }

func (t *tally) Add(cost uint64) {
	for old := t.n.Load(); !t.n.CompareAndSwap(old, plus(old, cost)); {
		old = t.n.Load()
	}
}

func (t *tally) Load() uint64 { return t.n.Load() }
