package fallback

import (
	"context"

	"github.com/weirgo/weir"
)

// calls are calls of primary that are under way at the same time. Local must not admit what they
// may still admit: before it decides it counts their cost, and takes back that of each call that
// then admits nothing. Calls that begin later are others. They take along what local has admitted,
// so that primary counts it before it decides on them.
//
//	                                                     local counts   primary counts
//	1. two calls begin                                   0              0
//	2. another call fails: local counts the two, and
//	   admits its request                                3              0
//	3. a call begins, and takes the debt of 1 along; it
//	   is admitted                                       4              2
//	4. the first call is admitted                        4              3
//	5. the second fails: local takes it back, and admits
//	   its request                                       4              3, and is owed 1
//
// In step 3 local comes up to the count of primary and the first two calls, which may not be in it.
type calls struct {
	cost     sum               // of those under way, if local does not count them
	giveBack func(cost uint64) // takes back from local; nil: it does not count them
}

// depart begins a call of primary, and returns its backlog.
func (v *visit) depart() *weir.Backlog {
	v.a.mu.Lock()
	defer v.a.mu.Unlock()
	if v.a.counted.limit != v.r.Limit {
		v.a.back.changes++ // a token bucket counts otherwise at another rate
	}
	v.known, v.changes = v.a.counted, v.a.back.changes
	if v.aware && !v.hurried && !v.exceeds(v.r) {
		v.calls = v.a.calls
		v.calls.cost.add(costOf(v.r))
	}
	return v.missed()
}

// failed ends the call of primary, if one is under way, which has not decided.
func (v *visit) failed() {
	v.a.mu.Lock()
	defer v.a.mu.Unlock()
	v.arrive(false)
}

// arrive ends the call of primary, if one is under way. The account is locked.
func (v *visit) arrive(admitted bool) {
	c, a, cost := v.calls, v.a, costOf(v.r)
	v.calls = nil
	switch {
	case c == nil:
	case c.giveBack == nil:
		c.cost.sub(cost)
	default:
		a.ahead.sub(cost)
		if !admitted && !a.replaced.Load() {
			c.giveBack(cost)
		}
	}
}

// countCalls has local count the calls of primary under way, before it decides on own, a share of
// the request. The Result is a denial, if local has no room for them, or the one of a Peek, and
// otherwise nil. The account is locked.
func (v *visit) countCalls(
	ctx context.Context, op weir.Verb, own *weir.Request,
) (res *result, err error) {
	c := v.a.calls
	cost := c.cost.cost()
	switch {
	case cost == 0:
		return nil, nil
	case c.cost.exceeds():
		res = &result{Result: weir.Result{TotalRequests: own.Limit}}
		if !v.exceeds(v.r) {
			res.ExpiresAt = v.b.Next(v.cfg.Now())
		}
		return res, nil
	}
	all := *own
	all.Cost = cost
	if op == weir.OpPeek {
		all.Cost = plus(cost, costOf(own))
	}
	ahead := &weir.Op{Verb: op, Request: all, Keep: op == weir.OpTake}
	res, err = v.inWindow(&all, all.Cost).decide(ctx, v.local, ahead)
	switch {
	case err != nil:
	case !res.Allowed():
		res.TotalRequests += min(cost, res.Remaining(own.Limit))
		if v.exceedsShare(own, all.Cost, &res.Result) { // over the limit together
			res.ExpiresAt = v.b.Next(v.cfg.Now())
		}
	case op == weir.OpPeek:
		res.TotalRequests -= min(res.TotalRequests, cost)
	default:
		began := v.a.window.Still2
		c.giveBack = func(cost uint64) {
			v.inWindow(&all, cost).takeBack(began)
			ahead.Verb, ahead.Cost = weir.OpReturn, cost
			// what it does not take back it counts until its period ends
			_ = by(context.WithoutCancel(ctx), v.local, ahead)
		}
		v.a.ahead.add(cost)
		v.a.calls = new(calls)
		res = nil
	}
	return res, err
}
