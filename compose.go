package weir

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Policy is a limit with a name, as a [Strategy]: it runs Strategy with its own Limit and Duration
// in place of the request's, and under keys of its own, so that two policies of different names on
// one Strategy never count together. Rules read as values:
//
//	burst, daily := limiter.TokenBucket(20), limiter.FixedWindow()
//	weir.All(
//		weir.Policy{Name: "burst", Strategy: burst, Limit: 100, Duration: time.Minute},
//		weir.Policy{Name: "daily", Strategy: daily, Limit: 10_000, Duration: 24 * time.Hour},
//	)
//
// The name and a few bytes more count towards the 1024 bytes of a key. A Policy has every optional
// interface but [Forecaster] and [PrefixResetter]; what Strategy does not offer fails with
// [errors.ErrUnsupported]. Its keys that begin with a prefix have no prefix in common; all of them
// do, JoinKey(Name), which the ResetPrefix of Strategy takes.
type Policy struct {
	Name     string
	Strategy Strategy
	Limit    uint64
	Duration time.Duration
}

func (p Policy) request(r *Request) *Request {
	q := *r
	q.Limit, q.Duration = p.Limit, p.Duration
	if r.Key != "" { // an empty key is to stay an error
		q.Key = JoinKey(p.Name, r.Key)
	}
	return &q
}

// forward calls a method of Strategy, if that is a T.
func forward[T any](p Policy, what string, call func(s T) error) error {
	s, ok := p.Strategy.(T)
	if !ok {
		return fmt.Errorf("weir: policy %q: %s cannot %s: %w", p.Name, NameOf(p.Strategy), what,
			errors.ErrUnsupported)
	}
	return call(s)
}

// Run implements [Strategy].
func (p Policy) Run(ctx context.Context, r *Request) (*Result, error) {
	return p.Strategy.Run(ctx, p.request(r))
}

// Peek implements [Peeker].
func (p Policy) Peek(ctx context.Context, r *Request) (res *Result, err error) {
	err = forward(p, "peek", func(s Peeker) (err error) {
		res, err = s.Peek(ctx, p.request(r))
		return
	})
	return
}

// Admit implements [Admitter].
func (p Policy) Admit(ctx context.Context, r *Request) (res *Result, giveBack Return, err error) {
	err = forward(p, "admit", func(s Admitter) (err error) {
		res, giveBack, err = s.Admit(ctx, p.request(r))
		return
	})
	return
}

// Acquire implements [Holder].
func (p Policy) Acquire(ctx context.Context, r *Request) (res *Result, place Place, err error) {
	err = forward(p, "hold", func(s Holder) (err error) {
		res, place, err = s.Acquire(ctx, p.request(r))
		return
	})
	return
}

// Refund implements [Refunder].
func (p Policy) Refund(ctx context.Context, r *Request, taken *Result) error {
	return forward(p, "refund", func(s Refunder) error { return s.Refund(ctx, p.request(r), taken) })
}

// Reset implements [Resetter].
func (p Policy) Reset(ctx context.Context, r *Request) error {
	return forward(p, "reset", func(s Resetter) error { return s.Reset(ctx, p.request(r)) })
}

// Seed implements [Seeder].
func (p Policy) Seed(ctx context.Context, r *Request, counted *Result) error {
	return forward(p, "seed", func(s Seeder) error { return s.Seed(ctx, p.request(r), counted) })
}

// Charge implements [Charger].
func (p Policy) Charge(ctx context.Context, r *Request) error {
	return forward(p, "charge", func(s Charger) error { return s.Charge(ctx, p.request(r)) })
}

// Reconcile implements [Reconciler].
func (p Policy) Reconcile(ctx context.Context, r *Request, b *Backlog) (res *Result, err error) {
	err = forward(p, "reconcile", func(s Reconciler) (err error) {
		res, err = s.Reconcile(ctx, p.request(r), b)
		return
	})
	return
}

// All returns a Strategy that admits a request if every one of strategies does: [Decide] with an
// Ask of the request for each. The Result is the one that binds. All has the optional interfaces
// [Peeker], [Admitter] and [Charger], as far as strategies have them.
//
// It is not one atomic step, see Decide. Where all limits are on one key, Tiers is exact.
//
// It panics without strategies, and if two of them cannot give back. One that waits decides last if
// it stands last, and the others are in process.
func All(strategies ...Strategy) Strategy {
	if len(strategies) == 0 {
		panic("weir: All of no strategies")
	}
	a := &all{slices.Clone(strategies)}
	if err := a.ask(nil, new(Request)).check(); err != nil {
		panic(fmt.Sprintf("weir: All: %v", err))
	}
	return a
}

type all struct{ strategies []Strategy }

// Algorithm implements [Named].
func (a *all) Algorithm() string {
	names := make([]string, len(a.strategies))
	for i, s := range a.strategies {
		names[i] = NameOf(s)
	}
	return "all of " + strings.Join(names, ", ")
}

// ask makes limits, or new ones, Attempts on r.
func (a *all) ask(limits Attempts, r *Request) Attempts {
	limits = slices.Grow(limits[:0], len(a.strategies))[:len(a.strategies)]
	for i, s := range a.strategies {
		limits[i].ask(s, r)
	}
	return limits
}

// Run implements [Strategy].
func (a *all) Run(ctx context.Context, r *Request) (*Result, error) {
	l := getAttempts(len(a.strategies))
	defer l.put()
	a.ask(*l, r)
	if err := l.decide(ctx); err != nil {
		return nil, err
	}
	res := (*l)[l.Binding()].Result
	return &res, nil
}

// Peek implements [Peeker].
func (a *all) Peek(ctx context.Context, r *Request) (*Result, error) {
	l := getAttempts(len(a.strategies))
	defer l.put()
	a.ask(*l, r)
	for i := range *l {
		(*l)[i].strict = true
	}
	l.each(ctx, OpPeek, (*Attempt).waits)
	if _, err := l.verdict(ctx, nil); err != nil {
		return nil, err
	}
	m := &(*l)[l.Binding()]
	res := m.Result
	if res.Allowed() {
		res.TotalRequests += m.cost()
	}
	return &res, nil
}

// Admit implements [Admitter].
func (a *all) Admit(ctx context.Context, r *Request) (*Result, Return, error) {
	limits := a.ask(nil, r) // the Return keeps them
	v, err := reserve(ctx, limits)
	if err != nil {
		return nil, nil, err
	}
	return &v.result, returnOf(r, &v.result, func(ctx context.Context, q *Request, _ int64) error {
		return limits.giveBack(ctx, q.Cost)
	}), nil
}

// Charge implements [Charger].
func (a *all) Charge(ctx context.Context, r *Request) error {
	var errs []error
	for _, m := range a.ask(nil, r) {
		m.call(ctx, OpCharge)
		errs = append(errs, m.Err)
	}
	return errors.Join(errs...)
}
