package weir

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// Policy is a limit with a name, as a [Strategy]: it runs Strategy with its own Limit and Duration
// in place of the request's, and under keys of its own, so that two policies of different names on
// one Strategy never count together. Rules read as values:
//
//	weir.All(
//		weir.Policy{"burst", limiter.TokenBucket(20), 100, time.Minute},
//		weir.Policy{"daily", limiter.FixedWindow(), 10_000, 24 * time.Hour},
//	)
//
// The name and a few bytes more count towards the 1024 bytes of a key. A Policy has every optional
// interface but [Forecaster]; what Strategy does not offer fails with [errors.ErrUnsupported].
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

// Run implements [Strategy].
func (p Policy) Run(ctx context.Context, r *Request) (*Result, error) {
	return p.Strategy.Run(ctx, p.request(r))
}

func (p Policy) unsupported(what string) error {
	return fmt.Errorf("weir: policy %q: %T cannot %s: %w", p.Name, p.Strategy, what, errors.ErrUnsupported)
}

// Peek implements [Peeker].
func (p Policy) Peek(ctx context.Context, r *Request) (*Result, error) {
	s, ok := p.Strategy.(Peeker)
	if !ok {
		return nil, p.unsupported("peek")
	}
	return s.Peek(ctx, p.request(r))
}

// Refund implements [Refunder].
func (p Policy) Refund(ctx context.Context, r *Request, taken *Result) error {
	s, ok := p.Strategy.(Refunder)
	if !ok {
		return p.unsupported("refund")
	}
	return s.Refund(ctx, p.request(r), taken)
}

// Reset implements [Resetter].
func (p Policy) Reset(ctx context.Context, r *Request) error {
	s, ok := p.Strategy.(Resetter)
	if !ok {
		return p.unsupported("reset")
	}
	return s.Reset(ctx, p.request(r))
}

// Seed implements [Seeder].
func (p Policy) Seed(ctx context.Context, r *Request, counted *Result) error {
	s, ok := p.Strategy.(Seeder)
	if !ok {
		return p.unsupported("seed")
	}
	return s.Seed(ctx, p.request(r), counted)
}

// Charge implements [Charger].
func (p Policy) Charge(ctx context.Context, r *Request) error {
	s, ok := p.Strategy.(Charger)
	if !ok {
		return p.unsupported("charge")
	}
	return s.Charge(ctx, p.request(r))
}

// Reconcile implements [Reconciler].
func (p Policy) Reconcile(ctx context.Context, r *Request, b *Backlog) (*Result, error) {
	s, ok := p.Strategy.(Reconciler)
	if !ok {
		return nil, p.unsupported("reconcile")
	}
	return s.Reconcile(ctx, p.request(r), b)
}

// All returns a Strategy that admits a request if every one of strategies does. It runs them in
// order; when one denies, it refunds those before it. The Result of an admission is the one with
// the least left of its limit or burst (Tiers, which have several limits, are not compared); of a
// denial, the one with the latest instant among all strategies that can peek.
//
// It is not one atomic step: a request that is denied in the end has for a moment been counted by
// the first strategies, and may have cost another caller its admission. Where all limits are on one
// key, Tiers is exact. If a strategy fails, All refunds the others and returns the error.
//
// It panics without strategies, and if one but the last is no [Refunder]. Put one that waits last.
func All(strategies ...Strategy) Strategy {
	if len(strategies) == 0 {
		panic("weir: All of no strategies")
	}
	for _, s := range leaves(all(strategies[:len(strategies)-1])) {
		if _, ok := s.(Refunder); !ok {
			panic(fmt.Sprintf("weir: All: %T is no Refunder", s))
		}
	}
	return all(append([]Strategy(nil), strategies...))
}

type all []Strategy

// leaves returns the strategies that count for s: those in a Policy and in All.
func leaves(s Strategy) []Strategy {
	switch s := s.(type) {
	case Policy:
		return leaves(s.Strategy)
	case all:
		var list []Strategy
		for _, each := range s {
			list = append(list, leaves(each)...)
		}
		return list
	}
	return []Strategy{s}
}

// admission is what one leaf has admitted.
type admission struct {
	strategy Strategy
	request  *Request
	taken    *Result
	giveBack Return // nil: it was run by Run
}

// refund gives cost of an admission back, even if the context has ended.
func (a *admission) refund(ctx context.Context, cost uint64) error {
	ctx = context.WithoutCancel(ctx)
	if a.giveBack != nil {
		return a.giveBack(ctx, cost)
	}
	s, ok := a.strategy.(Refunder)
	if !ok {
		return fmt.Errorf("weir: %T cannot refund: %w", a.strategy, errors.ErrUnsupported)
	}
	q := *a.request
	q.Cost = cost
	return s.Refund(ctx, &q, a.taken)
}

// runner is how a leaf is run: by Run, or by Admit where it has that.
type runner func(ctx context.Context, s Strategy, r *Request) (*Result, Return, error)

func byRun(ctx context.Context, s Strategy, r *Request) (*Result, Return, error) {
	res, err := s.Run(ctx, r)
	return res, nil, err
}

