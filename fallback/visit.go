package fallback

import (
	"context"
	"fmt"
	"time"

	"github.com/weirgo/weir"
)

// visit is one use of a Fallback by r's caller.
type visit struct {
	f     *Fallback
	b     *breaker
	judge *breaker // b; nil: it ignores how the call of primary ends
	a     *account // not removed before end
	r     *weir.Request
	task  task // nil: a reset, or work in flight
	began time.Time
	epoch uint64   // of the breaker, before the call of primary
	calls *calls   // that the call of primary under way is one of, or nil; guarded by a.mu
	late  *pending // the call of primary, if it may outlast the visit
	kept  *kept    // of an OpTake with a Receipt, and of an OpReturn by one; else nil

	hurried bool // the caller waits for less than Timeout

	first first
}

// first is room for the first call of primary, which is the only one as a rule, so that it
// allocates no more than the visit.
type first struct {
	part  part
	parts [1]*part
	op    weir.Op
	ops   [1]*weir.Op
}

// task is the op that a visit is for.
type task interface {
	ask(op *weir.Op)                                    // sets the op of primary
	answer(ctx context.Context, op *weir.Op) *result    // reads its answer; nil: no decision
	finish(ctx context.Context, res *result, err error) // ends the op; err: see visit.call
}

// open begins a visit. If reset is not zero it resets the caller: primary is to be reset, too, if
// it answers before that.
func (v *visit) open(f *Fallback, r *weir.Request, reset time.Time) {
	v.f, v.b = f, f.server.breaker(r.Key) // first, as Partition may panic
	v.judge, v.began = v.b, f.cfg.Now()
	if f.window > 0 && r.Duration != f.window { // a caller has one account, whatever the Duration
		own := *r
		own.Duration, r = f.window, &own
	}
	v.r, v.a = r, f.ledger.open(r, v.began, reset)
}

func (v *visit) end() { v.a.users.Add(-1) }

// period returns the period of the request.
func (v *visit) period() period { return period{v.f, v.r} }

// call has primary do op, unless the breaker is open: see server.Call. The error is errUndecided,
// or one for the caller. The operation may continue without its caller, as v.late.
func (v *visit) call(ctx context.Context, op operation) (*result, error) {
	if !v.f.server.permits(v.judge, v.r.Key) {
		return nil, errUndecided
	}
	p := &v.first.part
	if p.v != nil {
		p = new(part)
	}
	p.v, v.first.parts[0] = v, p
	v.f.server.Call(ctx, v.first.parts[:], func(ctx context.Context) { p.res, p.err = op(v, ctx) })
	return p.outcome()
}

// do has primary do the op of the visit.
func (v *visit) do(ctx context.Context) (res *result, err error) {
	op := v.ask()
	defer func() {
		if res == nil { // it failed, or primary panicked
			v.failed()
		}
	}()
	if v.catchesUp(op) {
		return v.byStep(ctx, op)
	}
	v.first.ops[0] = op
	v.f.primary.Do(ctx, v.first.ops[:])
	return v.answer(ctx, op)
}

// ask returns the op that primary is to do.
func (v *visit) ask() *weir.Op {
	op := &v.first.op
	if op.Counter != nil {
		op = new(weir.Op)
	}
	op.Counter, op.Request = v.f.primary, *v.r
	v.task.ask(op)
	return op
}

// answer reads the answer of primary.
func (v *visit) answer(ctx context.Context, op *weir.Op) (*result, error) {
	if op.Err != nil {
		return nil, op.Err
	}
	return v.task.answer(ctx, op), nil
}

// failed ends the call of primary, if one is under way, which has not decided.
func (v *visit) failed() {
	v.a.mu.Lock()
	defer v.a.mu.Unlock()
	v.arrive(false)
}

// arrive ends the call of primary, if one is under way. The account is locked.
func (v *visit) arrive(admitted bool) {
	if v.calls != nil {
		v.calls.end(v.a, costOf(v.r), admitted)
		v.calls = nil
	}
}

// send is call for a change that may be lost: no answer is no error, nor is a primary that cannot
// do it.
func (v *visit) send(ctx context.Context, op operation) error {
	_, err := v.call(ctx, op)
	return sent(err)
}

