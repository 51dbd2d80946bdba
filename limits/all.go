package limits

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"strings"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/arith"
	"github.com/weirgo/weir/internal/core/forlimits"
)

// All returns a limit that admits a hit if every one of limits does: [Decide] with a [weir.Ask] for
// each, on one key. An All among limits stands for those in it. Its Outcome is that of the limit
// that binds, which is in By. As a Strategy it is a [weir.Admitter] and a [weir.Charger], as far as
// the strategies of limits are.
//
// It is not one atomic step, see Decide. Where all limits are windows on one key, Tiers is exact.
// It panics without limits, if two of them cannot give back, and if two of them are equal: a
// request would take from one count twice. One that waits decides last if it stands last, and the
// others are in process.
func All(limits ...*weir.Limit) *weir.Limit {
	if len(limits) == 0 {
		panic("limits: All of no limits")
	}
	a := &all{leastBinds: true}
	for _, m := range limits {
		if inner, ok := m.Unwrap().(*all); ok {
			a.limits = append(a.limits, inner.limits...)
		} else {
			a.limits = append(a.limits, m)
		}
	}
	for _, m := range a.limits {
		a.strategies = append(a.strategies, m)
		says := inside.SaysLeft(m.Unwrap())
		a.saysLeft, a.leastBinds = append(a.saysLeft, says), a.leastBinds && says.Admitted
	}
	attempts := a.ask(nil, new(weir.Request))
	if err := cmp.Or(attempts.supported(false), attempts.checkCounts()); err != nil {
		panic(err.Error())
	}
	m, err := weir.NewLimit(a, 0, 0)
	if err != nil {
		panic(err.Error())
	}
	return m
}

// all is the strategy of an All.
type all struct {
	strategies []weir.Strategy // the limits
	limits     []*weir.Limit
	saysLeft   []forlimits.SaysLeft // of each limit
	leastBinds bool                 // all say it of an admission: the limit that binds has the least
}

// Algorithm implements [weir.Named].
func (a *all) Algorithm() string {
	names := make([]string, len(a.strategies))
	for i, s := range a.strategies {
		names[i] = weir.NameOf(s)
	}
	return "all of " + strings.Join(names, ", ")
}

// Bound reports that the numbers of a request are ignored.
func (a *all) Bound() bool { return len(a.limits) > 0 }

// Limits returns the limits that are held at once.
func (a *all) Limits() []*weir.Limit { return a.limits }

// Of returns the same of other strategies.
func (a *all) Of(strategies []weir.Strategy) weir.Strategy { return &all{strategies: strategies} }

// ask makes attempts, or new ones, Attempts on r.
func (a *all) ask(attempts Attempts, r *weir.Request) Attempts {
	attempts = slices.Grow(attempts[:0], len(a.strategies))[:len(a.strategies)]
	for i, s := range a.strategies {
		attempts[i].ask(s, r)
	}
	return attempts
}

// Decide decides on r, or looks, and returns the place of the limit that binds, and of its Outcome
// the Result, Left, and how long it holds, if that is known. A look is without the cost of r.
func (a *all) Decide(
	ctx context.Context, look bool, r weir.Request,
) (out weir.Outcome, by int, err error) {
	l := getAttempts(len(a.strategies))
	defer l.put()
	if by, err = a.ask(*l, &r).decideOp(ctx, look); err != nil {
		return out, by, err
	}
	m := &(*l)[by]
	if look && m.Result.Allowed() {
		m.Result.TotalRequests -= m.cost()
	}
	out.Result, out.Wait, out.Left = m.Result, m.left, math.MaxUint64
	out.FullAt = l.fullAt()
	if m.Result.Allowed() && a.leastBinds {
		out.Left = m.Remaining()
		return out, by, nil
	}
	for i := range *l {
		if part := &(*l)[i]; part.Decided() {
			out.Left = min(out.Left, a.leftOf(ctx, i, part))
		}
	}
	return out, by, nil
}

// leftOf returns how much cost the i-th limit, which has decided, would admit now.
func (a *all) leftOf(ctx context.Context, i int, m *Attempt) uint64 {
	if a.saysLeft[i].Of(m.Result.Allowed()) {
		return m.Remaining()
	}
	return inside.LeftOf(ctx, m.strategy, &m.Request, &m.Result, m.Most())
}

// Run implements [weir.Strategy].
func (a *all) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return a.call(ctx, false, r)
}

// Peek implements [weir.Peeker].
func (a *all) Peek(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return a.call(ctx, true, r)
}

func (a *all) call(ctx context.Context, look bool, r *weir.Request) (*weir.Result, error) {
	l := getAttempts(len(a.strategies))
	defer l.put()
	binding, err := a.ask(*l, r).decideOp(ctx, look)
	if err != nil {
		return nil, err
	}
	res := (*l)[binding].Result
	res.Limit = (*l)[binding].Most()
	return &res, nil
}

// Admit implements [weir.Admitter].
func (a *all) Admit(ctx context.Context, r *weir.Request) (*weir.Result, weir.Return, error) {
	attempts := a.ask(nil, r) // the Return keeps them
	v, err := reserve(ctx, attempts)
	if err != nil {
		return nil, nil, err
	}
	v.result.Limit = attempts[attempts.Binding()].Most()
	var cost uint64
	if v.Allowed() {
		cost = max(1, r.Cost)
	}
	return &v.result, arith.Parts(cost, func(ctx context.Context, n, _ uint64) error {
		return attempts.giveBack(ctx, n)
	}), nil
}

// Charge implements [weir.Charger].
func (a *all) Charge(ctx context.Context, r *weir.Request) error {
	var errs []error
	for _, m := range a.ask(nil, r) {
		m.call(ctx, OpCharge)
		errs = append(errs, m.Err)
	}
	return errors.Join(errs...)
}
