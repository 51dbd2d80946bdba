package fallback

import (
	"cmp"
	"context"
	"time"

	"github.com/weirgo/weir"
)

// visit is one use of a Fallback by r's caller.
type visit struct {
	*Fallback
	b     *breaker
	a     *account // not removed before end
	r     *weir.Request
	op    *weir.Op  // that it is for; nil: a reset, or work in flight
	verb  weir.Verb // that do has primary do
	began time.Time
	epoch uint64   // of the breaker, before the call of primary
	calls *calls   // that the call of primary under way is one of, or nil; guarded by a.mu
	late  *pending // the call of primary, if it may outlast the visit

	known   count  // the last of primary before the call began
	changes uint32 // of the account's takeBacks then

	hurried bool // the caller waits for less than Timeout

	full bool  // of an op whose FullAt is wanted
	kept *kept // of an OpTake with a Receipt, and of what is given back by one; else nil

	back  weir.Result         // of what primary is to give back
	rated func(answered bool) // of an OpCharge; see chargeRate

	first first
}

// first is room for the first call of primary, which is the only one as a rule, so that it
// allocates no more than the visit.
type first struct {
	part  part
	parts [1]*part
	op    weir.Op
	ops   [1]*weir.Op
	res   result

	seed    weir.Op // of local
	seeds   [1]*weir.Op
	backlog weir.Backlog
	counted weir.Result
}

// judge returns the breaker that records how calls end, or nil: a primary that can be read may
// still be unable to count.
func (v *visit) judge() *breaker {
	if v.verb == weir.OpPeek {
		return nil
	}
	return v.b
}

func (v *visit) end() { v.a.users.Add(-1) }

// call has primary do op, unless the breaker is open: see server.Call. The error is errUndecided,
// or one for the caller. The operation may continue without its caller, as v.late.
func (v *visit) call(ctx context.Context, op operation) (*result, error) {
	if !v.server.permits(v.judge(), v.r.Key) {
		return nil, errUndecided
	}
	p := &v.first.part
	if p.v != nil {
		p = new(part)
	}
	p.v, v.first.parts[0] = v, p
	v.server.Call(ctx, v.first.parts[:], func(ctx context.Context) { p.res, p.err = op(v, ctx) })
	return p.outcome()
}

// do has primary do what the visit is for.
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
	v.primary.Do(ctx, v.first.ops[:])
	return v.answer(ctx, op)
}

// ask returns what primary is to do.
func (v *visit) ask() *weir.Op {
	op := &v.first.op
	if op.Counter != nil {
		op = new(weir.Op)
	}
	op.Counter, op.Verb, op.Request, op.Full = v.primary, v.verb, *v.r, v.full
	switch v.verb {
	case weir.OpTake:
		op.Keep = v.kept != nil && v.primary.About().Verbs.Has(weir.OpReturn)
		op.Backlog = v.depart()
	case weir.OpReturn:
		op.Result = v.back
		if v.kept != nil {
			op.Receipt = v.kept.primary
		}
	}
	return op
}

// answer reads what primary has done.
func (v *visit) answer(ctx context.Context, op *weir.Op) (*result, error) {
	switch {
	case op.Err != nil:
		return nil, op.Err
	case v.verb != weir.OpTake && v.verb != weir.OpPeek:
		return nil, nil
	case v.verb == weir.OpTake:
		if op.Keep {
			v.kept.primary = op.Receipt
		}
		if restored := v.record(ctx, op.Backlog, &op.Result); restored > 0 {
			v.server.lost(v.b.partition, restored)
		}
	}
	v.first.res = result{op.Result, op.FullAt}
	return &v.first.res, nil
}

// send is call for a change that may be lost: no answer is no error, nor is a primary that cannot
// do it.
func (v *visit) send(ctx context.Context, op operation) error {
	_, err := v.call(ctx, op)
	return sent(err)
}

// finish ends an op whose call of primary has ended, with a result or an error for the caller, or
// with errUndecided.
func (v *visit) finish(ctx context.Context, res *result, err error) {
	switch v.op.Verb {
	case weir.OpTake:
		err = v.taken(ctx, res, err)
		v.decided[v.op.Source].Add(1)
	case weir.OpPeek:
		err = v.peeked(ctx, res, err)
	case weir.OpReturn:
		err = v.tookBack(err)
	case weir.OpCharge:
		err = v.charged(ctx, err)
	}
	v.op.Err = err
}

// taken finishes an OpTake: primary has decided, or else local does.
func (v *visit) taken(ctx context.Context, res *result, err error) error {
	if err == nil {
		v.set(res, weir.FromPrimary)
		return nil
	}
	source := weir.Nowhere
	if err == errUndecided {
		res, source, err = v.runLocal(ctx, weir.OpTake)
	}
	if v.late != nil && (err != nil || !res.Allowed()) {
		v.settle(ctx, known{unused: true})
	}
	if err == nil {
		v.set(res, source)
	}
	return err
}

// set sets the outcome of the op.
func (v *visit) set(res *result, source weir.Source) {
	op := v.op
	op.Result, op.FullAt, op.Source = res.Result, res.full, source
	v.setLeft(op)
	if v.kept == nil {
		return
	}
	v.kept.source, v.kept.result = source, res.Result
	op.Receipt = weir.Receipt{Of: v.kept}
	if res.Allowed() {
		op.Receipt.Cost = costOf(&op.Request)
	}
}

// peeked finishes an OpPeek.
func (v *visit) peeked(ctx context.Context, res *result, err error) error {
	source := weir.FromPrimary
	if err == errUndecided {
		res, source, err = v.runLocal(ctx, weir.OpPeek)
	}
	if err == nil {
		v.set(res, source)
	}
	return err
}

// length returns how long a period of primary is.
func (v *visit) length() time.Duration { return cmp.Or(v.window, v.r.Duration) }

// inWindow returns own, a share of the request, of a cost, in primary's window that runs. The
// account is locked. It does not read the request, which its caller may have changed by then.
func (v *visit) inWindow(own *weir.Request, cost uint64) inWindow {
	in := v.a.window.request(v.windows, own, cmp.Or(v.window, own.Duration), cost, v.cfg.Now())
	in.ahead = v.a.ahead.cost()
	return in
}

// settle records what is known now. What primary has counted for a caller that was denied or has
// left, it is to give back. A call that ignores its context ends twice: at its timeout, and when it
// returns.
func (v *visit) settle(ctx context.Context, now known) {
	v.a.mu.Lock()
	defer v.a.mu.Unlock()
	p, was := v.late, v.late.known
	p.known = known{was.ended || now.ended, was.counted || now.counted, was.unused || now.unused}
	switch {
	case p.cost == 0: // local has not decided, or has denied
	case p.ended && !was.ended && !p.inTime(v.windows, v.length()):
		v.a.debts.Add(p.cost, p.until, v.cfg.Now())
	case was.ended && !was.counted && p.inTime(v.windows, v.length()):
		v.a.debts.Refund(p.cost, v.cfg.Now())
	}
	if p.counted && p.unused && (!was.counted || !was.unused) && !v.a.replaced.Load() {
		go func(v visit) { // of its own: the call is another late one
			v.a.recount(0, costOf(v.r))
			v.takeBack(&p.res.Result)
			_, err := v.call(context.WithoutCancel(ctx), (*visit).do)
			_ = v.tookBack(err)
		}(*v)
	}
}
