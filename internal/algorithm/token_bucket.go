package algorithm

import (
	"math/bits"

	"github.com/weirgo/weir/internal/arith"
)

// TokenBucket is a token bucket as the generic cell rate algorithm (GCRA) keeps it: the theoretical
// arrival time, the instant at which the bucket is full again. It keeps at most Burst tokens; 0
// means the limit.
//
// The arrival time is Still1+N.
type TokenBucket struct{ Burst int64 }

// Spacing returns the nanoseconds between two hits, of which limit come in scaleMs: rounded up, so
// that never more than limit do.
func Spacing(scaleMs, limit int64) int64 { return (scaleMs*msec-1)/max(limit, 1) + 1 }

// maxFill is the longest time that a bucket may take to fill: 146 years.
const maxFill = 1 << 62

// Prepare sets p.Limit to what the bucket holds, and p.Each. It reports false for a bucket that
// takes longer to fill than can be counted.
func (a *TokenBucket) Prepare(p Params) (Params, bool) {
	if p.Limit == 0 {
		return p, true
	}
	p.Each = Spacing(p.Scale, p.Limit)
	if a.Burst > 0 {
		p.Limit = a.Burst
	}
	hi, lo := bits.Mul64(uint64(p.Limit), uint64(p.Each))
	return p, hi == 0 && lo <= maxFill
}

// at returns s with another arrival time.
func (s State) at(full int64) State {
	if n := full - s.Still1; uint64(n) <= MaxCount { // n may overflow; then Still1+N does too
		return State{N: n, Still1: s.Still1}
	}
	return State{Still1: full}
}

// Decide returns the verdict on p at now, and the state after it.
func (a *TokenBucket) Decide(s State, p Params, now int64) (Verdict, State) {
	full, tolerance := s.Still1+s.N, (p.Limit-p.Cost)*p.Each // TAT and L
	from := max(full, now)
	switch {
	case p.Cost > p.Limit:
		return Verdict{Total: Missing(full, now, p.Each), At: Never}, s
	case uint64(from-now) > uint64(tolerance): // the difference may overflow an int64
		return Verdict{Total: Missing(full, now, p.Each), At: full - tolerance}, s
	}
	next := from + p.Cost*p.Each
	if next < from {
		next = End
	}
	return Verdict{Allowed: true, Total: Missing(next, now, p.Each), At: next}, s.at(next)
}

// Missing returns how many tokens flow in between now and full, one every each ns, rounded up.
func Missing(full, now, each int64) int64 {
	ns := uint64(full - now) // which may overflow an int64
	switch {
	case full <= now || each == 0: // full, or never to be
		return 0
	// most callers stay below their limit, and a division costs as much as a look-up
	case ns <= uint64(each):
		return 1
	}
	return int64((min(ns, uint64(End))-1)/uint64(each) + 1)
}

// More returns when a token more is back than at an admission that left total missing, of a bucket
// that is full at expires.
func (a *TokenBucket) More(p Params, total, expires int64) int64 {
	return arith.Sub(expires, arith.Mul(uint64(total-1), p.Each))
}

// Admit takes p.Cost tokens at now, whether they are there or not.
func (a *TokenBucket) Admit(s State, p Params, now int64) State {
	return s.at(arith.Add(max(s.Still1+s.N, now), arith.Mul(uint64(p.Cost), p.Each)))
}

// Refund gives back no more than has yet to flow in again of what was to be back at expires.
func (a *TokenBucket) Refund(s State, p Params, now, expires int64) State {
	return s.at(refund(s.Still1+s.N, p, now, expires))
}

// refund is Refund of an arrival time.
func refund(full int64, p Params, now, expires int64) int64 {
	back := max(0, min(p.Cost*p.Each, arith.Sub(expires, now)))
	return max(min(full, now), arith.Sub(full, back))
}

// Raise leaves at most what a bucket has from which total tokens are missing.
func (a *TokenBucket) Raise(s State, p Params, now, _, total int64) State {
	return s.at(max(s.Still1+s.N, arith.Add(now, arith.Mul(uint64(total), p.Each))))
}

// Merge leaves what the emptier of two buckets has.
func (a *TokenBucket) Merge(s, other State, _, _, _ int64) State {
	return s.at(max(s.Still1+s.N, arith.Add(other.Still1, other.N)))
}

// Expires returns when the bucket is full.
func (a *TokenBucket) Expires(s State, _ int64) int64 { return s.Still1 + s.N }
