package limits

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"time"

	"github.com/weirgo/weir"
)

// Attempt is one limit on a request, and its decision. Make one with [NewAttempt]; the zero Attempt
// limits nothing. Of several, only one may have no [Attempt.CanRefund].
type Attempt struct {
	// Op is the call of the limit's Counter. Its Request is the caller's to set; its Result is the
	// decision if Decided reports true, and its Err is why the Counter could not decide, or could not
	// take back an admission. Where a request was admitted and not taken, or given back, TotalRequests
	// is without its Cost; the Cost of an earlier Attempt on the same count may be in it.
	Op weir.Op

	// Exempt leaves this limit out.
	Exempt bool

	// Advisory lets the request pass even if this limit denies it.
	Advisory bool

	// Look takes nothing: the limit denies if its count is over Most. Afterwards counts Request in
	// full, even if the limit, or another, denies it: its cost has arisen already.
	Look, Afterwards bool

	about  *weir.About // of the Counter; nil: there is none
	burst  uint64      // of a token bucket; else 0
	limit  *weir.Limit // that is asked; else nil
	turn   turn
	phase  phase
	strict bool        // an error of a peek is Err
	holds  bool        // see Holding
	held   *weir.Held  // until it is given back, or to TakeHeld
	room   [4]*weir.Op // for the ops of a call
	leads  bool        // it is called, with those after it: see group
	next   int         // the place of the next one that is called with it; 0: there is none
}

// turn is when a limit decides.
type turn uint8

const (
	elsewhere turn = iota // first: by another process, or a Strategy that is not known
	inProcess             // in a Limiter of this process
	last                  // it cannot give back
)

// phase is how far the decision of an Attempt is. A call goes forward, see called; a refund goes
// back from taken to decided, and a run begins at pending, whatever a peek before it has found.
type phase uint8

const (
	pending phase = iota // nobody has decided
	decided              // its cost is not counted: denied, only looked at, or given back
	taken                // its cost is counted, since it was admitted
	charged              // its cost is counted all the same, see Afterwards
)

// NewAttempt returns an Attempt of s. With a [weir.Limit], or the Counter of one, the Limit and
// the Duration of Request are its numbers.
func NewAttempt(s weir.Strategy) (l Attempt) {
	l.ask(s, new(weir.Request))
	return l
}

// ask has s decide on r.
func (l *Attempt) ask(s weir.Strategy, r *weir.Request) {
	if s == nil {
		return
	}
	l.limit, _ = s.(*weir.Limit)
	l.Op.Counter = weir.CounterOf(s)
	l.about = l.Op.Counter.About()
	l.burst = l.about.Burst
	l.request(r)
	switch {
	case !l.about.Verbs.Has(weir.OpReturn):
		l.turn = last
	case l.about.Limiter != nil:
		l.turn = inProcess
	default:
		l.turn = elsewhere
	}
}

// request has l be on r, with the numbers of a Limit in place of those of r.
func (l *Attempt) request(r *weir.Request) {
	l.Op.Request = *r
	if l.about.Bound {
		l.Op.Limit, l.Op.Duration = l.about.Numbers.Limit, l.about.Numbers.Duration
	}
}

// Holding returns l for work in flight: the cost that Take admits is held, as by [weir.Hold], until
// it is given back. Holding fails with [errors.ErrUnsupported] if the Strategy bounds no work in
// flight.
func (l Attempt) Holding() (Attempt, error) {
	if l.about == nil || !l.about.InFlight || !l.about.Verbs.Has(weir.OpHold) {
		return l, l.unsupported("hold")
	}
	l.holds = true
	return l, nil
}

// InFlight reports whether the Strategy bounds work in flight: nobody releases the cost that an
// Attempt which is not [Attempt.Holding] takes of it.
func (l *Attempt) InFlight() bool { return l.about != nil && l.about.InFlight }

// Holds reports whether l is [Attempt.Holding].
func (l *Attempt) Holds() bool { return l.holds }

// TakeHeld returns the held cost, for the caller to release: it is no longer given back with the
// other limits. TakeHeld returns nil if l is not [Attempt.Holding], or has admitted nothing.
func (l *Attempt) TakeHeld() (held *weir.Held) {
	held = l.held
	if held != nil {
		l.held, l.phase = nil, decided
	}
	return held
}

// About returns the About of the Counter, or nil if there is none.
func (l *Attempt) About() *weir.About { return l.about }

// CanRefund reports whether an admission of the Strategy can be given back.
func (l *Attempt) CanRefund() bool { return l.turn != last || l.holds }

// Undecided reports whether nobody decided, and the Result follows from a rule for that, such as
// OnFail of package fallback.
func (l *Attempt) Undecided() bool { return l.Op.Source == weir.FromOnFail }

