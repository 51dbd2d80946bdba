package weir

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/weirgo/weir/internal/core/algorithm"
)

// TokenBucket is the token bucket, kept as the generic cell rate algorithm (GCRA) does: one instant
// per caller, the theoretical arrival time, at which the bucket is full again. Make one with
// [Limiter.TokenBucket].
type TokenBucket struct {
	slotStrategy
	burst uint64
}

// TokenBucket returns a token bucket as a Strategy: Limit tokens flow in evenly in each Duration,
// and at most burst are kept; 0 means Limit. In any span of one Duration at most burst+Limit pass;
// who [Wait] lets through may be up to 100 ms late, as by every strategy.
//
// The interval between two tokens is Duration/Limit rounded up to a whole nanosecond, so never more
// than Limit flow in. A decision on a key that has a bucket takes no lock, but for one admission in
// 78 hours, the first decision at another Limit, and with Config.Now the first admission at an
// instant. A clock that goes back adds no tokens: with Config.Now the key stays at the instant of
// its last admission. A burst that takes longer than 146 years to flow in is [ErrLimit].
//
// What was used stays used, in tokens, when Limit changes: a higher one helps at once, and a lower
// one gives nothing away. From the first Run at another Limit on, also if it is denied, tokens flow
// in at the new interval; each change takes less than a nanosecond's tokens. With a burst of 0 more
// may be used than a lower Limit, and TotalRequests says so. Requests of several plans may share a
// key. A Peek changes no interval.
//
// The algorithm is that of ATM Forum TM 4.0 (1996).
func (l *Limiter) TokenBucket(burst uint64) *TokenBucket {
	a := &algorithm.TokenBucket{Burst: clampCost(burst), ClockSteps: l.clock.ByHand()}
	of := reader{l: l, most: math.MaxInt64, preparer: a}
	return &TokenBucket{slotStrategy{of, l.callers, tokenKind, a}, burst}
}

// Burst returns how many tokens are kept at most; 0 means the request's Limit.
func (b *TokenBucket) Burst() uint64 { return b.burst }

// Forecast implements [Forecaster]: the next token is back one spacing after the one before it.
func (b *TokenBucket) Forecast(_ context.Context, r *Request, admitted *Result) (time.Time, error) {
	p, err := b.parse(r)
	if err != nil || admitted.TotalRequests == 0 {
		return time.Time{}, err
	}
	var a algorithm.TokenBucket
	at := a.More(p, clampCost(admitted.TotalRequests), b.l.clock.Instant(admitted.ExpiresAt))
	return b.l.clock.Time(at), nil
}

// Lapse implements near.Lapser: tokens that were taken can be used until they flow in again.
func (*TokenBucket) Lapse(
	r *Request, expires time.Time,
) (until time.Time, each time.Duration, ok bool) {
	spacing := algorithm.Spacing(r.Duration.Milliseconds(), clampCost(r.Limit))
	return expires, time.Duration(spacing), true
}

// Algorithm implements [Named].
func (b *TokenBucket) Algorithm() string { return "token bucket" }

func (b *TokenBucket) itself() Strategy { return b }

// Limit returns the limit of n in d, at most burst at once. It panics where [NewLimit] fails.
func (b *TokenBucket) Limit(n uint64, d time.Duration) *Limit { return mustLimit(b, n, d) }

func (b *TokenBucket) bind(m *Limit) (Strategy, error) {
	of := *b
	of.keepAcrossDurations(m)
	return &of, of.bindTo(m, cmp.Or(b.burst, m.n))
}
