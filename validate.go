package weir

import (
	"fmt"
	"time"
)

const maxID = 1024 // bytes

// validArgs reports whether checkArgs finds nothing wrong.
func validArgs(id string, scaleMs, limit int64) bool {
	return uint(len(id)-1) < maxID && uint64(scaleMs-1) < maxScale && limit >= 0
}

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

// params is a valid Request.
type params struct {
	id    string
	meta  string
	scale int64 // ms
	limit int64 // the most that cost may be
	cost  int64 // at least 1
	each  int64 // ns between two hits, where they are spaced
	plan  int64 // of Tiers: the number of their list of durations
}

// exceedsLimit reports whether the request can never pass.
func (p *params) exceedsLimit() bool { return p.cost > p.limit }

// parse reads r.
func (p *params) parse(r *Request) error {
	*p = params{
		id:    r.Key,
		meta:  r.Meta,
		scale: int64(uint64(r.Duration) / uint64(msec)),
		limit: clampCost(r.Limit),
		cost:  clampCost(max(r.Cost, 1)),
	}
	if time.Duration(p.scale*msec) != r.Duration {
		return fmt.Errorf("%w: %v is not a whole number of milliseconds", ErrScale, r.Duration)
	}
	if !validArgs(p.id, p.scale, 0) {
		return checkArgs(p.id, p.scale, 0)
	}
	return nil
}

// validate parses r. It fails with ErrClosed after Close.
func (l *Limiter) validate(r *Request) (p params, err error) {
	if err = p.parse(r); err == nil && l.closed.Load() {
		err = ErrClosed
	}
	if err != nil {
		return p, l.fail(err)
	}
	return p, nil
}
