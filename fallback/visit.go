package fallback

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/weirgo/weir"
)

// visit is one use of a Fallback by r's caller, with one call of primary at most.
type visit struct {
	f     *Fallback
	b     *breaker
	a     *account // not removed before close
	r     *weir.Request
	asked *weir.Op // by the caller; nil: a reset, or work in flight
	task  task     // for the op that was asked
	takes *taking  // the task, if primary is to decide on an OpTake; else nil
	began time.Time
	epoch uint64   // of the breaker, before the call of primary
	calls *calls   // that the call of primary under way is one of, or nil; guarded by a.mu
	late  *pending // a call of primary that may outlast the visit
	kept  *kept    // of an OpTake with a Receipt, and of an OpReturn by one; else nil

	peeks   bool // an OpPeek: the breaker ignores how the call of primary ends
	hurried bool // the caller waits for less than Timeout

	op  weir.Op // of primary, for the op that was asked
	err error   // of the call; errUndecided: the call goes on, or panicked
	end error   // of the call for the caller, or errUndecided

	// Room for the arguments of a call of one visit, which allocates no more than the visit.
	visits [1]*visit
	ops    [1]*weir.Op
}

// task is the op that a visit is for. finish ends the op that was asked; err: see visit.call.
type task interface {
	finish(ctx context.Context, err error)
}

// open begins v, a new visit. If reset is not zero the caller is reset, and primary too, if an
// answer comes before that instant.
func (v *visit) open(f *Fallback, r *weir.Request, reset time.Time) *visit {
	v.f, v.b = f, f.server.breaker(r.Key) // first, as Partition may panic
	v.began = f.cfg.Now()
	// of a Calendar: a caller has one account, whatever the Duration
	if w := f.about.Window; w > 0 && r.Duration != w {
		own := *r
		own.Duration, r = w, &own
	}
	v.r, v.a = r, f.ledger.open(r, v.began, reset)
	return v
}

func (v *visit) close() { v.a.users.Add(-1) }

// period returns the period of the request.
func (v *visit) period() period { return period{v.f, v.r} }

// permits reports whether primary is to be called. If the breaker is open it starts a probe, if one
// is due. An OpPeek starts none, and finds out nothing while primary is still to be charged.
func (v *visit) permits() bool {
	if v.peeks {
		return v.b.Closed() && v.backlog() == nil
	}
	closed := v.b.Closed()
	if !closed {
		v.f.server.startProbe(v.b, v.r.Key)
	}
	return closed
}

// call has primary do an operation, unless the breaker is open: see server.Call. The error is
// errUndecided, or one for the caller. The operation may continue without its caller, as v.late.
func (v *visit) call(ctx context.Context, operation func(context.Context) error) error {
	return v.callBy(ctx, func(ctx context.Context, _ []*visit) { v.err = operation(ctx) })
}

// callBy is call, by do, which sets the err of v.
func (v *visit) callBy(ctx context.Context, do func(ctx context.Context, all []*visit)) error {
	if !v.permits() {
		return errUndecided
	}
	v.f.server.Call(ctx, append(v.visits[:0], v), do)
	return v.end
}

// do has the primaries of all visits do their ops, in one call. One that is to catch up step by
// step does so afterwards.
func do(ctx context.Context, all []*visit) {
	defer func() {
		for _, v := range all {
			if v.err != nil { // the call failed, or panicked
				v.failed()
			}
		}
	}()
	ops := all[0].ops[:0]
	for _, v := range all {
		v.err, v.op.Counter, v.op.Request = errUndecided, v.f.primary, *v.r
		if v.takes != nil {
			v.takes.depart()
		}
		if !v.catchesUp() {
			ops = append(ops, &v.op)
		}
	}
	if len(ops) > 0 {
		ops[0].Counter.Do(ctx, ops)
	}
	for _, v := range all {
		if v.catchesUp() {
			v.byStep(ctx)
		}
		err := v.op.Err
		if err == nil && v.takes != nil {
			v.takes.answered(ctx)
		}
		v.err = err // last: an answer that cannot be recorded is none
	}
}

