package near

import (
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/arith"
	"github.com/weirgo/weir/internal/wrap"
)

// budget is what a key can spend without a call. The table's lock guards it.
type budget struct {
	left    cost      // what was admitted for the lease, and can still be used
	known   cost      // what the wrapped strategy counts, with what is left
	expires time.Time // the ExpiresAt of the last block
	flight  *flight   // nil if there is none
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

// spent returns how much is counted at now without what is left.
func (b *budget) spent(now time.Time) uint64 {
	counted := b.known.at(now)
	return counted - min(counted, b.left.at(now))
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

// lease adds the block that c took. What is left of one before lapses no later than it did, and is
// lost if it is of another window or limit.
func (b *budget) lease(c *call, expires time.Time, skew time.Duration, now time.Time) {
	n, until := b.left.at(now), c.until.Add(-skew)
	switch {
	case c.each != b.left.each, c.each == 0 && !until.Equal(b.left.until):
		n = 0
	case n > 0 && c.each > 0:
		if soonest := b.left.until.Add(span(c.request.Cost, c.each)); soonest.Before(until) {
			until = soonest
		}
	}
	b.left, b.expires = cost{n + c.request.Cost, until, c.each}, expires
}

// take admits r, or returns nil if too little is left. A limit lower than that of the blocks holds
// at once.
func (b *budget) take(r *weir.Request, limit uint64, now time.Time) *weir.Result {
	n, left, spent := wrap.Cost(r), b.left.at(now), b.spent(now)
	if n > left || n > limit || spent > limit-n {
		return nil
	}
	b.left.n = left - n
	return &weir.Result{State: weir.Allow, TotalRequests: spent + n,
		ExpiresAt: b.expires.Add(-span(b.left.n, b.left.each))}
}

// giveBack returns n of an admission to what is left, as far as no more than most is left then. It
// returns how much the wrapped strategy is to take back: never what it counts for the lease.
func (b *budget) giveBack(taken *weir.Result, n, most uint64, now time.Time) uint64 {
	if b.known.each == 0 && !taken.ExpiresAt.Equal(b.expires) || !taken.ExpiresAt.After(now) {
		return n // of another window
	}
	n = min(n, b.spent(now))
	left, full := b.left.at(now), cost{most, b.left.until, b.left.each}
	back := min(n, full.at(now)-min(left, full.at(now)))
	b.left.n = left + back
	b.known.sub(n - back)
	return n - back
}

// less returns a Result that counts n less.
func less(res *weir.Result, n uint64) *weir.Result {
	own := *res
	own.TotalRequests -= min(own.TotalRequests, n)
	return &own
}
