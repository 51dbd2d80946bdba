package limits

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/turns"
)

// Attempts are the limits that one request is held against. [Decide] and [All] are made of them.
// Attempts are for middlewares, which keep them from request to request, and are not safe for
// concurrent use.
type Attempts []Attempt

// Take has every Attempt decide on its Request, and counts it in all or in none. It reports whether
// none denies it, Advisory ones left out; else it gives all back, even if ctx has ended, and peeks
// at the limits that have not decided. Take fails with the first error that tolerate does not
// accept; an Attempt whose error is accepted denies nothing. A nil tolerate accepts none, and once
// ctx has ended none is accepted.
//
// Attempts that Look, and those for costs that are known Afterwards, come first, on one key in
// order; their counts stand, whatever follows. Then limits in this process are peeked at,
// unless there is only one. Then the others decide, on one Store together, and
// those in this process after them. So a denied request takes nothing from others, but for
// those that come between the steps: a count may be too high for the time of a round trip, and
// never too low. A Strategy that cannot give back decides last.
//
// The time that it takes grows with the number of Attempts. Of many, Take looks at ctx after every
// 64, and fails once that has ended; costs that are known Afterwards are counted all the same.
func (l Attempts) Take(ctx context.Context, tolerate func(error) bool) (bool, error) {
	measured, here := false, !turns.IsDue(ctx) // else the strategies decide as of an instant
	together := len(l) > 1
	for i := range l {
		m := &l[i]
		m.reset()
		measured = measured || m.measures()
		here = here && m.turn == inProcess && m.about != nil && !m.about.Waits && !m.Exempt &&
			!m.Op.Keep && !m.holds
		together = together && here && !m.Advisory && m.has(weir.OpTakeAll) &&
			m.about.Store == l[0].about.Store
	}
	if together && !measured { // as most often
		if allowed, ok := l.takeAll(ctx); ok {
			return allowed, nil
		}
	}
	switch {
	case measured:
		l.measure(ctx)
	case here && l.admit(ctx):
		return true, nil
	case here && len(l) == 1:
		v := verdict{tolerate: tolerate}
		return v.goesOn(ctx, &l[0]), v.err
	}
	allowed, err := l.take(ctx, tolerate)
	switch {
	case err != nil:
		if lost := l.Refund(ctx); lost != nil {
			err = errors.Join(err, lost)
		}
		return false, err
	case !allowed:
		_ = l.Refund(ctx) // see Lost
		_ = l.each(ctx, weir.OpPeek, (*Attempt).looks, nil)
	}
	return allowed, nil
}

// ended reports whether ctx has ended. It looks at ctx at every 64th of many Attempts only.
func ended(ctx context.Context, i int) bool { return (i+1)%64 == 0 && ctx.Err() != nil }

// takeAll takes from limits of one Store, all or none; ok is false, and nothing was taken, where
// that is to be done one by one.
func (l Attempts) takeAll(ctx context.Context) (allowed, ok bool) {
	ops := l[0].room[:0]
	for i := range l {
		l[i].Op.Verb = weir.OpTakeAll
		ops = append(ops, &l[i].Op)
	}
	l[0].Op.Counter.Do(ctx, ops)
	if l[0].Op.Err != nil {
		l[0].Op.Err = nil
		return false, false
	}
	verb := weir.OpTake
	for i := range l {
		if !l[i].Op.Result.Allowed() {
			verb = weir.OpPeek
		}
	}
	for i := range l {
		l[i].called(verb)
	}
	return verb == weir.OpTake, true
}

// admit takes from limits that are all in this process. It reports whether each admits, and ends at
// the first that does not, for take to go on.
func (l Attempts) admit(ctx context.Context) bool {
	for i := 1; i < len(l); i++ {
		m := &l[i]
		m.Op.Verb, m.Op.Deciding, m.room[0] = weir.OpPeek, true, &m.Op
		m.Op.Counter.Do(ctx, m.room[:1])
		if m.Op.Err != nil || !m.Op.Result.Allowed() {
			m.called(weir.OpPeek)
			return false
		}
		if ended(ctx, i) {
			return false
		}
	}
	for i := range l {
		m := &l[i]
		m.Op.Verb, m.Op.Deciding, m.room[0] = weir.OpTake, i > 0, &m.Op
		m.Op.Counter.Do(ctx, m.room[:1])
		m.called(weir.OpTake)
		if m.phase != taken || ended(ctx, i) {
			return false
		}
	}
	return true
}

