package algorithm

import (
	"cmp"

	"github.com/weirgo/weir/internal/core/arith"
)

// LeakyBucket is a leaky bucket as a queue: requests leave one after another, Each apart for each
// cost. With another spacing the cost that is in the bucket stays, as in a TokenBucket.
type LeakyBucket struct {
	Next    int64 // the instant at which the first in line may leave; Never before the first
	Waiting int64 // the cost of those in line
	Each    int64 // ns; 0 before the first, or of an older snapshot: that of the next request
}

// Spaced returns the bucket as a request with the spacing each finds it at now: what left and has
// yet to leak does so at that spacing, and those in line leave at it.
func (b LeakyBucket) Spaced(each, now int64) LeakyBucket {
	if each == 0 || each == b.Each {
		return b
	}
	if b.Each > 0 && b.Next > now { // the difference may overflow an int64
		b.Next = arith.Add(now, mulDiv(uint64(b.Next-now), each, b.Each, b.Each-1))
	}
	b.Each = each
	return b
}

// Start returns the instant at which the first in line, or a new one, may leave.
func (b LeakyBucket) Start(now int64) int64 { return max(b.Next, now) }

// Free reports whether a request leaves at once.
func (b LeakyBucket) Free(now int64) bool { return b.Waiting == 0 && b.Next <= now }

// Interval returns how long a request of this cost keeps the next one waiting.
func (b LeakyBucket) Interval(cost int64) int64 { return arith.Mul(uint64(cost), b.Each) }

// Empty returns when the queue will be empty if nothing more comes.
func (b LeakyBucket) Empty(now int64) int64 {
	return arith.Add(b.Start(now), b.Interval(b.Waiting))
}

// Level returns how much cost is in the bucket: what waits, or left less than its interval ago.
func (b LeakyBucket) Level(now int64) int64 {
	return arith.Add(b.Waiting, Missing(b.Next, now, b.Each))
}

// Decide returns the verdict on p, whose spacing b has, at now: there is room in the line, or will
// be at freeAt.
func (b LeakyBucket) Decide(p Params, now int64, room bool, freeAt int64) Verdict {
	level := b.Level(now)
	switch {
	case p.ExceedsLimit():
		return Verdict{Total: level, At: Never}
	case b.Free(now) || room:
		return Verdict{Allowed: true, Total: arith.Add(level, p.Cost),
			At: arith.Add(b.Empty(now), b.Interval(p.Cost))}
	}
	return Verdict{Total: level, At: freeAt}
}

// Leave returns the bucket after one of this cost has left at now.
func (b LeakyBucket) Leave(now, cost int64) LeakyBucket {
	b.Next = arith.Add(b.Start(now), b.Interval(cost))
	return b
}

// Refund moves those in line up, by no more than has yet to leak of what was to be gone at expires,
// at the spacing of p.
func (b LeakyBucket) Refund(p Params, now, expires int64) LeakyBucket {
	back := yetToCome(p, now, expires)
	if b.Each > 0 && b.Each != p.Each {
		back = mulDiv(uint64(back), b.Each, p.Each, 0)
	}
	b.Next = giveBack(b.Next, now, back)
	return b
}

// Raise makes the first in line wait for a bucket that holds total at the spacing of p, which b
// has.
func (b LeakyBucket) Raise(now, total int64) LeakyBucket {
	b.Next = max(b.Next, arith.Add(now, b.Interval(total)))
	return b
}

// Merge leaves the later of two arrival times, at the spacing of b if that is known.
func (b LeakyBucket) Merge(saved LeakyBucket, now int64) LeakyBucket {
	each := cmp.Or(b.Each, saved.Each)
	b, saved = b.Spaced(each, now), saved.Spaced(each, now)
	b.Next = max(b.Next, saved.Next)
	return b
}
