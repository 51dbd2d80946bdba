package limits

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/forlimits"
)

// Decision is the decision on all asks of a [Decide].
type Decision struct {
	// Result is that of the Ask that binds: of a denial, the one that lasts longest; of an admission,
	// the one with the least left of its limit or burst.
	weir.Result

	// By is the place of that Ask, from 0; -1 without asks.
	By int

	// Each is the Result of each Ask. If the request is denied, the TotalRequests of those that would
	// have admitted it are without its Cost; the Result is zero of a Strategy that cannot peek, and
	// was not run.
	Each []weir.Result
}

// Decide admits a request if every Ask is admitted; otherwise nothing is taken anywhere. Asks may
// be on different keys, strategies, limits and costs: a user and his organisation, requests and
// tokens.
//
//	d, err := limits.Decide(ctx, requests.For(user), tokens.For(org).Cost(n))
//
// If a Strategy fails, so does Decide, and what was taken is given back; the error says so if that
// fails too. It fails with [errors.ErrUnsupported] if two strategies cannot give back: only one can
// decide last, or if one bounds work in flight, which nobody would release: see [weir.Hold]; and
// with [weir.ErrLimit] for two asks on one count: of equal limits and one key, or of another
// Strategy than a Limit with equal Requests. Without asks the request is admitted.
//
// It is not one atomic step, and [Attempts.Take] says what can happen between its steps: a request
// that is denied in the end may cost another one its admission; never are too many admitted. If a
// Strategy panics, what those before it have counted stands. Asks on one redislimit.Store, also
// through package fallback, take one round trip, and a denial one more. On strategies of weir
// it allocates Each only, for up to four asks.
func Decide(ctx context.Context, asks ...weir.Ask) (Decision, error) {
	l := getAttempts(len(asks))
	defer l.put()
	for i := range asks {
		(*l)[i].ask(asks[i].Strategy, &asks[i].Request)
	}
	if err := l.checkCounts(); err != nil {
		return Decision{}, err
	}
	if err := l.decide(ctx); err != nil {
		return Decision{}, err
	}
	d := Decision{Result: weir.Result{State: weir.Allow}, By: l.Binding(),
		Each: make([]weir.Result, len(asks))}
	for i := range *l {
		d.Each[i] = (*l)[i].Result
	}
	if d.By >= 0 {
		d.Result = d.Each[d.By]
	}
	return d, nil
}

// decide is Take, which fails if what was denied could not be given back.
func (l Attempts) decide(ctx context.Context) error {
	if err := l.supported(true); err != nil {
		return err
	}
	if _, err := l.Take(ctx, nil); err != nil {
		return err
	}
	return l.Lost()
}

// supported fails if there is no Strategy, if two of them cannot give back, or if they take of one
// whose places nobody would release.
func (l Attempts) supported(takes bool) error {
	first := -1
	for i := range l {
		switch m := &l[i]; {
		case m.strategy == nil:
			return fmt.Errorf("limits: ask %d has no Strategy: %w", i, errors.ErrUnsupported)
		case takes && m.inFlight && !m.revocable:
			return inside.Unreleasable(m.strategy)
		case m.turn == last && first >= 0:
			return fmt.Errorf("limits: two strategies decide last: %w", l[first].unsupported("refund"))
		case m.turn == last:
			first = i
		}
	}
	return nil
}

// decideOp is decide, or a look, and returns the place of the Attempt that binds.
func (l Attempts) decideOp(ctx context.Context, look bool) (binding int, err error) {
	if !look {
		err = l.decide(ctx)
		return l.Binding(), err
	}
	for i := range l {
		l[i].strict = true
	}
	if err = l.each(ctx, OpPeek, (*Attempt).waits, nil); err != nil {
		return -1, err
	}
	for i := range l {
		if err = l[i].Err; err != nil {
			return -1, err
		}
	}
	binding = l.Binding()
	if m := &l[binding]; m.Result.Allowed() {
		m.Result.TotalRequests += m.cost()
	}
	return binding, nil
}

// ask makes l an Attempt on r of s, or of what is inside of s if that is a Limit.
func (l *Attempt) ask(s weir.Strategy, r *weir.Request) {
	l.Request = *r
	if m, ok := s.(*weir.Limit); ok {
		of := limitOf(m)
		l.of = of
		l.Request.Limit, l.Request.Duration = m.Numbers()
		if of.keyed != nil {
			inside.Inner(of.keyed, &l.Request)
		}
		l.bind(&of.abilities)
		return
	}
	for inner := inside.Inner(s, &l.Request); inner != nil; inner = inside.Inner(s, &l.Request) {
		s = inner
	}
	b := abilitiesOf(s)
	l.bind(&b)
}

// limit is what is known of a Limit or, by NewAttempt, of a Strategy.
type limit struct {
	abilities
	limit  *weir.Limit // nil: a Strategy
	counts forlimits.Counts
	keyed  weir.Strategy // counts for it by the Strategy of another package; else nil
}

// limitOf returns what is known of m. To look that up anew would take as long as a decision.
func limitOf(m *weir.Limit) *limit {
	at := inside.Known(m)
	of, ok := at.Load().(*limit)
	if !ok {
		of = new(limit)
		s := m.Unwrap()
		if inner := inside.Inner(s, new(weir.Request)); inner != nil {
			of.keyed, s = s, inner
		}
		of.abilities, of.limit, of.counts = abilitiesOf(s), m, inside.CountsOf(m.Unwrap())
		at.Store(of)
	}
	return of
}

// pooled are Attempts for one decision.
var pooled = sync.Pool{New: func() any { l := make(Attempts, 0, 4); return &l }}

func getAttempts(n int) *Attempts {
	l := pooled.Get().(*Attempts)
	*l = slices.Grow(*l, n)[:n]
	return l
}

func (l *Attempts) put() {
	clear(*l)
	*l = (*l)[:0]
	pooled.Put(l)
}
