package weir

import (
	"sync/atomic"

	"github.com/weirgo/weir/internal/core/forlimits"
	"github.com/weirgo/weir/internal/core/slots"
	"github.com/weirgo/weir/internal/core/windows"
)

// What package limits gets besides the methods of a Strategy.
func init() {
	forlimits.Steps = forlimits.Weir[Strategy, Request, Result, Limit, Tier, Place, Held]{
		LocalOf:  localOf,
		Known:    func(m *Limit) *atomic.Value { return &m.decider().known },
		Inner:    inner,
		CountsOf: countsOf,
		TiersOf:  tiersOf,
		Keep:     keep,

		SaysLeft: saysLeft,
		LeftOf:   leftOf,
		FullOf:   fullOf,

		InFlight:     func(s Strategy) bool { return heldBy(s) != nil },
		Unreleasable: unreleasable,
	}
}

// fewLimits is how many limits takeAll decides on.
const fewLimits = 4

// taking is one limit of a takeAll.
type taking struct {
	d     *decider
	slot  *slots.Slot
	state slots.Word
	w     *windows.Window // of fixed windows
	v     verdict
	p     params
}

// takeAll is Take of an All whose limits are few and keep one number for a caller each, who is
// known to all. It does what limits.Attempts.Take does, without its requests, and with one reading
// of the clock: it looks at all limits but the first, and then takes from each, unless one denies.
// It reports false, and has counted nothing, where another call is to decide.
func (m *Limit) takeAll(d *decider, key string, cost uint64, out *Outcome) (ok bool) {
	if uint(len(d.all)-1) >= fewLimits {
		return false
	}
	var room [fewLimits]taking
	all := room[:len(d.all)]
	for i, part := range d.all {
		t := &all[i]
		t.d = part.decider()
		t.slot, t.state, t.w = t.d.find(key)
		if t.slot == nil || t.d.l != all[0].d.l {
			return false
		}
		t.p = t.d.costing(cost)
	}
	now := all[0].d.l.clock.Read()
	denied, ok := lookAll(all, now)
	if ok && !denied {
		now, ok = takeEach(all, key, cost, now)
	}
	if !ok {
		return false
	}
	binding := 0
	for i := range all {
		if all[i].outweighs(&all[binding]) {
			binding = i
		}
	}
	t, full := &all[binding], noInstant
	for i := range all {
		if t.v.Allowed {
			full = max(full, all[i].v.At)
		} else {
			full = max(full, all[i].full(key, now))
		}
	}
	d.all[binding].setOutcome(out, t.d.l, t.d.most, t.v, now, full)
	for i := 0; !t.v.Allowed && i < len(all); i++ { // of an admission the least left binds
		out.Left = min(out.Left, all[i].leftDenied())
	}
	return true
}

// lookAll sets the verdicts of all but the first and, if one of them denies, of that too. It
// reports false where another call is to decide.
func lookAll(all []taking, now int64) (denied, ok bool) {
	for i := len(all) - 1; i > 0; i-- {
		if !all[i].look(now) {
			return false, false
		}
		denied = denied || !all[i].v.Allowed
	}
	return denied, !denied || all[0].look(now)
}

// takeEach takes from each, until one denies: then it gives back what it has taken. It returns when
// it has decided, and reports false where another call is to decide.
func takeEach(all []taking, key string, cost uint64, now int64) (at int64, ok bool) {
	for i := range all {
		t := &all[i]
		t.v, at, ok = t.d.hit(t.slot, t.state, t.w, t.p, now)
		if !ok {
			at, ok = now, t.run(key, cost)
		}
		if !ok || !t.v.Allowed {
			giveBackAll(all[:i], key, cost)
			return at, ok
		}
		now = at
	}
	return now, true
}

// look sets the verdict at now. It reports false where another call is to decide.
func (t *taking) look(now int64) (ok bool) {
	t.v, _, ok = t.d.look(t.slot, t.state, t.w, t.p, now)
	return ok
}

// run decides where hit does not, as where a period begins. It reports false if that fails.
func (t *taking) run(key string, cost uint64) bool {
	res, r := Result{}, Request{Key: key, Cost: cost}
	if _, err := t.d.run(&r, &res); err != nil {
		return false
	}
	t.v = verdict{Allowed: res.Allowed(), Total: int64(res.TotalRequests), At: noInstant}
	if !res.ExpiresAt.IsZero() {
		t.v.At = t.d.l.clock.Instant(res.ExpiresAt)
	}
	return true
}

// outweighs reports whether the verdict of t binds rather than that of other, which is before it.
func (t *taking) outweighs(other *taking) bool {
	switch {
	case t.v.Allowed != other.v.Allowed:
		return !t.v.Allowed
	case t.v.Allowed:
		return int64(t.d.most)-t.v.Total < int64(other.d.most)-other.v.Total
	}
	return other.v.At != noInstant && (t.v.At == noInstant || t.v.At > other.v.At)
}

// leftDenied returns how much cost is left after another limit has denied it, or this one.
func (t *taking) leftDenied() uint64 {
	total := uint64(t.v.Total)
	if t.v.Allowed {
		total -= uint64(t.p.Cost)
	}
	return t.d.most - min(t.d.most, total)
}

// full returns when nothing counts after another limit has denied it, or this one.
func (t *taking) full(key string, now int64) int64 {
	if full, ok := t.d.fullAfterDenial(t.p, t.v); ok && !t.v.Allowed {
		return full
	}
	return t.d.fullAfter(key, t.slot, t.state, t.p, now)
}

// giveBackAll gives back what was taken.
func giveBackAll(taken []taking, key string, cost uint64) {
	r := &Request{Key: key, Cost: cost}
	for _, t := range taken {
		_ = t.d.slots.refund(r, t.d.l.result(t.v), slots.Identity{}, 0)
	}
}
