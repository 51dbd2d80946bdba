package engine

import (
	"cmp"
	"strings"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/room"
	"github.com/weirgo/weir/internal/core/states"
)

// StateAlgorithm is the arithmetic of a strategy whose states have no fixed size. Its callers hold
// the state's lock.
type StateAlgorithm[S states.State] interface {
	// Advance drops the hits that no longer count at now.
	Advance(s S, p Params, now int64)

	// Decide returns the verdict on p at now. It changes nothing, and Look calls it without Advance.
	Decide(s S, p Params, now int64) Verdict

	// Full returns when nothing counts, at the numbers of p, if nothing more is admitted: now, later,
	// or Never if that is not known. Look calls it without Advance.
	Full(s S, p Params, now int64) int64

	// Admit counts p.Cost at now, whether it fits or not.
	Admit(s S, p Params, now int64, meta string)

	// Refund takes back an admission of p with meta.
	Refund(s S, p Params, now int64, t algorithm.Taken, meta string)

	// Raise raises the count at now to total, the count of another store, which expires at the instant
	// given. It never lowers it.
	Raise(s S, p Params, now, expires, total int64, meta string)
}

// States decides on states of no fixed size, with the state's lock held and the clock read.
type States[S states.State] struct {
	Table     *states.Table[S]
	Algorithm StateAlgorithm[S]
	Keys

	// Left returns how much cost is left at now, and whether a verdict on p does not say that; nil:
	// each does.
	Left func(state S, p Params, now int64, admitted bool) (left int64, unsaid bool)

	// Forget drops the count of a state, but no waiters and places; nil: the state is removed.
	Forget func(h states.Locked[S])
}

// newStates makes a store and its table, whose states empty makes.
func newStates[S states.State](
	shared *states.Limits, a StateAlgorithm[S], empty func(states.Key) S,
) States[S] {
	t := new(states.Table[S])
	t.Init(shared, empty)
	return States[S]{Table: t, Algorithm: a}
}

func empty[S any](states.Key) *S { return new(S) }

// Lock returns the state of a caller, locked as of an instant. If there is none it makes one if
// create is set, and otherwise returns one that is empty and not kept. Only making one fails, with
// room.ErrFull.
func (s *States[S]) Lock(
	id string, scaleMs int64, create bool, asOf int64,
) (states.Locked[S], error) {
	k := states.Key{ID: id, Scale: cmp.Or(s.Scale, scaleMs), Plan: s.Plan, Series: s.Series}
	return s.Table.Lock(k, create, asOf)
}

// decided completes a call after its verdict, in a state that is locked.
func (s *States[S]) decided(c *Call, h *states.Locked[S], v Verdict) {
	if c.WantMark {
		c.Mark = Mark{Of: h.Entry, N: [2]int64{h.Now}}
	}
	if !c.WantRest {
		return
	}
	c.Rest = Rest{Full: s.Algorithm.Full(h.State, c.Params, h.Now), Tier: v.Tier}
	if s.Left != nil {
		c.Rest.Left, c.Rest.Unsaid = s.Left(h.State, c.Params, h.Now, v.Allowed)
	}
}

// Count implements [Store].
func (s *States[S]) Count(id, meta string, c *Call) (v Verdict, now int64, err error) {
	p := c.Params
	for {
		h, err := s.Lock(id, p.Scale, !p.ExceedsLimit(), c.AsOf)
		if err != nil {
			return v, 0, err
		}
		if h.Entry != nil {
			s.Algorithm.Advance(h.State, p, h.Now)
		}
		v = s.Algorithm.Decide(h.State, p, h.Now)
		switch {
		case !v.Allowed:
			s.decided(c, &h, v)
			h.Unlock(states.Denied)
			return v, h.Now, nil
		case h.Reserve(meta):
			s.Algorithm.Admit(h.State, p, h.Now, meta)
			s.decided(c, &h, v)
			h.Unlock(states.Admitted)
			return v, h.Now, nil
		case !h.MakeRoom():
			return v, 0, room.ErrFull
		}
	}
}

// Look implements [Store].
func (s *States[S]) Look(id string, c *Call) (v Verdict, now int64, err error) {
	h, err := s.Lock(id, c.Scale, false, c.AsOf)
	if err != nil {
		return v, 0, err
	}
	v = s.Algorithm.Decide(h.State, c.Params, h.Now)
	s.decided(c, &h, v)
	h.Unlock(states.Seen)
	return v, h.Now, nil
}

// Forecast implements [Store]: all that a state counts ends at once, where an end is known.
func (s *States[S]) Forecast(_ string, _ Params, _, expires int64) int64 { return expires }

// Refund implements [Store].
func (s *States[S]) Refund(id, meta string, p Params, t Taken) error {
	h, err := s.Lock(id, p.Scale, false, Present)
	if err != nil {
		return err
	}
	u, of := states.Seen, algorithm.Taken{Expires: t.Expires, At: algorithm.Never}
	at, _ := t.Of.(*states.Entry[S])
	if t.Of != nil {
		of.At = t.N[0]
	}
	if h.Entry != nil && (t.Of == nil || at == h.Entry) {
		s.Algorithm.Advance(h.State, p, h.Now)
		s.Algorithm.Refund(h.State, p, h.Now, of, meta)
		u = states.Changed
	}
	h.Unlock(u)
	return nil
}

// Admit implements [Store].
func (s *States[S]) Admit(id, meta string, p Params) error {
	return s.change(id, meta, p, func(h states.Locked[S]) {
		s.Algorithm.Admit(h.State, p, h.Now, meta)
	})
}

// Raise implements [Store].
func (s *States[S]) Raise(id, meta string, p Params, expires, total int64) error {
	return s.change(id, meta, p, func(h states.Locked[S]) {
		if h.Now < expires {
			s.Algorithm.Raise(h.State, p, h.Now, expires, total, meta)
		}
	})
}

// change makes the state of a caller if there is none, and changes it.
func (s *States[S]) change(id, meta string, p Params, change func(states.Locked[S])) error {
	for {
		h, err := s.Lock(id, p.Scale, true, Present)
		if err != nil {
			return err
		}
		s.Algorithm.Advance(h.State, p, h.Now)
		if h.Reserve(meta) {
			change(h)
			h.Unlock(states.Changed)
			return nil
		}
		if !h.MakeRoom() {
			return room.ErrFull
		}
	}
}

// Reset implements [Store].
func (s *States[S]) Reset(id string, p Params) error {
	h, err := s.Lock(id, p.Scale, false, Present)
	if err == nil && h.Entry != nil {
		s.clear(h)
	}
	return err
}

// clear has a state forget its count, and unlocks it.
func (s *States[S]) clear(h states.Locked[S]) {
	if s.Forget == nil {
		h.Remove()
		return
	}
	s.Forget(h)
	h.Unlock(states.Changed)
}

// ResetPrefix implements [Store].
func (s *States[S]) ResetPrefix(p *Prefix) {
	for k := range s.Table.Keys {
		p.seen++
		if k.Plan == s.Plan && k.Series == s.Series && (s.Scale == 0 || k.Scale == s.Scale) &&
			strings.HasPrefix(k.ID, p.Prefix) {
			if h, err := s.Table.Lock(k, false, Present); err == nil && h.Entry != nil {
				s.clear(h)
				p.Reset++
			}
		}
		if p.seen%progressEvery == 0 && !p.next() {
			return
		}
	}
	p.next()
}