func byAdmit(ctx context.Context, s Strategy, r *Request) (*Result, Return, error) {
	if a, ok := s.(Admitter); ok {
		res, giveBack, err := a.Admit(ctx, r)
		if !errors.Is(err, errors.ErrUnsupported) { // else s wraps one that is no Admitter
			return res, giveBack, err
		}
	}
	return byRun(ctx, s, r)
}

// take is Run. It appends what each leaf has admitted; nothing if the request is denied.
func take(
	ctx context.Context, s Strategy, r *Request, admissions []admission, run runner,
) (*Result, []admission, error) {
	switch s := s.(type) {
	case Policy:
		return take(ctx, s.Strategy, s.request(r), admissions, run)
	case all:
		return s.take(ctx, r, admissions, run)
	}
	a := admission{strategy: s, request: r}
	var err error
	a.taken, a.giveBack, err = run(ctx, s, r)
	if err == nil && a.taken.Allowed() {
		admissions = append(admissions, a)
	}
	return a.taken, admissions, err
}

// admit is Admit of a Policy and of All.
func admit(ctx context.Context, s Strategy, r *Request) (*Result, Return, error) {
	q := *r // the Return keeps it
	res, admissions, err := take(ctx, s, &q, nil, byAdmit)
	if err != nil {
		return nil, nil, err
	}
	return res, func(ctx context.Context, cost uint64) error { return refundAll(ctx, admissions, cost) }, nil
}

// Admit implements [Admitter].
func (p Policy) Admit(ctx context.Context, r *Request) (*Result, Return, error) {
	return admit(ctx, p, r)
}

// Admit implements [Admitter].
func (a all) Admit(ctx context.Context, r *Request) (*Result, Return, error) { return admit(ctx, a, r) }

// Run implements [Strategy].
func (a all) Run(ctx context.Context, r *Request) (*Result, error) {
	res, _, err := a.take(ctx, r, make([]admission, 0, len(a)), byRun)
	return res, err
}

func (a all) take(
	ctx context.Context, r *Request, admissions []admission, run runner,
) (*Result, []admission, error) {
	before, taken := len(admissions), make([]*Result, 0, len(a))
	for i, s := range a {
		res, more, err := take(ctx, s, r, admissions, run)
		if err == nil && res.Allowed() {
			admissions, taken = more, append(taken, res)
			continue
		}
		lost := refundAll(ctx, admissions[before:], max(1, r.Cost))
		switch {
		case lost != nil:
			return nil, nil, errors.Join(err, lost)
		case err != nil:
			return nil, nil, err
		}
		return a.latest(ctx, r, i, res), admissions[:before], nil
	}
	return a.tightest(r, taken), admissions, nil
}

// refundAll gives cost back to each leaf.
func refundAll(ctx context.Context, admissions []admission, cost uint64) error {
	var errs []error
	for i := range admissions {
		errs = append(errs, admissions[i].refund(ctx, cost))
	}
	return errors.Join(errs...)
}

// latest returns the denial that ends last: res, the i-th strategy's, or that of another now.
func (a all) latest(ctx context.Context, r *Request, i int, res *Result) *Result {
	for j, s := range a {
		p, ok := s.(Peeker)
		if j == i || !ok {
			continue
		}
		other, err := p.Peek(ctx, r)
		denies := err == nil && !other.Allowed() && !res.ExpiresAt.IsZero()
		if denies && (other.ExpiresAt.IsZero() || other.ExpiresAt.After(res.ExpiresAt)) {
			res = other
		}
	}
	return res
}

// tightest returns the admission with the least left.
func (a all) tightest(r *Request, taken []*Result) *Result {
	tightest, least := 0, uint64(math.MaxUint64)
	for i, res := range taken {
		if limit, ok := limitOf(a[i], r.Limit); ok && res.Remaining(limit) < least {
			tightest, least = i, res.Remaining(limit)
		}
	}
	return taken[tightest]
}

// limitOf returns what TotalRequests is held against, for a request of the given limit. It reports
// false for a strategy with limits of its own.
func limitOf(s Strategy, limit uint64) (uint64, bool) {
	switch s := s.(type) {
	case Policy:
		return limitOf(s.Strategy, s.Limit)
	case interface {
		RunTier(ctx context.Context, r *Request) (*Result, Tier, error)
	}:
		return 0, false
	case interface{ Burst() uint64 }:
		limit = cmp.Or(s.Burst(), limit)
	case interface{ Unwrap() Strategy }:
		return limitOf(s.Unwrap(), limit)
	}
	return limit, limit > 0 // of 0 nothing is admitted, unless a strategy has limits of its own
}

// Peek implements [Peeker], as far as the strategies do.
func (a all) Peek(ctx context.Context, r *Request) (*Result, error) {
	seen := make([]*Result, 0, len(a))
	for i, s := range a {
		p, ok := s.(Peeker)
		if !ok {
			return nil, fmt.Errorf("weir: All: %T cannot peek: %w", s, errors.ErrUnsupported)
		}
		res, err := p.Peek(ctx, r)
		if err != nil {
			return nil, err
		}
		if !res.Allowed() {
			return a.latest(ctx, r, i, res), nil
		}
		seen = append(seen, res)
	}
	return a.tightest(r, seen), nil
}
