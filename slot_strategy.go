package weir

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/arith"
	"github.com/weirgo/weir/internal/core/forlimits"
	"github.com/weirgo/weir/internal/core/slots"
)

// slotStrategy implements [Strategy], and the optional interfaces, for a slotAlgorithm.
type slotStrategy struct {
	reader
	table     *table
	kind      slots.Kind
	algorithm slotAlgorithm
}

// onSlots returns the strategy of a kind, without what a token bucket has besides.
func (l *Limiter) onSlots(k slots.Kind) slotStrategy {
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
	if _, err := (*localSlots)(s).Run(r, res, forlimits.NoSight); err != nil {
		return nil, err
	}
	return res, nil
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

// sight is what look may leave to a run that follows at once.
type sight = forlimits.Sight

// localSlots is a slotStrategy as a [forlimits.Local].
type localSlots slotStrategy

func (s *slotStrategy) local() local { return (*localSlots)(s) }

// Run implements [forlimits.Local]. The clock is read after the slot was found, so the reading is
// not before one at which an earlier bucket of the key was removed.
func (of *localSlots) Run(r *Request, res *Result, at *sight) (left time.Duration, err error) {
	s := (*slotStrategy)(of)
	var seen sight
	if at.Slot != nil {
		seen = *at
	} else {
		seen.Params, err = s.parse(r)
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
		if v, now, ok := s.hit(seen.Slot, seen.State, seen.Params, seen.Now); ok {
			return s.l.setResult(res, v, now), nil
		}
	}
	v, b, err := s.decideLocked(r.Key, seen.Params, toCount, present)
	if err != nil {
		*res = Result{}
		return 0, err
	}
	return s.l.setResult(res, v, b.now), nil
}

// hit decides p at now on the bucket in a slot, which was found with this state, and returns the
// instant of the decision: a denial by a coarse clock is decided again by the exact one. It reports
// false, and has counted nothing, if the decision begins another epoch or another hit has done so.
//
// The still words are read first, and then the state again, since another hit may have come while
// the clock was read. If that is of the generation in which the slot was found, all words were of
// one epoch, and a denial is decided; an admission must find that state unchanged.
func (s *slotStrategy) hit(
	slot *slots.Slot, state slots.Word, p params, now int64,
) (v verdict, at int64, ok bool) {
	have := slot.Content(state)
	late := s.l.clock.IsCoarse()
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
		if !v.Allowed && late {
			now, late = s.l.clock.Advance(), false
			continue
		}
		have.N = next.N
		if next != have {
			break
		}
		switch {
		case !v.Allowed:
			s.table.denied.Add(s.table.denied.One(), 1)
			return v, now, true
		case s.table.admit(slot, state, state.With(next.N), uncounted):
			if uncounted > 0 {
				s.table.allowed.Add(s.table.allowed.One(), uncounted)
			}
			return v, now, true
		}
	}
	return v, now, false
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
	for late := s.l.clock.IsCoarse() && asOf == present; ; late = false {
		// A new caller's bucket is made, since a cost within the limit is admitted then.
		c, err := s.lockAsOf(id, p.Scale, noInstant, to == toCount && p.Cost <= p.Limit, asOf)
		if err != nil {
			return v, b, s.l.fail(err)
		}
		v, err = s.decideOn(&c, p, to)
		if to == toCount && !v.Allowed && !late {
			c.Shard.Denied++
		}
		b = visit{c.Have, c.now, c.Identity()}
		c.Unlock()
		switch {
		case err != nil:
			return v, b, s.l.fail(err)
		case v.Allowed || !late:
			return v, b, nil
		}
		s.l.clock.Advance()
	}
}

// decideOn decides on a bucket that is locked.
func (s *slotStrategy) decideOn(c *lockedSlot, p params, to purpose) (v verdict, err error) {
	for done := false; !done && err == nil; {
		var next slots.Content
		v, next = s.algorithm.Decide(c.Have, p, c.now)
		if to == toLook || v.Allowed && to != toCount || !v.Allowed && next == c.Have {
			break
		}
		if done, err = c.Replace(next); done {
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
		if done, err = c.Replace(next); done {
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

// Peek implements [Peeker].
func (s *slotStrategy) Peek(ctx context.Context, r *Request) (*Result, error) {
	if asOf := s.asOf(ctx); asOf != present {
		return s.runAsOf(r, asOf, toLook)
	}
	res := new(Result)
	if _, err := (*localSlots)(s).Look(r, res, forlimits.NoSight); err != nil {
		return nil, err
	}
	return res, nil
}

// Look implements [forlimits.Local]. It takes no lock for a known caller, unless a denial begins
// another epoch, or is by a coarse clock.
func (of *localSlots) Look(r *Request, res *Result, at *sight) (left time.Duration, err error) {
	s := (*slotStrategy)(of)
	p, err := s.parse(r)
	if err != nil {
		return 0, err
	}
	seen, to := sight{Params: p}, toDeny
	if at == forlimits.NoSight {
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
	if to == toDeny && at != forlimits.FinalLook && seen.Slot != nil && v.Allowed {
		*at = seen
		return 0, nil
	}
	again := !v.Allowed && (s.l.clock.IsCoarse() || // a coarse clock may be late
		to == toDeny && next != have)
	if seen.Slot == nil || again {
		var b visit
		if v, b, err = s.decideLocked(r.Key, p, to, present); err != nil {
			return 0, err
		}
		seen.Now = b.now
	}
	return s.l.setResult(res, v, seen.Now), nil
}

// full implements fuller.
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

// Refund implements [Refunder].
func (s *slotStrategy) Refund(_ context.Context, r *Request, taken *Result) error {
	if !taken.Allowed() {
		return nil
	}
	return s.refund(r, taken, slots.Identity{}, 0)
}

// refund takes back the cost of r from the admission with the Result taken, if it was made in this
// bucket; the zero identity stands for any. before is the part of that admission which was taken
// back already: a token bucket's tokens return that much sooner.
func (s *slotStrategy) refund(r *Request, taken *Result, in slots.Identity, before int64) error {
	p, err := s.parse(r)
	if err != nil || p.ExceedsLimit() {
		return err
	}
	expires := arith.Sub(s.l.clock.Instant(taken.ExpiresAt), arith.Mul(uint64(before), p.Each))
	return s.update(r.Key, p.Scale, false, noInstant, func(b visit) slots.Content {
		if in != (slots.Identity{}) && in != b.in {
			return b.Content
		}
		return s.algorithm.Refund(b.Content, p, b.now, expires)
	})
}

// Admit implements [Admitter].
func (s *slotStrategy) Admit(_ context.Context, r *Request) (*Result, Return, error) {
	p, err := s.parse(r)
	if err != nil {
		return nil, nil, err
	}
	v, b, err := s.decideLocked(r.Key, p, toCount, present)
	if err != nil {
		return nil, nil, err
	}
	taken, in := s.l.result(v), b.in
	return taken, returnOf(r, taken, func(_ context.Context, q *Request, before int64) error {
		return s.refund(q, taken, in, before)
	}), nil
}

// Reset implements [Resetter].
func (s *slotStrategy) Reset(_ context.Context, r *Request) error {
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

// Seed implements [Seeder].
func (s *slotStrategy) Seed(_ context.Context, r *Request, counted *Result) error {
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

// Charge implements [Charger].
func (s *slotStrategy) Charge(_ context.Context, r *Request) error {
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