// measured is a key with a cost that is known Afterwards, or one that was only looked at.
type measured struct {
	key  string
	cost bool
}

// measure decides the limits that Look, and those for costs that are known Afterwards: as many at
// once as may follow each other in any order, since no cost of them is on the key of another one.
func (l Attempts) measure(ctx context.Context) {
	var before places[measured]
	from := 0
	for i := range l {
		m := &l[i]
		if !m.measures() {
			continue
		}
		key := m.Op.Request.Key
		if before.last(measured{key, true}) >= from ||
			m.Afterwards && before.last(measured{key, false}) >= from {
			l[from:i].measureAtOnce(ctx)
			from = i
		}
		before.note(measured{key, m.Afterwards}, i)
	}
	l[from:].measureAtOnce(ctx)
}

func (l Attempts) measureAtOnce(ctx context.Context) {
	_ = l.each(ctx, weir.OpPeek, func(m *Attempt) bool { return m.Look && m.waits() }, nil)
	_ = l.each(ctx, weir.OpTake, func(m *Attempt) bool { return m.Afterwards && m.waits() }, nil)
	_ = l.each(ctx, weir.OpCharge, (*Attempt).owes, nil)
}

// take decides the limits that wait, one turn after the other, until one denies.
func (l Attempts) take(ctx context.Context, tolerate func(error) bool) (allowed bool, err error) {
	v := verdict{tolerate: tolerate}
	first := l.first()
	for i := range l {
		m := &l[i]
		if i != first && m.turn == inProcess && m.waits() && m.has(weir.OpPeek) {
			m.call(ctx, weir.OpPeek)
		}
		if ended(ctx, i) {
			return false, fmt.Errorf("limits: %w", ctx.Err())
		}
	}
	for i := range l {
		v.goesOn(ctx, &l[i])
	}
	if v.denied || v.err != nil {
		return false, v.err
	}
	for i := range l {
		if m := &l[i]; m.phase == decided && !m.measures() { // it was only peeked at
			m.phase = pending
		}
	}
	for turn := elsewhere; turn <= last && !v.denied && v.err == nil; turn++ {
		err = l.each(ctx, weir.OpTake, func(m *Attempt) bool { return m.waits() && m.turn == turn },
			func(m *Attempt) bool { return v.goesOn(ctx, m) })
		v.err = cmp.Or(v.err, err)
	}
	return !v.denied && v.err == nil, v.err
}

// first returns the place of the Attempt that decides first, or -1.
func (l Attempts) first() int {
	first := -1
	for i := range l {
		if m := &l[i]; m.waits() && (first < 0 || m.turn < l[first].turn) {
			first = i
		}
	}
	return first
}

// each does verb of the limits that which selects, on one Store together, until
// goesOn reports false of one. A nil goesOn means all: then all but a peek happens even if ctx has
// ended. Else each ends with ctx, whose error it returns.
func (l Attempts) each(
	ctx context.Context, verb weir.Verb, which, goesOn func(*Attempt) bool,
) error {
	some := l.group(which)
	if some && verb != weir.OpPeek && goesOn == nil {
		ctx = context.WithoutCancel(ctx)
	}
	for i := range l {
		if ended(ctx, i) {
			return fmt.Errorf("limits: %w", ctx.Err())
		}
		if !l[i].leads {
			continue
		}
		l.call(ctx, verb, i)
		on := true
		for m := range l.linked(i) {
			on = (goesOn == nil || goesOn(m)) && on
		}
		if !on {
			return nil
		}
	}
	return nil
}

// group finds the limits that which selects, and links the ones on one store. It reports whether
// there are any.
func (l Attempts) group(which func(*Attempt) bool) (some bool) {
	var stores places[any]
	for i := range l {
		m := &l[i]
		m.next, m.leads = 0, which(m)
		some = some || m.leads
		if !m.leads || m.store() == nil {
			continue
		}
		if before := stores.last(m.store()); before >= 0 {
			l[before].next, m.leads = i, false
		}
		stores.note(m.store(), i)
	}
	return some
}

// call does verb of the i-th Attempt, and of those that group has linked to it.
func (l Attempts) call(ctx context.Context, verb weir.Verb, i int) {
	m := &l[i]
	if m.next == 0 {
		m.call(ctx, verb)
		return
	}
	ops := m.room[:0]
	for of := range l.linked(i) {
		of.set(verb)
		ops = append(ops, &of.Op)
	}
	m.Op.Counter.Do(ctx, ops)
	for of := range l.linked(i) {
		of.called(verb)
	}
}

