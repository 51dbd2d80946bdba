package fallback

import (
	"context"
	"time"

	"github.com/weirgo/weir"
)

// taking is an OpTake, or an OpPeek, that calls primary.
type taking struct {
	v visit

	// From when the call of primary began: the last count of primary, and the number of take-backs.
	known   count
	changes uint32

	// Room for the seed of local.
	seed    weir.Op
	seeds   [1]*weir.Op
	seeded  weir.Backlog
	counted weir.Result
}

// take begins an OpTake or an OpPeek. A lease or a denial of package near may decide an OpTake. An
// OpPeek calls primary, or local where local would decide or primary is still to be charged. It
// starts no probe, and the breaker ignores its end: a primary that can be read may still be
// unable to count. Where the called side cannot peek, the error is errors.ErrUnsupported.
func take(ctx context.Context, f *Fallback, op *weir.Op) *visit {
	op.Source, op.Left, op.FullAt = weir.Nowhere, 0, time.Time{}
	takes := op.Verb == weir.OpTake
	if takes && f.repeats && f.lookup(ctx, op) {
		op.Err = nil
		f.setLeft(op)
		f.decided[op.Source].Add(1)
		return nil
	}
	t := new(taking)
	v := t.v.open(f, &op.Request, time.Time{})
	v.asked, v.task, v.op.Verb, v.op.Full = op, t, op.Verb, op.Full
	if !takes {
		v.peeks = true
		return v
	}
	v.takes = t
	if op.Keep {
		v.kept = &kept{number: v.a.number}
		v.op.Keep = f.primary.About().Verbs.Has(weir.OpReturn)
	}
	return v
}

// depart is called right before the call of primary.
func (t *taking) depart() {
	v, a := &t.v, t.v.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.counted.limit != v.r.Limit {
		a.back.changes++ // a token bucket counts otherwise at another rate
	}
	t.known, t.changes = a.counted, a.back.changes
	if v.f.aware && !v.hurried && !v.f.exceeds(v.r) {
		v.calls = a.calls
		v.calls.cost.add(costOf(v.r))
	}
	v.op.Backlog = v.missed()
}

// answered is called when primary has decided.
func (t *taking) answered(ctx context.Context) {
	v := &t.v
	if v.op.Keep {
		v.kept.primary = v.op.Receipt
	}
	if restored := t.record(ctx); restored > 0 {
		v.f.server.lost(v.b.partition, restored)
	}
}

// record records a decision of primary here and seeds local with its share of it, unless the caller
// was reset since the call began. That local may have no room for the count does not matter: then
// local has none for the caller's requests either. The count may lack the calls that local counts
// ahead, so local comes up to both: with the account locked, as local takes these back. The call is
// under way until then. record returns a count that primary had lost and has again, or 0.
func (t *taking) record(ctx context.Context) (restored uint64) {
	v, f, a := &t.v, t.v.f, t.v.a
	b, res := v.op.Backlog, &v.op.Result
	now, n := f.cfg.Now(), uint64(f.Instances())
	end, lapses := v.period().end(res, now)
	a.mu.Lock()
	defer a.mu.Unlock()
	v.caughtUp(b)
	owed := a.debts.Owed(now)
	own, total := v.share(n), plus(share(res.TotalRequests, n), a.ahead.cost())
	seeds := !a.replaced.Load() && f.seeds && res.TotalRequests > 0 && !res.ExpiresAt.IsZero()
	if seeds {
		t.seedLocal(ctx, own.r, total)
	}
	if !a.replaced.Load() {
		own.inWindow(total).follow(res, owed)
	}
	v.arrive(res.Allowed())
	possible := res.Allowed() || !res.ExpiresAt.IsZero()
	fresh := res.Allowed() || b != nil || !f.repeats
	if possible && fresh && end.After(now) {
		c := count{res.TotalRequests, v.began, end, v.r.Limit, t.changes, lapses}
		restored = t.note(c, now, lapses == weir.LapsesWithWindow || res.Allowed())
	}
	if seeds && owed == 0 {
		a.sharing.hold(n, end)
	}
	return restored
}

