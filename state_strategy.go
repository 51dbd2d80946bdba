package weir

import (
	"cmp"
	"context"
	"time"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/states"
)

// stateAlgorithm is the arithmetic of a strategy whose states have no fixed size. Its callers hold
// the state's lock.
type stateAlgorithm[S states.State] interface {
	// Advance drops what no longer counts at now.
	Advance(s S, p params, now int64)

	// Decide returns the verdict on p at now. It changes nothing, and Peek calls it without Advance.
	Decide(s S, p params, now int64) verdict

	// Full returns when nothing counts, at the numbers of p, if nothing more is admitted: now, later,
	// or Never if nobody knows. Peek calls it without Advance.
	Full(s S, p params, now int64) int64

	// Admit counts p.Cost at now, whether it fits or not.
	Admit(s S, p params, now int64, meta string)

	// Refund takes back what was admitted for p with meta.
	Refund(s S, p params, now int64, t algorithm.Taken, meta string)

	// Raise raises the count at now to total, the count of another store, which expires at the instant
	// given. It never lowers it.
	Raise(s S, p params, now, expires, total int64, meta string)
}

// lefter is the algorithm of Tiers, whose verdicts are those of one tier.
type lefter[S states.State] interface {
	// Left returns how much cost is admitted at now.
	Left(s S, now int64) int64
}

// stateStrategy implements [Strategy], and the optional interfaces, for such an algorithm.
type stateStrategy[S states.State] struct {
	reader
	algorithm stateAlgorithm[S]
	table     *states.Table[S]
	plan      string // of the keys
	tiers     []Tier // of Tiers, the shortest first; else nil

	// forget drops what a state counts, but who waits and what is held; nil: the state is removed.
	forget func(h states.Locked[S])
}

// setResult sets res to a verdict at now, and returns how long it holds.
func (s *stateStrategy[S]) setResult(res *Result, v verdict, now int64) time.Duration {
	left := s.l.setResult(res, v, now)
	if s.tiers != nil {
		res.Limit = s.tiers[v.Tier].Limit
	}
	return left
}

// lock returns the state of a caller, locked. If there is none it makes one if create is set, and
// otherwise returns one that is empty and not kept. Only making one fails, with ErrFull.
func (s *stateStrategy[S]) lock(id string, scaleMs int64, create bool) (states.Locked[S], error) {
	return s.lockAsOf(id, scaleMs, create, present)
}

func (s *stateStrategy[S]) lockAsOf(
	id string, scaleMs int64, create bool, asOf int64,
) (states.Locked[S], error) {
	return s.table.LockAsOf(s.key(id, scaleMs), create, asOf)
}

func (s *stateStrategy[S]) key(id string, scaleMs int64) states.Key {
	return states.Key{ID: id, Scale: cmp.Or(s.keyScale, scaleMs), Plan: s.plan, Series: s.series}
}

// find parses r, and locks the state that it would count in, if there is one.
func (s *stateStrategy[S]) find(r *Request) (p params, h states.Locked[S], err error) {
	return s.findAsOf(r, present)
}

func (s *stateStrategy[S]) findAsOf(
	r *Request, asOf int64,
) (p params, h states.Locked[S], err error) {
	if p, err = s.parse(r); err == nil {
		h, err = s.lockAsOf(r.Key, p.Scale, false, asOf)
	}
	return p, h, err
}

// Run implements [Strategy]. It fails as [Limiter.CheckRate] does.
func (s *stateStrategy[S]) Run(ctx context.Context, r *Request) (*Result, error) {
	v, at, err := s.decide(r, s.l.asOf(ctx))
	if err != nil {
		return nil, err
	}
	res := new(Result)
	s.setResult(res, v, at.Now)
	return res, nil
}

// localStates is a stateStrategy as a [forlimits.Local].
type localStates[S states.State] stateStrategy[S]

func (s *stateStrategy[S]) local() local { return (*localStates[S])(s) }

// Run implements [forlimits.Local].
func (of *localStates[S]) Run(r *Request, res *Result, _ *sight) (left time.Duration, err error) {
	s := (*stateStrategy[S])(of)
	v, at, err := s.decide(r, present)
	if err != nil {
		return 0, err
	}
	return s.setResult(res, v, at.Now), nil
}