// Decided reports whether Result is a decision on Request.
func (l *Attempt) Decided() bool { return l.phase >= decided }

// Denies reports whether the Strategy has denied Request.
func (l *Attempt) Denies() bool { return l.Decided() && !l.Op.Result.Allowed() }

// Never reports whether the Strategy has denied Request for good: ExpiresAt is zero, and not since
// nobody knows when work in flight ends.
func (l *Attempt) Never() bool {
	return l.Denies() && l.Op.Result.ExpiresAt.IsZero() &&
		(!l.InFlight() || l.cost() > l.Most() || l.Op.Result.TotalRequests == 0)
}

// Taken reports whether the cost of Request is counted.
func (l *Attempt) Taken() bool { return l.phase >= taken }

// Most returns the number that TotalRequests is held against: the Limit of Request or of Result, or
// a token bucket's burst.
func (l *Attempt) Most() uint64 { return cmp.Or(l.Op.Result.Limit, l.burst, l.Op.Request.Limit) }

// Tier returns the limit that Result is of: of a Strategy with tiers the one that binds, and else
// the Limit and the Duration of Request.
func (l *Attempt) Tier() weir.Tier {
	if l.Op.Result.Limit == 0 {
		return weir.Tier{Limit: l.Op.Request.Limit, Duration: l.Op.Request.Duration}
	}
	for _, tier := range l.about.Tiers {
		if tier.Limit == l.Op.Result.Limit {
			return tier
		}
	}
	return weir.Tier{Limit: l.Op.Result.Limit, Duration: l.Op.Request.Duration}
}

// outcome returns the Outcome of a decision on an op that is Full, of a Several that was to Keep.
func (l *Attempt) outcome(ctx context.Context) weir.Outcome {
	if l.limit != nil {
		return l.limit.Outcome(ctx, &l.Op)
	}
	if inner, ok := l.Op.Receipt.Of.(*Attempts); ok {
		return inner.outcome(ctx)
	}
	out := weir.Outcome{Result: l.Op.Result, Left: l.Remaining(), Wait: l.Op.Left, FullAt: l.Op.FullAt}
	switch {
	case l.Op.Result.Allowed():
		out.Wait = 0
	case l.Never(), l.Op.Result.ExpiresAt.IsZero():
		out.Wait = math.MaxInt64
	case out.Wait == 0:
		out.Wait = l.Op.Result.RetryAfter(time.Now())
	}
	return out
}

// Remaining returns how much is left of Most.
func (l *Attempt) Remaining() uint64 {
	most := l.Most()
	return most - min(most, l.Op.Result.TotalRequests)
}

// store returns the store whose ops may go together, or nil: none goes with one that cannot be
// compared.
func (l *Attempt) store() any {
	if s := l.about.Store; s != nil && reflect.TypeOf(s).Comparable() {
		return s
	}
	return nil
}

func (l *Attempt) measures() bool { return l.Look || l.Afterwards }

// owes reports whether a cost that is known Afterwards is not counted yet: it was denied, or nobody
// decided on it.
func (l *Attempt) owes() bool {
	return l.Afterwards && l.Decided() && l.Op.Err == nil && l.phase != charged &&
		(l.Denies() || l.Undecided())
}

// outweighs reports whether l binds rather than m, which is before it.
func (l *Attempt) outweighs(m *Attempt) bool {
	if l.Denies() && m.Denies() && l.Op.Result.ExpiresAt.IsZero() && m.Op.Result.ExpiresAt.IsZero() {
		return l.Never() && !m.Never()
	}
	return outweighs(&l.Op.Result, &m.Op.Result, cmp.Or(l.burst, l.Op.Limit),
		cmp.Or(m.burst, m.Op.Limit))
}

// outweighs reports whether res, held against most, binds rather than other, which is before it: if
// some deny, the one that does so for the longest, and else the one with the least left.
func outweighs(res, other *weir.Result, most, otherMost uint64) bool {
	at, otherAt := &res.ExpiresAt, &other.ExpiresAt
	switch {
	case res.Allowed() != other.Allowed():
		return other.Allowed()
	case res.Allowed():
		return res.Remaining(most) < other.Remaining(otherMost)
	}
	return !otherAt.IsZero() && (at.IsZero() || at.After(*otherAt))
}

// waits reports whether the Attempt has yet to decide.
func (l *Attempt) waits() bool {
	return l.about != nil && !l.Exempt && l.phase == pending && l.Op.Err == nil
}

// looks reports whether the Attempt has yet to decide, and can be peeked at.
func (l *Attempt) looks() bool { return l.waits() && l.has(weir.OpPeek) }