// linked yields the i-th Attempt, and those that group has linked to it.
func (l Attempts) linked(i int) iter.Seq[*Attempt] {
	return func(yield func(*Attempt) bool) {
		for yield(&l[i]) && l[i].next != 0 {
			i = l[i].next
		}
	}
}

// Refund gives the admissions back, but Afterwards, even if ctx has ended. It fails as Lost does.
func (l Attempts) Refund(ctx context.Context) error {
	for i := range l {
		if m := &l[i]; m.held != nil && m.Op.Err == nil {
			m.Op.Err = m.giveBack(context.WithoutCancel(ctx), 0)
			if m.Op.Err == nil {
				m.called(weir.OpReturn)
			}
		}
	}
	_ = l.each(ctx, weir.OpReturn,
		func(m *Attempt) bool { return m.Taken() && m.Op.Err == nil && !m.Afterwards }, nil)
	return l.Lost()
}

// giveBack gives back cost of each Attempt that took its Request.
func (l Attempts) giveBack(ctx context.Context, cost uint64) error {
	var errs []error
	for i := range l {
		if l[i].Taken() {
			errs = append(errs, l[i].giveBack(context.WithoutCancel(ctx), cost))
		}
	}
	return errors.Join(errs...)
}

// Lost returns the errors of the limits that could not give an admission back.
func (l Attempts) Lost() error {
	var errs []error
	for i := range l {
		if l[i].Taken() && l[i].Op.Err != nil {
			errs = append(errs, l[i].Op.Err)
		}
	}
	return errors.Join(errs...)
}

// Binding returns the place of the Attempt whose Result counts for the whole: if some deny, the one
// that does so for the longest, and else the one with the least left. Advisory ones are left out.
// It returns -1 if no Limit decided.
func (l Attempts) Binding() int {
	binding := -1
	for i := range l {
		if l[i].Decided() && !l[i].Advisory && (binding < 0 || l[i].outweighs(&l[binding])) {
			binding = i
		}
	}
	return binding
}

// outcome returns the Outcome of the Attempt that binds, of Ops that are Full: without one the
// request is admitted.
func (l Attempts) outcome(ctx context.Context) weir.Outcome {
	if by := l.Binding(); by >= 0 {
		return l[by].outcome(ctx)
	}
	return weir.Outcome{Result: weir.Result{State: weir.Allow}}
}

// open reports, after an error, whether each limit that could not decide is fail-open for its
// error, and none denies. Those that were not asked are peeked at.
func (l Attempts) open(ctx context.Context) (open bool) {
	for i := range l {
		l[i].strict = true
	}
	_ = l.each(ctx, weir.OpPeek, (*Attempt).looks, nil)
	for i := range l {
		m := &l[i]
		switch {
		case m.Denies(), m.Op.Err != nil && (m.limit == nil || !m.limit.Opens(m.Op.Err)):
			return false
		case m.Op.Err != nil:
			open = true
		}
	}
	return open
}

// CountOnce leaves out, by Exempt, all but one of the Attempts on one count, from which a request
// takes once: the one with the lowest Limit stays, or the first of them.
func (l Attempts) CountOnce() {
	var seen places[count]
	for i := range l {
		m := &l[i]
		if m.Exempt {
			continue
		}
		c := m.count()
		if c.of == nil {
			continue
		}
		if first := seen.last(c); first >= 0 {
			if l[first].Op.Request.Limit <= m.Op.Request.Limit {
				m.Exempt = true
				continue
			}
			l[first].Exempt = true
		}
		seen.note(c, i)
	}
}

// decide is Take, which fails if a denied request could not be given back, and if work in flight
// was to be taken that nobody would release.
func (l Attempts) decide(ctx context.Context) error {
	for i := range l {
		if m := &l[i]; m.InFlight() && !m.holds {
			return m.about.Unreleasable(m.name())
		}
	}
	if allowed, err := l.Take(ctx, nil); allowed || err != nil {
		return err
	}
	return l.Lost()
}

// look is Binding of Attempts that are only looked at. Their Results are without the cost.
func (l Attempts) look(ctx context.Context) (binding int, err error) {
	for i := range l {
		l[i].strict = true
	}
	err = l.each(ctx, weir.OpPeek, (*Attempt).waits, nil)
	if err != nil {
		return -1, err
	}
	for i := range l {
		err = l[i].Op.Err
		if err != nil {
			return -1, err
		}
	}
	return l.Binding(), nil
}
