package weir

import (
	"bytes"
	"cmp"
	"context"
	"math"
	"time"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/arith"
	"github.com/weirgo/weir/internal/core/ids"
	"github.com/weirgo/weir/internal/core/slots"
)

// slotStrategy implements [Strategy], and the optional interfaces, for a slotAlgorithm.
type slotStrategy struct {
	reader
	table     *table
	kind      slots.Kind
	algorithm slotAlgorithm
}

// newSlotStrategy returns the strategy of a kind, without what a token bucket has besides.
func newSlotStrategy(l *Limiter, k slots.Kind) slotStrategy {
	t := l.callers
	if k == fixedKind {
		t = l.buckets
	}
	return slotStrategy{reader: reader{l: l, most: maxCount}, table: t, kind: k,
		algorithm: slotAlgorithms[k]}
}

// Run implements [Strategy]. It fails as [Limiter.CheckRate] does.
func (s *slotStrategy) Run(ctx context.Context, r *Request) (*Result, error) {
	if asOf := s.asOf(ctx); asOf != present {
		return s.runAsOf(r, asOf, toCount)
	}
	res := new(Result)
	if _, err := s.run(r, res, noSight); err != nil {
		return nil, err
	}
	return res, nil
}

// About implements [Counter].
func (s *slotStrategy) About() *About { return &s.about }

// describe sets what c is, which decides by s.
func (s *slotStrategy) describe(c Counter, a About) {
	a.Store, a.Verbs = s.l, VerbsOf(OpTakeAll)
	if s.bound {
		s.one = s.params()
	}
	s.reader.describe(c, a)
}

// costing returns the params of a cost, of the strategy of a Limit.
func (s *slotStrategy) costing(cost uint64) params {
	p := s.one
	if cost > 1 {
		p.Cost = int64(min(cost, s.most))
		if cost > s.limit && uint64(p.Cost) == s.most {
			p.Limit = min(p.Limit, p.Cost-1) // both may be over most
		}
	}
	return p
}

func (s *slotStrategy) do(ctx context.Context, op *Op) {
	op.Err = catchUp(s, op)
	if op.Err != nil {
		return
	}
	switch op.Verb {
	case OpTake:
		s.take(ctx, op)
	case OpPeek:
		s.peek(ctx, op)
	case OpReturn:
		op.Err = s.giveBack(op)
	case OpCharge:
		op.Err = s.charge(&op.Request)
	case OpReset:
		op.Err = s.reset(&op.Request)
	case OpResetPrefix:
		op.Err = s.resetPrefix(ctx, op)
	case OpForecast:
		op.More, op.Err = s.forecast(&op.Request, &op.Result)
	case OpCatchUp:
	default:
		op.Err = op.Unsupported(&s.about)
	}
}

// take does an OpTake.
func (s *slotStrategy) take(ctx context.Context, op *Op) {
	switch asOf := s.asOf(ctx); {
	case op.Keep:
		op.Err = s.keep(op)
	case asOf != present:
		op.Err = op.set(s.runAsOf(&op.Request, asOf, toCount))
	default:
		op.Left, op.Err = s.run(&op.Request, &op.Result, op.sight())
	}
	op.decided()
	s.setFull(op)
}

// setFull sets FullAt of an op that was decided, if that is wanted.
func (s *slotStrategy) setFull(op *Op) {
	switch {
	case !op.Full || op.Err != nil:
	case op.Verb == OpTake && op.Result.Allowed():
		op.FullAt = op.Result.ExpiresAt
	default:
		op.FullAt = s.fullTime(&op.Request)
	}
}

// peek does an OpPeek.
func (s *slotStrategy) peek(ctx context.Context, op *Op) {
	if asOf := s.asOf(ctx); asOf != present {
		op.Err = op.set(s.runAsOf(&op.Request, asOf, toLook))
	} else {
		op.Left, op.Err = s.look(&op.Request, &op.Result, op.sight())
	}
	op.decided()
	s.setFull(op)
}

