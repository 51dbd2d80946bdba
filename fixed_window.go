package weir

import (
	"context"
	"math"
	"sync/atomic"
)

// FixedWindow is the [Limiter] as a [Strategy]: the counter of CheckRate, which it shares. Make one with
// [Limiter.FixedWindow].
//
// In a window aligned to the Unix epoch exactly Limit is admitted; in a span of one Duration that lies across two windows
// up to twice that. A decision on a known key takes one compare-and-swap and no lock.
type FixedWindow struct{ l *Limiter }

// FixedWindow returns the fixed window counter as a Strategy. It is the cheapest, and remembers nothing across windows.
func (l *Limiter) FixedWindow() *FixedWindow { return &FixedWindow{l} }

// count decides by the fixed window. It returns the parts of a Result, which CheckRate, being inlined, puts together
// where they are used: a struct of five words is returned through memory, at 8 ns of 61.
func (l *Limiter) count(id string, scaleMs, limit, cost int64) (State, uint64, *window, error) {
	if !validArgs(id, scaleMs, limit) {
		return Deny, 0, noWindow, l.fail(checkArgs(id, scaleMs, limit))
	}
	hash := l.buckets.hash(id)
	for at := (reading{horizon: math.MinInt64}); !l.closed.Load(); {
		// Look the slot up in the window that was current last, and read the clock while its words are on their way.
		w := l.windows.last(scaleMs)
		s, state := l.buckets.find(hash, id, &w.fixed)
		at.now = l.clock.read()
		if w.scale != scaleMs || at.now < w.start || at.now >= w.end {
			w = l.window(at.now, scaleMs)
			s, state = l.buckets.find(hash, id, &w.fixed)
		}
		at.stamp = w.stamp(at.now)
		if s != nil && cost <= limit {
			if v, total := s.hit(state, cost, limit, at.stamp, w); v != undecided {
				if cost > 1 && v == Allow {
					l.extraCost.Add(cost - 1)
				}
				return v, uint64(total), w, nil
			}
		}
		v, total, err := l.countLocked(hash, id, w, &at, limit, cost)
		switch {
		case err == errEarlier:
			continue
		case err != nil:
			return Deny, 0, noWindow, l.fail(err)
		case cost > limit:
			return Deny, uint64(total), noWindow, nil
		}
		return v, uint64(total), w, nil
	}
	return Deny, 0, noWindow, l.fail(ErrClosed)
}

// undecided is the verdict on a slot that was released meanwhile.
const undecided State = -1

// hit admits cost if the count allows it under limit, and otherwise tallies a denied hit. It returns the verdict and the
// count. state was read before the key of the slot was compared. cost <= limit <= maxCount.
func (s *slot) hit(state uint64, cost, limit int64, stamp uint64, w *window) (v State, total int64) {
	for live := generation(state); ; {
		total = count(state)
		if total <= limit-cost {
			if atomic.CompareAndSwapUint64(&s[stateWord], state, state+uint64(cost)) {
				v, total = Allow, total+cost
				break
			}
			if state = s.load(stateWord); generation(state) != live {
				return undecided, 0
			}
			continue
		}
		if !s.deny(state) {
			return undecided, 0
		}
		v = Deny
		break
	}
	if used := s.load(usedWord) & countMask; int64(stamp-used) > w.touchEvery {
		s.touch(state, stamp)
	}
	return v, total
}

// countLocked is count where no slot was found without the mutex, or where cost can never pass.
func (l *Limiter) countLocked(hash uint64, id string, w *window, at *reading, limit, cost int64) (State, int64, error) {
	c, err := l.buckets.lock(hash, id, &w.fixed, at, cost <= limit)
	if err != nil {
		return Deny, 0, err
	}
	defer c.unlock()
	if c.slot == nil {
		c.tally(Deny)
		return Deny, 0, nil
	}
	if c.fresh {
		c.noteEnd(w.end)
	}
	state := c.slot.load(stateWord)
	if cost > limit {
		c.slot.deny(state)
		c.slot.touch(state, at.stamp)
		return Deny, count(state), nil
	}
	v, total := c.slot.hit(state, cost, limit, at.stamp, w)
	if cost > 1 && v == Allow {
		l.extraCost.Add(cost - 1)
	}
	return v, total, nil
}

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
	var p params
	if err := p.parse(r); err != nil {
		return Result{}, f.l.fail(err)
	}
	v, total, w, err := f.l.count(p.id, p.scale, min(p.limit, maxCount), min(p.cost, maxCount))
	return Result{v, total, w.expires}, err
}

