package weir

import (
	"context"
	"fmt"
	"math"
)

// FixedWindow is the [Limiter] as a [Strategy]: the counter of CheckRate, which it shares. Make one with
// [Limiter.FixedWindow].
//
// In a window aligned to the epoch exactly Limit is admitted; in a span of one Duration that lies across two windows up
// to twice that. A decision takes one compare-and-swap.
type FixedWindow struct{ l *Limiter }

// FixedWindow returns the fixed window counter as a Strategy. It is the cheapest, and remembers nothing across windows.
func (l *Limiter) FixedWindow() *FixedWindow { return &FixedWindow{l} }

// Run implements [Strategy]. Its errors are those of [Limiter.CheckRate].
func (f *FixedWindow) Run(ctx context.Context, r *Request) (*Result, error) {
	res, err := f.Decide(ctx, r)
	if err != nil {
		return nil, err
	}
	return &res, nil
}

// Decide is Run without the allocation of a Result.
func (f *FixedWindow) Decide(_ context.Context, r *Request) (Result, error) {
	var d demand
	if err := d.read(r); err != nil {
		return Result{}, f.l.fail(err)
	}
	state, total, w, err := f.l.count(d.id, d.scale, d.limit, d.cost)
	return Result{state, total, w.expires}, err
}

// Peek implements [Peeker].
func (f *FixedWindow) Peek(_ context.Context, r *Request) (*Result, error) {
	d, w, e, err := f.find(r)
	if err != nil {
		return nil, err
	}
	var total int64
	if e != nil {
		total = max(0, e.state.count.Load())
	}
	return d.verdict(total, w), nil
}

// verdict is the Result that d would get where total is counted.
func (d *demand) verdict(total int64, w *window) *Result {
	switch {
	case d.never():
		return &Result{State: Deny, TotalRequests: uint64(total)}
	case total > d.limit-d.cost:
		return &Result{Deny, uint64(total), w.expires}
	}
	return &Result{Allow, uint64(total + d.cost), w.expires}
}

// find returns the bucket of r in the window that is now, or nil.
func (f *FixedWindow) find(r *Request) (d demand, w *window, e *entry[bucket], err error) {
	l := f.l
	if err = l.sound(&d, r); err != nil {
		return d, nil, nil, err
	}
	w = l.window(l.clock.read(), d.scale)
	return d, w, l.buckets.find(l.buckets.place(d.id, w.salt), d.id, w.period), nil
}

// Refund implements [Refunder].
func (f *FixedWindow) Refund(_ context.Context, r *Request, taken *Result) error {
	d, w, e, err := f.find(r)
	if err != nil || e == nil || !taken.Allowed() || !taken.ExpiresAt.Equal(w.expires) {
		return err
	}
	f.l.surplus.Add(-e.state.refund(d.cost))
	return nil
}

// Reset implements [Resetter]: it is [Limiter.Reset] of r.Key and r.Duration.
func (f *FixedWindow) Reset(_ context.Context, r *Request) error {
	var d demand
	err := f.l.sound(&d, r)
	if err != nil {
		return err
	}
	return f.l.Reset(d.id, d.scale)
}

// Seed implements [Seeder].
func (f *FixedWindow) Seed(_ context.Context, r *Request, counted *Result) error {
	var d demand
	err := f.l.sound(&d, r)
	if err != nil || !f.l.clock.ahead(counted.ExpiresAt) {
		return err
	}
	to := int64(min(counted.TotalRequests, math.MaxInt64))
	return f.l.adjust(d.id, d.scale, func(b *bucket, stamp uint32) (int64, bool) { return b.raise(to, stamp) })
}

// Charge implements [Charger].
func (f *FixedWindow) Charge(_ context.Context, r *Request) error {
	var d demand
	err := f.l.sound(&d, r)
	if err != nil {
		return err
	}
	return f.l.adjust(d.id, d.scale, func(b *bucket, stamp uint32) (int64, bool) { return b.add(d.cost, stamp) })
}

// Verdict is raterlimiter's answer: {ok, continue} or {fail, Limit}.
type Verdict struct {
	OK    bool
	Limit int64 // of the call that failed; 0 if OK
}

// String returns the Erlang term.
func (v Verdict) String() string {
	if v.OK {
		return "{ok, continue}"
	}
	return fmt.Sprintf("{fail, %d}", v.Limit)
}

// Verdict is [Limiter.CheckRate] with raterlimiter's answer: check_rate(Id, Scale, Limit). Call for call it is the
// verdict of the original for any trace in which an id's limit stays the same inside a window, but for these
// differences, which are deliberate:
//
//   - limit 0: the original lets the first hit of a window through; here nothing passes.
//   - scale 0: the original crashes; here it is [ErrScale], as is a negative one.
//   - the scale is part of the key: in the original 3,600,000 ms and 3,600,001 ms share a counter in the windows that
//     have the same number; here each scale counts by itself.
//   - sweeping: the original forgets by idle time alone, so a timeout shorter than the scale forgets a live count;
//     here a bucket outlives its window.
//   - rounding of the clock: the original rounds microseconds to the nearest millisecond, and so opens a window up to
//     half a millisecond early; here the clock is rounded down.
//
// Where a limit changes inside a window the two differ: the original counts denied hits too.
func (l *Limiter) Verdict(id string, scaleMs, limit int64) (Verdict, error) {
	r, err := l.CheckRate(id, scaleMs, limit)
	if err != nil || r.Allowed() {
		return Verdict{OK: err == nil}, err
	}
	return Verdict{Limit: limit}, nil
}