// forecast returns the earliest instant at which more is available than after res: of a token
// bucket the next token is back one spacing after the one before it. A Result of a sliding window
// does not say how much of it each window has: forecast looks at the count, without a lock. If that
// is lower by now, it returns ExpiresAt.
func (s *slotStrategy) forecast(r *Request, res *Result) (more time.Time, err error) {
	p, err := s.parse(r)
	if err != nil || res.TotalRequests == 0 {
		return more, err
	}
	total := clampCost(res.TotalRequests)
	switch s.kind {
	case tokenKind:
		var a algorithm.TokenBucket
		return s.l.clock.Time(a.More(p, total, s.l.clock.Instant(res.ExpiresAt))), nil
	case slidingKind:
		var a algorithm.SlidingWindow
		var at sight
		key := s.period(p.Scale)
		if c := s.see(r.Key, &key, &at); at.Slot != nil {
			if more := a.More(c, p.Scale, total); more != noInstant {
				return s.l.clock.Time(more), nil
			}
		}
	}
	return res.ExpiresAt, nil
}

// asOf is that of the Limiter. Fixed windows are decided at the present: one that has ended is
// over.
func (s *slotStrategy) asOf(ctx context.Context) int64 {
	if s.kind == fixedKind {
		return present
	}
	return s.l.asOf(ctx)
}

// runAsOf is Run, or Peek, as of an instant.
func (s *slotStrategy) runAsOf(r *Request, asOf int64, to purpose) (*Result, error) {
	p, err := s.parse(r)
	if err != nil {
		return nil, err
	}
	v, _, err := s.decideLocked(r.Key, p, to, asOf)
	if err != nil {
		return nil, err
	}
	return s.l.result(v), nil
}

// run decides on r, and goes on from where a look has seen that its bucket admits it. The clock is
// read after the slot was found, so the reading is not before one at which an earlier bucket of the
// key was removed.
func (s *slotStrategy) run(r *Request, res *Result, at *sight) (left time.Duration, err error) {
	var seen sight
	if at.Slot != nil {
		seen = *at
		at.Slot = nil
	} else {
		seen.params, err = s.parse(r)
		if err != nil {
			return 0, err
		}
		key := s.period(seen.Scale)
		seen.Slot, seen.State, _ = s.table.find(r.Key, &key)
		if seen.Slot != nil {
			seen.Now = s.l.clock.Read()
		}
	}
	if seen.Slot != nil {
		if v, ok := s.hit(seen.Slot, seen.State, seen.params, seen.Now); ok {
			return s.l.setResult(res, v, seen.Now), nil
		}
	}
	v, b, err := s.decideLocked(r.Key, seen.params, toCount, present)
	if err != nil {
		*res = Result{}
		return 0, err
	}
	return s.l.setResult(res, v, b.now), nil
}

// hit decides p at now on the bucket in a slot, which was found with this state. It reports false,
// and has counted nothing, if the decision begins another epoch or another hit has done so.
//
// The still words are read first, and then the state again, since another hit may have come while
// the clock was read. If that is of the generation in which the slot was found, all words were of
// one epoch, and a denial is decided; an admission must find that state unchanged.
func (s *slotStrategy) hit(
	slot *slots.Slot, state slots.Word, p params, now int64,
) (v verdict, ok bool) {
	have := slot.Content(state)
	uncounted := 1 - p.Cost*perCost[s.kind] // of one hit, what its slot does not count: of cost 3, -2
	epoch := state.Epoch()
	for state = slot.State(); state.Epoch() == epoch; state = slot.State() {
		have.N = state.Count()
		// A direct call takes 3 ns less than one of an interface.
		var next slots.Content
		switch s.kind {
		case slidingKind:
			v, next = new(algorithm.SlidingWindow).Decide(have, p, now)
		case tokenKind:
			v, next = s.algorithm.(*algorithm.TokenBucket).Decide(have, p, now)
		default:
			v, next = s.algorithm.Decide(have, p, now)
		}
		have.N = next.N
		if next != have {
			break
		}
		switch {
		case !v.Allowed:
			s.table.denied.Add(s.table.denied.One(), 1)
			return v, true
		case s.table.admit(slot, state, state.With(next.N), uncounted):
			if uncounted > 0 {
				s.table.allowed.Add(s.table.allowed.One(), uncounted)
			}
			return v, true
		}
	}
	return v, false
}

