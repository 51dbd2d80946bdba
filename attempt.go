package weir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// Attempts are the limits that one request is held against: what [Decide] and [All] are made of,
// for middlewares, which keep them from request to request. They are not safe for concurrent use.
type Attempts []Attempt

// Attempt is one limit on a request, and its decision. Make one with [NewAttempt]; the zero Attempt
// limits nothing. Of several, only one may have no [Attempt.CanRefund].
type Attempt struct {
	Request Request

	// Exempt leaves this limit out.
	Exempt bool

	// Advisory lets the request pass even if this limit denies it.
	Advisory bool

	// Look takes nothing: the limit denies if its count is over Most. Afterwards counts Request in
	// full, even if it, or another limit, denies it: its cost has arisen already.
	Look, Afterwards bool

	// Result is the decision if Decided reports true. Where a request was admitted and not taken, or
	// given back, TotalRequests is without its Cost; it may be with that of an earlier Attempt on the
	// same count.
	Result Result

	// Source is the part of the Strategy that decided: "local" is in this process; "primary", "lease",
	// "denials" and "on_fail" are those of package fallback; "" is not known.
	Source string

	// Undecided is set if nobody decided, and the Result follows from a rule for that, such as OnFail
	// of package fallback.
	Undecided bool

	// Err is why the Strategy could not decide, or could not take back what it had admitted.
	Err error

	abilities
	phase     phase
	seen      sight         // by the look before a run
	left      time.Duration // see Left
	revocable bool          // to be admitted by Admit, if the Strategy has it
	strict    bool          // an error of a peek is Err
	holder    Holder        // admits in place of Run; nil: see Holding
	held      *Held         // by holder, until it is given back or to TakeHeld
	giveBack  Return        // set by Admit
	alone     [1]*Attempt   // room for a batch of one
}

// phase is how far the decision of an Attempt is. A call goes forward, see called; a refund goes
// back from taken to decided, and a run begins at pending, whatever a peek before it has found.
type phase uint8

const (
	pending phase = iota // nobody has decided
	decided              // its cost is not counted: it was denied, only looked at, or given back
	taken                // its cost is counted, since it was admitted
	charged              // its cost is counted all the same, see Afterwards
)

// NewAttempt returns an Attempt of s. With a [Limit] the numbers of Request are ignored.
func NewAttempt(s Strategy) (l Attempt) {
	if m, ok := s.(*Limit); ok {
		s = m.Unwrap()
	}
	l.bind(abilitiesOf(s))
	return l
}

// Holding returns l for work in flight: what Take admits is held, as by [Hold], until it is given
// back. It fails with [errors.ErrUnsupported] if the Strategy is no [Holder].
func (l Attempt) Holding() (Attempt, error) {
	var ok bool
	if l.holder, ok = l.strategy.(Holder); !ok {
		return l, l.unsupported("hold")
	}
	l.revocable = true
	return l, nil
}

// Holds reports whether l is [Attempt.Holding].
func (l *Attempt) Holds() bool { return l.holder != nil }

// TakeHeld returns what is held, for the caller to release: it is no longer given back with the
// other limits. It returns nil if l is not [Attempt.Holding], or has admitted nothing.
func (l *Attempt) TakeHeld() (held *Held) {
	if held = l.held; held != nil {
		l.held, l.phase = nil, decided
	}
	return held
}

// bind makes the Strategy of b decide.
func (l *Attempt) bind(b abilities) {
	if l.abilities = b; l.local != nil {
		l.Source = "local"
	}
}

// Strategy returns the Strategy that decides.
func (l *Attempt) Strategy() Strategy { return l.strategy }

// Store returns that of a Strategy that is a [Batcher], or nil.
func (l *Attempt) Store() any { return l.store }

// CanRefund reports whether what the Strategy admits can be given back.
func (l *Attempt) CanRefund() bool { return l.turn != last || l.holder != nil }

// Decided reports whether Result is a decision on Request.
func (l *Attempt) Decided() bool { return l.phase >= decided }

// Denies reports whether the Strategy has denied Request.
func (l *Attempt) Denies() bool { return l.Decided() && !l.Result.Allowed() }

// Taken reports whether the cost of Request is counted.
func (l *Attempt) Taken() bool { return l.phase >= taken }

// Most returns what TotalRequests is held against: the Limit of Request, or a token bucket's burst,
// or that of Result.
func (l *Attempt) Most() uint64 { return cmp.Or(l.Result.Limit, l.burst, l.Request.Limit) }

// Tier returns the limit that Result is of: of a Strategy with tiers the one that binds, and else
// the Limit and the Duration of Request.
func (l *Attempt) Tier() Tier {
	if l.Result.Limit != 0 {
		for _, tier := range tiersOf(l.strategy) {
			if tier.Limit == l.Result.Limit {
				return tier
			}
		}
	}
	return Tier{cmp.Or(l.Result.Limit, l.Request.Limit), l.Request.Duration}
}

// Left returns how long after the decision Result's ExpiresAt is: the time to wait, without a
// reading of the clock. It is 0 if the Strategy does not say, and means nothing if ExpiresAt is
// zero.
func (l *Attempt) Left() time.Duration { return l.left }

