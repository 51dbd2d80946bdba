package weir

import (
	"cmp"
	"context"
	"time"

	"github.com/weirgo/weir/internal/core/arith"
)

// saysLeft reports whether a Result says how much cost is left, that of an admission or else that
// of a denial. A denial by tiers is that of one tier, and another may have less left. A leaky
// bucket admits any cost if nobody waits or its line has room, and else none.
func saysLeft(a *About, admitted bool) bool { return !a.Waits && (admitted || a.Tiers == nil) }

// leftOf returns how much cost of most is left where c has decided on r with a Result that does not
// say that.
func leftOf(ctx context.Context, c Counter, r *Request, res *Result, most uint64) uint64 {
	if !res.Allowed() && r.Cost <= 1 {
		return 0
	}
	one := &Op{Counter: c, Verb: OpPeek, Request: *r}
	one.Cost = 1
	c.Do(ctx, []*Op{one})
	switch {
	case one.Err != nil || !one.Result.Allowed():
		return 0
	case c.About().Waits:
		return most
	}
	return one.Result.Remaining(most) + 1
}

// fullOf returns when nothing counts for the request of an op that a Counter of another package has
// decided: see [Outcome.FullAt]. Unless it was taken, TotalRequests is without its cost. It is the
// zero time if that is not known.
func fullOf(a *About, op *Op) time.Time {
	res, took := &op.Result, op.Verb == OpTake && op.Result.Allowed()
	switch {
	case !op.FullAt.IsZero():
		return op.FullAt
	case !took && res.TotalRequests == 0:
		return nowOf(a)
	case a.Tiers != nil:
		return time.Time{}
	case took, a.Window > 0: // of a calendar all counts until then
		return res.ExpiresAt
	}
	return fullByLapse(a, &op.Request, res)
}

// fullByLapse is fullOf of a request that was not taken: by when cost that is admitted lapses.
func fullByLapse(a *About, r *Request, res *Result) (at time.Time) {
	if res.ExpiresAt.IsZero() {
		return at
	}
	q, cost := *r, max(1, r.Cost)
	if a.Bound {
		q.Limit, q.Duration = a.Numbers.Limit, a.Numbers.Duration
	}
	until, each, ok := a.Until(&q, res.ExpiresAt)
	most := cmp.Or(a.Burst, q.Limit)
	switch {
	case !ok || !until.Equal(res.ExpiresAt): // a part of it lapses sooner
		return at
	case res.Allowed():
		return until.Add(-time.Duration(arith.Mul(cost, int64(each))))
	}
	return until.Add(time.Duration(arith.Mul(most-min(most, cost), int64(each))))
}

// nowOf returns the present by the clock that counts, or else the real one.
func nowOf(a *About) time.Time {
	if a.Limiter != nil {
		return a.Limiter.clock.Time(a.Limiter.clock.Read())
	}
	return time.Now()
}
