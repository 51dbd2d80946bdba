package weir

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/calendar"
	"github.com/weirgo/weir/internal/core/engine"
	"github.com/weirgo/weir/internal/core/slots"
	"github.com/weirgo/weir/internal/core/states"
	"github.com/weirgo/weir/internal/core/windows"
)

// slotStrategy is the common part of the strategies on slots.
type slotStrategy struct {
	reader
	in     engine.Slots
	series *windows.Series // of fixed windows; nil: as long as a request's Duration
}

// newSlotStrategy returns the strategy of a kind, without the rest of a token bucket.
func newSlotStrategy(l *Limiter, k slots.Kind) slotStrategy {
	return slotStrategy{reader: reader{l: l, most: maxCount}, in: l.stores.Slots[k]}
}

// newWindowStrategy returns the strategy with the fixed windows, and the counts, of a series.
func newWindowStrategy(l *Limiter, in *windows.Series) slotStrategy {
	s := newSlotStrategy(l, engine.FixedKind)
	s.series, s.duration = in, time.Duration(in.Scale()*msec)
	s.in.Series, s.in.Scale = in.Number, in.Scale()
	s.in.Algorithm = &algorithm.FixedWindow{
		End: func(_, now int64) int64 { return in.Window(now).End },
	}
	return s
}

// newLimitedWindows returns the strategy for a limit in the fixed windows of a series.
func newLimitedWindows(
	l *Limiter, name windows.SeriesName, c *calendar.Calendar, limit Tier,
) (s slotStrategy, err error) {
	in, err := l.named(name, c)
	if err != nil {
		return s, err
	}
	s = newWindowStrategy(l, in)
	s.bound, s.limit, s.numbersOf = true, limit.Limit, limit
	return s, nil
}

// Run implements [Strategy]. It fails as [Limiter.CheckRate] does.
func (s *slotStrategy) Run(ctx context.Context, r *Request) (*Result, error) {
	res := new(Result)
	if _, err := s.run(ctx, r, res); err != nil {
		return nil, err
	}
	return res, nil
}

// run decides on r. On an error res is the zero Result.
func (s *slotStrategy) run(
	ctx context.Context, r *Request, res *Result,
) (left time.Duration, err error) {
	p, err := s.parse(r)
	switch {
	case err != nil:
		return 0, err
	case s.in.Kind != engine.FixedKind:
		v, now, err := s.in.Take(r.Key, p, s.l.asOf(ctx))
		if err != nil {
			*res = Result{}
			return 0, s.l.fail(err)
		}
		return s.l.setResult(res, v, now), nil
	case s.series == nil:
		return s.l.count(r.Key, p.Scale, p.Limit, p.Cost, res)
	}
	w := s.series.Current.Load()
	slot, state, _ := s.in.Table.Find(r.Key, &w.Fixed)
	now := s.l.clock.Read()
	if slot == nil || !s.hitWindow(slot, state, w, p, now, res) {
		return s.l.countSlow(r.Key, p.Scale, p.Limit, p.Cost, now, w, res)
	}
	return time.Duration(w.End - now), nil
}

// hitWindow decides p at now on the bucket in a slot of a window, as Limiter.hit does, and also
// reports false if the window does not hold now.
func (s *slotStrategy) hitWindow(
	slot *slots.Slot, state slots.Word, w *windows.Window, p params, now int64, res *Result,
) bool {
	return w.Holds(now) && p.Cost <= p.Limit &&
		s.l.hit(slot, state, p.Cost, p.Limit, w.Stamp(now), w, res)
}

// About implements [Counter].
func (s *slotStrategy) About() *About { return &s.about }

// describe sets the About of c, which decides by s.
func (s *slotStrategy) describe(c Counter, a About) {
	a.Store, a.Verbs = s.l, VerbsOf(OpTakeAll)
	if s.bound {
		s.one, _ = s.params(s.limit, s.duration) // check has found them right
	}
	s.reader.describe(c, s.in.Keys, a)
}

// costing returns the params of a cost, of the strategy of a Limit.
func (s *slotStrategy) costing(cost uint64) params {
	p := s.one
	if cost > 1 {
		p.Cost = int64(min(cost, s.most))
		if cost > s.limit && uint64(p.Cost) == s.most {
			p.Limit = min(p.Limit, p.Cost-1) // both may be over most
		}
	}
	return p
}

// onSlots is a strategy on slots.
type onSlots interface{ onSlots() *slotStrategy }

func (s *slotStrategy) onSlots() *slotStrategy { return s }

