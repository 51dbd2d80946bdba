package limits

import (
	"context"
	"errors"

	"github.com/weirgo/weir"
)

// Attempts are the limits that one request is held against: what [Decide] and [All] are made of,
// for middlewares, which keep them from request to request. They are not safe for concurrent use.
type Attempts []Attempt

// Take has every Attempt decide on its Request, and counts it in all or in none. It reports whether
// none denies it, Advisory ones left out; else it gives back what was taken, even if ctx has ended,
// and peeks at the limits that have not decided. It fails with the first error that tolerate does
// not accept; an Attempt whose error is accepted denies nothing. A nil tolerate accepts none, and
// once ctx has ended none is accepted.
//
// Attempts that Look, and those for costs that are known Afterwards, come first, in order; what
// these count stands, whatever follows. Then limits in this process are peeked at, unless there is
// only one. Then the others decide, those of one [Batcher.Store] together, and those in this
// process after them. So what is denied takes nothing from other requests, but for those that come
// between the steps: a count may be too high for the time of a round trip, and never too low. A
// Strategy that cannot give back decides last.
func (l Attempts) Take(ctx context.Context, tolerate func(error) bool) (bool, error) {
	measured, here := false, true
	for i := range l {
		m := &l[i]
		m.reset()
		measured = measured || m.measures()
		here = here && m.local != nil && !m.Exempt && !m.revocable
	}
	switch {
	case measured:
		l.measure(ctx)
	case here && l.admit(): // as most often
		return true, nil
	case here && len(l) == 1:
		return l.verdict(ctx, tolerate)
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
		l.each(ctx, OpPeek, func(m *Attempt) bool { return m.waits() && m.peeker != nil })
	}
	return allowed, nil
}

// admit takes from limits that are all in this process. It reports whether each admits; else it
// ends at the first that does not, for take to go on.
func (l Attempts) admit() bool {
	for i := 1; i < len(l); i++ {
		m := &l[i]
		m.left, m.Err = m.local.Look(&m.Request, &m.Result, &m.seen)
		if m.Err != nil || m.seen.Slot == nil && !m.Result.Allowed() {
			m.called(OpPeek)
			return false
		}
	}
	for i := range l {
		m := &l[i]
		m.left, m.Err = m.local.Run(&m.Request, &m.Result, &m.seen)
		if m.Err != nil {
			m.Result = weir.Result{}
		}
		if m.called(OpRun); m.phase != taken {
			return false
		}
	}
	return true
}

// measure decides the limits that Look, and those for costs that are known Afterwards.
func (l Attempts) measure(ctx context.Context) {
	for from := 0; from < len(l); {
		upTo := from + 1
		for upTo < len(l) && !l[from:upTo].precede(&l[upTo]) {
			upTo++
		}
		l[:upTo].each(ctx, OpPeek, func(m *Attempt) bool { return m.Look && m.waits() })
		l[:upTo].each(ctx, OpRun, func(m *Attempt) bool { return m.Afterwards && m.waits() })
		l[:upTo].each(ctx, OpCharge, (*Attempt).owes)
		from = upTo
	}
}

// take decides the limits that wait, one turn after the other, until one denies.
func (l Attempts) take(ctx context.Context, tolerate func(error) bool) (allowed bool, err error) {
	first := l.next()
	for i := range l {
		if m := &l[i]; i != first && m.turn == inProcess && m.peeker != nil && m.waits() {
			m.call(ctx, OpPeek)
		}
	}
	if allowed, err = l.verdict(ctx, tolerate); err != nil || !allowed {
		return allowed, err
	}
	for i := range l {
		if m := &l[i]; m.phase == decided && !m.measures() { // it was only peeked at
			m.phase = pending
		}
	}
	for i := first; i >= 0 && err == nil && allowed; i = l.next() {
		turn := l[i].turn
		l.call(ctx, OpRun, i, func(m *Attempt) bool { return m.waits() && m.turn == turn })
		allowed, err = l.verdict(ctx, tolerate)
	}
	return allowed, err
}

// precede reports whether m is not to be measured with l: it is measured in another way, or a cost
// of l on the same key comes first.
func (l Attempts) precede(m *Attempt) bool {
	if !m.measures() {
		return false
	}
	for i := range l {
		if l[i].measures() && (l[i].Look != m.Look || m.Afterwards && l[i].Request.Key == m.Request.Key) {
			return true
		}
	}
	return false
}

// next returns the place of the Attempt that decides next, or -1.
func (l Attempts) next() int {
	next := -1
	for i := range l {
		if m := &l[i]; m.waits() && (next < 0 || m.turn < l[next].turn) {
			next = i
		}
	}
	return next
}

// verdict returns what follows from the decisions so far.
func (l Attempts) verdict(
	ctx context.Context, tolerate func(error) bool,
) (allowed bool, err error) {
	allowed = true
	for i := range l {
		m := &l[i]
		if m.Err != nil && (tolerate == nil || ctx.Err() != nil || !tolerate(m.Err)) {
			return false, m.Err
		}
		allowed = allowed && (m.Advisory || !m.Denies())
	}
	return allowed, nil
}

// each calls the method of op of the limits that which selects, until it was called. What is no
// peek must happen, even if ctx has ended.
func (l Attempts) each(ctx context.Context, op Op, which func(*Attempt) bool) {
	for i := range l {
		if !which(&l[i]) {
			continue
		}
		if op != OpPeek {
			ctx = context.WithoutCancel(ctx)
		}
		l.call(ctx, op, i, which)
	}
}

// Refund gives back what was taken, but Afterwards, even if ctx has ended. It fails as Lost does.
func (l Attempts) Refund(ctx context.Context) error {
	l.each(ctx, OpRefund, func(m *Attempt) bool { return m.Taken() && m.Err == nil && !m.Afterwards })
	return l.Lost()
}

// giveBack gives back cost of each Attempt that took its Request.
func (l Attempts) giveBack(ctx context.Context, cost uint64) error {
	var errs []error
	for i := range l {
		if l[i].Taken() {
			errs = append(errs, l[i].refund(context.WithoutCancel(ctx), cost))
		}
	}
	return errors.Join(errs...)
}

// Lost returns the errors of the limits that could not give back what they had taken.
func (l Attempts) Lost() error {
	var errs []error
	for i := range l {
		if l[i].Taken() && l[i].Err != nil {
			errs = append(errs, l[i].Err)
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

// call calls the method of op of the i-th Attempt, and of others on the same store that also
// selects.
func (l Attempts) call(ctx context.Context, op Op, i int, also func(*Attempt) bool) {
	m := &l[i]
	if m.batcher == nil || m.revocable {
		m.call(ctx, op)
		return
	}
	batch := append(m.alone[:0], m)
	for j := i + 1; j < len(l); j++ {
		o := &l[j]
		if also(o) && o.batcher != nil && o.store == m.store && !o.revocable {
			batch = append(batch, o)
		}
	}
	m.batcher.Batch(ctx, op, batch)
	for _, m := range batch {
		m.called(op)
	}
}
