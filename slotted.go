package weir

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirgo/weir/internal/core/slots"
	"github.com/weirgo/weir/internal/core/windows"
)

// slotted decides by a strategy that keeps one number for a caller.
type slotted struct {
	slots   *slotStrategy
	windows *windowStrategy // the same, of fixed windows; else nil
}

// onSlots is such a strategy.
type onSlots interface{ counts() slotted }

// Do implements [Counter].
func (s *slotStrategy) Do(ctx context.Context, ops []*Op) {
	(&slotted{slots: s}).do(ctx, ops)
}

// counts implements onSlots.
func (s *slotStrategy) counts() slotted { return slotted{slots: s} }

// Do implements [Counter].
func (s *windowStrategy) Do(ctx context.Context, ops []*Op) {
	(&slotted{&s.slotStrategy, s}).do(ctx, ops)
}

// counts implements onSlots.
func (s *windowStrategy) counts() slotted { return slotted{&s.slotStrategy, s} }

// do does ops of Counters on slots, or else of o.
func (o *slotted) do(ctx context.Context, ops []*Op) {
	if ops[0].Verb == OpTakeAll {
		if !takeTogether(ops) {
			ops[0].Err = errApart
		}
		return
	}
	for _, op := range ops {
		c := *o
		if of, ok := op.Counter.(onSlots); ok {
			c = of.counts()
		}
		if c.windows != nil && op.Verb == OpTake && !op.Keep && op.Backlog == nil {
			op.Left, op.Err = c.windows.run(&op.Request, &op.Result, op.sight())
			op.decided()
			c.slots.setFull(op)
			continue
		}
		c.slots.do(ctx, op)
	}
}

// hit decides p on the bucket in a slot that find has returned, at now. It reports false, and has
// counted nothing, if run is to decide.
func (o *slotted) hit(
	slot *slots.Slot, state slots.Word, w *windows.Window, p params, now int64,
) (v verdict, ok bool) {
	if w == nil {
		return o.slots.hit(slot, state, p, now)
	}
	var res Result
	if !o.windows.hit(slot, state, w, p, now, &res) {
		return v, false
	}
	return verdict{Allowed: res.Allowed(), Total: int64(res.TotalRequests), At: w.End}, true
}

// look returns the verdict on a hit at now of the bucket in a slot that find has returned, and what
// the slot holds. It reports false if another call is to decide.
func (o *slotted) look(
	slot *slots.Slot, state slots.Word, w *windows.Window, p params, now int64,
) (v verdict, c slots.Content, ok bool) {
	c = slot.Content(state)
	if slot.State().Epoch() != state.Epoch() {
		return v, c, false // its words may be of two epochs
	}
	if w != nil {
		v = p.Verdict(c.N, w.End)
		return v, c, w.Holds(now)
	}
	v, next := o.slots.algorithm.Decide(c, p, now)
	return v, c, v.Allowed || next == c
}

// fullAfterDenial returns when nothing counts, if nothing more is admitted, as far as the denial of
// p says that: there is room for p then, and the rest follows, Each apart.
func (o *slotted) fullAfterDenial(p params, v verdict) (full int64, ok bool) {
	return v.At + (p.Limit-p.Cost)*p.Each, v.At != noInstant && o.slots.kind != slidingKind
}

// fullAfter returns when nothing counts for key, if nothing more is admitted, in a slot that find
// has returned with this state.
func (o *slotted) fullAfter(
	key string, slot *slots.Slot, state slots.Word, p params, now int64,
) int64 {
	epoch := state.Epoch()
	state = slot.State()
	if c := slot.Content(state); state.Epoch() == epoch && slot.State().Epoch() == epoch {
		return o.slots.algorithm.Full(c, p, now)
	}
	at, _ := o.slots.full(&Request{Key: key})
	return at
}

// run decides on any request of a strategy on slots.
func (o *slotted) run(r *Request, res *Result) (left time.Duration, err error) {
	if o.windows != nil {
		return o.windows.run(r, res, noSight)
	}
	return o.slots.run(r, res, noSight)
}

