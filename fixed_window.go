package weir

import (
	"context"
	"time"
)

// FixedWindow is CheckRate as a [Strategy], with its counts. Make one with [Limiter.FixedWindow].
//
// In a window aligned to the Unix epoch exactly Limit is admitted; in a span of one Duration that
// lies across two windows up to twice that. A decision on a key that has a bucket takes no lock.
//
// Each window needs a new bucket. So while made-up keys fill the table, known ones get [ErrFull]
// too from the next window on. The other strategies keep a caller's bucket until its count has
// expired.
type FixedWindow struct {
	slotStrategy
	allAtOnce
}

// FixedWindow returns the fixed window counter as a Strategy. It is the cheapest of them.
func (l *Limiter) FixedWindow() *FixedWindow {
	return &FixedWindow{slotStrategy: l.onSlots(fixedKind)}
}

// Run implements [Strategy]. It fails as [Limiter.CheckRate] does.
func (f *FixedWindow) Run(_ context.Context, r *Request) (*Result, error) {
	return allocated(f.run, r)
}

// Decide is Run without the allocation of a Result.
func (f *FixedWindow) Decide(_ context.Context, r *Request) (res Result, err error) {
	_, err = f.run(r, &res, sight{})
	return
}

func (f *FixedWindow) run(r *Request, res *Result, at sight) (left time.Duration, err error) {
	p, err := f.parse(r)
	if err != nil {
		return 0, err
	}
	if at.slot != nil && f.l.hit(at.slot, at.state, p.Cost, p.Limit, at.w.stamp(at.now), at.w, res) {
		return time.Duration(at.w.end - at.now), nil
	}
	return f.l.count(r.Key, p.Scale, p.Limit, p.Cost, res)
}

// Lapse implements near.Lapser: all that was admitted in a window can be used until it ends.
func (*FixedWindow) Lapse(
	_ *Request, expires time.Time,
) (until time.Time, each time.Duration, ok bool) {
	return expires, 0, true
}

// Algorithm implements [Named].
func (f *FixedWindow) Algorithm() string { return "fixed window" }

func (f *FixedWindow) itself() Strategy { return f }
