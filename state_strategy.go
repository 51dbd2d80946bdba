package weir

import (
	"cmp"
	"context"
	"strings"
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

// stateStrategy implements [Strategy], and the optional interfaces, for such an algorithm.
type stateStrategy[S states.State] struct {
	reader
	algorithm stateAlgorithm[S]
	table     *states.Table[S]
	plan      string // of the keys
	tiers     []Tier // of Tiers, the shortest first; else nil

	// list lists what a log counts; nil: this is no log.
	list func(state S, p params, now int64) []Hit

	// left returns how much cost is left at now, and whether a verdict on p does not say that; nil:
	// each does.
	left func(state S, p params, now int64, admitted bool) (left int64, unsaid bool)

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
	p, err = s.parse(r)
	if err == nil {
		h, err = s.lockAsOf(r.Key, p.Scale, false, asOf)
	}
	return p, h, err
}

// Run implements [Strategy]. It fails as [Limiter.CheckRate] does.
func (s *stateStrategy[S]) Run(ctx context.Context, r *Request) (*Result, error) {
	v, at, err := s.decide(r, s.l.asOf(ctx), nil)
	if err != nil {
		return nil, err
	}
	res := new(Result)
	s.setResult(res, v, at.Now)
	return res, nil
}

// About implements [Counter].
func (s *stateStrategy[S]) About() *About { return &s.about }

// Do implements [Counter].
func (s *stateStrategy[S]) Do(ctx context.Context, ops []*Op) {
	for _, op := range ops {
		s.do(ctx, op)
	}
}

func (s *stateStrategy[S]) do(ctx context.Context, op *Op) {
	op.Err = catchUp(s, op)
	if op.Err != nil {
		return
	}
	switch op.Verb {
	case OpTake:
		more := op.rest()
		v, at, err := s.decide(&op.Request, s.l.asOf(ctx), more)
		s.taken(op, v, at, err)
		s.setFull(op, more)
	case OpPeek:
		more := op.rest()
		v, now, err := s.see(&op.Request, s.l.asOf(ctx), more)
		op.Left, op.Err = s.setResult(&op.Result, v, now), err
		op.decided()
		s.setFull(op, more)
	case OpReturn:
		op.Err = s.giveBack(op)
	case OpCharge:
		op.Err = s.charge(&op.Request)
	case OpReset:
		op.Err = s.reset(&op.Request)
	case OpResetPrefix:
		op.Err = s.resetPrefix(ctx, op)
	case OpHits:
		op.Hits, op.Err = s.hits(&op.Request)
	case OpForecast:
		op.Err = s.forecast(op)
	case OpCatchUp:
	default:
		op.Err = op.Unsupported(&s.about)
	}
}

// hits lists the admissions that count, of a strategy that keeps a log.
func (s *stateStrategy[S]) hits(r *Request) ([]Hit, error) {
	if s.list == nil {
		return nil, (&Op{Verb: OpHits}).Unsupported(&s.about)
	}
	p, h, err := s.find(r)
	if err != nil {
		return nil, err
	}
	defer h.Unlock(states.Seen)
	return s.list(h.State, p, h.Now), nil
}

// forecast does an OpForecast, of a strategy whose admissions all end at ExpiresAt.
func (s *stateStrategy[S]) forecast(op *Op) error {
	if s.about.Lapses != LapsesAtOnce {
		return op.Unsupported(&s.about)
	}
	op.More = op.Result.ExpiresAt
	if op.Result.TotalRequests == 0 {
		op.More = time.Time{}
	}
	return nil
}

// taken sets the outcome of an OpTake that was decided.
func (s *stateStrategy[S]) taken(op *Op, v verdict, at states.Locked[S], err error) {
	op.Left, op.Err = s.setResult(&op.Result, v, at.Now), err
	op.decided()
	if op.Keep && err == nil {
		op.receipt(at.Entry, v.At)
		op.Receipt.N[receiptAt] = at.Now
	}
}

// rest sets what is left of a state after a verdict on p; nil stands for one that nobody reads.
func (s *stateStrategy[S]) rest(of *rest, h *states.Locked[S], p params, v verdict) {
	if of == nil {
		return
	}
	*of = rest{full: s.algorithm.Full(h.State, p, h.Now), tier: v.Tier}
	if s.left != nil {
		of.left, of.unsaid = s.left(h.State, p, h.Now, v.Allowed)
	}
}

// decide returns the verdict on r as of an instant, and where it was decided. It sets what an
// Outcome says besides, unless that is nil.
func (s *stateStrategy[S]) decide(
	r *Request, asOf int64, more *rest,
) (v verdict, at states.Locked[S], err error) {
	p, err := s.parse(r)
	if err != nil {
		return v, at, err
	}
	for {
		h, err := s.lockAsOf(r.Key, p.Scale, !p.ExceedsLimit(), asOf)
		if err != nil {
			return v, at, s.l.fail(err)
		}
		if h.Entry != nil {
			s.algorithm.Advance(h.State, p, h.Now)
		}
		v = s.algorithm.Decide(h.State, p, h.Now)
		switch {
		case !v.Allowed:
			s.rest(more, &h, p, v)
			h.Unlock(states.Denied)
			return v, h, nil
		case h.Reserve(r.Meta):
			s.algorithm.Admit(h.State, p, h.Now, r.Meta)
			s.rest(more, &h, p, v)
			h.Unlock(states.Admitted)
			return v, h, nil
		case !h.MakeRoom():
			return v, at, s.l.fail(ErrFull)
		}
	}
}

// see returns the verdict on r as of an instant, and when it was decided. It counts nothing, and
// sets what an Outcome says besides as decide does.
func (s *stateStrategy[S]) see(
	r *Request, asOf int64, more *rest,
) (v verdict, now int64, err error) {
	p, h, err := s.findAsOf(r, asOf)
	if err != nil {
		return v, 0, err
	}
	v = s.algorithm.Decide(h.State, p, h.Now)
	s.rest(more, &h, p, v)
	h.Unlock(states.Seen)
	return v, h.Now, nil
}

// setFull sets FullAt, if that is wanted.
func (s *stateStrategy[S]) setFull(op *Op, more *rest) {
	if more != nil && op.Err == nil {
		op.FullAt = s.l.time(more.full)
	}
}

// giveBack does an OpReturn.
func (s *stateStrategy[S]) giveBack(op *Op) error {
	n, _ := op.returned()
	if n == 0 {
		return nil
	}
	r := op.Request
	r.Cost = n
	p, h, err := s.find(&r)
	if err != nil {
		return err
	}
	at, _ := op.Receipt.Of.(*states.Entry[S])
	t := algorithm.Taken{Expires: s.l.clock.Instant(op.Result.ExpiresAt), At: noInstant}
	if op.Receipt.Of != nil {
		t = algorithm.Taken{Expires: op.Receipt.N[receiptExpires], At: op.Receipt.N[receiptAt]}
	}
	u := states.Seen
	known := h.Entry != nil && (op.Receipt.Of == nil || at == h.Entry)
	if known && !p.ExceedsLimit() {
		s.algorithm.Advance(h.State, p, h.Now)
		s.algorithm.Refund(h.State, p, h.Now, t, r.Meta)
		u = states.Changed
	}
	h.Unlock(u)
	return nil
}

func (s *stateStrategy[S]) reset(r *Request) error {
	_, h, err := s.find(r)
	if err == nil && h.Entry != nil {
		s.clear(h)
	}
	return err
}

// clear has a state forget its count, and unlocks it.
func (s *stateStrategy[S]) clear(h states.Locked[S]) {
	if s.forget == nil {
		h.Remove()
		return
	}
	s.forget(h)
	h.Unlock(states.Changed)
}

// raise raises the count of r to that of another store. It never lowers it, and does nothing once
// that has expired.
func (s *stateStrategy[S]) raise(r *Request, counted *Result) error {
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

func (s *stateStrategy[S]) charge(r *Request) error {
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

// resetPrefix does an OpResetPrefix.
func (s *stateStrategy[S]) resetPrefix(ctx context.Context, op *Op) error {
	if s.l.closed.Load() {
		return s.l.fail(ErrClosed)
	}
	p := &prefixReset{ctx: ctx, prefix: op.Key, progress: op.Progress}
	defer func() { op.Result = Result{TotalRequests: uint64(p.reset)} }()
	for k := range s.table.Keys {
		p.seen++
		own := s.ownScale()
		if k.Plan == s.plan && k.Series == s.series && (own == 0 || k.Scale == own) &&
			strings.HasPrefix(k.ID, op.Key) {
			if h, err := s.lock(k.ID, k.Scale, false); err == nil && h.Entry != nil {
				s.clear(h)
				p.reset++
			}
		}
		if p.seen%progressEvery == 0 && !p.next() {
			return ctx.Err()
		}
	}
	p.next()
	return ctx.Err()
}
