// Package budget is the arithmetic of cost that was admitted ahead of the requests for it. It
// neither calls anything nor reads a clock.
package budget

import (
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/arith"
)

// Budget is what can be spent of the blocks that a strategy has admitted for one key, and what is
// known of its count. The zero Budget is nothing. It is not safe for concurrent use.
type Budget struct {
	left    Cost      // what was admitted ahead, and can still be used
	known   Cost      // what the strategy counts, with what is left
	expires time.Time // the ExpiresAt of the last block
}

// Cost lapses at an instant or, if it is of a token bucket, one hit after the other until then.
type Cost struct {
	N     uint64
	Until time.Time
	Each  time.Duration // between two hits of a token bucket, else 0
}

func (c *Cost) at(now time.Time) uint64 {
	switch left := c.Until.Sub(now); {
	case left <= 0:
		return 0
	case c.Each > 0:
		return min(c.N, uint64(left/c.Each))
	}
	return c.N
}

func (c *Cost) add(n uint64) { c.N, c.Until = c.N+min(n, ^c.N), c.Until.Add(span(n, c.Each)) }
func (c *Cost) sub(n uint64) { c.N, c.Until = c.N-min(n, c.N), c.Until.Add(-span(n, c.Each)) }

// span returns n times each.
func span(n uint64, each time.Duration) time.Duration {
	return time.Duration(arith.Mul(n, int64(each)))
}

// Left returns how much is left at now.
func (b *Budget) Left(now time.Time) uint64 { return b.left.at(now) }

// Spent returns how much is counted at now without what is left.
func (b *Budget) Spent(now time.Time) uint64 {
	counted := b.known.at(now)
	return counted - min(counted, b.left.at(now))
}

// Lacking returns how much is to be taken for n, at least 1: what is left is counted already.
func (b *Budget) Lacking(n uint64, now time.Time) uint64 {
	return max(1, n-min(n, b.left.at(now)))
}

// Ended reports whether b says no more than a new Budget.
func (b *Budget) Ended(now time.Time) bool { return b.known.at(now) == 0 }

// Paced reports whether what b knows is of a token bucket.
func (b *Budget) Paced() bool { return b.left.Each > 0 || b.known.Each > 0 }

// Learn sets what is known to the Result of a request for block, and adds the block if it was
// admitted, of which skew is to be left unused. What is left of one before lapses no later than it
// did, and is lost if it is of another window or limit.
func (b *Budget) Learn(block Cost, res *weir.Result, skew time.Duration, now time.Time) {
	counts, each := block.Until, block.Each
	switch {
	case res.Allowed():
		b.add(block, skew, now)
		b.expires = res.ExpiresAt
	case each > 0:
		counts = now.Add(span(res.TotalRequests, each))
	default:
		counts = res.ExpiresAt
	}
	// a part of a hit counts as one
	b.known = Cost{res.TotalRequests, counts.Add(max(0, each-1)), each}
}

func (b *Budget) add(block Cost, skew time.Duration, now time.Time) {
	block.Until = block.Until.Add(-skew)
	n, soonest := b.left.at(now), b.left.Until.Add(span(block.N, block.Each))
	switch {
	case block.Each != b.left.Each, block.Each == 0 && !block.Until.Equal(b.left.Until):
		n = 0
	case n > 0 && soonest.Before(block.Until):
		block.Until = soonest
	}
	block.N += n
	b.left = block
}

// Take admits n, or returns nil if too little is left. A limit lower than that of the blocks holds
// at once. At the zero time nothing has lapsed.
func (b *Budget) Take(n, limit uint64, now time.Time) *weir.Result {
	left, spent := b.left.at(now), b.Spent(now)
	if n > left || n > limit || spent > limit-n {
		return nil
	}
	b.left.N = left - n
	return &weir.Result{State: weir.Allow, TotalRequests: spent + n,
		ExpiresAt: b.expires.Add(-span(b.left.N, b.left.Each))}
}

// Charge records that the strategy has counted n more.
func (b *Budget) Charge(n uint64) { b.known.add(n) }

// GiveBack returns n of an admission to what is left, as far as no more than most is left then. It
// returns how much the strategy is to take back: only what does not stay here.
func (b *Budget) GiveBack(taken *weir.Result, n, most uint64, now time.Time) uint64 {
	if b.known.Each == 0 && !taken.ExpiresAt.Equal(b.expires) || !taken.ExpiresAt.After(now) {
		return n // of another window
	}
	n = min(n, b.Spent(now))
	left, full := b.left.at(now), Cost{most, b.left.Until, b.left.Each}
	back := min(n, full.at(now)-min(left, full.at(now)))
	b.left.N = left + back
	b.known.sub(n - back)
	return n - back
}
