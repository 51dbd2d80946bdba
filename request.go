package weir

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

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

// reader reads the requests of a strategy.
type reader struct {
	l        *Limiter
	about    About
	duration time.Duration // in place of a request's; 0: none. That of a series is over maxScale
	most     uint64        // larger Limits and Costs count as that; at most math.MaxInt64
	preparer preparer      // nil: the params are complete
	bad      error         // of a strategy with a preparer: what no request can mend

	// set by bind, for a Limit
	bound     bool
	limit     uint64 // in place of a request's
	series    int64  // the number of the counts; 0: they are those of the strategy itself
	keyScale  int64  // in place of the duration, in keys; 0: there is none
	numbersOf Tier   // of the Limit
	one       params // of a hit, of a bound strategy
}

// params returns those of a hit of a bound strategy.
func (s *reader) params() params {
	p := params{Scale: s.duration.Milliseconds(), Limit: int64(min(s.limit, s.most)), Cost: 1}
	p, _ = s.prepare(p) // check has found it right
	return p
}

// prepare completes p.
func (s *reader) prepare(p params) (params, error) {
	switch {
	case s.preparer == nil:
		return p, nil
	case s.bad != nil:
		return p, s.bad
	}
	p, ok := s.preparer.Prepare(p)
	if !ok {
		return p, fmt.Errorf("%w: a burst of %d, one in %v, takes centuries to refill",
			ErrLimit, p.Limit, time.Duration(p.Each))
	}
	return p, nil
}

// ownScale returns the scale in the keys of a strategy that has one of its own, or 0.
func (s *reader) ownScale() int64 { return cmp.Or(s.keyScale, s.duration.Milliseconds()) }

// preparer completes params. It reports false for a burst that never fills.
type preparer interface{ Prepare(p params) (params, bool) }

// describe sets what c is, which reads its requests by s.
func (s *reader) describe(c Counter, a About) {
	a.Of, a.Limiter, a.stats, a.Bound = c, s.l, s.l, s.bound || a.Tiers != nil
	a.Verbs |= VerbsOf(OpTake, OpPeek, OpReturn, OpCharge, OpReset, OpResetPrefix, OpCatchUp)
	if a.Lapses != LapsesAnyhow {
		a.Verbs |= VerbsOf(OpForecast)
	}
	of := counts{of: s.l, series: s.series, bound: a.Bound, algorithm: a.Name}
	if s.bound {
		of.scale = s.ownScale()
		a.Numbers = s.numbersOf
	}
	for _, tier := range a.Tiers {
		of.plan += tier.Duration.String() + " "
	}
	if a.Longest > 0 {
		of.plan += a.Longest.String()
	}
	a.Counts = of
	s.about = a
}

// numbers returns the limit and the duration that hold for r.
func (s *reader) numbers(r *Request) (limit uint64, d time.Duration) {
	limit, d = r.Limit, s.duration
	if d == 0 {
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
	case s.preparer != nil:
		p, err = s.prepare(p)
		if err != nil {
			err = s.l.fail(err)
		}
	}
	return p, err
}

// inputError is an error about bad input, in the words of the call: CheckRate has an ID and a
// scale, other calls have a key and a duration.
type inputError struct {
	text string
	is   error
}

// Error implements error.
func (e *inputError) Error() string { return e.text }

// Unwrap returns ErrID or ErrScale.
func (e *inputError) Unwrap() error { return e.is }

// checkRequest returns what is wrong with a key and a duration, or nil.
func checkRequest(key string, d time.Duration) error {
	switch {
	case key == "":
		return &inputError{"weir: bad key: it is empty, want 1 to 1024 bytes", ErrID}
	case len(key) > maxID:
		return &inputError{fmt.Sprintf("weir: bad key: %d bytes, at most %d", len(key), maxID), ErrID}
	}
	return checkDuration(d)
}

// checkDuration returns what is wrong with a duration, or nil.
func checkDuration(d time.Duration) error {
	switch {
	case d < time.Millisecond || d > maxScale*time.Millisecond:
		return &inputError{fmt.Sprintf("weir: bad duration: %v, want 1ms to 8760h", d), ErrScale}
	case d%time.Millisecond != 0:
		return &inputError{
			fmt.Sprintf("weir: bad duration: %v is not a whole number of milliseconds", d), ErrScale}
	}
	return nil
}

// checkTiers returns what is wrong with tiers, or nil.
func checkTiers(tiers []Tier) error {
	if len(tiers) == 0 {
		return fmt.Errorf("%w: no tiers", ErrScale)
	}
	for i, tier := range tiers {
		if err := checkDuration(tier.Duration); err != nil {
			return err
		}
		for _, other := range tiers[:i] {
			if other.Duration == tier.Duration {
				return fmt.Errorf("%w: two tiers of %v", ErrScale, tier.Duration)
			}
		}
	}
	return nil
}

// JoinKey joins parts into one key, each preceded by its length, so that no two lists of parts give
// the same key: ("a", "b:c") and ("a:b", "c") are two.
func JoinKey(parts ...string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString(strconv.Itoa(len(p)))
		b.WriteByte(':')
		b.WriteString(p)
	}
	return b.String()
}

// prefixReset is a reset of a prefix under way.
type prefixReset struct {
	ctx         context.Context
	prefix      string
	progress    func(seen, reset int)
	seen, reset int
}

// progressEvery is how many states are looked at between two calls of progress.
const progressEvery = 1 << 11

// next reports whether to go on.
func (p *prefixReset) next() bool {
	if p.progress != nil {
		p.progress(p.seen, p.reset)
	}
	return p.ctx.Err() == nil
}
