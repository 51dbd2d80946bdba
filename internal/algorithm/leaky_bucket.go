package algorithm

import "github.com/weirgo/weir/internal/arith"

// LeakyBucket is a leaky bucket as a queue: requests leave one after another, Spacing apart.
type LeakyBucket struct {
	Next    int64 // the instant at which the first in line may leave; Never before the first
	Waiting int64 // ns: the sum of the intervals of those in line
}

// Start returns the instant at which the first in line, or a new one, may leave.
func (b LeakyBucket) Start(now int64) int64 { return max(b.Next, now) }

// Free reports whether a request leaves at once.
func (b LeakyBucket) Free(now int64) bool { return b.Waiting == 0 && b.Next <= now }

// Empty returns when the queue will be empty if nothing more comes.
func (b LeakyBucket) Empty(now int64) int64 { return arith.Add(b.Start(now), b.Waiting) }

// Level returns how much cost is in the bucket: what waits, or left less than its interval ago.
func (b LeakyBucket) Level(now, each int64) int64 { return Missing(b.Empty(now), now, each) }

// Decide returns the verdict on p at now: there is room in the line, or will be at freeAt.
func (b LeakyBucket) Decide(p Params, now int64, room bool, freeAt int64) Verdict {
	level := b.Level(now, p.Each)
	switch {
	case p.ExceedsLimit():
		return Verdict{Total: level, At: Never}
	case b.Free(now) || room:
		return Verdict{Allowed: true, Total: arith.Add(level, p.Cost),
			At: arith.Add(b.Empty(now), p.Cost*p.Each)}
	}
	return Verdict{Total: level, At: freeAt}
}

// Leave returns the bucket after one with this interval has left at now.
func (b LeakyBucket) Leave(now, interval int64) LeakyBucket {
	b.Next = arith.Add(b.Start(now), interval)
	return b
}

// Refund moves those in line up, by no more than has yet to leak of what was to be gone at expires.
func (b LeakyBucket) Refund(p Params, now, expires int64) LeakyBucket {
	b.Next = giveBack(b.Next, now, yetToCome(p, now, expires))
	return b
}

// Raise makes the first in line wait for a bucket that holds total.
func (b LeakyBucket) Raise(p Params, now, total int64) LeakyBucket {
	b.Next = max(b.Next, arith.Add(now, arith.Mul(uint64(total), p.Each)))
	return b
}
