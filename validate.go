package weir

import (
	"fmt"
	"math"
	"time"

	"github.com/weirgo/weir/internal/algorithm"
)

const maxID = 1024 // bytes

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

// parse reads r, with another Duration if duration is not 0. It fails with ErrClosed after Close,
// and counts errors.
func (l *Limiter) parse(r *Request, duration time.Duration) (p params, err error) {
	if duration == 0 {
		duration = r.Duration
	}
	p.Scale = int64(uint64(duration) / uint64(msec))
	p.Limit, p.Cost = int64(min(r.Limit, math.MaxInt64)), int64(min(max(r.Cost, 1), math.MaxInt64))
	if r.Cost > r.Limit && p.Cost == p.Limit {
		p.Limit-- // both were clamped
	}
	switch {
	case uint(len(r.Key)-1) >= maxID, uint64(p.Scale-1) >= maxScale, time.Duration(p.Scale*msec) != duration:
		return p, l.fail(checkRequest(r.Key, duration))
	case l.closed.Load():
		return p, l.fail(ErrClosed)
	}
	return p, nil
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
	l.setResult(r, v)
	return r
}

// setResult sets r, which is zero before.
func (l *Limiter) setResult(r *Result, v verdict) {
	if v.Allowed {
		r.State = Allow
	}
	r.TotalRequests = uint64(v.Total)
	if v.At != noInstant {
		r.ExpiresAt = l.clock.time(v.At)
	}
}