// Do implements [Counter], for ops of Counters on slots, or else of s.
func (s *slotStrategy) Do(ctx context.Context, ops []*Op) {
	if ops[0].Verb == OpTakeAll {
		if !takeTogether(ops) {
			ops[0].Err = errApart
		}
		return
	}
	for _, op := range ops {
		in := s
		if of, ok := op.Counter.(onSlots); ok {
			in = of.onSlots()
		}
		if in.in.Kind == engine.FixedKind && op.Verb == OpTake && !op.Keep && op.Backlog == nil {
			in.takeWindow(op)
		} else {
			in.do(ctx, op, &in.in)
		}
	}
}

// takeWindow does an OpTake by fixed windows, and goes on from where a look has seen that the
// bucket admits the op.
func (s *slotStrategy) takeWindow(op *Op) {
	at := &op.call
	slot := at.Slot
	at.Slot, at.Rest = nil, engine.Rest{}
	if slot != nil && op.Deciding &&
		s.l.hit(slot, at.State, at.Cost, at.Limit, at.Window.Stamp(at.Now), at.Window, &op.Result) {
		op.Left, op.Err = time.Duration(at.Window.End-at.Now), nil
	} else {
		op.Left, op.Err = s.run(context.Background(), &op.Request, &op.Result)
	}
	op.Source = FromLocal
	switch {
	case op.Err != nil:
		op.setErr(op.Err)
	case !op.Full:
	case op.Result.Allowed():
		op.FullAt = op.Result.ExpiresAt
	default:
		p, _ := s.parse(&op.Request) // it was parsed before
		op.FullAt = s.l.time(s.in.Full(op.Key, p))
	}
}

// hit decides p on the bucket in a slot that find has returned, at now. It reports false, and has
// counted nothing, if run is to decide.
func (s *slotStrategy) hit(
	slot *slots.Slot, state slots.Word, w *windows.Window, p params, now int64,
) (v verdict, ok bool) {
	if w == nil {
		return s.in.Hit(slot, state, p, now)
	}
	var res Result
	if !s.hitWindow(slot, state, w, p, now, &res) {
		return v, false
	}
	return verdict{Allowed: res.Allowed(), Total: int64(res.TotalRequests), At: w.End}, true
}

// look returns the verdict on a hit at now of the bucket in a slot that find has returned, and the
// content of the slot; ok is false if another call is to decide.
func (s *slotStrategy) look(
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
	v, next := s.in.Algorithm.Decide(c, p, now)
	return v, c, v.Allowed || next == c
}

// fullAfter returns when nothing counts for key, if nothing more is admitted, after a verdict on p
// at now in a slot that find has returned with this state. A denial says it: there is room for p
// then, and the rest follows, Each apart; but of sliding windows, and of a cost that can never
// pass.
func (s *slotStrategy) fullAfter(
	key string, slot *slots.Slot, state slots.Word, p params, v verdict, now int64,
) int64 {
	if !v.Allowed && v.At != noInstant && s.in.Kind != engine.SlidingKind {
		return v.At + (p.Limit-p.Cost)*p.Each
	}
	epoch := state.Epoch()
	state = slot.State()
	if c := slot.Content(state); state.Epoch() == epoch && slot.State().Epoch() == epoch {
		return s.in.Algorithm.Full(c, p, now)
	}
	return s.in.Full(key, p)
}

// fewOps is how many ops takeTogether decides on.
const fewOps = 4

// errApart is the error of ops that are to be taken one by one.
var errApart = fmt.Errorf("weir: cannot take all at once: %w", errors.ErrUnsupported)

// taking is one of the ops of a takeTogether.
type taking struct {
	*slotStrategy
	op    *Op
	slot  *slots.Slot
	state slots.Word
	w     *windows.Window // of fixed windows
	p     params
	v     verdict
}

// takeTogether takes few ops of Limits on slots of one Limiter, all or none, where each caller is
// known, with one reading of the clock: it looks at all but the first, and then takes from each,
// unless one denies. takeTogether reports false, and has counted nothing, where each is to be taken
// by itself.
func takeTogether(ops []*Op) bool {
	if len(ops) > fewOps {
		return false
	}
	var room [fewOps]taking
	all := room[:len(ops)]
	for i, op := range ops {
		of, ok := op.Counter.(onSlots)
		if !ok || !all[i].find(op, of.onSlots()) || all[i].l != all[0].l {
			return false
		}
	}
	now := all[0].l.clock.Read()
	denied, ok := lookAll(all, now)
	if ok && !denied {
		denied, ok = takeEach(all, now)
	}
	for i := 0; ok && i < len(all); i++ {
		all[i].decided(denied, now)
	}
	return ok
}