// period returns that of the buckets of a scale.
func (s *slotStrategy) period(scaleMs int64) slots.Period {
	return slots.PeriodOf(s.kind, cmp.Or(s.keyScale, scaleMs), s.series)
}

// purpose is why a decision is made.
type purpose uint8

const (
	toLook  purpose = iota // it changes no bucket
	toDeny                 // only a denial changes something: it keeps its spacing
	toCount                // it is a run
)

// decideLocked decides under the shard's mutex, for any caller, as of an instant. It also returns
// the visit, with the identity of the bucket that it may have made.
func (s *slotStrategy) decideLocked(
	id string, p params, to purpose, asOf int64,
) (v verdict, b visit, err error) {
	// A new caller's bucket is made, since a cost within the limit is admitted then.
	c, err := s.lockAsOf(id, p.Scale, noInstant, to == toCount && p.Cost <= p.Limit, asOf)
	if err != nil {
		return v, b, s.l.fail(err)
	}
	v, err = s.decideOn(&c, p, to)
	if to == toCount && !v.Allowed {
		c.Shard.Denied++
	}
	b = visit{c.Have, c.now, c.Identity()}
	c.Unlock()
	if err != nil {
		return v, b, s.l.fail(err)
	}
	return v, b, nil
}

// decideOn decides on a bucket that is locked.
func (s *slotStrategy) decideOn(c *lockedSlot, p params, to purpose) (v verdict, err error) {
	for done := false; !done && err == nil; {
		var next slots.Content
		v, next = s.algorithm.Decide(c.Have, p, c.now)
		if to == toLook || v.Allowed && to != toCount || !v.Allowed && next == c.Have {
			break
		}
		done, err = c.Replace(next)
		if done {
			c.NoteEnd(v.At) // of a denial an instant before the end: a bound too
		}
		if done && v.Allowed {
			c.Shard.Moved(perCost[s.kind]*(next.N-c.Have.N), 1)
		}
	}
	return v, err
}

// visit is what a bucket held at an instant, read with the shard's mutex held.
type visit struct {
	slots.Content
	now int64
	in  slots.Identity // zero if there is no bucket yet
}

// update replaces the content of a caller's bucket by change of it, under the shard's mutex. If
// there is no bucket, one is made if create is set; otherwise change is called all the same. It is
// called again after each concurrent hit: the last call counts. The bucket of a fixed window is
// that of now, or of since if that is later.
func (s *slotStrategy) update(
	id string, scaleMs int64, create bool, since int64, change func(visit) slots.Content,
) error {
	c, err := s.lock(id, scaleMs, since, create)
	if err != nil {
		return err
	}
	defer c.Unlock()
	for done := false; !done && err == nil; {
		next := change(visit{c.Have, c.now, c.Identity()})
		if c.Slot == nil && !create {
			break
		}
		done, err = c.Replace(next)
		if done {
			c.Shard.Moved(perCost[s.kind]*(next.N-c.Have.N), 0)
			c.NoteEnd(c.End(next))
		}
	}
	return err
}

// lockedSlot is the bucket of a caller, whose shard is locked, at a reading of the clock.
type lockedSlot struct {
	slots.Locked
	now int64
}

// lock locks the bucket of a caller, and reads the clock. A caller without a bucket has an empty
// content, of a fixed window that of the window that runs. It fails with ErrFull.
func (s *slotStrategy) lock(
	id string, scaleMs, since int64, create bool,
) (c lockedSlot, err error) {
	return s.lockAsOf(id, scaleMs, since, create, present)
}