// settle records the facts that are known now. Cost that primary has counted for a caller who was
// denied or has left, it is to give back. A call that ignores its context ends twice: at its
// timeout, and when it returns.
func (v *visit) settle(ctx context.Context, now known) {
	v.a.mu.Lock()
	defer v.a.mu.Unlock()
	p, was, length := v.late, v.late.known, v.period().length()
	p.known = known{was.ended || now.ended, was.counted || now.counted, was.unused || now.unused}
	switch {
	case p.cost == 0: // local has not decided, or has denied
	case p.ended && !was.ended && !p.inTime(v.f.windows, length):
		v.a.debts.Add(p.cost, p.until, v.f.cfg.Now())
	case was.ended && !was.counted && p.inTime(v.f.windows, length):
		v.a.debts.Refund(p.cost, v.f.cfg.Now())
	}
	if p.counted && p.unused && (!was.counted || !was.unused) && !v.a.replaced.Load() {
		// of a visit of its own: the call is another late one
		go (&refund{visit: *v}).returnLate(context.WithoutCancel(ctx), &p.res.Result)
	}
}

// locally has decide do so on a share of the request, unless Config.OnFail does.
func (v *visit) locally(
	decide func(own shared) (*result, error),
) (*result, weir.Source, error) {
	f := v.f
	if f.cfg.OnFail != FailLocal {
		return &result{Result: *v.policy()}, weir.FromOnFail, nil
	}
	own := v.share(v.a.sharedAmong(uint64(f.Instances()), f.cfg.Now()))
	res, err := decide(own)
	if err != nil {
		return nil, weir.Nowhere, fmt.Errorf("fallback: local cannot decide either: %w", err)
	}
	return own.whole(res), weir.FromLocal, nil
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
func (v *visit) policy() *weir.Result {
	switch {
	case v.f.exceeds(v.r):
		return &weir.Result{}
	case v.f.cfg.OnFail == FailOpen:
		return &weir.Result{State: weir.Allow, TotalRequests: costOf(v.r), ExpiresAt: v.f.cfg.Now()}
	}
	return &weir.Result{TotalRequests: v.r.Limit, ExpiresAt: v.b.Next(v.f.cfg.Now())}
}

// backlog returns all that primary has missed of the caller, or nil if that is nothing.
func (v *visit) backlog() *weir.Backlog {
	v.a.mu.Lock()
	defer v.a.mu.Unlock()
	return v.missed()
}

// missed is backlog, with the account locked.
func (v *visit) missed() *weir.Backlog {
	v.epoch = v.b.epoch.Load()
	return v.a.missed(v.began, v.epoch, v.f.id)
}

// caughtUp records in the account, which is locked, that primary has missed nothing of b.
func (v *visit) caughtUp(b *weir.Backlog) { v.f.reconciled.Add(v.a.caughtUp(b, v.epoch)) }

// catchesUp reports whether primary is to catch up before it does an op: it does not reconcile.
func (v *visit) catchesUp(op *weir.Op) bool { return op.Backlog != nil && !v.f.reconciles }

// byStep has primary catch up, and then do an op. Such a primary does not remember when something
// was taken back, so that a count is brought only after a failed call.
func (v *visit) byStep(ctx context.Context, op *weir.Op) (*result, error) {
	v.f.blind.Store(true)
	v.a.mu.Lock()
	v.a.lost = false
	v.a.mu.Unlock()
	for v.backlog() != nil { // a turn may have begun before a debt of the backlog of op
		if err := v.catchUpInTurn(ctx); err != nil {
			return nil, err
		}
	}
	op.Backlog = nil
	v.f.primary.Do(ctx, []*weir.Op{op})
	return v.answer(ctx, op)
}

// catchUpInTurn is catchUp, which concurrent calls for one caller share. If it hangs, it holds up
// no others after its Timeout.
func (v *visit) catchUpInTurn(ctx context.Context) error {
	name := fmt.Sprint(v.r.Duration, " ", v.r.Key)
	_, err, _ := v.f.turns.Do(name, func() (any, error) {
		defer context.AfterFunc(ctx, func() { v.f.turns.Forget(name) })()
		return v.catchUp(ctx)
	})
	return supported(err)
}

// catchUp resets, seeds and charges primary, as far as it can be, without a decision. A charge
// whose answer is lost is repeated: a debt is charged at least once.
func (v *visit) catchUp(ctx context.Context) (_ *result, err error) {
	b, primary := v.backlog(), v.f.primary
	if b == nil {
		return nil, nil
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
		return nil, err
	}
	v.a.mu.Lock()
	defer v.a.mu.Unlock()
	// primary cannot be charged
	if until := v.a.debts.Last(); err != nil && debt.Cost > 0 && !until.IsZero() {
		v.f.ledger.drop(debt.Cost, 1, v.f.cfg.Now(), until)
		v.a.debts.Charged(b.Total)
	}
	v.caughtUp(b)
	return nil, err
}