// lookAll sets the verdicts of all but the first and, if one of them denies, of that too; ok is
// false where another call is to decide.
func lookAll(all []taking, now int64) (denied, ok bool) {
	for i := len(all) - 1; i > 0; i-- {
		if !all[i].look(now) {
			return false, false
		}
		denied = denied || !all[i].v.Allowed
	}
	return denied, !denied || all[0].look(now)
}

// takeEach takes from each, until one denies, and then gives all back; ok is false where another
// call is to decide.
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
// that is no Limit's.
func (t *taking) find(op *Op, s *slotStrategy) bool {
	if !s.bound || uint(len(op.Key)-1) >= maxID || s.l.closed.Load() {
		return false
	}
	t.op, t.slotStrategy, t.p = op, s, s.costing(op.Cost)
	if s.series != nil {
		t.w = s.series.Current.Load()
		t.slot, t.state, _ = s.in.Table.Find(op.Key, &t.w.Fixed)
		return t.slot != nil
	}
	key := s.in.Period(t.p.Scale)
	t.slot, t.state, _ = s.in.Table.Find(op.Key, &key)
	return t.slot != nil
}

// look sets the verdict at now; ok is false where another call is to decide.
func (t *taking) look(now int64) (ok bool) {
	t.v, _, ok = t.slotStrategy.look(t.slot, t.state, t.w, t.p, now)
	return ok
}

// run decides where hit does not, as where a period begins, and reports false if that fails.
func (t *taking) run() bool {
	var res Result
	if _, err := t.slotStrategy.run(context.Background(), &t.op.Request, &res); err != nil {
		return false
	}
	t.v = verdict{Allowed: res.Allowed(), Total: int64(res.TotalRequests), At: noInstant}
	if !res.ExpiresAt.IsZero() {
		t.v.At = t.l.clock.Instant(res.ExpiresAt)
	}
	return true
}

// giveBack gives the admission back.
func (t *taking) giveBack() {
	_ = t.in.Refund(t.op.Key, "", t.p, engine.Taken{Expires: t.v.At})
}

// decided sets the outcome of the op, of which all were decided at now.
func (t *taking) decided(denied bool, now int64) {
	l, op := t.l, t.op
	op.Left, op.Source, op.Err = l.setResult(&op.Result, t.v, now), FromLocal, nil
	op.call.Rest = engine.Rest{}
	switch {
	case !op.Full:
	case !denied:
		op.FullAt = op.Result.ExpiresAt
	default:
		op.FullAt = l.time(t.fullAfter(op.Key, t.slot, t.state, t.p, t.v, now))
	}
}

// stateStrategy is the common part of the strategies on states.
type stateStrategy[S states.State] struct {
	reader
	in engine.States[S]

	// list lists the hits of a log; nil: this is no log.
	list func(state S, p params, now int64) []Hit
}

// Run implements [Strategy]. It fails as [Limiter.CheckRate] does.
func (s *stateStrategy[S]) Run(ctx context.Context, r *Request) (*Result, error) {
	p, err := s.parse(r)
	if err != nil {
		return nil, err
	}
	v, now, err := s.in.Count(r.Key, r.Meta, &engine.Call{Params: p, AsOf: s.l.asOf(ctx)})
	if err != nil {
		return nil, s.l.fail(err)
	}
	res := new(Result)
	s.setResult(res, v, now)
	return res, nil
}

// About implements [Counter].
func (s *stateStrategy[S]) About() *About { return &s.about }

// describe sets the About of c, which decides by s.
func (s *stateStrategy[S]) describe(c Counter, a About) { s.reader.describe(c, s.in.Keys, a) }

// Do implements [Counter].
func (s *stateStrategy[S]) Do(ctx context.Context, ops []*Op) {
	for _, op := range ops {
		if op.Verb == OpHits && s.list != nil {
			op.Hits, op.Err = s.hits(&op.Request)
		} else {
			s.do(ctx, op, &s.in)
		}
	}
}

// hits lists the admissions that count.
func (s *stateStrategy[S]) hits(r *Request) ([]Hit, error) {
	p, err := s.parse(r)
	if err != nil {
		return nil, err
	}
	h, err := s.in.Lock(r.Key, p.Scale, false, present)
	if err != nil {
		return nil, err
	}
	defer h.Unlock(states.Seen)
	return s.list(h.State, p, h.Now), nil
}