// Remaining returns how much is left of Most.
func (l *Attempt) Remaining() uint64 { return l.Result.Remaining(cmp.Or(l.burst, l.Request.Limit)) }

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
		m.left, m.Err = m.local.look(&m.Request, &m.Result, &m.seen)
		if m.Err != nil || m.seen.slot == nil && !m.Result.Allowed() {
			m.called(OpPeek)
			return false
		}
	}
	for i := range l {
		m := &l[i]
		m.left, m.Err = m.local.run(&m.Request, &m.Result, &m.seen)
		if m.Err != nil {
			m.Result = Result{}
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

func (l *Attempt) measures() bool { return l.Look || l.Afterwards }

// owes reports whether a cost that is known Afterwards is not counted yet: it was denied, or nobody
// decided on it.
func (l *Attempt) owes() bool {
	return l.Afterwards && l.Decided() && l.Err == nil && l.phase != charged &&
		(l.Denies() || l.Undecided)
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

// outweighs reports whether l binds rather than m, which is before it.
func (l *Attempt) outweighs(m *Attempt) bool {
	switch at, other := &l.Result.ExpiresAt, &m.Result.ExpiresAt; {
	case l.Denies() != m.Denies():
		return l.Denies()
	case l.Denies():
		return !other.IsZero() && (at.IsZero() || at.After(*other))
	}
	return l.Remaining() < m.Remaining()
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

// waits reports whether the Attempt has yet to decide.
func (l *Attempt) waits() bool {
	return l.strategy != nil && !l.Exempt && l.phase == pending && l.Err == nil
}

// reset writes no pointer that is nil already: while the garbage collector marks, it notes each
// write of one.
func (l *Attempt) reset() {
	l.phase, l.Undecided = pending, false
	if l.seen.slot != nil {
		l.seen.slot = nil
	}
	if l.Err != nil {
		l.Err = nil
	}
	if l.Source != "" && l.local == nil {
		l.Source = ""
	}
	if l.giveBack != nil {
		l.giveBack = nil
	}
}

// call calls the method of op.
func (l *Attempt) call(ctx context.Context, op Op) {
	switch {
	case op == OpRun && l.local != nil && !l.revocable: // as most often
		l.left, l.Err = l.local.run(&l.Request, &l.Result, noSight)
	case op == OpPeek && l.local != nil:
		l.left, l.Err = l.local.look(&l.Request, &l.Result, finalLook)
	case op == OpRefund:
		l.Err = l.refund(ctx, l.cost())
	case op == OpCharge && l.charger == nil:
		l.Err = l.unsupported("charge")
	case op == OpCharge:
		l.Err = l.charger.Charge(ctx, &l.Request)
	default:
		l.decide(ctx, op)
	}
	if l.Err != nil && (op == OpRun || op == OpPeek) {
		l.Result = Result{}
	}
	l.called(op)
}

// decide calls Run or Peek.
func (l *Attempt) decide(ctx context.Context, op Op) {
	var res *Result
	l.left = 0
	switch {
	case op == OpRun:
		res, l.Err = l.run(ctx)
	case l.peeker == nil:
		l.Err = l.unsupported("peek")
	default:
		res, l.Err = l.peeker.Peek(ctx, &l.Request)
	}
	switch {
	case res != nil:
		l.Result = *res
	case l.Err == nil:
		l.Err = fmt.Errorf("weir: %s returned neither a Result nor an error: %w", l.name(),
			errors.ErrUnsupported)
	}
}

// run is Run, or Admit if what is admitted must be given back to the admission itself, or Hold.
func (l *Attempt) run(ctx context.Context) (res *Result, err error) {
	if l.holder != nil {
		return l.hold(ctx)
	}
	if l.admitter != nil && (l.revocable || l.refunder == nil) {
		res, l.giveBack, err = l.admitter.Admit(ctx, &l.Request)
		if !errors.Is(err, errors.ErrUnsupported) { // else it wraps a Strategy without Admit
			return res, err
		}
	}
	return l.strategy.Run(ctx, &l.Request)
}

// hold is Hold, with the Result of an admission too.
func (l *Attempt) hold(ctx context.Context) (*Result, error) {
	res, place, err := l.holder.Acquire(ctx, &l.Request)
	if err == nil && res.Allowed() {
		l.held = hold(l.strategy, &l.Request, place)
	}
	return res, err
}

// refund gives cost of what was admitted back.
func (l *Attempt) refund(ctx context.Context, cost uint64) error {
	switch {
	case l.held != nil:
		return l.TakeHeld().Release(ctx)
	case l.giveBack != nil:
		return l.giveBack(ctx, cost)
	case l.refunder == nil:
		return l.unsupported("refund")
	}
	q := l.Request
	if cost != l.cost() {
		q.Cost = cost
	}
	return l.refunder.Refund(ctx, &q, &l.Result)
}

// called notes that the method of op was called.
func (l *Attempt) called(op Op) {
	switch {
	case op == OpPeek && l.Err != nil && !l.Look && !l.strict: // it decides later, or need not
		l.Err = nil
	case l.Err != nil:
	case op == OpRun:
		if l.phase = decided; l.Result.Allowed() {
			l.phase = taken
		}
	case op == OpPeek:
		l.phase = decided
		if l.Result.Allowed() {
			l.Result.TotalRequests -= min(l.Result.TotalRequests, l.cost())
		}
		if l.Look {
			l.Result.State = Allow
			if l.Result.TotalRequests > l.Most() {
				l.Result.State = Deny
			}
		}
	case op == OpRefund:
		l.phase = decided
		l.Result.TotalRequests -= min(l.Result.TotalRequests, l.cost())
	case op == OpCharge:
		l.phase = charged
		if !l.Result.Allowed() {
			l.Result.TotalRequests += min(l.cost(), ^l.Result.TotalRequests)
		}
	}
}

// cost is that of Request, of which 0 means 1.
func (l *Attempt) cost() uint64 { return max(1, l.Request.Cost) }
