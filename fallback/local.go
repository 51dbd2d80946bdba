package fallback

import (
	"context"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/algorithm"
)

// share returns one Nth of total, rounded up. As limits and counts are both rounded up, their
// difference is never more than one Nth of the rest, rounded up.
func share(total, n uint64) uint64 { return total/n + min(1, total%n) }

// shared is the request of a visit for local: with one nth of its limit.
type shared struct {
	v *visit
	n uint64
	r *weir.Request // of the visit, if that is the whole
}

// whole turns local's Result into one on the visit's request: the shares of others count as used.
func (s shared) whole(op *weir.Op) {
	v, res := s.v, &op.Result
	if v.r == s.r {
		return
	}
	op.FullAt = time.Time{} // nobody knows the admissions of others
	res.TotalRequests = plus(res.TotalRequests, v.r.Limit-s.r.Limit)
	if !res.Allowed() && s.exceeds(costOf(s.r), res) {
		// not over the limit: the request passes when primary is back
		res.ExpiresAt = v.b.Next(v.f.cfg.Now())
	}
}

// exceeds reports whether local has denied a cost that can never pass there, though the request
// passes at primary. Of work in flight, that may be unknown without that.
func (s shared) exceeds(cost uint64, denied *weir.Result) bool {
	return denied.ExpiresAt.IsZero() && !s.v.f.exceeds(s.v.r) &&
		(!s.v.f.local.About().InFlight || cost > s.r.Limit)
}

// inWindow returns s, of a cost, in primary's window that runs. The account is locked. inWindow
// does not read the visit's request, which its caller may have changed by then.
func (s shared) inWindow(cost uint64) inWindow {
	f, a := s.v.f, s.v.a
	w, limit, d := f.windows, s.r.Limit, s.r.Duration
	if w == nil {
		return inWindow{}
	}
	if w.own.Duration > 0 {
		limit, d = w.own.Limit, w.own.Duration
	}
	p := algorithm.Params{Scale: d.Milliseconds(), Limit: clamp(limit), Cost: clamp(cost)}
	if cost > limit {
		p.Limit = min(p.Limit, p.Cost-1)
	}
	return inWindow{w, &a.window, p, f.cfg.Now(), a.ahead.cost()}
}

// countCalls has local count the calls of primary under way, before it decides on an op. That is
// decided if local has no room for them, or is an OpPeek. The account is locked.
func (s shared) countCalls(ctx context.Context, op *weir.Op) (decided bool, err error) {
	v, a, verb := s.v, s.v.a, op.Verb
	c := a.calls
	cost := c.cost.cost()
	switch {
	case cost == 0:
		return false, nil
	case c.cost.exceeds():
		op.Result = weir.Result{TotalRequests: s.r.Limit}
		if !v.f.exceeds(v.r) {
			op.Result.ExpiresAt = v.b.Next(v.f.cfg.Now())
		}
		return true, nil
	}
	r := *s.r
	all := shared{v, s.n, &r}
	r.Cost = cost
	if verb == weir.OpPeek {
		r.Cost = plus(cost, costOf(s.r))
	}
	ahead := &weir.Op{Verb: verb, Request: r, Keep: verb == weir.OpTake}
	err = all.inWindow(r.Cost).decide(ctx, v.f.local, ahead)
	res := &ahead.Result
	switch {
	case err != nil:
		return false, err
	case !res.Allowed():
		res.TotalRequests += min(cost, res.Remaining(s.r.Limit))
		if s.exceeds(r.Cost, res) { // over the limit together
			res.ExpiresAt = v.b.Next(v.f.cfg.Now())
		}
	case verb == weir.OpPeek:
		res.TotalRequests -= min(res.TotalRequests, cost)
	default:
		began := a.window.Still2
		c.giveBack = func(cost uint64) {
			all.inWindow(cost).takeBack(began)
			ahead.Verb, ahead.Cost = weir.OpReturn, cost
			// cost that is not taken back counts until its period ends
			_ = by(context.WithoutCancel(ctx), v.f.local, ahead)
		}
		a.ahead.add(cost)
		a.calls = new(calls)
		return false, nil
	}
	op.Result = *res
	return true, nil
}

// recordDebt records in the account, which is locked, that local admitted the request, in the
// period that res is of: as a debt, unless primary counts the request.
func (s shared) recordDebt(res *weir.Result) {
	v, a, cost := s.v, s.v.a, costOf(s.v.r)
	now := v.f.cfg.Now()
	var until time.Time
	if v.f.windows != nil {
		until = s.inWindow(cost).end()
	} else {
		until, _ = v.period().end(res, now)
	}
	if a.temporary {
		v.f.ledger.drop(cost, s.n, now, until)
		return
	}
	a.sharing.hold(s.n, until)
	if p := v.late; p != nil {
		p.cost, p.until = cost, until
		if !p.ended || p.inTime(v.f.windows, v.r.Duration) {
			return
		}
	}
	a.debts.Add(cost, until, now)
}
