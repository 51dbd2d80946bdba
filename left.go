package weir

import (
	"context"

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
