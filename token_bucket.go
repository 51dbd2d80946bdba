package weir

import (
	"cmp"
	"fmt"
	"math/bits"

	"github.com/weirgo/weir/internal/arith"
)

// TokenBucket is the token bucket, kept as the generic cell rate algorithm (GCRA) does: one instant
// per caller, the theoretical arrival time, at which the bucket is full again. Make one with
// [Limiter.TokenBucket].
type TokenBucket struct {
	locked[slot]
	burst uint64
}

// TokenBucket returns a token bucket as a Strategy: Limit tokens flow in evenly in each Duration,
// and at most burst are kept; 0 means Limit. In any span of one Duration at most burst+Limit pass.
//
// The interval between two tokens is Duration/Limit rounded up to a whole nanosecond, so never more
// than Limit flow in. A decision takes the mutex of one shard for a few nanoseconds. A clock that
// goes back adds no tokens. A change of Limit does not change when tokens already used return. A
// burst that takes longer than 146 years to flow in is [ErrLimit].
//
// The algorithm is that of ATM Forum TM 4.0 (1996).
func (l *Limiter) TokenBucket(burst uint64) *TokenBucket {
	return &TokenBucket{newLocked(l, &tokens{clampCost(burst)}, &slotStore{l, tokenKind}), burst}
}

// Burst returns how many tokens are kept at most; 0 means the request's Limit.
func (b *TokenBucket) Burst() uint64 { return b.burst }

// tokens is the arithmetic of a TokenBucket.
type tokens struct{ burst int64 }

// arrival returns the theoretical arrival time of a token bucket.
func (s *slot) arrival() int64 { return int64(s[deniedWord]) }

// prepare sets p.limit to what the bucket holds, and p.each to the ns between two tokens.
func (t *tokens) prepare(p params) (params, error) {
	if p.limit == 0 {
		return p, nil
	}
	p.each = arith.CeilDiv(p.scale*msec, p.limit)
	size := cmp.Or(t.burst, p.limit)
	if hi, lo := bits.Mul64(uint64(p.each), uint64(size)); hi > 0 || lo > 1<<62 {
		return p, fmt.Errorf("%w: a burst of %d at %d in %d ms takes centuries to refill",
			ErrLimit, size, p.limit, p.scale)
	}
	p.limit = size
	return p, nil
}

func (t *tokens) advance(s *slot, _ params, now int64) { s[usedWord] = uint64(now) }

func (t *tokens) decide(s *slot, p params, now int64) verdict {
	at := s.arrival()
	if p.exceedsLimit() {
		return verdict{state: Deny, total: inflow(arith.Sub(at, now), p.each), at: noInstant}
	}
	next := arith.Add(max(at, now), p.cost*p.each)
	if full := p.limit * p.each; arith.Sub(next, now) > full {
		return verdict{state: Deny, total: inflow(arith.Sub(at, now), p.each), at: next - full}
	}
	return verdict{state: Allow, total: inflow(next-now, p.each), at: next}
}

// inflow returns how many tokens flow in within ns, one every each ns, rounded up.
func inflow(ns, each int64) int64 {
	switch {
	case ns <= 0 || each == 0: // full, or never to flow in
		return 0
	case ns <= each: // most callers stay below their limit, and a division costs as much as a look-up
		return 1
	}
	return arith.CeilDiv(ns, each)
}

func (t *tokens) admit(s *slot, p params, now, cost int64, _ string) {
	s[deniedWord] = uint64(arith.Add(max(s.arrival(), now), arith.Mul(uint64(cost), p.each)))
}

// refund gives back no more than has yet to flow in again.
func (t *tokens) refund(s *slot, p params, now, expires int64, _ string) {
	if back := min(p.cost*p.each, arith.Sub(expires, now)); back > 0 && s.arrival() > now {
		s[deniedWord] = uint64(max(now, s.arrival()-back))
	}
}

func (t *tokens) raise(s *slot, p params, now, _, total int64, _ string) {
	s[deniedWord] = uint64(max(s.arrival(), arith.Add(now, arith.Mul(uint64(total), p.each))))
}
