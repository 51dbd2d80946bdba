package near

import (
	"slices"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/arith"
	"github.com/weirgo/weir/internal/wrap"
)

// budget is what a key can spend without a call. The table's lock guards it.
type budget struct {
	blocks []block // oldest first
	known  cost    // what the wrapped strategy counts, the blocks included
	flight *flight // nil if there is none
}

// block is cost that was admitted for the lease. What is left of it can still be used.
type block struct {
	cost
	size    uint64
	expires time.Time // the ExpiresAt of its admission
}

// cost lapses at an instant or, if it is of a token bucket, one hit after the other until then.
type cost struct {
	n     uint64
	until time.Time
	each  time.Duration // between two hits of a token bucket, else 0
}

func (c *cost) at(now time.Time) uint64 {
	switch left := c.until.Sub(now); {
	case left <= 0:
		return 0
	case c.each > 0:
		return min(c.n, uint64(left/c.each))
	}
	return c.n
}

func (c *cost) add(n uint64) { c.n, c.until = c.n+min(n, ^c.n), c.until.Add(span(n, c.each)) }
func (c *cost) sub(n uint64) { c.n, c.until = c.n-min(n, c.n), c.until.Add(-span(n, c.each)) }

// span returns n times each.
func span(n uint64, each time.Duration) time.Duration {
	return time.Duration(arith.Mul(n, int64(each)))
}

// left returns how much can be used at now.
func (b *budget) left(now time.Time) (sum uint64) {
	for i := range b.blocks {
		sum += b.blocks[i].at(now)
	}
	return sum
}

// spent returns how much is counted at now without what is left.
func (b *budget) spent(now time.Time) uint64 {
	counted := b.known.at(now)
	return counted - min(counted, b.left(now))
}

// ended reports whether b says no more than a new budget.
func (b *budget) ended(now time.Time) bool { return b.flight == nil && b.known.at(now) == 0 }

// learn sets what is known to the answer to a call.
func (b *budget) learn(c *call, res *weir.Result, now time.Time) {
	counts := c.until
	switch {
	case res.Allowed():
	case c.each > 0:
		counts = now.Add(span(res.TotalRequests, c.each))
	default:
		counts = res.ExpiresAt
	}
	b.known = cost{res.TotalRequests, counts.Add(max(0, c.each-1)), c.each} // a part of a hit counts as one
}

// take admits r, or returns nil if too little is left. A limit lower than that of the blocks holds
// at once.
func (b *budget) take(r *weir.Request, limit uint64, now time.Time) *weir.Result {
	lacks, spent := wrap.Cost(r), b.spent(now)
	if lacks > b.left(now) || lacks > limit || spent > limit-lacks {
		return nil
	}
	res := &weir.Result{State: weir.Allow, TotalRequests: spent + lacks}
	for i := 0; lacks > 0; i++ {
		from := &b.blocks[i]
		usable := from.at(now)
		used := min(lacks, usable)
		from.n, lacks = usable-used, lacks-used
		res.ExpiresAt = from.expires.Add(-span(from.n, from.each))
	}
	return res
}

// giveBack returns n of an admission to its block, as far as no more than most is left then. It
// returns how much the wrapped strategy is to take back: never what it counts for the blocks.
func (b *budget) giveBack(taken *weir.Result, n, most uint64, now time.Time) uint64 {
	of := slices.IndexFunc(b.blocks, func(of block) bool {
		before := of.expires.Sub(taken.ExpiresAt)
		return before == 0 || 0 < before && before < span(of.size, of.each)
	})
	if of < 0 && b.known.each == 0 { // of another window
		return n
	}
	n = min(n, b.spent(now))
	if of >= 0 {
		to := &b.blocks[of]
		back := min(n, to.size-to.n, most-min(most, b.left(now)))
		to.n, n = to.n+back, n-back
	}
	b.known.sub(n)
	return n
}

// less returns a Result that counts n less.
func less(res *weir.Result, n uint64) *weir.Result {
	own := *res
	own.TotalRequests -= min(own.TotalRequests, n)
	return &own
}