// decide returns the verdict on r as of an instant, and where it was decided.
func (s *stateStrategy[S]) decide(
	r *Request, asOf int64,
) (v verdict, at states.Locked[S], err error) {
	return s.decideWith(r, asOf, nil)
}

// rest is what an [Outcome] says besides a verdict.
type rest struct {
	left int64 // how much cost is left after a denial by a lefter
	full int64 // when all is left again; noInstant if nobody knows
}

// rest sets what is left of a state on which p was decided; nil stands for one that nobody reads.
func (s *stateStrategy[S]) rest(of *rest, h *states.Locked[S], p params, denied bool) {
	if of == nil {
		return
	}
	of.full = s.algorithm.Full(h.State, p, h.Now)
	if a, ok := s.algorithm.(lefter[S]); ok && denied && p.Cost > 1 { // else nothing is left
		of.left = a.Left(h.State, h.Now)
	}
}

// decideWith is decide, which sets what an Outcome says besides, unless that is nil.
func (s *stateStrategy[S]) decideWith(
	r *Request, asOf int64, more *rest,
) (v verdict, at states.Locked[S], err error) {
	p, err := s.parse(r)
	if err != nil {
		return v, at, err
	}
	for exact := asOf != present || !s.l.clock.IsCoarse(); ; {
		h, err := s.lockAsOf(r.Key, p.Scale, !p.ExceedsLimit(), asOf)
		if err != nil {
			return v, at, s.l.fail(err)
		}
		if h.Entry != nil {
			s.algorithm.Advance(h.State, p, h.Now)
		}
		v = s.algorithm.Decide(h.State, p, h.Now)
		switch {
		case !v.Allowed && !exact:
			h.Unlock(states.Seen)
			s.l.clock.Advance() // the next decision is exact
			exact = true
		case !v.Allowed:
			s.rest(more, &h, p, true)
			h.Unlock(states.Denied)
			return v, h, nil
		case h.Reserve(r.Meta):
			s.algorithm.Admit(h.State, p, h.Now, r.Meta)
			s.rest(more, &h, p, false)
			h.Unlock(states.Admitted)
			return v, h, nil
		case !h.MakeRoom():
			return v, at, s.l.fail(ErrFull)
		}
	}
}

// Peek implements [Peeker].
func (s *stateStrategy[S]) Peek(ctx context.Context, r *Request) (*Result, error) {
	v, now, err := s.see(r, s.l.asOf(ctx), nil)
	if err != nil {
		return nil, err
	}
	res := new(Result)
	s.setResult(res, v, now)
	return res, nil
}

// Look implements [forlimits.Local].
func (of *localStates[S]) Look(r *Request, res *Result, _ *sight) (left time.Duration, err error) {
	s := (*stateStrategy[S])(of)
	v, now, err := s.see(r, present, nil)
	if err != nil {
		return 0, err
	}
	return s.setResult(res, v, now), nil
}

// see returns the verdict on r as of an instant, and when it was decided. It counts nothing, and
// sets what an Outcome says besides as decideWith does.
func (s *stateStrategy[S]) see(
	r *Request, asOf int64, more *rest,
) (v verdict, now int64, err error) {
	s.l.clock.Advance() // a coarse clock may be late
	p, h, err := s.findAsOf(r, asOf)
	if err != nil {
		return v, 0, err
	}
	v = s.algorithm.Decide(h.State, p, h.Now)
	s.rest(more, &h, p, !v.Allowed)
	h.Unlock(states.Seen)
	return v, h.Now, nil
}

// outcomes is a strategy on states, for a Limit.
type outcomes interface {
	// decideFor is the Run of a [forlimits.Local], or its Look, that sets more too.
	decideFor(r *Request, look bool, res *Result, more *rest) (left time.Duration, err error)

	inLimiter
	fuller
}

