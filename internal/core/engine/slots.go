package engine

import (
	"bytes"
	"cmp"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/arith"
	"github.com/weirgo/weir/internal/core/bounds"
	"github.com/weirgo/weir/internal/core/clock"
	"github.com/weirgo/weir/internal/core/ids"
	"github.com/weirgo/weir/internal/core/slots"
	"github.com/weirgo/weir/internal/core/windows"
)

// Slots decides on buckets that fit a slot: on that of a known caller by the slot's word, without a
// lock; on a new one, on another epoch, and by every other verb under the shard's mutex, with the
// clock read.
type Slots struct {
	Table     *slots.Table
	Clock     *clock.Clock
	Windows   *windows.Windows // of fixed windows
	Kind      slots.Kind
	Algorithm SlotAlgorithm
	Keys
}

// Take decides on p as of an instant, and counts it. The clock is read after the slot was found, so
// the reading is not before one at which an earlier bucket of the key was removed.
func (s *Slots) Take(id string, p Params, asOf int64) (v Verdict, now int64, err error) {
	if asOf == Present {
		key := s.Period(p.Scale)
		if slot, state, _ := s.Table.Find(id, &key); slot != nil {
			now = s.Clock.Read()
			v, ok := s.Hit(slot, state, p, now)
			if ok {
				return v, now, nil
			}
		}
	}
	return s.decideLocked(id, &Call{Params: p, AsOf: asOf}, toCount)
}

// Count implements [Store]. Of a fixed window it decides under the mutex: to count in one without,
// see weir.CheckRate.
func (s *Slots) Count(id, _ string, c *Call) (v Verdict, now int64, err error) {
	slot := c.Slot
	c.Slot = nil
	switch {
	case s.Kind == FixedKind, c.WantMark:
		v, now, err = s.decideLocked(id, c, toCount)
	case slot == nil, c.AsOf != Present:
		v, now, err = s.Take(id, c.Params, c.AsOf)
	default:
		var ok bool
		now = c.Now
		v, ok = s.Hit(slot, c.State, c.Params, now)
		if !ok {
			v, now, err = s.decideLocked(id, c, toCount)
		}
	}
	if c.WantRest && err == nil {
		c.Rest = Rest{Full: v.At}
		if !v.Allowed {
			c.Rest.Full = s.Full(id, c.Params)
		}
	}
	return v, now, err
}

// Hit decides p at now on the bucket in a slot, which was found with this state. It reports false,
// and has counted nothing, if the decision begins another epoch or another hit has done so.
//
// The still words are read first, and then the state again, since another hit may have come while
// the clock was read. If that is of the generation in which the slot was found, all words were of
// one epoch, and a denial is decided; an admission must find that state unchanged.
func (s *Slots) Hit(slot *slots.Slot, state slots.Word, p Params, now int64) (v Verdict, ok bool) {
	have := slot.Content(state)
	uncounted := 1 - p.Cost*PerCost[s.Kind] // of one hit, beside its slot: of cost 3, -2
	epoch := state.Epoch()
	for state = slot.State(); state.Epoch() == epoch; state = slot.State() {
		have.N = state.Count()
		// A direct call takes 3 ns less than one of an interface.
		var next slots.Content
		switch s.Kind {
		case SlidingKind:
			v, next = new(algorithm.SlidingWindow).Decide(have, p, now)
		case TokenKind:
			v, next = s.Algorithm.(*algorithm.TokenBucket).Decide(have, p, now)
		default:
			v, next = s.Algorithm.Decide(have, p, now)
		}
		have.N = next.N
		if next != have {
			break
		}
		switch {
		case !v.Allowed:
			s.Table.Denied.Add(s.Table.Denied.One(), 1)
			return v, true
		case s.Table.Admit(slot, state, state.With(next.N), uncounted):
			if uncounted > 0 {
				s.Table.Allowed.Add(s.Table.Allowed.One(), uncounted)
			}
			return v, true
		}
	}
	return v, false
}

// Period returns the period of the buckets of a scale.
func (s *Slots) Period(scaleMs int64) slots.Period {
	return slots.PeriodOf(s.Kind, cmp.Or(s.Scale, scaleMs), s.Series)
}

// purpose is why a decision is made.
type purpose uint8

const (
	toLook  purpose = iota // it changes no bucket
	toDeny                 // only a denial changes something: it keeps its spacing
	toCount                // it is a count
)

// decideLocked decides under the shard's mutex, for any caller. The mark is that of the bucket that
// it may have made.
func (s *Slots) decideLocked(
	id string, c *Call, to purpose,
) (v Verdict, now int64, err error) {
	// A new caller's bucket is made, since a cost within the limit is admitted then.
	create := to == toCount && c.Cost <= c.Limit
	in, err := s.Lock(id, c.Scale, algorithm.Never, create, c.AsOf)
	if err != nil {
		return v, 0, err
	}
	v, err = s.decideOn(&in, c.Params, to)
	if to == toCount && !v.Allowed {
		in.Shard.Denied++
	}
	if c.WantMark {
		c.Mark = Mark{Of: s.Table, N: in.Identity().Words()}
	}
	in.Unlock()
	return v, in.Now, err
}

