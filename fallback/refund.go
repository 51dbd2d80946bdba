package fallback

import (
	"context"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/algorithm"
)

// refund is an OpReturn that calls primary, or gives back an admission of primary that came too
// late.
type refund struct {
	visit
	op    *weir.Op    // nil: it was too late
	taken weir.Result // of the cost that is given back
}

// kept is the Of of a Receipt of an OpTake.
type kept struct {
	number uint64 // of the account
	source weir.Source
	result weir.Result

	// primary is set by the call of primary, which may be late unless primary or the knowledge of it
	// has decided.
	primary, local weir.Receipt
}

// giveBack begins an OpReturn. Without a Receipt the part that local admitted and primary has not
// been charged with is given back to local and not charged; the rest goes to primary, if it can
// take it. With one it goes back to primary by the Receipt of primary, and to local by the Receipt
// of local, as far as primary was not charged with it; nothing after a reset here, and no more than
// was taken. Cost that primary does not receive is lost: the caller is denied a little early. So is
// cost that is given back without a Receipt in a period in which local admitted something that
// primary is never charged with (see Stats.Dropped): primary must not give back more than it has
// counted.
func giveBack(ctx context.Context, f *Fallback, op *weir.Op) *visit {
	k, ok := op.Receipt.Of.(*kept)
	if !ok {
		if f.exceeds(&op.Request) || !op.Result.Allowed() || !op.Result.ExpiresAt.After(f.cfg.Now()) {
			return nil
		}
		return newRefund(f, op, &op.Request).fromLocal(ctx, &op.Result, new(weir.Receipt))
	}
	r, left := op.Request, op.Receipt.Cost
	r.Cost = min(costOf(&r), left)
	op.Receipt.Cost -= r.Cost
	if r.Cost == 0 {
		return nil
	}
	b := newRefund(f, op, &r)
	counts := k.result.ExpiresAt.After(f.cfg.Now()) && b.a.number == k.number
	switch {
	case counts && k.source == weir.FromLocal:
		return b.fromLocal(ctx, &k.result, &k.local)
	case k.source == weir.FromLocal || k.source == weir.FromOnFail,
		// it would give back cost that counts no more
		!counts && (k.source != weir.FromPrimary || k.primary.Of == nil):
		b.end()
		return nil
	case counts:
		b.a.recount(0, r.Cost)
	}
	b.kept = &kept{primary: k.primary} // for this part: its call may outlast the wait for it
	b.kept.primary.Cost = min(k.primary.Cost, left)
	return b.fromPrimary(&k.result)
}

func newRefund(f *Fallback, op *weir.Op, r *weir.Request) *refund {
	b := &refund{op: op}
	b.open(f, r, time.Time{})
	return b
}

// fromLocal takes the cost of the request back, in the period that taken is of: from local, by a
// Receipt, as far as primary has not been charged with it. The visit that it returns is to call
// primary for the rest; nil: there is none.
func (b *refund) fromLocal(
	ctx context.Context, taken *weir.Result, local *weir.Receipt,
) *visit {
	f := b.f
	counted, cost := taken.ExpiresAt.After(f.ledger.unrecordedNow().until), costOf(b.r)
	b.a.mu.Lock()
	owed := b.a.debts.Refund(cost, f.cfg.Now())
	if owed > 0 {
		b.share(1).inWindow(owed).takeBack(algorithm.Never)
	}
	b.a.mu.Unlock()
	if counted {
		b.a.recount(0, cost-owed)
	}
	if owed > 0 && f.local != nil {
		own := *b.share(b.a.sharedAmong(uint64(f.Instances()), f.cfg.Now())).r
		own.Cost = owed
		op := &weir.Op{Verb: weir.OpReturn, Request: own, Result: *taken, Receipt: *local}
		b.op.Err = supported(by(ctx, f.local, op))
		*local = op.Receipt
	}
	if owed == cost || !counted || b.op.Err != nil {
		b.end()
		return nil
	}
	rest := *b.r
	rest.Cost, b.r = cost-owed, &rest
	return b.fromPrimary(taken)
}

// fromPrimary returns a visit that is to have primary take the cost of the request back, in the
// period that taken is of.
func (b *refund) fromPrimary(taken *weir.Result) *visit {
	b.task, b.taken = b, *taken
	b.a.beginTakeBack()
	return &b.visit
}

// returnLate has primary give back an admission whose caller was denied or has left.
func (b *refund) returnLate(ctx context.Context, taken *weir.Result) {
	b.a.recount(0, costOf(b.r))
	v := b.fromPrimary(taken)
	_, err := v.call(ctx, (*visit).do)
	_ = b.ended(err)
}

func (b *refund) ask(op *weir.Op) {
	op.Verb, op.Result = weir.OpReturn, b.taken
	if b.kept != nil {
		op.Receipt = b.kept.primary
	}
}

func (b *refund) answer(context.Context, *weir.Op) *result { return nil }

func (b *refund) finish(_ context.Context, _ *result, err error) { b.op.Err = b.ended(err) }

// ended ends the call of primary.
func (b *refund) ended(err error) error {
	b.a.endTakeBack(err == nil, b.taken.ExpiresAt)
	return sent(err)
}
