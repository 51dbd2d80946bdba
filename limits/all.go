package limits

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirgo/weir"
)

// Several are limits that hold at once, on one key. Make one with [All]. As a Strategy it takes the
// Key, the Cost and the Meta of a Request.
type Several struct {
	limits     []*weir.Limit
	attempts   Attempts // of the same, on no request
	about      weir.About
	leastBinds bool // of an admission the limit that binds has the least left
	few        bool // decideFew may decide
}

// All returns a limit that admits a hit if every one of limits does: [Decide] with a [weir.Ask] for
// each, on one key. Its Outcome comes from the limit that binds, which is in By.
//
// The decision is not one atomic step, see Decide. Where all limits are windows on one key, Tiers
// is exact. All panics without limits, if two of them cannot give back, and if two of them are
// equal: a request would take from one count twice. One that waits decides last if it stands last,
// and the others are in process.
func All(limits ...*weir.Limit) *Several {
	if len(limits) == 0 {
		panic("limits: All of no limits")
	}
	strategies := make([]weir.Strategy, len(limits))
	for i, m := range limits {
		strategies[i] = m
	}
	a := several(strategies)
	a.limits, a.few = slices.Clone(limits), len(limits) <= fewLimits
	for i := range a.attempts {
		of := a.attempts[i].about
		a.about.Parts = append(a.about.Parts, of)
		a.few = a.few && follows(a.about.Parts[0], of)
	}
	if err := check(a.attempts); err != nil {
		panic(err.Error())
	}
	return a
}

// several returns the Several of strategies, each of which takes a Request with numbers, or is a
// Limit.
func several(strategies []weir.Strategy) *Several {
	a := &Several{attempts: make(Attempts, len(strategies)), leastBinds: true}
	names := make([]string, len(strategies))
	verbs := weir.VerbsOf(weir.OpTake, weir.OpPeek, weir.OpReturn, weir.OpCharge)
	for i, s := range strategies {
		a.attempts[i] = NewAttempt(s)
		of := a.attempts[i].about
		names[i] = of.String()
		verbs &= of.Verbs
		a.leastBinds = a.leastBinds && !of.Waits
		a.about.Waits = a.about.Waits || of.Waits
		a.about.InFlight = a.about.InFlight || of.InFlight
	}
	a.about.Of, a.about.Counts, a.about.Bound, a.about.Verbs = a, a, true, verbs
	a.about.Name = "all of " + strings.Join(names, ", ")
	return a
}

// String describes the limits.
func (a *Several) String() string {
	all := make([]string, len(a.limits))
	for i, m := range a.limits {
		all[i] = m.String()
	}
	return "all of " + strings.Join(all, ", ")
}

// Limits returns the limits.
func (a *Several) Limits() []*weir.Limit { return slices.Clone(a.limits) }

// About implements [weir.Counter].
func (a *Several) About() *weir.About { return &a.about }

// For returns the [weir.Ask] for a hit of key.
func (a *Several) For(key string) weir.Ask {
	return weir.Ask{Strategy: a, Request: weir.Request{Key: key}}
}

// Allow reports whether a hit of key is admitted, and counts it. Where Allow cannot decide, it
// returns true if all of the limits that fail are fail-open, and the key is not at fault, and else
// false. A leaky bucket admits only who need not wait.
func (a *Several) Allow(key string) bool {
	out, err := a.decide(context.Background(), weir.Request{Key: key}, true)
	return err == nil && out.Allowed()
}

// AllowBytes is Allow of a key that is no string.
func (a *Several) AllowBytes(key []byte) bool { return a.Allow(string(key)) }

// Take decides on cost hits of key at once, of which 0 means 1, and counts them in all limits or in
// none.
func (a *Several) Take(ctx context.Context, key string, cost uint64) (weir.Outcome, error) {
	return a.decide(ctx, weir.Request{Key: key, Cost: cost}, false)
}

// Hold admits a hit of key, and keeps it admitted by the one limit on work in flight until Release:
// "20 jobs at a time, and 100 in a minute". The counts of the other limits stand after that.
// Hold fails as [weir.Hold] does, by the limit that denies, and with [errors.ErrUnsupported] unless
// just one of the limits is on work in flight.
func (a *Several) Hold(ctx context.Context, key string) (*weir.Held, error) {
	l := a.ask(&weir.Request{Key: key})
	defer putAttempts(l)
	held := -1
	for i := range *l {
		m := &(*l)[i]
		if !m.InFlight() {
			continue
		}
		if held >= 0 {
			return nil, fmt.Errorf("limits: %s cannot hold: two of its limits are on work in flight: %w", a,
				errors.ErrUnsupported)
		}
		h, err := m.Holding()
		if err != nil {
			return nil, err
		}
		*m, held = h, i
	}
	if held < 0 {
		return nil, fmt.Errorf("limits: %s cannot hold: none of its limits is on work in flight: %w", a,
			errors.ErrUnsupported)
	}
	if err := l.decide(ctx); err != nil {
		return nil, err
	}
	if by := &(*l)[l.Binding()]; !by.Op.Result.Allowed() {
		return nil, &weir.DeniedError{Result: by.Op.Result, Limit: by.limit, Never: by.Never()}
	}
	return (*l)[held].TakeHeld(), nil
}

// Peek returns the Outcome before a hit, and counts nothing.
func (a *Several) Peek(ctx context.Context, key string) (weir.Outcome, error) {
	l := a.ask(&weir.Request{Key: key})
	defer putAttempts(l)
	for i := range *l {
		(*l)[i].Op.Full = true
	}
	by, err := l.look(ctx)
	if err != nil {
		return weir.Outcome{}, err
	}
	return a.outcome(ctx, *l, by), nil
}

