package weir

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/weirgo/weir/internal/algorithm"
	"github.com/weirgo/weir/internal/bounds"
)

const maxID = bounds.MaxKey // bytes

// checkArgs returns what is wrong with an ID, a scale and a limit, or nil.
func checkArgs(id string, scaleMs, limit int64) error {
	switch {
	case id == "":
		return fmt.Errorf("%w: empty", ErrID)
	case len(id) > maxID:
		return fmt.Errorf("%w: %d bytes, at most %d", ErrID, len(id), maxID)
	case scaleMs <= 0 || scaleMs > maxScale:
		return fmt.Errorf("%w: %d ms, want 1 to %d", ErrScale, scaleMs, int64(maxScale))
	case limit < 0:
		return fmt.Errorf("%w: %d is negative", ErrLimit, limit)
	}
	return nil
}

type (
	params  = algorithm.Params
	verdict = algorithm.Verdict
)

// clampCost returns n, or the largest int64.
func clampCost(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// reader reads the requests of a strategy.
type reader struct {
	l        *Limiter
	duration time.Duration // in place of a request's; 0: there is none. That of a series is over maxScale
	most     uint64        // larger Limits and Costs count as that; at most math.MaxInt64
	preparer preparer      // nil: the params are complete

	// set by bind, for a Limit
	bound    bool
	limit    uint64 // in place of a request's
	series   int64  // the number of the counts; 0: they are those of the strategy itself
	keyScale int64  // in place of the duration, in keys; 0: there is none
}

// bind returns a reader for a Limit of n in d, whose counts are those of a series.
func (s reader) bind(n uint64, d time.Duration, in int64) reader {
	s.bound, s.limit, s.duration, s.series = true, n, d, in
	return s
}

// ownScale returns the scale in the keys of a strategy that has one of its own, or 0.
func (s *reader) ownScale() int64 { return cmp.Or(s.keyScale, s.duration.Milliseconds()) }

// preparer completes params. It reports false for a burst that never fills.
type preparer interface{ Prepare(p params) (params, bool) }

// Limiter returns the Limiter in which the Strategy counts.
func (s *reader) Limiter() *Limiter { return s.l }

// numbers returns the limit and the duration that hold for r.
func (s *reader) numbers(r *Request) (limit uint64, d time.Duration) {
	if limit, d = r.Limit, s.duration; d == 0 {
		d = r.Duration
	}
	if s.bound {
		limit = s.limit
	}
	return limit, d
}

// parse returns the params of r. It fails with ErrClosed after Close, and counts errors.
func (s *reader) parse(r *Request) (p params, err error) {
	limit, duration := s.numbers(r)
	p.Scale = int64(uint64(duration) / uint64(msec))
	p.Limit, p.Cost = int64(min(limit, s.most)), int64(min(max(r.Cost, 1), s.most))
	if r.Cost > limit && p.Cost == p.Limit {
		p.Limit-- // both were over most
	}
	switch {
	case uint(len(r.Key)-1) >= maxID, uint64(p.Scale-1) >= maxScale && s.duration == 0,
		time.Duration(p.Scale*msec) != duration:
		return p, s.l.fail(checkRequest(r.Key, duration))
	case s.l.closed.Load():
		return p, s.l.fail(ErrClosed)
	case s.preparer == nil:
		return p, nil
	}
	p, ok := s.preparer.Prepare(p)
	if !ok {
		err = s.l.fail(fmt.Errorf("%w: a burst of %d, one in %v, takes centuries to refill",
			ErrLimit, p.Limit, time.Duration(p.Each)))
	}
	return p, err
}

// checkRequest returns what is wrong with a key and a duration, or nil.
func checkRequest(key string, d time.Duration) error {
	if d%time.Millisecond != 0 {
		return fmt.Errorf("%w: %v is not a whole number of milliseconds", ErrScale, d)
	}
	return checkArgs(key, d.Milliseconds(), 0)
}

func (l *Limiter) result(v verdict) *Result {
	r := new(Result)
	l.setResult(r, v, 0)
	return r
}

// allocated returns what Run or Peek does, given run or look.
func allocated(
	decide func(r *Request, res *Result, at *sight) (time.Duration, error), r *Request,
) (*Result, error) {
	res := new(Result)
	if _, err := decide(r, res, noSight); err != nil {
		return nil, err
	}
	return res, nil
}

// setResult sets r, whatever it was, to a verdict at now, and returns how long it holds. To return
// it by value would cost copies.
func (l *Limiter) setResult(r *Result, v verdict, now int64) (left time.Duration) {
	r.State, r.TotalRequests = Deny, uint64(v.Total)
	if v.Allowed {
		r.State = Allow
	}
	if r.ExpiresAt = (time.Time{}); v.At != noInstant {
		r.ExpiresAt = l.clock.time(v.At)
		left = time.Duration(v.At - now)
	}
	return left
}
