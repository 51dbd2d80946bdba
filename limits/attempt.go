package limits

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/forlimits"
	"github.com/weirgo/weir/internal/core/turns"
)

// Attempt is one limit on a request, and its decision. Make one with [NewAttempt]; the zero Attempt
// limits nothing. Of several, only one may have no [Attempt.CanRefund].
type Attempt struct {
	Request weir.Request

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
	Result weir.Result

	// Source is the part of the Strategy that decided: "local" is in this process; "primary", "lease",
	// "denials" and "on_fail" are those of package fallback; "" is not known.
	Source string

	// Undecided is set if nobody decided, and the Result follows from a rule for that, such as OnFail
	// of package fallback.
	Undecided bool

	// Err is why the Strategy could not decide, or could not take back what it had admitted.
	Err error

	abilities
	of        *limit // of a Limit that is asked, or of NewAttempt; else nil
	phase     phase
	seen      forlimits.Sight // by the look before a run
	left      time.Duration   // see Left
	revocable bool            // to be admitted by Admit, if the Strategy has it
	strict    bool            // an error of a peek is Err
	holder    weir.Holder     // admits in place of Run; nil: see Holding
	held      *weir.Held      // by holder, until it is given back or to TakeHeld
	giveBack  weir.Return     // set by Admit
	alone     [1]*Attempt     // room for a batch of one
	leads     bool            // it is called, with those after it: see group
	next      int             // the place of the next one that is called with it; 0: there is none
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

// NewAttempt returns an Attempt of s. With a [weir.Limit] the numbers of Request are ignored.
func NewAttempt(s weir.Strategy) (l Attempt) {
	if m, ok := s.(*weir.Limit); ok {
		s = m.Unwrap()
	}
	l.of = &limit{abilities: abilitiesOf(s), counts: inside.CountsOf(s)}
	l.bind(&l.of.abilities)
	return l
}

// Holding returns l for work in flight: what Take admits is held, as by [weir.Hold], until it is
// given back. It fails with [errors.ErrUnsupported] if the Strategy is no [weir.Holder].
func (l Attempt) Holding() (Attempt, error) {
	holder, ok := l.strategy.(weir.Holder)
	if !ok || !l.inFlight {
		return l, l.unsupported("hold")
	}
	l.holder, l.revocable = holder, true
	return l, nil
}

// InFlight reports whether the Strategy bounds work in flight: nobody releases what an Attempt that
// is not [Attempt.Holding] takes of it.
func (l *Attempt) InFlight() bool { return l.inFlight }

// Holds reports whether l is [Attempt.Holding].
func (l *Attempt) Holds() bool { return l.holder != nil }

// TakeHeld returns what is held, for the caller to release: it is no longer given back with the
// other limits. It returns nil if l is not [Attempt.Holding], or has admitted nothing.
func (l *Attempt) TakeHeld() (held *weir.Held) {
	if held = l.held; held != nil {
		l.held, l.phase = nil, decided
	}
	return held
}

// bind makes the Strategy of b decide.
func (l *Attempt) bind(b *abilities) {
	l.abilities = *b
	if l.local != nil {
		l.Source = "local"
	}
}

// Strategy returns the Strategy that decides.
func (l *Attempt) Strategy() weir.Strategy { return l.strategy }

// Store returns that of a Strategy that is a [Batcher], or nil.
func (l *Attempt) Store() any { return l.store }

// CanRefund reports whether what the Strategy admits can be given back.
func (l *Attempt) CanRefund() bool { return l.turn != last || l.holder != nil }

// Decided reports whether Result is a decision on Request.
func (l *Attempt) Decided() bool { return l.phase >= decided }

// Denies reports whether the Strategy has denied Request.
func (l *Attempt) Denies() bool { return l.Decided() && !l.Result.Allowed() }

// Never reports whether the Strategy has denied Request for good: ExpiresAt is zero, and not since
// nobody knows when work in flight ends.
func (l *Attempt) Never() bool {
	return l.Denies() && l.Result.ExpiresAt.IsZero() &&
		(!l.inFlight || l.cost() > l.Most() || l.Result.TotalRequests == 0)
}

// Taken reports whether the cost of Request is counted.
func (l *Attempt) Taken() bool { return l.phase >= taken }

// Most returns what TotalRequests is held against: the Limit of Request, or a token bucket's burst,
// or that of Result.
func (l *Attempt) Most() uint64 { return cmp.Or(l.Result.Limit, l.burst, l.Request.Limit) }

// Tier returns the limit that Result is of: of a Strategy with tiers the one that binds, and else
// the Limit and the Duration of Request.
func (l *Attempt) Tier() weir.Tier {
	if l.Result.Limit == 0 {
		return weir.Tier{Limit: l.Request.Limit, Duration: l.Request.Duration}
	}
	for _, tier := range inside.TiersOf(l.strategy) {
		if tier.Limit == l.Result.Limit {
			return tier
		}
	}
	return weir.Tier{Limit: l.Result.Limit, Duration: l.Request.Duration}
}

// Left returns how long after the decision Result's ExpiresAt is: the time to wait, without a
// reading of the clock. It is 0 if the Strategy does not say, and means nothing if ExpiresAt is
// zero.
func (l *Attempt) Left() time.Duration { return l.left }

// Remaining returns how much is left of Most.
func (l *Attempt) Remaining() uint64 { return l.Result.Remaining(cmp.Or(l.burst, l.Request.Limit)) }

// batches reports whether l is called together with others on its store.
func (l *Attempt) batches() bool { return l.batcher != nil && !l.revocable }

func (l *Attempt) measures() bool { return l.Look || l.Afterwards }

// owes reports whether a cost that is known Afterwards is not counted yet: it was denied, or nobody
// decided on it.
func (l *Attempt) owes() bool {
	return l.Afterwards && l.Decided() && l.Err == nil && l.phase != charged &&
		(l.Denies() || l.Undecided)
}

// outweighs reports whether l binds rather than m, which is before it.
func (l *Attempt) outweighs(m *Attempt) bool {
	switch at, other := &l.Result.ExpiresAt, &m.Result.ExpiresAt; {
	case l.Denies() != m.Denies():
		return l.Denies()
	case l.Denies() && at.IsZero() && other.IsZero():
		return l.Never() && !m.Never()
	case l.Denies():
		return !other.IsZero() && (at.IsZero() || at.After(*other))
	}
	return l.Remaining() < m.Remaining()
}

// waits reports whether the Attempt has yet to decide.
func (l *Attempt) waits() bool {
	return l.strategy != nil && !l.Exempt && l.phase == pending && l.Err == nil
}

// reset writes no pointer that is nil already: while the garbage collector marks, it notes each
// write of one.
func (l *Attempt) reset() {
	l.phase, l.Undecided = pending, false
	if l.seen.Slot != nil {
		l.seen.Slot = nil
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
	case (op == OpRun || op == OpPeek) && turns.IsDue(ctx): // as of an instant
		l.decide(ctx, op)
	case op == OpRun && l.local != nil && !l.revocable: // as most often
		l.left, l.Err = l.local.Run(&l.Request, &l.Result, forlimits.NoSight)
	case op == OpPeek && l.local != nil:
		l.left, l.Err = l.local.Look(&l.Request, &l.Result, forlimits.FinalLook)
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
		l.Result = weir.Result{}
	}
	l.called(op)
}

// decide calls Run or Peek.
func (l *Attempt) decide(ctx context.Context, op Op) {
	var res *weir.Result
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
		l.Err = fmt.Errorf("limits: %s returned neither a Result nor an error: %w",
			weir.NameOf(l.strategy), errors.ErrUnsupported)
	}
}

// run is Run, or Admit if what is admitted must be given back to the admission itself, or Hold.
func (l *Attempt) run(ctx context.Context) (res *weir.Result, err error) {
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
func (l *Attempt) hold(ctx context.Context) (*weir.Result, error) {
	res, place, err := l.holder.Acquire(ctx, &l.Request)
	if err == nil && res.Allowed() {
		l.held = inside.Keep(l.strategy, &l.Request, place)
	}
	return res, err
}

// refund gives cost of what was admitted back.
func (l *Attempt) refund(ctx context.Context, cost uint64) error {
	switch {
	case l.held != nil:
		held := l.held
		l.held = nil
		return held.Release(ctx)
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
		l.phase = decided
		if l.Result.Allowed() {
			l.phase = taken
		}
	case op == OpPeek:
		l.phase = decided
		if l.Result.Allowed() {
			l.Result.TotalRequests -= min(l.Result.TotalRequests, l.cost())
		}
		if l.Look {
			l.Result.State = weir.Allow
			if l.Result.TotalRequests > l.Most() {
				l.Result.State = weir.Deny
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