// note records c in the account, which is locked: the count of an answer of now, to a call that
// began at c.at. whole is false for a count of no period. A count that is too low is not recorded:
// the next call brings the last one, as after a failure. If that does not raise primary, another
// instance has taken something back. note returns the count that primary had lost and has again,
// or 0.
func (t *taking) note(c count, now time.Time, whole bool) (restored uint64) {
	f, a, p, b := t.v.f, t.v.a, t.v.period(), t.v.op.Backlog
	a.answers++
	brought := b != nil && b.Counted != nil
	comparable := !f.blind.Load() && a.back.noneSince(t.changes, now)
	switch {
	case a.lost && (!brought || !comparable):
		return 0
	case a.lost:
		if !p.below(&c, &a.counted, now) {
			restored = b.Counted.TotalRequests
		} else {
			a.counted.total, a.counted.at = c.total, c.at
		}
		a.lost = false
		a.back.changes++ // calls under way may not have brought the count, and prove nothing
		a.counted.changes = a.back.changes
		c.changes = a.back.changes
	case !comparable || brought:
	case t.known.changes == t.changes && now.Sub(c.at) <= f.cfg.Timeout && p.below(&c, &t.known, now):
		a.lost = true
		return 0
	case a.counted.changes == t.changes && a.counted.lapses == weir.LapsesWithWindow &&
		p.below(&c, &a.counted, now):
		return 0 // the answer to an earlier call
	}
	if whole {
		a.counted = c
	}
	return restored
}

// seedLocal raises the count of local to total, until the period of primary's Result ends. The
// account is locked.
func (t *taking) seedLocal(ctx context.Context, own *weir.Request, total uint64) {
	local := t.v.f.local
	t.counted = t.v.op.Result
	t.counted.TotalRequests, t.seeded.Counted = total, &t.counted
	t.seed = weir.Op{Counter: local, Verb: weir.OpCatchUp, Request: *own, Backlog: &t.seeded}
	t.seeds[0] = &t.seed
	local.Do(ctx, t.seeds[:]) // without room for the key, local denies its requests too
}

// finish ends the op: primary has decided, or else local does.
func (t *taking) finish(ctx context.Context, err error) {
	v, op, source := &t.v, t.v.asked, weir.FromPrimary
	by, takes, decided := &v.op, op.Verb == weir.OpTake, err == nil
	if err == errUndecided {
		by = &weir.Op{Verb: op.Verb, Full: op.Full, Keep: v.kept != nil && v.f.aware}
		source, err = v.locally(by, func(own shared) error { return t.runLocal(ctx, own, by) })
	}
	if takes && !decided && v.late != nil && (err != nil || !by.Result.Allowed()) {
		v.settle(ctx, known{unused: true})
	}
	op.Err = err
	if err == nil {
		op.Result, op.FullAt, op.Source = by.Result, by.FullAt, source
		v.f.setLeft(op)
		if v.kept != nil {
			t.setReceipt()
		}
	}
	if takes {
		v.f.decided[op.Source].Add(1)
	}
}

// setReceipt sets the Receipt of the op, which is decided.
func (t *taking) setReceipt() {
	kept, op := t.v.kept, t.v.asked
	kept.source, kept.result = op.Source, op.Result
	op.Receipt = weir.Receipt{Of: kept}
	if op.Result.Allowed() {
		op.Receipt.Cost = costOf(&op.Request)
	}
}

// runLocal has local decide on own by op, after local has counted the calls of primary under way,
// and records an admission. A call of primary that begins meanwhile waits for the record, and takes
// that along.
func (t *taking) runLocal(ctx context.Context, own shared, op *weir.Op) error {
	v := &t.v
	v.a.mu.Lock()
	defer v.a.mu.Unlock()
	v.arrive(false)
	decided, err := own.countCalls(ctx, op)
	if err == nil && !decided {
		err = own.inWindow(costOf(v.r)).decide(ctx, v.f.local, op)
	}
	if op.Keep {
		v.kept.local = op.Receipt
	}
	res := &op.Result
	if err != nil || !res.Allowed() {
		return err
	}
	if !decided && op.Verb == weir.OpTake {
		own.recordDebt(res)
	}
	res.TotalRequests -= min(res.TotalRequests, v.a.ahead.cost()) // calls under way are no part
	return nil
}
