package weir

import (
	"context"
	"math"
	"sync/atomic"

	"github.com/weirgo/weir/internal/arith"
)

// FixedWindow is CheckRate as a [Strategy], with its counts. Make one with [Limiter.FixedWindow].
//
// In a window aligned to the Unix epoch exactly Limit is admitted; in a span of one Duration that
// lies across two windows up to twice that. A decision on a key that has a bucket takes no lock.
type FixedWindow struct{ operations[slot] }

// FixedWindow returns the fixed window counter as a Strategy. It is the cheapest of them.
func (l *Limiter) FixedWindow() *FixedWindow {
	return &FixedWindow{operations[slot]{l: l, algorithm: &counters{l}, store: &slotStore{l, fixedKind}}}
}

// count decides by the fixed window, and sets r, which is zero before.
//
// Nearly every call finds its bucket in the window that was current last, and ends here. The others
// begin again in countSlow: in a loop here, each call would first store its variables for a second
// try.
func (l *Limiter) count(id string, scaleMs, limit, cost int64, r *Result) error {
	limit = min(limit, maxCount)
	w := l.windows.last(scaleMs)
	if w.scale != scaleMs || uint(len(id)-1) >= inlineID {
		return l.countSlow(id, scaleMs, limit, cost, 0, noWindow, r)
	}
	k := l.buckets.packShort(id)
	// Read the clock while the words of the slot are on their way.
	s, state, _ := l.buckets.indexes[l.buckets.number(k.hash)].Load().findShort(k, len(id), &w.fixed)
	now := l.clock.read()
	switch {
	case s == nil, now < w.start, now >= w.end, cost > limit, l.closed.Load():
	default:
		if l.hit(s, state, cost, limit, w.stamp(now), w, r) {
			return nil
		}
	}
	return l.countSlow(id, scaleMs, limit, cost, now, w, r)
}

// countSlow is count where no slot was hit at now in the window tried; with noWindow none was, and now
// is not set. That is so for an ID that is new in its window, one over inlineID bytes, a scale whose
// place among the windows another one has, and for errors.
func (l *Limiter) countSlow(id string, scaleMs, limit, cost, now int64, tried *window, r *Result) error {
	if !validArgs(id, scaleMs, limit) {
		return l.fail(checkArgs(id, scaleMs, limit))
	}
	if tried == noWindow {
		now = l.clock.read()
	}
	k := l.buckets.pack(id)
	for at := (reading{now: now, horizon: math.MinInt64}); !l.closed.Load(); at.now = l.clock.read() {
		w := l.window(at.now, scaleMs)
		at.stamp = w.stamp(at.now)
		if w != tried && cost <= limit {
			s, state, _ := l.buckets.indexes[l.buckets.number(k.hash)].Load().find(k, id, &w.fixed)
			if s != nil && l.hit(s, state, cost, limit, at.stamp, w, r) {
				return nil
			}
		}
		if err := l.countLocked(k, id, w, &at, limit, cost, r); err != errEarlier {
			return err
		}
	}
	*r = Result{} // a hit that failed has set it
	return l.fail(ErrClosed)
}

// hit admits cost if the count allows it under limit, and otherwise tallies a denied hit. It sets
// r, and reports false if the slot was released meanwhile. state was read before the key of the
// slot was compared. cost <= limit <= maxCount.
//
// r is stored before the compare-and-swap, which waits for all earlier stores. A caller that copies r
// loads two words at a time, and such a load waits, for 9 ns, while one of them is being stored.
func (l *Limiter) hit(s *slot, state uint64, cost, limit int64, stamp uint64, w *window, r *Result) bool {
	r.ExpiresAt = w.expires
	for {
		total := count(state)
		if total > limit-cost {
			r.State, r.TotalRequests = Deny, uint64(total)
			if !s.deny(state) {
				return false
			}
			break
		}
		r.State, r.TotalRequests = Allow, uint64(total+cost)
		if atomic.CompareAndSwapUint64(&s[stateWord], state, state+uint64(cost)) {
			if cost > 1 {
				l.extraCost.Add(cost - 1)
			}
			break
		}
		old := generation(state)
		if state = s.load(stateWord); generation(state) != old {
			return false
		}
	}
	if used := s.load(usedWord) & countMask; int64(stamp-used) > w.touchEvery {
		s.touch(state, stamp)
	}
	return true
}

// countLocked is count under the shard's mutex: no slot was found without it, or cost > limit.
func (l *Limiter) countLocked(
	k packedID, id string, w *window, at *reading, limit, cost int64, r *Result,
) error {
	*r = Result{}
	c, err := l.buckets.lock(k, id, &w.fixed, at, cost <= limit)
	switch {
	case err == errEarlier:
		return err
	case err != nil:
		return l.fail(err)
	}
	defer c.shard.mu.Unlock()
	if c.slot == nil {
		c.shard.denied++
		return nil
	}
	if c.fresh {
		c.shard.noteEnd(c.n, w.end)
	}
	state := c.slot.load(stateWord)
	if cost > limit {
		c.slot.deny(state)
		c.slot.touch(state, at.stamp)
		r.TotalRequests = uint64(count(state))
		return nil
	}
	l.hit(c.slot, state, cost, limit, at.stamp, w, r)
	return nil
}

// Run implements [Strategy]. It fails as [Limiter.CheckRate] does.
func (f *FixedWindow) Run(_ context.Context, r *Request) (*Result, error) {
	res := new(Result)
	if err := f.decide(r, res); err != nil {
		return nil, err
	}
	return res, nil
}

// Decide is Run without the allocation of a Result.
func (f *FixedWindow) Decide(_ context.Context, r *Request) (res Result, err error) {
	err = f.decide(r, &res)
	return
}

// decide sets res, which is zero before.
func (f *FixedWindow) decide(r *Request, res *Result) error {
	p, err := parse(r, 0)
	if err != nil {
		return f.l.fail(err)
	}
	p = p.clamp(maxCount)
	return f.l.count(r.Key, p.scale, p.limit, p.cost, res)
}

// counters is the arithmetic of a FixedWindow apart from Run: Peek, Refund, Seed and the like hold
// the shard's mutex, but hits do not, so every change is a compare-and-swap.
type counters struct{ l *Limiter }

func (a *counters) prepare(p params) (params, error) { return p.clamp(maxCount), nil }
func (a *counters) advance(*slot, params, int64)     {}

func (a *counters) decide(s *slot, p params, now int64) verdict {
	return p.verdict(count(s.load(stateWord)), a.l.window(now, p.scale).end)
}

func (a *counters) admit(s *slot, _ params, _, cost int64, _ string) {
	a.l.extraCost.Add(s.update(func(have int64) int64 { return arith.Add(have, cost) }))
}

func (a *counters) refund(s *slot, p params, now, expires int64, _ string) {
	if expires == a.l.window(now, p.scale).end {
		a.l.extraCost.Add(s.update(func(have int64) int64 { return have - p.cost }))
	}
}

func (a *counters) raise(s *slot, _ params, _, _, total int64, _ string) {
	a.l.extraCost.Add(s.update(func(have int64) int64 { return max(have, total) }))
}
