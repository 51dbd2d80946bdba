package algorithm

import (
	"cmp"
	"math/bits"
	"time"

	"github.com/weirgo/weir/internal/core/arith"
)

// TokenBucket is a token bucket as the generic cell rate algorithm (GCRA) keeps it: the theoretical
// arrival time, the instant at which the bucket is full again.
//
// The arrival time is Still1+N. Still2 is the spacing at which tokens flow in until then, and
// Still1 an instant at which the bucket was used. Still2 is negative where Still1 is no such
// instant, since the bucket takes longer to fill than N can count. A state of an older release has
// no spacing in Still2.
//
// What was used stays used, in tokens: a request with another spacing finds as many tokens missing
// as there are at the old one, and the time until the bucket is full is rounded up to a nanosecond.
// A decision, a charge and a seed keep the spacing of their request, and so does a denial, so that
// the instant of its verdict holds. A refund keeps that of the bucket: its request is of the past.
// A smaller burst changes nothing of what is missing, which may be more than it, as after a charge.
type TokenBucket struct {
	Burst int64 // how many tokens are kept at most; 0 means the limit

	// ClockSteps has each use at another instant begin an epoch with that instant in Still1: a clock
	// that steps back then counts as the latest use. Otherwise it counts as the beginning of the
	// epoch.
	ClockSteps bool
}

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

// maxSpacing is the longest spacing of a valid request: one in 365 days.
const maxSpacing = int64(365 * 24 * time.Hour)

// spacing returns the spacing of s, 0 if it is not known, and the latest instant of now and the
// uses that s knows of: a clock that goes back adds no tokens.
func spacing(s State, now int64) (each, latest int64) {
	switch each := s.Still2; {
	case each > 0 && each <= maxSpacing:
		return each, max(now, s.Still1)
	case each < 0 && each >= -maxSpacing:
		return -each, now
	}
	return 0, now
}

// at returns s with another arrival time and the spacing each, after a use at now.
func (a *TokenBucket) at(s State, full, now, each int64) State {
	n, base := full-s.Still1, s.Still2 == each && (!a.ClockSteps || s.Still1 == now)
	switch {
	// a difference may overflow; then Still1+N does too
	case uint64(n) <= MaxCount && (base || s.Still2 == -each):
		return State{N: n, Still1: s.Still1, Still2: s.Still2}
	case uint64(full-now) <= MaxCount:
		return State{N: full - now, Still1: now, Still2: each}
	}
	return State{Still1: full, Still2: -each}
}

// spaced returns s as a request with the spacing each finds it, and the latest instant that is
// known: the tokens that are missing at its own spacing, if that is known, are missing at this one.
// Of a limit of 0, each is 0, and s stays as it is.
func (a *TokenBucket) spaced(s State, each, now int64) (State, int64) {
	own, now := spacing(s, now)
	if own == each || each == 0 {
		return s, now
	}
	full := s.Still1 + s.N
	if full > now && own > 0 { // the difference may overflow an int64
		full = arith.Add(now, mulDiv(uint64(full-now), each, own, own-1))
	}
	return a.at(State{}, full, now, each), now
}

// Decide returns the verdict on p at now, and the state after it. That differs from s after an
// admission, and after a denial that found another spacing.
func (a *TokenBucket) Decide(s State, p Params, now int64) (Verdict, State) {
	if s.Still2 != p.Each {
		return a.decideSpaced(s, p, now)
	}
	now = max(now, s.Still1)                                 // known
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
	v := Verdict{Allowed: true, Total: Missing(next, now, p.Each), At: next}
	return v, a.at(s, next, now, p.Each)
}

// decideSpaced is Decide where the spacing is another, or Still1 no instant of a use. A request
// that can never pass leaves the spacing as it is.
func (a *TokenBucket) decideSpaced(s State, p Params, now int64) (Verdict, State) {
	spaced, now := a.spaced(s, p.Each, now)
	full := max(spaced.Still1+spaced.N, now)
	v, _ := a.Decide(State{N: full - now, Still1: now, Still2: p.Each}, p, now)
	switch {
	case v.Allowed:
		return v, a.at(spaced, v.At, now, p.Each)
	case p.ExceedsLimit():
		return v, s
	}
	return v, spaced
}

// Full returns when no token is missing, at the spacing of p, if none is taken: now, or later.
func (a *TokenBucket) Full(s State, p Params, now int64) int64 {
	s, _ = a.spaced(s, p.Each, now)
	return max(s.Still1+s.N, now)
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
	if p.Each == 0 { // a limit of 0 has no tokens
		return s
	}
	s, now = a.spaced(s, p.Each, now)
	return a.at(s, arith.Add(max(s.Still1+s.N, now), arith.Mul(uint64(p.Cost), p.Each)), now, p.Each)
}

// Refund gives back no more than has yet to flow in again of what was to be back at expires, at the
// spacing of p: that of its admission.
func (a *TokenBucket) Refund(s State, p Params, now, expires int64) State {
	own, now := spacing(s, now)
	full, back := s.Still1+s.N, yetToCome(p, now, expires)
	if full <= now || back == 0 {
		return s
	}
	own = cmp.Or(own, p.Each)
	if own != p.Each {
		back = mulDiv(uint64(back), own, p.Each, 0)
	}
	return a.at(s, giveBack(full, now, back), now, own)
}

// yetToCome returns the time in which p.Cost comes, as far as that is before expires and after now.
func yetToCome(p Params, now, expires int64) int64 {
	return max(0, min(p.Cost*p.Each, arith.Sub(expires, now)))
}

// giveBack returns an arrival time that is sooner by back, but no sooner than now.
func giveBack(full, now, back int64) int64 { return max(min(full, now), arith.Sub(full, back)) }

// Raise leaves at most what a bucket has from which total tokens are missing.
func (a *TokenBucket) Raise(s State, p Params, now, _, total int64) State {
	if p.Each == 0 {
		return s
	}
	s, now = a.spaced(s, p.Each, now)
	return a.at(s, max(s.Still1+s.N, arith.Add(now, arith.Mul(uint64(total), p.Each))), now, p.Each)
}

// Merge leaves what the emptier of two buckets has, at the spacing of s if that is known. If other
// was used at a later instant, at most ahead after now, s was used then too.
func (a *TokenBucket) Merge(s, other State, _, now, ahead int64) State {
	other.N = arith.Add(other.Still1, other.N) - other.Still1
	each, _ := spacing(s, now)
	theirs, used := spacing(other, now)
	each, now = cmp.Or(each, theirs), max(now, min(used, arith.Add(now, ahead)))
	other, _ = a.spaced(other, each, now)
	s, now = a.spaced(s, each, now)
	return a.at(s, max(s.Still1+s.N, other.Still1+other.N), now, each)
}

// Expires returns when the bucket is full.
func (a *TokenBucket) Expires(s State, _ int64) int64 { return s.Still1 + s.N }