// lockAsOf is lock for a decision as of an instant, if that is before the reading. Where an earlier
// bucket of the caller may have been removed since, it is the reading all the same.
func (s *slotStrategy) lockAsOf(
	id string, scaleMs, since int64, create bool, asOf int64,
) (c lockedSlot, err error) {
	k, key := s.table.Pack(id), s.period(scaleMs)
	for at := (reading{horizon: math.MinInt64}); ; asOf = present {
		at.now = min(s.l.clock.Read(), asOf)
		empty := algorithm.None
		if s.kind == fixedKind {
			w := s.l.windows.Running(max(at.now, since), scaleMs)
			key, empty = w.Fixed, slots.Content{Still2: int64(w.Stamp(max(at.now, since)))}
		}
		c.Locked, err = s.table.lock(k, id, &key, &at, create)
		if err == errEarlier {
			continue
		}
		c.now = at.now
		if c.Slot == nil {
			c.Have = empty
		}
		return c, err
	}
}

// look sets res to the Result of a run, which counts nothing. Unless at is noSight it is part of a
// decision, and leaves an admission there for a run that follows at once. It takes no lock for a
// known caller, unless a denial begins another epoch.
func (s *slotStrategy) look(r *Request, res *Result, at *sight) (left time.Duration, err error) {
	p, err := s.parse(r)
	if err != nil {
		return 0, err
	}
	seen, to := sight{params: p}, toDeny
	if at == noSight {
		to = toLook
	}
	var v verdict
	var next, have slots.Content
	if s.kind == fixedKind { // its slots are those of one window
		seen.Now = s.l.clock.Read()
		seen.Window = s.l.windows.Running(seen.Now, p.Scale)
		v = p.Verdict(s.see(r.Key, &seen.Window.Fixed, &seen).N, seen.Window.End)
	} else {
		key := s.period(p.Scale)
		have = s.see(r.Key, &key, &seen)
		seen.Now = s.l.clock.Read() // after the slot was found, as in run
		v, next = s.algorithm.Decide(have, p, seen.Now)
	}
	if to == toDeny && seen.Slot != nil && v.Allowed {
		*at = seen
		return s.l.setResult(res, v, seen.Now), nil
	}
	if seen.Slot == nil || !v.Allowed && to == toDeny && next != have {
		var b visit
		v, b, err = s.decideLocked(r.Key, p, to, present)
		if err != nil {
			return 0, err
		}
		seen.Now = b.now
	}
	return s.l.setResult(res, v, seen.Now), nil
}

// full returns when nothing counts for r if nothing more is admitted: the present, later, or
// noInstant if nobody knows.
func (s *slotStrategy) full(r *Request) (at int64, err error) {
	p, err := s.parse(r)
	if err != nil {
		return noInstant, err
	}
	var seen sight
	if s.kind == fixedKind {
		now := s.l.clock.Read()
		c := s.see(r.Key, &s.l.windows.Running(now, p.Scale).Fixed, &seen)
		return s.algorithm.Full(c, p, now), nil
	}
	key := s.period(p.Scale)
	c := s.see(r.Key, &key, &seen)
	return s.algorithm.Full(c, p, s.l.clock.Read()), nil
}

// fullTime returns full as a time.
func (s *slotStrategy) fullTime(r *Request) time.Time {
	at, _ := s.full(r)
	return s.l.time(at)
}

// see finds a caller, and returns what its bucket holds. It takes no lock.
func (s *slotStrategy) see(id string, key *slots.Period, at *sight) slots.Content {
	for {
		at.Slot, at.State, _ = s.table.find(id, key)
		if at.Slot == nil {
			return algorithm.None
		}
		c := at.Slot.Content(at.State)
		// else its words may be of two epochs
		if at.Slot.State().Epoch() == at.State.Epoch() {
			return c
		}
	}
}

// giveBack does an OpReturn. A token bucket's tokens return as much sooner as was given back
// before.
func (s *slotStrategy) giveBack(op *Op) error {
	n, before := op.returned()
	if n == 0 {
		return nil
	}
	r := op.Request
	r.Cost = n
	p, err := s.parse(&r)
	if err != nil || p.ExceedsLimit() {
		return err
	}
	var in slots.Identity // the zero one stands for any
	expires := s.l.clock.Instant(op.Result.ExpiresAt)
	if op.Receipt.Of != nil {
		in, expires = slots.IdentityOf(op.Receipt.N), op.Receipt.N[receiptExpires]
	}
	expires = arith.Sub(expires, arith.Mul(before, p.Each))
	return s.update(r.Key, p.Scale, false, noInstant, func(b visit) slots.Content {
		if in != (slots.Identity{}) && in != b.in {
			return b.Content
		}
		return s.algorithm.Refund(b.Content, p, b.now, expires)
	})
}

