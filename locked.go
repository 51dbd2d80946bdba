package weir

import (
	"context"
	"time"
)

// verdict is a decision: the parts of a Result, its instant as this package counts them.
type verdict struct {
	state State
	total int64
	at    int64 // noInstant: a request that can never pass
	tier  int   // of Tiers: the one that binds
}

// verdict decides on p where used is counted; at is when a denial ends, or an admission expires.
func (p params) verdict(used, at int64) verdict {
	switch {
	case p.exceedsLimit():
		return verdict{state: Deny, total: used, at: noInstant}
	case used > p.limit-p.cost:
		return verdict{state: Deny, total: used, at: at}
	}
	return verdict{state: Allow, total: used + p.cost, at: at}
}

func (l *Limiter) result(v verdict) *Result {
	r := new(Result)
	l.setResult(r, v)
	return r
}

func (l *Limiter) setResult(r *Result, v verdict) {
	r.State, r.TotalRequests = v.state, uint64(v.total)
	if v.at != noInstant {
		r.ExpiresAt = l.clock.time(v.at)
	}
}

// algorithm is the arithmetic of a strategy that decides under a lock, which its callers hold.
type algorithm[S any] interface {
	// prepare completes the params of a Request.
	prepare(p params) (params, error)

	// advance drops what no longer counts at now.
	advance(s *S, p params, now int64)

	// decide returns the verdict on p at now. It changes nothing, and Peek calls it without advance.
	decide(s *S, p params, now int64) verdict

	// admit counts cost at now, whether it fits or not.
	admit(s *S, p params, now, cost int64, meta string)

	// refund takes back what was admitted for p with meta, and was to expire at the instant given.
	refund(s *S, p params, now, expires int64, meta string)

	// raise admits at now what total, which expires at the instant given, is more than counted.
	raise(s *S, p params, now, expires, total int64, meta string)
}

// store keeps the states of an algorithm.
type store[S any] interface {
	// lock returns the state of a caller, locked. If there is none it makes one if create is set, and
	// otherwise returns one that is empty and not kept. Only making one fails, with ErrFull.
	lock(id string, scaleMs int64, create bool) (lockedState[S], error)

	// reserve makes room for what an admission adds to the state. It reports false if there is none.
	reserve(h handle, meta string) bool

	// unlock ends the use of the state.
	unlock(h handle, u use)

	// remove removes the state, and unlocks it.
	remove(h handle)

	// makeRoom unlocks a state for which reserve found no room, and removes expired states of others.
	// A state that counts nothing is removed too. It reports false if that freed nothing.
	makeRoom(h handle) bool
}

// use is what was done with a state.
type use int

const (
	seen use = iota // nothing was changed
	changed
	denied
	admitted
)

// lockedState is a state with its lock held.
type lockedState[S any] struct {
	handle
	state *S
}

// handle says where a locked state is kept.
type handle struct {
	now   int64  // read before the lock was taken; not before the state was last used
	shard *shard // of a state in a slot
	entry *entry // of another; nil if there is none
	n     int32  // number of the slot
	kept  bool   // false: the state is empty, and not to be changed
	fresh bool   // lock has made the slot
}

// locked implements [Strategy] for an algorithm that decides under a lock.
type locked[S any] struct{ operations[S] }

func newLocked[S any](l *Limiter, a algorithm[S], st store[S]) locked[S] {
	return locked[S]{operations[S]{l: l, algorithm: a, store: st}}
}

// Run implements [Strategy]. It fails as [Limiter.CheckRate] does.
func (s *locked[S]) Run(_ context.Context, r *Request) (*Result, error) {
	v, err := s.verdict(r)
	if err != nil {
		return nil, err
	}
	return s.l.result(v), nil
}

// Decide is Run without the allocation of a Result.
func (s *locked[S]) Decide(_ context.Context, r *Request) (res Result, err error) {
	v, err := s.verdict(r)
	if err == nil {
		s.l.setResult(&res, v)
	}
	return
}

