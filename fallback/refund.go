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
	v     visit
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
// been charged with is given back to local and not charged; the rest goes to primary, which may
// refuse. With a Receipt the cost goes back to primary by the Receipt of primary, and to local by
// the Receipt of local, as far as primary was not charged with it; nothing after a reset here, and
// no more than was taken. Cost that primary does not receive is lost: the caller is denied a little
// early. So is cost that is given back without a Receipt in a period in which local admitted
// something that primary is never charged with (see Stats.Dropped): primary must not give back more
// than was counted there.
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
	v := &b.v
	counts := k.result.ExpiresAt.After(f.cfg.Now()) && v.a.number == k.number
	switch {
	case counts && k.source == weir.FromLocal:
		return b.fromLocal(ctx, &k.result, &k.local)
	case k.source == weir.FromLocal || k.source == weir.FromOnFail,
		// that would give back cost that counts no more
		!counts && (k.source != weir.FromPrimary || k.primary.Of == nil):
		v.close()
		return nil
	}
	v.kept = &kept{primary: k.primary} // for this part: its call may outlast the visit
	v.kept.primary.Cost = min(k.primary.Cost, left)
	return b.fromPrimary(&k.result, counts)
}

func newRefund(f *Fallback, op *weir.Op, r *weir.Request) *refund {
	b := new(refund)
	b.v.open(f, r, time.Time{})
	b.v.asked = op
	return b
}

// fromLocal takes the cost of the request back, in the period that taken is of: from local, by a
// Receipt, as far as primary has not been charged with it. The visit that it returns is to call
// primary for the rest; nil: there is none.
func (b *refund) fromLocal(
	ctx context.Context, taken *weir.Result, local *weir.Receipt,
) *visit {
	v, f, a := &b.v, b.v.f, b.v.a
	counted, cost := taken.ExpiresAt.After(f.ledger.unrecordedNow().until), costOf(v.r)
	a.mu.Lock()
	owed := a.debts.Refund(cost, f.cfg.Now())
	if owed > 0 {
		v.share(1).inWindow(owed).takeBack(algorithm.Never)
	}
	a.mu.Unlock()
	if owed > 0 && f.local != nil {
		op := &weir.Op{Verb: weir.OpReturn, Request: *v.own().r, Result: *taken, Receipt: *local}
		op.Cost = owed
		v.asked.Err = supported(by(ctx, f.local, op))
		*local = op.Receipt
	}
	if owed == cost || !counted || v.asked.Err != nil {
		v.close()
		return nil
	}
	rest := *v.r
	rest.Cost, v.r = cost-owed, &rest
	return b.fromPrimary(taken, true)
}

// fromPrimary returns a visit that is to have primary take the cost of the request back, in the
// period that taken is of, which counts still or no more.
func (b *refund) fromPrimary(taken *weir.Result, counts bool) *visit {
	v := &b.v
	b.taken, v.task = *taken, b
	v.op.Verb, v.op.Result = weir.OpReturn, *taken
	if v.kept != nil {
		v.op.Receipt = v.kept.primary
	}
	v.a.mu.Lock()
	defer v.a.mu.Unlock()
	v.a.back.begin()
	if counts { // no more than that is sent to primary after an outage
		v.a.counted.total -= min(costOf(v.r), v.a.counted.total)
	}
	return v
}

// returnLate has primary give back what a late call has admitted, whose caller was denied or has
// left. That is a visit of its own: the call is another late one.
func returnLate(ctx context.Context, late *visit, admitted *weir.Result) {
	b := &refund{v: visit{f: late.f, b: late.b, a: late.a, r: late.r,
		began: late.f.cfg.Now(), kept: late.kept, asked: new(weir.Op)}}
	v := b.fromPrimary(admitted, true)
	b.finish(ctx, v.callBy(ctx, do))
}

func (b *refund) finish(_ context.Context, err error) {
	b.v.a.endTakeBack(err == nil, b.taken.ExpiresAt)
	b.v.asked.Err = sent(err)
}
