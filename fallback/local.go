package fallback

import (
	"context"
	"fmt"
	"time"

	"github.com/weirgo/weir"
)

// share returns one Nth of total, rounded up. As limits and counts are both rounded up, their
// difference is never more than one Nth of what remains, rounded up.
func share(total, n uint64) uint64 { return total/n + min(1, total%n) }

// toShare returns the request with one nth of its limit.
func (v *visit) toShare(n uint64) *weir.Request {
	if n == 1 || v.cfg.OwnLimits {
		return v.r
	}
	own := *v.r
	own.Limit = share(v.r.Limit, n)
	return &own
}

// fromShare turns local's Result on own, a share of the request, into one on the request: the
// shares of others count as used.
func (v *visit) fromShare(own *weir.Request, res *result) *result {
	if v.r == own {
		return res
	}
	res.full = time.Time{} // nobody knows what others have admitted
	res.TotalRequests = plus(res.TotalRequests, v.r.Limit-own.Limit)
	if !res.Allowed() && v.exceedsShare(own, costOf(own), &res.Result) {
		// not over the limit: it passes when primary is back
		res.ExpiresAt = v.b.Next(v.cfg.Now())
	}
	return res
}

// exceedsShare reports whether local has denied own since a cost can never pass there, though the
// request passes at primary. Of work in flight, that may be unknown without that.
func (v *visit) exceedsShare(own *weir.Request, cost uint64, denied *weir.Result) bool {
	return denied.ExpiresAt.IsZero() && !v.exceeds(v.r) && (!v.inFlight || cost > own.Limit)
}

// deciding is a decision of local on own, with one nth of the limit.
type deciding func(own *weir.Request, n uint64) (*result, error)

// runLocal has local Run or Peek, and records what it admits. A call of primary that begins
// meanwhile waits for the record, which it takes along.
func (v *visit) runLocal(ctx context.Context, verb weir.Verb) (*result, weir.Source, error) {
	return v.locally(func(own *weir.Request, n uint64) (*result, error) {
		v.a.mu.Lock()
		defer v.a.mu.Unlock()
		v.arrive(false)
		res, err := v.countCalls(ctx, verb, own)
		if err == nil && res == nil {
			takes := verb == weir.OpTake
			op := &weir.Op{Verb: verb, Request: *own, Full: v.full}
			op.Keep = v.kept != nil && takes && v.aware
			res, err = v.inWindow(own, costOf(own)).decide(ctx, v.local, op)
			if err == nil && res.Allowed() && takes {
				v.recordDebt(n, own, &res.Result)
			}
			if op.Keep {
				v.kept.local = op.Receipt
			}
		}
		if err == nil && res.Allowed() { // of which calls under way are no part
			res.TotalRequests -= min(res.TotalRequests, v.a.ahead.cost())
		}
		return res, err
	})
}

// locally has decide do so on own, with one nth of the limit, unless Config.OnFail does.
func (v *visit) locally(decide deciding) (*result, weir.Source, error) {
	if v.cfg.OnFail != FailLocal {
		return &result{Result: *v.policy()}, weir.FromOnFail, nil
	}
	n := v.sharedAmong()
	own := v.toShare(n)
	res, err := decide(own, n)
	if err != nil {
		return nil, weir.Nowhere, fmt.Errorf("fallback: local cannot decide either: %w", err)
	}
	return v.fromShare(own, res), weir.FromLocal, nil
}

// sharedAmong returns the number of instances that share the limit of the caller: N, or an earlier,
// larger N of the same period.
func (v *visit) sharedAmong() uint64 {
	n, now := uint64(v.Instances()), v.cfg.Now()
	v.a.mu.Lock()
	defer v.a.mu.Unlock()
	return v.a.sharing.among(n, now)
}

// recordDebt records in the account, which is locked, that local admitted the request, own as a
// share of it for n instances, in the period that res is of: as a debt, unless primary counts the
// request.
func (v *visit) recordDebt(n uint64, own *weir.Request, res *weir.Result) {
	now, a, cost := v.cfg.Now(), v.a, costOf(v.r)
	until, _ := v.periodEnd(res, now)
	if v.windows != nil {
		until = v.inWindow(own, cost).end()
	}
	if a.temporary {
		v.ledger.drop(cost, n, now, until)
		return
	}
	a.sharing.hold(n, until)
	if p := v.late; p != nil {
		p.cost, p.until = cost, until
		if !p.ended || p.inTime(v.windows, v.length()) {
			return
		}
	}
	a.debts.Add(cost, until, now)
}

// periodEnd returns when nothing counts any more of the period that res is of, and how its count
// falls until then. The ExpiresAt of a denial is sooner, unless that is a window's end. That of
// Tiers may be a shorter tier's.
func (v *visit) periodEnd(res *weir.Result, now time.Time) (end time.Time, f falling) {
	end, d := res.ExpiresAt, v.r.Duration
	f = v.falls(end, now)
	if f != atOnce && !res.Allowed() {
		end = now.Add(d)
	}
	return later(end, now.Add(v.longest)), f
}

// falls returns how a count falls whose Result has this ExpiresAt. If primary does not say when it
// lapses, it is one of a window if that is aligned to the Unix epoch and has begun.
func (v *visit) falls(expires, now time.Time) falling {
	d := v.r.Duration
	switch lapses := v.about.Lapses; {
	case expires.IsZero():
	case v.window > 0, lapses == weir.LapsesWithWindow:
		return atOnce
	case lapses == weir.LapsesWithWindows:
		return withWindows
	case lapses == weir.LapsesByToken:
		return oneByOne
	case d > 0 && expires.UnixNano()%int64(d) == 0 && expires.Sub(now) <= d+10*time.Millisecond:
		return atOnce
	}
	return evenly
}

// exceeds reports whether the Cost of r exceeds its Limit, so that r can never pass.
func (f *Fallback) exceeds(r *weir.Request) bool {
	return costOf(r) > r.Limit && !f.cfg.OwnLimits
}

// policy returns the Result of Config.OnFail.
func (v *visit) policy() *weir.Result {
	switch {
	case v.exceeds(v.r):
		return &weir.Result{}
	case v.cfg.OnFail == FailOpen:
		return &weir.Result{State: weir.Allow, TotalRequests: costOf(v.r), ExpiresAt: v.cfg.Now()}
	}
	return &weir.Result{TotalRequests: v.r.Limit, ExpiresAt: v.b.Next(v.cfg.Now())}
}