// failed ends the call of primary, if one is under way, which has not decided.
func (v *visit) failed() {
	v.a.mu.Lock()
	defer v.a.mu.Unlock()
	v.arrive(false)
}

// arrive ends the call of primary, if one is under way. The account is locked.
func (v *visit) arrive(admitted bool) {
	c, cost := v.calls, costOf(v.r)
	v.calls = nil
	switch {
	case c == nil:
	case c.giveBack == nil:
		c.cost.sub(cost)
	default:
		v.a.ahead.sub(cost)
		if !admitted && !v.a.replaced.Load() {
			c.giveBack(cost)
		}
	}
}

// outlast begins a call that may outlast the visit.
func (v *visit) outlast(hurried bool) {
	r := *v.r
	v.hurried, v.late, v.r = hurried, new(pending), &r // the caller may reuse its request
	v.a.users.Add(1)                                   // the account stays until the call has ended
	v.err = errUndecided
}

// outlasted ends such a call.
func (v *visit) outlasted(ctx context.Context) {
	defer v.close()
	now := known{ended: true}
	if v.err == nil && (v.op.Verb != weir.OpTake || v.op.Result.Allowed()) {
		now.counted = &v.op.Result
	}
	v.settle(ctx, now)
}

// settle records the facts that are known now. Cost that primary has counted for a caller who was
// denied or has left, is to be given back. A call that ignores its context ends twice: at its
// timeout, and when it returns.
func (v *visit) settle(ctx context.Context, now known) {
	v.a.mu.Lock()
	defer v.a.mu.Unlock()
	p, was, length := v.late, v.late.known, v.r.Duration
	p.known = known{was.ended || now.ended, cmp.Or(was.counted, now.counted), was.unused || now.unused}
	switch {
	case p.cost == 0: // local has not decided, or has denied
	case p.ended && !was.ended && !p.inTime(v.f.windows, length):
		v.a.debts.Add(p.cost, p.until, v.f.cfg.Now())
	case was.ended && was.counted == nil && p.inTime(v.f.windows, length):
		v.a.debts.Refund(p.cost, v.f.cfg.Now())
	}
	news := was.counted == nil || !was.unused
	if p.counted != nil && p.unused && news && !v.a.replaced.Load() {
		go returnLate(context.WithoutCancel(ctx), v, p.counted)
	}
}

// locally has decide do so on a share of the request, unless Config.OnFail does. decide sets the
// Result of an op.
func (v *visit) locally(op *weir.Op, decide func(own shared) error) (weir.Source, error) {
	if v.f.cfg.OnFail != FailLocal {
		op.Result = v.policy()
		return weir.FromOnFail, nil
	}
	own := v.own()
	op.Request = *own.r
	if err := decide(own); err != nil {
		return weir.Nowhere, fmt.Errorf("fallback: local cannot decide either: %w", err)
	}
	own.whole(op)
	return weir.FromLocal, nil
}

// own returns the request with local's share of its limit, or with an earlier, smaller share of the
// same period.
func (v *visit) own() shared {
	n, now := uint64(v.f.Instances()), v.f.cfg.Now()
	v.a.mu.Lock()
	defer v.a.mu.Unlock()
	return v.share(v.a.sharing.among(n, now))
}

// share returns the request with one nth of its limit.
func (v *visit) share(n uint64) shared {
	s := shared{v, n, v.r}
	if n > 1 && !v.f.cfg.OwnLimits {
		own := *v.r
		own.Limit, s.r = share(v.r.Limit, n), &own
	}
	return s
}

// policy returns the Result of Config.OnFail.
func (v *visit) policy() weir.Result {
	switch {
	case v.f.exceeds(v.r):
		return weir.Result{}
	case v.f.cfg.OnFail == FailOpen:
		return weir.Result{State: weir.Allow, TotalRequests: costOf(v.r), ExpiresAt: v.f.cfg.Now()}
	}
	return weir.Result{TotalRequests: v.r.Limit, ExpiresAt: v.b.Next(v.f.cfg.Now())}
}

