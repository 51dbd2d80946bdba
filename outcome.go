package weir

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/core/arith"
	"github.com/weirgo/weir/internal/core/bounds"
)

// Outcome is the decision of a [Limit]. Limit is the number that TotalRequests is held against:
// By's or, if it has one, its burst.
type Outcome struct {
	Result

	// Left is how much cost would be admitted now, after the decision: of the limit or, if that is
	// larger or smaller, of a token bucket's burst; of Tiers and limits.All the least of all limits. A
	// LeakyBucket admits all of its limit, to wait its turn, or nothing.
	Left uint64

	// FullAt is the instant from which all of the limit is left again, since nothing that was admitted
	// counts any more, if nothing else is admitted until then: the decision's, if all is left already.
	// Of Tiers and limits.All that holds of all limits. FullAt is the zero time of work in flight that
	// is held, since nobody knows; and where another package counts and its Result does not say when:
	// a denial or Peek by a limit that slides, a log, a counter or tiers, and an admission by tiers.
	FullAt time.Time

	// Wait is how long after the decision the same request would pass, if nothing else is admitted
	// until then: 0 if admitted, and the largest Duration if the request can never pass or, of work in
	// flight, nobody knows when.
	Wait time.Duration

	// By is the limit that binds: of limits.All one of its limits, of Tiers one with the numbers of a
	// tier, else the Limit itself.
	By *Limit
}

// Never reports whether the request was denied for good: the same one can never pass, since its
// cost is over the limit.
func (o Outcome) Never() bool {
	return !o.Allowed() && o.Wait == math.MaxInt64 && !o.unknown()
}

// unknown reports whether nobody knows when the request would pass: when work in flight is
// released.
func (o Outcome) unknown() bool {
	return o.TotalRequests > 0 && o.By != nil && o.By.isInFlight()
}

// wait returns for how long the request is denied, in words.
func (o Outcome) wait() string {
	switch {
	case o.Never():
		return "never"
	case o.Wait == math.MaxInt64:
		return "until one is released"
	}
	return bounds.Text(o.Wait)
}

// String describes the decision, such as "allowed, 9 of 10 left: sliding window, 10 in 1m" and
// "denied for 3s, 0 of 10 left: sliding window, 10 in 1m".
func (o Outcome) String() string {
	var b strings.Builder
	switch wait := o.wait(); {
	case o.Allowed():
		b.WriteString("allowed")
	case o.Never():
		b.WriteString("denied for good")
	case o.unknown():
		b.WriteString("denied " + wait)
	default:
		b.WriteString("denied for " + wait)
	}
	fmt.Fprintf(&b, ", %d of %d left", o.Left, o.Limit)
	if o.By != nil {
		b.WriteString(": " + o.By.String())
	}
	return b.String()
}

// MarshalJSON returns the decision for people and their scripts:
//
//	{"allowed":false,"left":0,"limit":10,"wait":"3s","by":"sliding window, 10 in 1m"}
//
// wait is "never" where the request can never pass, and "until one is released" where nobody knows
// when it would. full_at, if known, is FullAt.
func (o Outcome) MarshalJSON() ([]byte, error) {
	v := struct {
		Allowed bool       `json:"allowed"`
		Left    uint64     `json:"left"`
		Limit   uint64     `json:"limit"`
		Wait    string     `json:"wait"`
		FullAt  *time.Time `json:"full_at,omitempty"`
		By      string     `json:"by,omitempty"`
	}{Allowed: o.Allowed(), Left: o.Left, Limit: o.Limit, Wait: o.wait()}
	if full := o.FullAt.Round(0); !full.IsZero() {
		v.FullAt = &full
	}
	if o.By != nil {
		v.By = o.By.String()
	}
	return json.Marshal(v)
}

// saysLeft reports whether the Result of an admission, or else of a denial, says how much cost is
// left. A denial by tiers is by one tier, and another may have less left. A leaky
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
// decided, or the zero time if that is not known: see [Outcome.FullAt]. Unless the request was
// taken, TotalRequests is without its cost.
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