// decideOn decides on a bucket that is locked.
func (s *Slots) decideOn(c *LockedSlot, p Params, to purpose) (v Verdict, err error) {
	for done := false; !done && err == nil; {
		var next slots.Content
		v, next = s.Algorithm.Decide(c.Have, p, c.Now)
		if to == toLook || v.Allowed && to != toCount || !v.Allowed && next == c.Have {
			break
		}
		done, err = c.Replace(next)
		if done {
			c.NoteEnd(v.At) // of a denial an instant before the end: a bound too
		}
		if done && v.Allowed {
			c.Shard.Moved(PerCost[s.Kind]*(next.N-c.Have.N), 1)
		}
	}
	return v, err
}

// update replaces the content of a caller's bucket by change of it, under the shard's mutex. If
// there is no bucket, one is made if create is set; otherwise change is called all the same. It is
// called again after each concurrent hit: the last call counts. The bucket of a fixed window is
// that of now, or of since if that is later.
func (s *Slots) update(
	id string, scaleMs int64, create bool, since int64, change func(*LockedSlot) slots.Content,
) error {
	c, err := s.Lock(id, scaleMs, since, create, Present)
	if err != nil {
		return err
	}
	defer c.Unlock()
	for done := false; !done && err == nil; {
		next := change(&c)
		if c.Slot == nil && !create {
			break
		}
		done, err = c.Replace(next)
		if done {
			c.Shard.Moved(PerCost[s.Kind]*(next.N-c.Have.N), 0)
			c.NoteEnd(c.End(next))
		}
	}
	return err
}

// LockedSlot is the bucket of a caller, whose shard is locked, at a reading of the clock.
type LockedSlot struct {
	slots.Locked
	Now int64
}

// Lock locks the bucket of a caller, and reads the clock. A caller without a bucket has an empty
// content, of a fixed window that of the window that runs, or of since if that is later. It fails
// with room.ErrFull.
//
// Now is asOf, if that is before the reading. Where an earlier bucket of the caller may have been
// removed since, it is the reading all the same; and so of fixed windows, since one that has ended
// is over.
func (s *Slots) Lock(
	id string, scaleMs, since int64, create bool, asOf int64,
) (c LockedSlot, err error) {
	if s.Kind == FixedKind {
		asOf = Present
	}
	k, key, empty := s.Table.Pack(id), slots.Period{}, algorithm.None
	for at := slots.NewReading(0); ; asOf = Present {
		at.Now = min(s.Clock.Read(), asOf)
		if s.Kind == FixedKind {
			w := s.Windows.Running(max(at.Now, since), scaleMs)
			key, empty = w.Fixed, slots.Content{Still2: int64(w.Stamp(max(at.Now, since)))}
		} else {
			key = s.Period(scaleMs)
		}
		c.Locked, err = s.Table.Lock(k, id, &key, &at, create)
		if err == slots.ErrEarlier {
			continue
		}
		c.Now = at.Now
		if c.Slot == nil {
			c.Have = empty
		}
		return c, err
	}
}

// Look implements [Store]. As part of a decision it leaves an admission to the count that follows.
// At the present it takes no lock for a known caller, unless a denial begins another epoch. Fixed
// windows are looked at at the present.
func (s *Slots) Look(id string, c *Call) (v Verdict, now int64, err error) {
	c.Slot = nil
	if c.AsOf == Present || s.Kind == FixedKind {
		v, now, err = s.look(id, c)
	} else {
		v, now, err = s.decideLocked(id, c, toLook)
	}
	if c.WantRest && err == nil {
		c.Rest = Rest{Full: s.Full(id, c.Params)}
	}
	return v, now, err
}

// look is Look at the present.
func (s *Slots) look(id string, c *Call) (v Verdict, now int64, err error) {
	seen, to := Sight{}, toDeny
	if !c.Deciding {
		to = toLook
	}
	var next, have slots.Content
	if s.Kind == FixedKind { // its slots are those of one window
		seen.Now = s.Clock.Read()
		seen.Window = s.Windows.Running(seen.Now, c.Scale)
		v = c.Verdict(s.see(id, &seen.Window.Fixed, &seen).N, seen.Window.End)
	} else {
		key := s.Period(c.Scale)
		have = s.see(id, &key, &seen)
		seen.Now = s.Clock.Read() // after the slot was found, as in Take
		v, next = s.Algorithm.Decide(have, c.Params, seen.Now)
	}
	if to == toDeny && seen.Slot != nil && v.Allowed {
		c.Sight = seen
		return v, seen.Now, nil
	}
	if seen.Slot == nil || !v.Allowed && to == toDeny && next != have {
		return s.decideLocked(id, c, to)
	}
	return v, seen.Now, nil
}