// backlog returns all that primary has missed of the caller, or nil if that is nothing.
func (v *visit) backlog() *weir.Backlog {
	v.a.mu.Lock()
	defer v.a.mu.Unlock()
	return v.missed()
}

// missed is backlog, with the account locked.
func (v *visit) missed() *weir.Backlog {
	a, now, counted := v.a, v.began, uint64(0)
	v.epoch = v.b.epoch.Load()
	if a.epoch != v.epoch || a.lost {
		counted = a.counted.now(now)
	}
	a.lost = a.lost && counted > 0
	reset := now.Before(a.reset)
	if a.debts.Owed(now) == 0 && !reset && counted == 0 {
		return nil
	}
	b := &weir.Backlog{Reset: reset, CountedAt: a.counted.at,
		Source: fmt.Sprint(v.f.id, " ", a.number)}
	b.Charged, b.Total = a.debts.Send()
	if counted > 0 {
		b.Counted = &weir.Result{State: weir.Allow, TotalRequests: counted,
			ExpiresAt: a.counted.until}
	}
	return b
}

// caughtUp records in the account, which is locked, that primary has missed nothing of b.
func (v *visit) caughtUp(b *weir.Backlog) {
	a := v.a
	a.epoch = v.epoch
	if b == nil {
		return
	}
	if b.Reset {
		a.reset = time.Time{}
	}
	if charged := a.debts.Charged(b.Total); charged > 0 {
		v.f.reconciled.Add(charged)
	}
}

// catchesUp reports whether primary, which does not reconcile, is to catch up before the op.
func (v *visit) catchesUp() bool { return v.op.Backlog != nil && !v.f.primary.About().Reconciles }

// byStep has primary catch up, and then do the op. Such a primary does not remember when something
// was taken back, so that a count is brought only after a failed call.
func (v *visit) byStep(ctx context.Context) {
	v.f.blind.Store(true)
	v.a.mu.Lock()
	v.a.lost = false
	v.a.mu.Unlock()
	for v.backlog() != nil { // a turn may have begun before a debt of the backlog of the op
		v.op.Err = v.catchUpInTurn(ctx)
		if v.op.Err != nil {
			return
		}
	}
	v.op.Backlog = nil
	v.f.primary.Do(ctx, []*weir.Op{&v.op})
}

// catchUpInTurn is catchUp, which concurrent calls for one caller share. One that hangs holds
// up no others after its Timeout.
func (v *visit) catchUpInTurn(ctx context.Context) error {
	name := fmt.Sprint(v.r.Duration, " ", v.r.Key)
	_, err, _ := v.f.turns.Do(name, func() (any, error) {
		defer context.AfterFunc(ctx, func() { v.f.turns.Forget(name) })()
		return nil, v.catchUp(ctx)
	})
	return supported(err)
}

// catchUp resets, seeds and charges primary, as far as possible, without a decision. A charge
// whose answer is lost is repeated: a debt is charged at least once.
func (v *visit) catchUp(ctx context.Context) (err error) {
	b, primary := v.backlog(), v.f.primary
	if b == nil {
		return nil
	}
	debt := *v.r
	debt.Cost = b.Total - b.Charged
	if primary.About().Verbs.Has(weir.OpCatchUp) {
		err = by(ctx, primary, &weir.Op{Verb: weir.OpCatchUp, Request: *v.r, Backlog: b})
	} else {
		if b.Reset {
			err = by(ctx, primary, &weir.Op{Verb: weir.OpReset, Request: *v.r})
		}
		if supported(err) == nil && debt.Cost > 0 {
			err = by(ctx, primary, &weir.Op{Verb: weir.OpCharge, Request: debt})
		}
	}
	if supported(err) != nil {
		return err
	}
	v.a.mu.Lock()
	defer v.a.mu.Unlock()
	// primary cannot be charged
	if until := v.a.debts.Last(); err != nil && debt.Cost > 0 && !until.IsZero() {
		v.f.ledger.drop(debt.Cost, 1, v.f.cfg.Now(), until)
		v.a.debts.Charged(b.Total)
	}
	v.caughtUp(b)
	return err
}
