package weir

import (
	"cmp"
	"fmt"
	"math"
	"time"
)

const maxID = 1024 // bytes

// validArgs reports whether the arguments are valid.
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

// params are the numbers of a valid Request: so few that they are passed in registers.
type params struct {
	scale int64 // ms
	limit int64 // the most that cost may be
	cost  int64 // at least 1
	each  int64 // ns between two hits, where they are spaced
}

// exceedsLimit reports whether the request can never pass.
func (p params) exceedsLimit() bool { return p.cost > p.limit }

// clamp returns p with limit and cost of at most the given. A cost over the limit stays over it.
func (p params) clamp(most int64) params {
	if p.exceedsLimit() {
		p.limit = min(p.limit, most-1)
	}
	p.limit, p.cost = min(p.limit, most), min(p.cost, most)
	return p
}

// clampCost returns n, or the largest int64.
func clampCost(n uint64) int64 { return int64(min(n, math.MaxInt64)) }

// parse reads r, with another duration if period is not 0.
func parse(r *Request, period time.Duration) (p params, err error) {
	duration := cmp.Or(period, r.Duration)
	p = params{
		scale: int64(uint64(duration) / uint64(msec)),
		limit: clampCost(r.Limit),
		cost:  clampCost(max(r.Cost, 1)),
	}
	if r.Cost > r.Limit && p.cost == p.limit {
		p.limit-- // both were clamped
	}
	if time.Duration(p.scale*msec) != duration {
		return p, fmt.Errorf("%w: %v is not a whole number of milliseconds", ErrScale, duration)
	}
	if !validArgs(r.Key, p.scale, 0) {
		return p, checkArgs(r.Key, p.scale, 0)
	}
	return p, nil
}