// Full returns when nothing counts for a caller, at the numbers of p, if nothing more is admitted:
// the present, or later.
func (s *Slots) Full(id string, p Params) int64 {
	var seen Sight
	if s.Kind == FixedKind {
		now := s.Clock.Read()
		c := s.see(id, &s.Windows.Running(now, p.Scale).Fixed, &seen)
		return s.Algorithm.Full(c, p, now)
	}
	key := s.Period(p.Scale)
	c := s.see(id, &key, &seen)
	return s.Algorithm.Full(c, p, s.Clock.Read())
}

// see finds a caller, and returns the content of its bucket. It takes no lock.
func (s *Slots) see(id string, key *slots.Period, at *Sight) slots.Content {
	for {
		at.Slot, at.State, _ = s.Table.Find(id, key)
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

// Forecast implements [Store]: of a token bucket the next token is back one spacing after the one
// before it. A verdict of a sliding window does not say how much of it each window has: Forecast
// looks at the count, without a lock.
func (s *Slots) Forecast(id string, p Params, total, expires int64) int64 {
	switch s.Kind {
	case TokenKind:
		return new(algorithm.TokenBucket).More(p, total, expires)
	case SlidingKind:
		var at Sight
		key := s.Period(p.Scale)
		c := s.see(id, &key, &at)
		if at.Slot == nil {
			break
		}
		if more := new(algorithm.SlidingWindow).More(c, p.Scale, total); more != algorithm.Never {
			return more
		}
	}
	return expires
}

// Refund implements [Store]. A token bucket's tokens return as much sooner as was given back
// before.
func (s *Slots) Refund(id, _ string, p Params, t Taken) error {
	expires := arith.Sub(t.Expires, arith.Mul(uint64(t.Before), p.Each))
	return s.update(id, p.Scale, false, algorithm.Never, func(c *LockedSlot) slots.Content {
		if t.N != [2]int64{} && t.N != c.Identity().Words() {
			return c.Have
		}
		return s.Algorithm.Refund(c.Have, p, c.Now, expires)
	})
}

// Admit implements [Store].
func (s *Slots) Admit(id, _ string, p Params) error {
	return s.update(id, p.Scale, true, algorithm.Never, func(c *LockedSlot) slots.Content {
		return s.Algorithm.Admit(c.Have, p, c.Now)
	})
}

// Raise implements [Store].
func (s *Slots) Raise(id, _ string, p Params, expires, total int64) error {
	return s.update(id, p.Scale, true, algorithm.Never, func(c *LockedSlot) slots.Content {
		if c.Now >= expires {
			return c.Have
		}
		return s.Algorithm.Raise(c.Have, p, c.Now, expires, total)
	})
}

// merge merges the saved content of a caller, which expires at end. A fixed window holds since.
func (s *Slots) merge(id string, scaleMs, since, end int64, saved slots.Content) error {
	if end <= s.Clock.Read() {
		return nil
	}
	return s.update(id, scaleMs, true, since, func(c *LockedSlot) slots.Content {
		if c.Now >= end {
			return c.Have
		}
		return s.Algorithm.Merge(c.Have, saved, scaleMs, c.Now, MaxAhead)
	})
}

// Reset implements [Store].
func (s *Slots) Reset(id string, p Params) error {
	c, err := s.Lock(id, p.Scale, algorithm.Never, false, Present)
	if err == nil {
		c.Remove()
	}
	return err
}

// ResetPrefix implements [Store].
func (s *Slots) ResetPrefix(p *Prefix) {
	all := s.Table.Shards()
	for i := range all {
		for c := 0; p.Ctx.Err() == nil && s.resetChunk(&all[i], c, p); c++ {
		}
		if !p.next() {
			return
		}
	}
}

// owns reports whether a slot is a bucket of s.
func (s *Slots) owns(in *slots.Slot) bool {
	k, scaleMs, number := in.Period()
	return k == s.Kind && (scaleMs == s.Scale || s.Scale == 0 && scaleMs <= bounds.MaxScale) &&
		(k == FixedKind || number == s.Series)
}

// resetChunk removes the buckets of one chunk that are of s and whose ID begins with the prefix. It
// leaves those that have expired to a sweep, which raises the horizon. It reports false if there is
// no such chunk.
func (s *Slots) resetChunk(sh *slots.Shard, i int, p *Prefix) bool {
	now, id, prefix := s.Clock.Read(), make([]byte, 0, ids.Inline), []byte(p.Prefix)
	return sh.Visit(i, func(n int, in *slots.Slot) {
		p.seen++
		id = sh.AppendID(id[:0], in)
		if !bytes.HasPrefix(id, prefix) || !s.owns(in) {
			return
		}
		for state := in.State(); now < sh.End(in, in.Content(state)); state = in.State() {
			if sh.Release(in, n, state) { // else a hit came
				p.Reset++
				return
			}
		}
	})
}
