package redislimit

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/weirgo/weir"
)

// maxFill is the longest time a bucket may take to fill: weir's bound.
const maxFill = 1 << 62 // ns

// TokenBucket gives each caller a bucket of burst tokens (0: the request's Limit), which fills at
// Limit tokens in Duration; a hit takes one. It fails with weir.ErrLimit for a bucket that would
// take longer than 1<<62 ns, 146 years, to fill. The counterpart of weir's TokenBucket.
func (s *Store) TokenBucket(burst uint64) *Strategy {
	return &Strategy{store: s, kind: "token", script: tokenBucket, algorithm: token{burst: burst}}
}

// Burst returns how many tokens a bucket keeps at most; 0 means the request's Limit, or that the
// Strategy is no token bucket.
func (s *Strategy) Burst() uint64 {
	t, _ := s.algorithm.(token)
	return t.burst
}

type token struct {
	byDuration
	burst uint64
}

// spacing is the time in which one token grows back, in ns, and 0 for a limit of 0, at which none
// does.
func spacing(r *weir.Request) int64 {
	if r.Limit == 0 {
		return 0
	}
	return (int64(r.Duration)-1)/clamp(r.Limit) + 1
}

// size is the number of tokens in a full bucket.
func (t token) size(r *weir.Request) int64 { return clamp(cmp.Or(t.burst, r.Limit)) }

func (t token) ask(args []any, r *weir.Request, n int64) ([]any, bool, error) {
	full := grow(t.size(r), spacing(r))
	if full > maxFill {
		return nil, false, fmt.Errorf("redislimit: %d tokens, one in %v: %w", t.size(r), time.Duration(spacing(r)),
			weir.ErrLimit)
	}
	c, f := ofDuration(time.Duration(grow(n, spacing(r)))), ofDuration(time.Duration(full))
	return append(args, c.s, c.ns, f.s, f.ns), r.Limit > 0 && fits(r, cmp.Or(t.burst, r.Limit)), nil
}

// grow is the time in which n tokens grow back, in ns, or the longest there is.
func grow(n, spacing int64) int64 {
	hi, lo := bits.Mul64(uint64(n), uint64(spacing))
	if hi > 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(lo)
}

func (t token) answer(r *weir.Request, v numbers) (decision, error) {
	tat, now := instant{v[1], v[2]}, instant{v[3], v[4]}
	if !tat.valid() || !now.valid() {
		return decision{}, strange(v)
	}
	res := decision{allowed: v[0] == 1, limit: t.size(r), at: tat}
	if left := tat.minus(now); left > 0 && r.Limit > 0 {
		res.total = (left-1)/spacing(r) + 1
	}
	if !res.allowed {
		res.at = tat.plus(time.Duration(grow(cost(r), spacing(r)))).less(time.Duration(grow(t.size(r), spacing(r))))
	}
	return res, nil
}