// fewOps is how many ops takeTogether decides on.
const fewOps = 4

// errApart is the error of ops that are to be taken one by one.
var errApart = fmt.Errorf("weir: cannot take all at once: %w", errors.ErrUnsupported)

// taking is one of the ops of a takeTogether.
type taking struct {
	slotted
	op    *Op
	slot  *slots.Slot
	state slots.Word
	w     *windows.Window // of fixed windows
	p     params
	v     verdict
}

// takeTogether takes few ops of Limits on slots of one Limiter, all or none, where each caller is
// known, with one reading of the clock: it looks at all but the first, and then takes from each,
// unless one denies. It reports false, and has counted nothing, where each is to be taken by
// itself.
func takeTogether(ops []*Op) bool {
	if len(ops) > fewOps {
		return false
	}
	var room [fewOps]taking
	all := room[:len(ops)]
	for i, op := range ops {
		of, ok := op.Counter.(onSlots)
		if !ok || !all[i].find(op, of.counts()) || all[i].slots.l != all[0].slots.l {
			return false
		}
	}
	now := all[0].slots.l.clock.Read()
	denied, ok := lookAll(all, now)
	if ok && !denied {
		denied, ok = takeEach(all, now)
	}
	for i := 0; ok && i < len(all); i++ {
		all[i].decided(denied, now)
	}
	return ok
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

// takeEach takes from each, until one denies: then it gives back what it has taken. It reports
// false where another call is to decide.
func takeEach(all []taking, now int64) (denied, ok bool) {
	for i := range all {
		t := &all[i]
		t.v, ok = t.hit(t.slot, t.state, t.w, t.p, now)
		if !ok {
			ok = t.run()
		}
		if !ok || !t.v.Allowed {
			for j := range all[:i] {
				all[j].giveBack()
			}
			return true, ok
		}
	}
	return false, true
}

// find finds the bucket of a known caller. It reports false where there is none, and of a Strategy
// that is not that of a Limit.
func (t *taking) find(op *Op, of slotted) bool {
	s := of.slots
	if !s.bound || uint(len(op.Key)-1) >= maxID || s.l.closed.Load() {
		return false
	}
	t.op, t.slotted, t.p = op, of, s.costing(op.Cost)
	if of.windows != nil {
		t.w = of.windows.in.Current.Load()
		t.slot, t.state, _ = s.table.find(op.Key, &t.w.Fixed)
		return t.slot != nil
	}
	key := s.period(t.p.Scale)
	t.slot, t.state, _ = s.table.find(op.Key, &key)
	return t.slot != nil
}

// look sets the verdict at now. It reports false where another call is to decide.
func (t *taking) look(now int64) (ok bool) {
	t.v, _, ok = t.slotted.look(t.slot, t.state, t.w, t.p, now)
	return ok
}

// run decides where hit does not, as where a period begins. It reports false if that fails.
func (t *taking) run() bool {
	var res Result
	if _, err := t.slotted.run(&t.op.Request, &res); err != nil {
		return false
	}
	t.v = verdict{Allowed: res.Allowed(), Total: int64(res.TotalRequests), At: noInstant}
	if !res.ExpiresAt.IsZero() {
		t.v.At = t.slots.l.clock.Instant(res.ExpiresAt)
	}
	return true
}

// giveBack gives back what was taken.
func (t *taking) giveBack() {
	_ = t.slots.giveBack(&Op{Request: t.op.Request, Result: *t.slots.l.result(t.v)})
}

// decided sets the outcome of the op, of which all were decided at now.
func (t *taking) decided(denied bool, now int64) {
	l, op := t.slots.l, t.op
	op.Left, op.Source, op.Err = l.setResult(&op.Result, t.v, now), FromLocal, nil
	switch {
	case !op.Full:
	case !denied:
		op.FullAt = op.Result.ExpiresAt
	default:
		full, ok := t.fullAfterDenial(t.p, t.v)
		if t.v.Allowed || !ok {
			full = t.fullAfter(op.Key, t.slot, t.state, t.p, now)
		}
		op.FullAt = l.time(full)
	}
}
