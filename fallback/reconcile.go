package fallback

import (
	"context"
	"fmt"
	"time"

	"github.com/weirgo/weir"
)

// catchesUp reports whether primary is to catch up before it does an op: it does not reconcile.
func (v *visit) catchesUp(op *weir.Op) bool { return op.Backlog != nil && !v.reconciles }

// byStep has primary catch up, and then do an op.
func (v *visit) byStep(ctx context.Context, op *weir.Op) (*result, error) {
	v.remembersNothing()
	for v.backlog() != nil { // a turn may have begun before a debt of the backlog of op
		if err := v.catchUpInTurn(ctx); err != nil {
			return nil, err
		}
	}
	op.Backlog = nil
	v.primary.Do(ctx, []*weir.Op{op})
	return v.answer(ctx, op)
}

// backlog returns what primary has missed of the caller, or nil if that is nothing.
func (v *visit) backlog() *weir.Backlog {
	v.a.mu.Lock()
	defer v.a.mu.Unlock()
	return v.missed()
}

// missed is backlog, with the account locked.
func (v *visit) missed() *weir.Backlog {
	a, now := v.a, v.began
	v.epoch = v.b.epoch.Load()
	counted := a.counted.now(now)
	a.lost = a.lost && counted > 0
	reset, seed := now.Before(a.reset), (a.epoch != v.epoch || a.lost) && counted > 0
	if a.debts.Owed(now) == 0 && !reset && !seed {
		return nil
	}
	b := &weir.Backlog{Reset: reset, CountedAt: a.counted.at, Source: fmt.Sprint(v.id, " ", a.number)}
	b.Charged, b.Total = a.debts.Send()
	if seed {
		b.Counted = &weir.Result{State: weir.Allow, TotalRequests: counted,
			ExpiresAt: a.counted.until}
	}
	return b
}

// record records a decision of primary here and seeds local with its share of it, unless the caller
// was reset since the call began. That local may have no room for the count does not matter: then
// it has none for the caller's requests either. The count may lack the calls that local counts
// ahead, so local comes up to both: with the account locked, as local takes these back. The call is
// under way until then. It returns a count that primary had lost and has again, or 0.
func (v *visit) record(ctx context.Context, b *weir.Backlog, res *weir.Result) (restored uint64) {
	now, n, a := v.cfg.Now(), uint64(v.Instances()), v.a
	end, falls := v.periodEnd(res, now)
	a.mu.Lock()
	defer a.mu.Unlock()
	v.caughtUp(b)
	own, shared := v.toShare(n), plus(share(res.TotalRequests, n), a.ahead.cost())
	seeds := !a.replaced.Load() && v.seeds && res.TotalRequests > 0 && !res.ExpiresAt.IsZero()
	if seeds {
		v.seed(ctx, own, res, shared)
	}
	if !a.replaced.Load() {
		v.inWindow(own, shared).follow(res, a.debts.Owed(now))
	}
	v.arrive(res.Allowed())
	possible := res.Allowed() || !res.ExpiresAt.IsZero()
	fresh := res.Allowed() || b != nil || !v.repeats
	if possible && fresh && end.After(now) {
		c := count{res.TotalRequests, v.began, end, v.r.Limit, v.changes, falls}
		restored = v.note(b, c, now, falls == atOnce || res.Allowed())
	}
	if seeds && a.debts.Owed(now) == 0 {
		a.sharing.hold(n, end)
	}
	return restored
}

// seed raises the count of local to total, until what res is of ends. The account is locked.
func (v *visit) seed(ctx context.Context, own *weir.Request, res *weir.Result, total uint64) {
	f := &v.first
	f.counted = *res
	f.counted.TotalRequests, f.backlog.Counted = total, &f.counted
	f.seed = weir.Op{Counter: v.local, Verb: weir.OpCatchUp, Request: *own, Backlog: &f.backlog}
	f.seeds[0] = &f.seed
	v.local.Do(ctx, f.seeds[:]) // if it has no room for the key, it denies its requests too
}

// caughtUp records in the account, which is locked, that primary has missed nothing of b.
func (v *visit) caughtUp(b *weir.Backlog) {
	v.a.epoch = v.epoch
	if b != nil {
		if b.Reset {
			v.a.reset = time.Time{}
		}
		v.reconciled.Add(v.a.debts.Charged(b.Total))
	}
}

// catchUpInTurn is catchUp, which concurrent calls for one caller share. If it hangs, it holds up
// no others after its Timeout.
func (v *visit) catchUpInTurn(ctx context.Context) error {
	name := fmt.Sprint(v.r.Duration, " ", v.r.Key)
	_, err, _ := v.turns.Do(name, func() (any, error) {
		defer context.AfterFunc(ctx, func() { v.turns.Forget(name) })()
		return v.catchUp(ctx)
	})
	return supported(err)
}

// catchUp resets, seeds and charges primary, as far as it can be, without a decision. A charge
// whose answer is lost is repeated: a debt is charged at least once.
func (v *visit) catchUp(ctx context.Context) (_ *result, err error) {
	b := v.backlog()
	if b == nil {
		return nil, nil
	}
	debt := *v.r
	debt.Cost = b.Total - b.Charged
	if v.primary.About().Verbs.Has(weir.OpCatchUp) {
		err = by(ctx, v.primary, &weir.Op{Verb: weir.OpCatchUp, Request: *v.r, Backlog: b})
	} else {
		if b.Reset {
			err = by(ctx, v.primary, &weir.Op{Verb: weir.OpReset, Request: *v.r})
		}
		if supported(err) == nil && debt.Cost > 0 {
			err = by(ctx, v.primary, &weir.Op{Verb: weir.OpCharge, Request: debt})
		}
	}
	if supported(err) != nil {
		return nil, err
	}
	v.a.mu.Lock()
	defer v.a.mu.Unlock()
	// primary cannot be charged
	if until := v.a.debts.Last(); err != nil && debt.Cost > 0 && !until.IsZero() {
		v.ledger.drop(debt.Cost, 1, v.cfg.Now(), until)
		v.a.debts.Charged(b.Total)
	}
	v.caughtUp(b)
	return nil, err
}
