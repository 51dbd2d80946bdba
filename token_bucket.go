package weir

import (
	"cmp"
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
	return (&TokenBucket{slotStrategy{of, l.callers, tokenKind, a}, burst}).described()
}

// described sets what b is.
func (b *TokenBucket) described() *TokenBucket {
	b.describe(b, About{Name: "token bucket", Lapses: LapsesByToken, Burst: b.burst})
	return b
}

// Limit returns the limit of n in d, at most burst at once. It panics where [NewLimit] fails.
func (b *TokenBucket) Limit(n uint64, d time.Duration) *Limit { return mustLimit(b, n, d) }

func (b *TokenBucket) bind(m *Limit) (Counter, error) {
	of := *b
	of.keepAcrossDurations(m)
	err := of.bindTo(m, cmp.Or(b.burst, m.n))
	return of.described(), err
}