func (s *locked[S]) verdict(r *Request) (verdict, error) {
	p, err := s.parse(r)
	if err != nil {
		return verdict{}, err
	}
	for {
		h, err := s.store.lock(r.Key, p.scale, !p.exceedsLimit())
		if err != nil {
			return verdict{}, s.l.fail(err)
		}
		if h.kept {
			s.algorithm.advance(h.state, p, h.now)
		}
		v := s.algorithm.decide(h.state, p, h.now)
		switch {
		case v.state == Deny:
			s.store.unlock(h.handle, denied)
			return v, nil
		case s.store.reserve(h.handle, r.Meta):
			s.algorithm.admit(h.state, p, h.now, p.cost, r.Meta)
			s.store.unlock(h.handle, admitted)
			return v, nil
		}
		if !s.store.makeRoom(h.handle) {
			return verdict{}, s.l.fail(ErrFull)
		}
	}
}

// operations implements the optional interfaces of such a Strategy.
type operations[S any] struct {
	l         *Limiter
	algorithm algorithm[S]
	store     store[S]
	period    time.Duration // in place of a request's Duration; 0 for that
}

// Limiter returns the Limiter in which the Strategy counts.
func (s *operations[S]) Limiter() *Limiter { return s.l }

// parse returns the params of r. It fails with ErrClosed after Close.
func (s *operations[S]) parse(r *Request) (params, error) {
	p, err := parse(r, s.period)
	switch {
	case err == nil && s.l.closed.Load():
		err = ErrClosed
	case err == nil:
		p, err = s.algorithm.prepare(p)
	}
	if err != nil {
		return p, s.l.fail(err)
	}
	return p, nil
}

// find parses r, and locks the state that it would count in, if there is one.
func (s *operations[S]) find(r *Request) (p params, h lockedState[S], err error) {
	if p, err = s.parse(r); err == nil {
		h, err = s.store.lock(r.Key, p.scale, false)
	}
	return p, h, err
}

// Peek implements [Peeker].
func (s *operations[S]) Peek(_ context.Context, r *Request) (*Result, error) {
	p, h, err := s.find(r)
	if err != nil {
		return nil, err
	}
	v := s.algorithm.decide(h.state, p, h.now)
	s.store.unlock(h.handle, seen)
	return s.l.result(v), nil
}

// Refund implements [Refunder].
func (s *operations[S]) Refund(_ context.Context, r *Request, taken *Result) error {
	p, h, err := s.find(r)
	if err != nil {
		return err
	}
	u := seen
	if h.kept && taken.Allowed() && !p.exceedsLimit() {
		s.algorithm.advance(h.state, p, h.now)
		s.algorithm.refund(h.state, p, h.now, s.l.clock.instantOf(taken.ExpiresAt), r.Meta)
		u = changed
	}
	s.store.unlock(h.handle, u)
	return nil
}

// Reset implements [Resetter].
func (s *operations[S]) Reset(_ context.Context, r *Request) error {
	_, h, err := s.find(r)
	if err != nil {
		return err
	}
	if h.kept {
		s.store.remove(h.handle)
	} else {
		s.store.unlock(h.handle, seen)
	}
	return nil
}

// Seed implements [Seeder].
func (s *operations[S]) Seed(_ context.Context, r *Request, counted *Result) error {
	p, err := s.parse(r)
	expires := s.l.clock.instantOf(counted.ExpiresAt)
	if err != nil || expires <= s.l.clock.read() {
		return err
	}
	return s.change(r, p, func(h lockedState[S]) {
		if h.now < expires { // the clock may have passed it since it was read
			s.algorithm.raise(h.state, p, h.now, expires, clampCost(counted.TotalRequests), r.Meta)
		}
	})
}

// Charge implements [Charger].
func (s *operations[S]) Charge(_ context.Context, r *Request) error {
	p, err := s.parse(r)
	if err != nil {
		return err
	}
	return s.change(r, p, func(h lockedState[S]) {
		s.algorithm.admit(h.state, p, h.now, p.cost, r.Meta)
	})
}

// change makes the state of p if there is none, and changes it.
func (s *operations[S]) change(r *Request, p params, change func(lockedState[S])) error {
	for {
		h, err := s.store.lock(r.Key, p.scale, true)
		if err != nil {
			return s.l.fail(err)
		}
		s.algorithm.advance(h.state, p, h.now)
		if s.store.reserve(h.handle, r.Meta) {
			change(h)
			s.store.unlock(h.handle, changed)
			return nil
		}
		if !s.store.makeRoom(h.handle) {
			return s.l.fail(ErrFull)
		}
	}
}
