package fallback

import (
	"context"
	"time"

	"github.com/weirgo/weir"
)

// taking is an OpTake, or an OpPeek, that calls primary.
type taking struct {
	visit
	op    *weir.Op
	verb  weir.Verb
	full  bool // FullAt is wanted
	sight sight

	// Room for the answer, and for the seed of local.
	res     result
	seed    weir.Op
	seeds   [1]*weir.Op
	seeded  weir.Backlog
	counted weir.Result
}

// take begins an OpTake. A lease or cached denial may decide.
func take(ctx context.Context, f *Fallback, op *weir.Op) *visit {
	op.Source, op.Left, op.FullAt = weir.Nowhere, 0, time.Time{}
	if f.repeats && f.lookup(ctx, op) {
		op.Err = nil
		f.setLeft(op)
		f.decided[op.Source].Add(1)
		return nil
	}
	t := newTaking(f, op)
	if op.Keep {
		t.kept = &kept{number: t.a.number}
	}
	return &t.visit
}

// peek begins an OpPeek. It calls primary, or local where local would decide or primary is still to
// be charged. It starts no probe, and the breaker ignores how it ends: a primary that can be read
// may still be unable to count. If the one it calls cannot peek, the error is
// errors.ErrUnsupported.
func peek(ctx context.Context, f *Fallback, op *weir.Op) *visit {
	op.Source, op.Left, op.FullAt = weir.Nowhere, 0, time.Time{}
	t := newTaking(f, op)
	t.judge = nil
	if t.b.Closed() && t.backlog() == nil {
		return &t.visit
	}
	defer t.end()
	t.finish(ctx, nil, errUndecided)
	return nil
}

func newTaking(f *Fallback, op *weir.Op) *taking {
	t := &taking{op: op, verb: op.Verb, full: op.Full}
	t.open(f, &op.Request, time.Time{})
	t.task = t
	return t
}

func (t *taking) ask(op *weir.Op) {
	op.Verb, op.Full = t.verb, t.full
	if t.verb == weir.OpTake {
		op.Keep = t.kept != nil && t.f.primary.About().Verbs.Has(weir.OpReturn)
		op.Backlog = t.depart()
	}
}

// depart begins a call of primary, and returns its backlog.
func (t *taking) depart() *weir.Backlog {
	a := t.a
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.counted.limit != t.r.Limit {
		a.back.changes++ // a token bucket counts otherwise at another rate
	}
	t.sight = sight{a.counted, a.back.changes}
	if t.f.aware && !t.hurried && !t.f.exceeds(t.r) {
		t.calls = a.calls
		t.calls.cost.add(costOf(t.r))
	}
	return t.missed()
}

func (t *taking) answer(ctx context.Context, op *weir.Op) *result {
	if t.verb == weir.OpTake {
		if op.Keep {
			t.kept.primary = op.Receipt
		}
		if restored := t.record(ctx, op.Backlog, &op.Result); restored > 0 {
			t.f.server.lost(t.b.partition, restored)
		}
	}
	t.res = result{op.Result, op.FullAt}
	return &t.res
}

// record records a decision of primary here and seeds local with its share of it, unless the caller
// was reset since the call began. That local may have no room for the count does not matter: then
// it has none for the caller's requests either. The count may lack the calls that local counts
// ahead, so local comes up to both: with the account locked, as local takes these back. The call is
// under way until then. It returns a count that primary had lost and has again, or 0.
func (t *taking) record(
	ctx context.Context, b *weir.Backlog, res *weir.Result,
) (restored uint64) {
	f, a := t.f, t.a
	now, n, p := f.cfg.Now(), uint64(f.Instances()), t.period()
	end, falls := p.end(res, now)
	a.mu.Lock()
	defer a.mu.Unlock()
	t.caughtUp(b)
	own, total := t.share(n), plus(share(res.TotalRequests, n), a.ahead.cost())
	seeds := !a.replaced.Load() && f.seeds && res.TotalRequests > 0 && !res.ExpiresAt.IsZero()
	if seeds {
		t.seedLocal(ctx, own.r, res, total)
	}
	if !a.replaced.Load() {
		own.inWindow(total).follow(res, a.debts.Owed(now))
	}
	t.arrive(res.Allowed())
	possible := res.Allowed() || !res.ExpiresAt.IsZero()
	fresh := res.Allowed() || b != nil || !f.repeats
	if possible && fresh && end.After(now) {
		c := count{res.TotalRequests, t.began, end, t.r.Limit, t.sight.changes, falls}
		restored = t.sight.note(a, p, b, c, now, falls == atOnce || res.Allowed())
	}
	if seeds && a.debts.Owed(now) == 0 {
		a.sharing.hold(n, end)
	}
	return restored
}

// seedLocal raises the count of local to total, until the period of res ends. The account is
// locked.
func (t *taking) seedLocal(
	ctx context.Context, own *weir.Request, res *weir.Result, total uint64,
) {
	t.counted = *res
	t.counted.TotalRequests, t.seeded.Counted = total, &t.counted
	t.seed = weir.Op{Counter: t.f.local, Verb: weir.OpCatchUp, Request: *own, Backlog: &t.seeded}
	t.seeds[0] = &t.seed
	t.f.local.Do(ctx, t.seeds[:]) // if it has no room for the key, it denies its requests too
}

// finish ends the op: primary has decided, or else local does.
func (t *taking) finish(ctx context.Context, res *result, err error) {
	source, decided := weir.FromPrimary, err == nil
	op, takes := t.op, t.verb == weir.OpTake
	if err == errUndecided {
		res, source, err = t.locally(func(own shared) (*result, error) { return t.runLocal(ctx, own) })
	}
	if takes && !decided && t.late != nil && (err != nil || !res.Allowed()) {
		t.settle(ctx, known{unused: true})
	}
	op.Err = err
	if err == nil {
		op.Result, op.FullAt, op.Source = res.Result, res.full, source
		t.f.setLeft(op)
		t.setReceipt()
	}
	if takes {
		t.f.decided[op.Source].Add(1)
	}
}

// setReceipt sets the Receipt of the op, which is decided, if one is wanted.
func (t *taking) setReceipt() {
	if t.kept == nil {
		return
	}
	t.kept.source, t.kept.result = t.op.Source, t.op.Result
	t.op.Receipt = weir.Receipt{Of: t.kept}
	if t.op.Result.Allowed() {
		t.op.Receipt.Cost = costOf(&t.op.Request)
	}
}

// runLocal has local decide on own, and records an admission. A call of primary that begins
// meanwhile waits for the record, which it takes along.
func (t *taking) runLocal(ctx context.Context, own shared) (*result, error) {
	t.a.mu.Lock()
	defer t.a.mu.Unlock()
	t.arrive(false)
	op := &weir.Op{Verb: t.verb, Request: *own.r, Full: t.full}
	op.Keep = t.kept != nil && t.verb == weir.OpTake && t.f.aware
	res, err := own.do(ctx, op)
	if op.Keep {
		t.kept.local = op.Receipt
	}
	if err == nil && res.Allowed() { // of which calls under way are no part
		res.TotalRequests -= min(res.TotalRequests, t.a.ahead.cost())
	}
	return res, err
}