// lockNow returns the cell of p in the window that is now. It fails as Inspect does.
func (l *Limiter) lockNow(p params, create bool) (cell, *window, error) {
	err := checkArgs(p.id, p.scale, 0)
	if err == nil && l.closed.Load() {
		err = ErrClosed
	}
	for at := (reading{horizon: math.MinInt64}); err == nil || err == errEarlier; {
		at.now = l.clock.read()
		w := l.window(at.now, p.scale)
		at.stamp = w.stamp(at.now)
		var c cell
		if c, err = l.buckets.lock(l.buckets.hash(p.id), p.id, &w.fixed, &at, create); err == nil {
			if c.fresh {
				c.noteEnd(w.end)
			}
			return c, w, nil
		}
	}
	return cell{}, noWindow, l.fail(err)
}

// Peek implements [Peeker].
func (f *FixedWindow) Peek(_ context.Context, r *Request) (*Result, error) {
	p, c, w, err := f.lock(r, false)
	if err != nil {
		return nil, err
	}
	defer c.unlock()
	var total int64
	if c.slot != nil {
		total = count(c.slot.load(stateWord))
	}
	switch {
	case p.exceedsLimit():
		return &Result{State: Deny, TotalRequests: uint64(total)}, nil
	case total > p.limit-p.cost:
		return &Result{Deny, uint64(total), w.expires}, nil
	}
	return &Result{Allow, uint64(total + p.cost), w.expires}, nil
}

// lock returns the cell of r in the window that is now.
func (f *FixedWindow) lock(r *Request, create bool) (p params, c cell, w *window, err error) {
	if err = p.parse(r); err != nil {
		return p, c, nil, f.l.fail(err)
	}
	p.limit, p.cost = min(p.limit, maxCount), min(p.cost, maxCount)
	c, w, err = f.l.lockNow(p, create)
	return p, c, w, err
}

// Refund implements [Refunder].
func (f *FixedWindow) Refund(_ context.Context, r *Request, taken *Result) error {
	p, c, w, err := f.lock(r, false)
	if err != nil {
		return err
	}
	defer c.unlock()
	if c.slot != nil && taken.Allowed() && taken.ExpiresAt.Equal(w.expires) {
		f.l.extraCost.Add(c.slot.update(func(n int64) int64 { return n - p.cost }))
	}
	return nil
}

// Reset implements [Resetter]: it is [Limiter.Reset] of r.Key and r.Duration.
func (f *FixedWindow) Reset(_ context.Context, r *Request) error {
	var p params
	if err := p.parse(r); err != nil {
		return f.l.fail(err)
	}
	return f.l.Reset(p.id, p.scale)
}

// Seed implements [Seeder].
func (f *FixedWindow) Seed(_ context.Context, r *Request, counted *Result) error {
	expires := f.l.clock.instantOf(counted.ExpiresAt)
	ahead := expires > f.l.clock.read()
	_, c, w, err := f.lock(r, ahead)
	if err != nil {
		return err
	}
	defer c.unlock()
	if ahead && c.slot != nil && expires > w.start { // the period may have ended since the clock was read
		f.l.extraCost.Add(c.slot.update(func(n int64) int64 { return max(n, clampCost(counted.TotalRequests)) }))
	}
	return nil
}

// Charge implements [Charger].
func (f *FixedWindow) Charge(_ context.Context, r *Request) error {
	p, c, _, err := f.lock(r, true)
	if err != nil {
		return err
	}
	defer c.unlock()
	f.l.extraCost.Add(c.slot.update(func(n int64) int64 { return addSat(n, p.cost) }))
	return nil
}
