package limits

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/weirgo/weir"
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
	if d, ok := decideFew(ctx, asks); ok {
		return d, nil
	}
	l := getAttempts(len(asks))
	defer l.put()
	for i := range asks {
		(*l)[i].askFor(&asks[i])
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

// decideFew is Decide of few Limits on slots of one Limiter. It reports false where Decide is to go
// on.
func decideFew(ctx context.Context, asks []weir.Ask) (d Decision, ok bool) {
	if len(asks) > fewLimits {
		return d, false
	}
	f := fews.Get().(*few)
	defer f.put()
	var abouts [fewLimits]*weir.About
	for i := range asks {
		m, isLimit := asks[i].Strategy.(*weir.Limit)
		if !isLimit {
			return d, false
		}
		c, key := weir.CounterOf(m), asks[i].Request.Key
		a := c.About()
		abouts[i] = a
		if !follows(abouts[0], a) {
			return d, false
		}
		for j := range i {
			if f.ops[j].Key == key && (abouts[j] == a || abouts[j].Counts == a.Counts) {
				return d, false // which checkCounts refuses
			}
		}
		f.add(c, a, key, asks[i].Request.Cost, false)
	}
	if !f.take(ctx) {
		return d, false
	}
	d.By, d.Each = f.binding(), make([]weir.Result, f.n)
	for i := range d.Each {
		d.Each[i] = f.ops[i].Result
	}
	d.Result = d.Each[d.By]
	return d, true
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
		case m.about == nil:
			return fmt.Errorf("limits: ask %d has no Strategy: %w", i, errors.ErrUnsupported)
		case takes && m.InFlight() && !m.holds:
			return m.about.Unreleasable(m.name())
		case m.turn == last && first >= 0:
			return fmt.Errorf("limits: two strategies decide last: %w", l[first].unsupported("refund"))
		case m.turn == last:
			first = i
		}
	}
	return nil
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
		err = l[i].Err
		if err != nil {
			return -1, err
		}
	}
	return l.Binding(), nil
}

// askFor makes l the Attempt of an Ask.
func (l *Attempt) askFor(a *weir.Ask) {
	l.Request = a.Request
	l.ask(a.Strategy)
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