// keep does an OpTake with a Receipt.
func (s *slotStrategy) keep(op *Op) error {
	p, err := s.parse(&op.Request)
	if err != nil {
		return err
	}
	v, b, err := s.decideLocked(op.Key, p, toCount, present)
	if err != nil {
		return err
	}
	op.Left = s.l.setResult(&op.Result, v, b.now)
	op.receipt(s.table, v.At)
	b.in.Put(&op.Receipt.N)
	return nil
}

func (s *slotStrategy) reset(r *Request) error {
	p, err := s.parse(r)
	if err != nil {
		return err
	}
	c, err := s.lock(r.Key, p.Scale, noInstant, false)
	if err == nil {
		c.Remove()
	}
	return err
}

// raise raises the count of r to that of another store. It never lowers it, and does nothing once
// that has expired.
func (s *slotStrategy) raise(r *Request, counted *Result) error {
	p, err := s.parse(r)
	expires := s.l.clock.Instant(counted.ExpiresAt)
	if err != nil || expires <= s.l.clock.Read() {
		return err
	}
	return s.add(r, p, func(b visit) slots.Content {
		if b.now >= expires { // the clock may have passed it since it was read
			return b.Content
		}
		return s.algorithm.Raise(b.Content, p, b.now, expires, clampCost(counted.TotalRequests))
	})
}

func (s *slotStrategy) charge(r *Request) error {
	p, err := s.parse(r)
	if err != nil {
		return err
	}
	return s.add(r, p, func(b visit) slots.Content { return s.algorithm.Admit(b.Content, p, b.now) })
}

// add makes the bucket of r if there is none, and changes it.
func (s *slotStrategy) add(r *Request, p params, change func(visit) slots.Content) error {
	if err := s.update(r.Key, p.Scale, true, noInstant, change); err != nil {
		return s.l.fail(err)
	}
	return nil
}

// resetPrefix does an OpResetPrefix.
func (s *slotStrategy) resetPrefix(ctx context.Context, op *Op) error {
	if s.l.closed.Load() {
		return s.l.fail(ErrClosed)
	}
	p := &prefixReset{ctx: ctx, prefix: op.Key, progress: op.Progress}
	defer func() { op.Result = Result{TotalRequests: uint64(p.reset)} }()
	for i := range s.table.shards {
		sh := &s.table.shards[i]
		for c := 0; ctx.Err() == nil && s.resetChunk(sh, c, p); c++ {
		}
		if !p.next() {
			break
		}
	}
	return ctx.Err()
}

// owns reports whether a slot is a bucket of s.
func (s *slotStrategy) owns(in *slots.Slot) bool {
	k, scaleMs, number := in.Period()
	own := s.ownScale()
	return k == s.kind && (scaleMs == own || own == 0 && scaleMs <= maxScale) &&
		(k == fixedKind || number == s.series)
}

// resetChunk removes the buckets of one chunk that are of s and whose ID begins with the prefix. It
// leaves those that have expired to a sweep, which raises the horizon. It reports false if there is
// no such chunk.
func (s *slotStrategy) resetChunk(sh *slots.Shard, i int, p *prefixReset) bool {
	now, id, prefix := s.l.clock.Read(), make([]byte, 0, ids.Inline), []byte(p.prefix)
	return sh.Visit(i, func(n int, in *slots.Slot) {
		p.seen++
		id = sh.AppendID(id[:0], in)
		if !bytes.HasPrefix(id, prefix) || !s.owns(in) {
			return
		}
		for state := in.State(); now < sh.End(in, in.Content(state)); state = in.State() {
			if sh.Release(in, n, state) { // else a hit came
				p.reset++
				return
			}
		}
	})
}