// reset writes no pointer that is nil already: while marking, the garbage collector notes each
// write of one.
func (l *Attempt) reset() {
	l.phase, l.Op.Source = pending, weir.Nowhere
	if l.Op.Err != nil {
		l.Op.Err = nil
	}
	if l.Op.Receipt.Of != nil {
		l.Op.Receipt = weir.Receipt{}
	}
}

// call has the Counter do verb.
func (l *Attempt) call(ctx context.Context, verb weir.Verb) {
	l.set(verb)
	l.room[0] = &l.Op
	l.Op.Counter.Do(ctx, l.room[:1])
	l.called(verb)
}

// set sets the verb of the Op, for a peek that no take follows at once.
func (l *Attempt) set(verb weir.Verb) {
	l.Op.Verb, l.Op.Deciding = verb, verb == weir.OpPeek && !l.strict
	l.Op.Keep = l.Op.Keep || l.about.Parts != nil && !l.about.InFlight // an All needs the Receipt
	if verb == weir.OpTake && l.holds {
		l.Op.Verb = weir.OpHold
	}
}

// giveBack gives cost of an admission back.
func (l *Attempt) giveBack(ctx context.Context, cost uint64) error {
	if l.held != nil {
		held := l.held
		l.held = nil
		return held.Release(ctx)
	}
	was := l.Op.Cost
	l.Op.Cost, l.Op.Verb = cost, weir.OpReturn
	l.room[0] = &l.Op
	l.Op.Counter.Do(ctx, l.room[:1])
	l.Op.Cost = was
	return l.Op.Err
}

// charge counts cost whether it fits or not.
func (l *Attempt) charge(ctx context.Context, cost uint64) error {
	op := weir.Op{Counter: l.Op.Counter, Verb: weir.OpCharge, Request: l.Op.Request}
	op.Cost = cost
	l.Op.Counter.Do(ctx, []*weir.Op{&op})
	return op.Err
}

// called notes that the Counter has done verb.
func (l *Attempt) called(verb weir.Verb) {
	if l.Op.Err != nil && (verb == weir.OpTake || verb == weir.OpPeek) {
		l.Op.Result = weir.Result{}
	}
	switch {
	case verb == weir.OpPeek && l.Op.Err != nil && !l.Look && !l.strict: // it may decide later
		l.Op.Err = nil
	case l.Op.Err != nil:
	case verb == weir.OpTake:
		l.phase = decided
		if l.Op.Result.Allowed() {
			l.phase = taken
			if l.holds {
				l.held = weir.HeldBy(&l.Op)
			}
		}
	case verb == weir.OpPeek:
		l.phase = decided
		if l.Op.Result.Allowed() {
			l.Op.Result.TotalRequests -= min(l.Op.Result.TotalRequests, l.cost())
		}
		if l.Look {
			l.Op.Result.State = weir.Allow
			if l.Op.Result.TotalRequests > l.Most() {
				l.Op.Result.State = weir.Deny
			}
		}
	case verb == weir.OpReturn:
		l.phase = decided
		l.Op.Result.TotalRequests -= min(l.Op.Result.TotalRequests, l.cost())
	case verb == weir.OpCharge:
		l.phase = charged
		if !l.Op.Result.Allowed() {
			l.Op.Result.TotalRequests += min(l.cost(), ^l.Op.Result.TotalRequests)
		}
	}
}

// cost returns the Cost of Request, where 0 means 1.
func (l *Attempt) cost() uint64 { return max(1, l.Op.Cost) }

// has reports whether the Counter can do verb.
func (l *Attempt) has(verb weir.Verb) bool { return l.about.Verbs.Has(verb) }

func (l *Attempt) unsupported(what string) error {
	name := "no Strategy"
	if l.about != nil {
		name = l.about.String()
	}
	return fmt.Errorf("limits: %s cannot %s: %w", name, what, errors.ErrUnsupported)
}

// several returns the Several that is asked, or nil.
func (l *Attempt) several() *Several {
	of, _ := l.Op.Counter.(*Several)
	return of
}

func (l *Attempt) count() (c count) {
	if l.about == nil {
		return c
	}
	c = count{of: l.about.Counts, key: l.Op.Key}
	if !l.about.Bound {
		c.limit, c.duration = l.Op.Limit, l.Op.Duration
	}
	return c
}

// name describes the limit.
func (l *Attempt) name() string {
	if l.limit != nil {
		return l.limit.String()
	}
	if of := l.several(); of != nil {
		return of.String()
	}
	return fmt.Sprintf("%v, %d in %v", l.about, l.Op.Limit, l.Op.Duration)
}

// count identifies the count that an Attempt is on.
type count struct {
	of       any
	key      string
	limit    uint64
	duration time.Duration
}