// Wait waits until a hit of key is admitted, as the function [weir.Wait] does.
func (a *Several) Wait(ctx context.Context, key string) error {
	_, err := weir.Wait(ctx, a, &weir.Request{Key: key})
	return err
}

// Run implements [weir.Strategy].
func (a *Several) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return weir.Run(ctx, a, r)
}

// ask returns Attempts on r, for putAttempts to take back.
func (a *Several) ask(r *weir.Request) *Attempts {
	l := getAttempts(len(a.attempts))
	copy(*l, a.attempts)
	for i := range *l {
		(*l)[i].request(r)
	}
	return l
}

func (a *Several) decide(
	ctx context.Context, r weir.Request, atOnce bool,
) (out weir.Outcome, err error) {
	if a.few && a.decideFew(ctx, &r, atOnce, &out) {
		return out, nil
	}
	l := a.ask(&r)
	defer putAttempts(l)
	for i := range *l {
		(*l)[i].Op.AtOnce, (*l)[i].Op.Full = atOnce, !atOnce
	}
	if err := l.decide(ctx); err != nil {
		if atOnce && l.open(ctx) {
			out.State = weir.Allow
			return out, nil
		}
		return out, err
	}
	by := l.Binding()
	if atOnce { // which asks for no more
		out.Result = (*l)[by].Op.Result
		return out, nil
	}
	return a.outcome(ctx, *l, by), nil
}

// decideFew is decide of few limits on slots of one Limiter. False means that decide is to go on.
func (a *Several) decideFew(
	ctx context.Context, r *weir.Request, atOnce bool, out *weir.Outcome,
) bool {
	f := fews.Get().(*few)
	defer f.put()
	for _, of := range a.about.Parts {
		f.add(of.Of, of, r.Key, r.Cost, !atOnce)
	}
	if !f.take(ctx) {
		return false
	}
	by := f.binding()
	if atOnce { // which asks for no more
		out.Result = f.ops[by].Result
		return true
	}
	*out = a.limits[by].Outcome(ctx, &f.ops[by])
	for i := range f.n {
		if !out.Allowed() {
			out.Left = min(out.Left, f.ops[i].Result.Remaining(f.most[i]))
		}
		if f.ops[i].FullAt.After(out.FullAt) {
			out.FullAt = f.ops[i].FullAt
		}
	}
	return true
}

// outcome returns the Outcome of attempts, of which one binds.
func (a *Several) outcome(ctx context.Context, l Attempts, by int) weir.Outcome {
	out := a.limits[by].Outcome(ctx, &l[by].Op)
	saysLeft, known := out.Allowed() && a.leastBinds, !out.FullAt.IsZero()
	for i := range l {
		full := l[i].Op.FullAt
		switch {
		case i == by:
			continue
		case l[i].Decided() && (!saysLeft || full.IsZero()):
			part := a.limits[i].Outcome(ctx, &l[i].Op)
			out.Left, full = min(out.Left, part.Left), part.FullAt
		}
		known = known && l[i].Decided() && !full.IsZero()
		if full.After(out.FullAt) {
			out.FullAt = full
		}
	}
	if !known {
		out.FullAt = time.Time{}
	}
	return out
}

// Do implements [weir.Counter].
func (a *Several) Do(ctx context.Context, ops []*weir.Op) {
	for _, op := range ops {
		switch op.Verb {
		case weir.OpTake:
			op.Err = a.take(ctx, op)
		case weir.OpPeek:
			op.Err = a.peek(ctx, op)
		case weir.OpReturn:
			op.Err = a.giveBack(ctx, op)
		case weir.OpCharge:
			op.Err = a.charge(ctx, &op.Request)
		default:
			op.Err = op.Unsupported(&a.about)
		}
	}
}

func (a *Several) take(ctx context.Context, op *weir.Op) error {
	l := a.ask(&op.Request)
	if !op.Keep { // else the Receipt keeps them
		defer putAttempts(l)
	}
	for i := range *l {
		(*l)[i].Op.Keep, (*l)[i].Op.AtOnce = op.Keep, op.AtOnce
	}
	if err := l.decide(ctx); err != nil {
		return err
	}
	m := &(*l)[l.Binding()]
	op.Result, op.Left = m.Op.Result, m.Op.Left
	if op.Keep {
		op.Receipt = weir.Receipt{Of: l}
		if op.Result.Allowed() {
			op.Receipt.Cost = max(1, op.Cost)
		}
	}
	op.Result.Limit = m.Most()
	return nil
}

func (a *Several) peek(ctx context.Context, op *weir.Op) error {
	l := a.ask(&op.Request)
	defer putAttempts(l)
	by, err := l.look(ctx)
	if err != nil {
		return err
	}
	m := &(*l)[by]
	op.Result, op.Left = m.Op.Result, m.Op.Left
	if op.Result.Allowed() {
		op.Result.TotalRequests += m.cost()
	}
	op.Result.Limit = m.Most()
	return nil
}

// giveBack gives back to each limit.
func (a *Several) giveBack(ctx context.Context, op *weir.Op) error {
	l, ok := op.Receipt.Of.(*Attempts)
	if !ok {
		return op.Unsupported(&a.about)
	}
	n := min(max(1, op.Cost), op.Receipt.Cost)
	op.Receipt.Cost -= n
	if n == 0 {
		return nil
	}
	return l.giveBack(ctx, n)
}

func (a *Several) charge(ctx context.Context, r *weir.Request) error {
	l := a.ask(r)
	defer putAttempts(l)
	var errs []error
	for i := range *l {
		errs = append(errs, (*l)[i].charge(ctx, r.Cost))
	}
	return errors.Join(errs...)
}
