package weir

import (
	"cmp"
	"context"
	"time"

	"github.com/weirgo/weir/internal/core/arith"
	"github.com/weirgo/weir/internal/core/forlimits"
)

// saysLeft returns whether a Result of s says how much cost is left, of an admission and of a
// denial. One of several limits at once is that of the limit that binds: of an admission it has the
// least left, of a denial others may have less. A leaky bucket admits any cost if nobody waits or
// its line has room, else none.
func saysLeft(s Strategy) (says forlimits.SaysLeft) {
	_, isTiered := As[tiered](s)
	_, isSeveral := As[several](s)
	_, isLeaky := As[*LeakyBucket](s)
	return forlimits.SaysLeft{Admitted: !isLeaky, Denied: !isLeaky && !isTiered && !isSeveral}
}

// leftOf returns how much cost of most is left where s has decided on r with a Result that does not
// say that.
func leftOf(ctx context.Context, s Strategy, r *Request, res *Result, most uint64) uint64 {
	if !res.Allowed() && r.Cost <= 1 {
		return 0
	}
	one := peekOne(ctx, s, r)
	_, isLeaky := As[*LeakyBucket](s)
	switch {
	case !one.Allowed():
		return 0
	case isLeaky:
		return most
	}
	return one.Remaining(most) + 1
}

// peekOne returns the Result of one hit, which is not counted: a denial if that cannot be said.
func peekOne(ctx context.Context, s Strategy, r *Request) (res Result) {
	q := *r
	q.Cost = 1
	if p, ok := s.(Peeker); ok {
		if seen, err := p.Peek(ctx, &q); err == nil && seen != nil {
			res = *seen
		}
	}
	return res
}

// fullOf returns when nothing counts for r, after s has decided on it with res: see
// [Outcome.FullAt]. Unless r was taken, TotalRequests is without its cost. It is the zero time if
// that is not known.
func fullOf(s Strategy, r *Request, res *Result, taken bool) time.Time {
	taken = taken && res.Allowed()
	_, isTiered := As[tiered](s)
	if own, ok := asOwn(s); ok {
		if taken && !isTiered {
			return res.ExpiresAt
		}
		l, _ := own.of()
		if of, ok := s.(fuller); ok {
			if at, err := of.full(r); err == nil {
				return l.time(at)
			}
		}
		return time.Time{}
	}
	_, isSeveral := As[several](s)
	windowed, ok := As[ofCalendar](s)
	switch {
	case isSeveral, isTiered && (taken || res.TotalRequests > 0):
		return time.Time{}
	case !taken && res.TotalRequests == 0:
		return nowOf(s)
	case taken, ok && windowed.Window() > 0:
		return res.ExpiresAt
	}
	return fullByLapse(s, r, res)
}

// fullByLapse is fullOf of a strategy of another package that has not taken r: by when what it
// admits lapses.
func fullByLapse(s Strategy, r *Request, res *Result) (at time.Time) {
	of, ok := As[lapser](s)
	if !ok || res.ExpiresAt.IsZero() {
		return at
	}
	q := *r
	inner(s, &q)
	until, each, ok := of.Lapse(&q, res.ExpiresAt)
	most, cost := q.Limit, max(1, q.Cost)
	if sized, ok := As[sized](s); ok {
		most = cmp.Or(sized.Burst(), most)
	}
	switch {
	case !ok || !until.Equal(res.ExpiresAt): // a part of it lapses sooner
		return at
	case res.Allowed():
		return until.Add(-time.Duration(arith.Mul(cost, int64(each))))
	}
	return until.Add(time.Duration(arith.Mul(most-min(most, cost), int64(each))))
}

// nowOf returns the present by the clock of s, or else the real one.
func nowOf(s Strategy) time.Time {
	if own, ok := As[inLimiter](s); ok && own.Limiter() != nil {
		c := &own.Limiter().clock
		return c.Time(c.Read())
	}
	return time.Now()
}