func (s *stateStrategy[S]) decideFor(
	r *Request, look bool, res *Result, more *rest,
) (left time.Duration, err error) {
	var v verdict
	var at states.Locked[S]
	if look {
		v, at.Now, err = s.see(r, present, more)
	} else {
		v, at, err = s.decideWith(r, present, more)
	}
	if err != nil {
		return 0, err
	}
	return s.setResult(res, v, at.Now), nil
}

// full implements fuller.
func (s *stateStrategy[S]) full(r *Request) (at int64, err error) {
	p, h, err := s.find(r)
	if err != nil {
		return noInstant, err
	}
	at = s.algorithm.Full(h.State, p, h.Now)
	h.Unlock(states.Seen)
	return at, nil
}

// Refund implements [Refunder].
func (s *stateStrategy[S]) Refund(_ context.Context, r *Request, taken *Result) error {
	return s.refund(r, taken, states.Locked[S]{Now: noInstant})
}

// refund takes back what was admitted at the instant and in the entry given, if they are known.
func (s *stateStrategy[S]) refund(r *Request, taken *Result, at states.Locked[S]) error {
	p, h, err := s.find(r)
	if err != nil {
		return err
	}
	u := states.Seen
	known := h.Entry != nil && (at.Entry == nil || at.Entry == h.Entry)
	if known && taken.Allowed() && !p.ExceedsLimit() {
		s.algorithm.Advance(h.State, p, h.Now)
		t := algorithm.Taken{Expires: s.l.clock.Instant(taken.ExpiresAt), At: at.Now}
		s.algorithm.Refund(h.State, p, h.Now, t, r.Meta)
		u = states.Changed
	}
	h.Unlock(u)
	return nil
}

// Admit implements [Admitter].
func (s *stateStrategy[S]) Admit(_ context.Context, r *Request) (*Result, Return, error) {
	v, at, err := s.decide(r, present)
	if err != nil {
		return nil, nil, err
	}
	taken := new(Result)
	s.setResult(taken, v, at.Now)
	return taken, s.returnTo(r, taken, at), nil
}

// returnTo returns what gives back to the entry in which r was admitted.
func (s *stateStrategy[S]) returnTo(r *Request, taken *Result, at states.Locked[S]) Return {
	return returnOf(r, taken, func(_ context.Context, q *Request, _ int64) error {
		return s.refund(q, taken, at)
	})
}

// Reset implements [Resetter].
func (s *stateStrategy[S]) Reset(_ context.Context, r *Request) error {
	_, h, err := s.find(r)
	if err == nil && h.Entry != nil {
		s.reset(h)
	}
	return err
}

// reset has a state forget its count, and unlocks it.
func (s *stateStrategy[S]) reset(h states.Locked[S]) {
	if s.forget == nil {
		h.Remove()
		return
	}
	s.forget(h)
	h.Unlock(states.Changed)
}

// Seed implements [Seeder].
func (s *stateStrategy[S]) Seed(_ context.Context, r *Request, counted *Result) error {
	p, err := s.parse(r)
	expires := s.l.clock.Instant(counted.ExpiresAt)
	if err != nil || expires <= s.l.clock.Read() {
		return err
	}
	return s.change(r, p, func(h states.Locked[S]) {
		if h.Now < expires { // the clock may have passed it since it was read
			s.algorithm.Raise(h.State, p, h.Now, expires, clampCost(counted.TotalRequests), r.Meta)
		}
	})
}

// Charge implements [Charger].
func (s *stateStrategy[S]) Charge(_ context.Context, r *Request) error {
	p, err := s.parse(r)
	if err != nil {
		return err
	}
	return s.change(r, p, func(h states.Locked[S]) { s.algorithm.Admit(h.State, p, h.Now, r.Meta) })
}

// change makes the state of p if there is none, and changes it.
func (s *stateStrategy[S]) change(r *Request, p params, change func(states.Locked[S])) error {
	for {
		h, err := s.lock(r.Key, p.Scale, true)
		if err != nil {
			return s.l.fail(err)
		}
		s.algorithm.Advance(h.State, p, h.Now)
		if h.Reserve(r.Meta) {
			change(h)
			h.Unlock(states.Changed)
			return nil
		}
		if !h.MakeRoom() {
			return s.l.fail(ErrFull)
		}
	}
}
