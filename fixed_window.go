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
// lies across two windows up to twice that. A decision on a key that has a bucket takes a
// compare-and-swap, or two, and no lock.
type FixedWindow struct{ operations[slot] }

// FixedWindow returns the fixed window counter as a Strategy. It is the cheapest of them.
func (l *Limiter) FixedWindow() *FixedWindow {
	return &FixedWindow{operations[slot]{l: l, algorithm: &counters{l}, store: &slotStore{l, fixedKind}}}
}

// count decides by the fixed window. It returns the parts of a Result, which CheckRate, inlined,
// assembles in its caller: a struct of five words is returned through memory, at 8 ns of 61.
func (l *Limiter) count(id string, scaleMs, limit, cost int64) (State, uint64, *window, error) {
	if !validArgs(id, scaleMs, limit) {
		return Deny, 0, noWindow, l.fail(checkArgs(id, scaleMs, limit))
	}
	limit = min(limit, maxCount)
	k := l.buckets.pack(id)
	index := &l.buckets.indexes[k.hash>>l.buckets.shift]
	for at := (reading{horizon: math.MinInt64}); !l.closed.Load(); {
		// Look in the window that was current last, and read the clock while its words are on their way.
		w := l.windows.last(scaleMs)
		s, state, _ := index.Load().find(k, id, &w.fixed)
		at.now = l.clock.read()
		if w.scale != scaleMs || at.now < w.start || at.now >= w.end {
			w = l.window(at.now, scaleMs)
			s, state, _ = index.Load().find(k, id, &w.fixed)
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
		v, total, err := l.countLocked(k, id, w, &at, limit, cost)
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

// hit admits cost if the count allows it under limit, and otherwise tallies a denied hit. It
// returns the verdict and the count. state was read before the key of the slot was compared. cost
// <= limit <= maxCount.
func (s *slot) hit(state uint64, cost, limit int64, stamp uint64, w *window) (v State, total int64) {
	for old := generation(state); ; {
		total = count(state)
		if total <= limit-cost {
			if atomic.CompareAndSwapUint64(&s[stateWord], state, state+uint64(cost)) {
				v, total = Allow, total+cost
				break
			}
			if state = s.load(stateWord); generation(state) != old {
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

// countLocked is count under the shard's mutex: no slot was found without it, or cost > limit.
func (l *Limiter) countLocked(
	k packedID, id string, w *window, at *reading, limit, cost int64,
) (State, int64, error) {
	c, err := l.buckets.lock(k, id, &w.fixed, at, cost <= limit)
	if err != nil {
		return Deny, 0, err
	}
	defer c.shard.mu.Unlock()
	if c.slot == nil {
		c.shard.denied++
		return Deny, 0, nil
	}
	if c.fresh {
		c.shard.noteEnd(c.n, w.end)
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

// Run implements [Strategy]. It fails as [Limiter.CheckRate] does.
func (f *FixedWindow) Run(ctx context.Context, r *Request) (*Result, error) {
	return allocate(f.Decide(ctx, r))
}

// allocate returns what Run returns for what Decide returns.
func allocate(res Result, err error) (*Result, error) {
	if err != nil {
		return nil, err
	}
	return &res, nil
}

// Decide is Run without the allocation of a Result.
func (f *FixedWindow) Decide(_ context.Context, r *Request) (Result, error) {
	p, err := parse(r, 0)
	if err != nil {
		return Result{}, f.l.fail(err)
	}
	p = p.clamp(maxCount)
	v, total, w, err := f.l.count(r.Key, p.scale, p.limit, p.cost)
	return Result{v, total, w.expires}, err
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
