package weir

import (
	"time"

	"github.com/weirgo/weir/internal/core/ids"
	"github.com/weirgo/weir/internal/core/slots"
	"github.com/weirgo/weir/internal/core/windows"
)

// CheckRate counts a hit of id, if fewer than limit are counted in its window, and reports the
// decision: id may make limit hits in each window of scaleMs milliseconds. Windows are aligned to
// the Unix epoch. With a [time.Duration] d, pass d.Milliseconds(): CheckRate(id,
// time.Minute.Milliseconds(), 100).
//
// CheckRate fails with [ErrID], [ErrScale] or [ErrLimit] for an empty id or one over 1024 bytes, a
// scale that is not from 1 ms to 365 days, or a negative limit; with [ErrFull] if id has no bucket
// in this window and no expired one was found to replace; with [ErrClosed]. An error counts
// nothing. A limit of 0 denies everything and makes no bucket; one over 281,474,976,710,654
// (2^48-2) counts as that. A denied hit takes nothing: TotalRequests stays the same, and
// Bucket.Denied counts the hit. One id counts separately in each scale; the limit may change from
// call to call, and the count stays.
//
// However many calls are concurrent, at most limit hits are admitted in a window, and none is
// denied before. A call on an id that has a bucket costs a clock read, a hash and a
// compare-and-swap, and allocates nothing, as long as no more than some thousand scales are in use;
// the first hit of an id in a window, and every one under a limit of 0, takes the mutex of one
// shard.
//
// The algorithm is the fixed window counter of raterlimiter's check_rate/3 (Erlang, 2012), except
// that the scale is part of the key, denied hits are not counted, and limit 0 denies.
func (l *Limiter) CheckRate(id string, scaleMs, limit int64) (r Result, err error) {
	_, err = l.count(id, scaleMs, limit, 1, &r)
	return
}

// count decides by the fixed window, sets r, and returns the rest of the window.
//
// Nearly every call finds its bucket in the window that was current last, and ends here. The others
// begin again in countSlow: a loop here would have each call store its variables for a second try.
func (l *Limiter) count(
	id string, scaleMs, limit, cost int64, r *Result,
) (left time.Duration, err error) {
	limit = min(limit, maxCount)
	w := l.windows.Latest(scaleMs)
	if w.Scale != scaleMs || uint(len(id)-1) >= ids.Inline {
		return l.countSlow(id, scaleMs, limit, cost, 0, windows.NoWindow, r)
	}
	k := l.buckets.PackShort(id)
	// The search comes before the clock for speed alone, since the window is in the key: the words of
	// the slot are on their way while the clock is read.
	s, state, _ := l.buckets.Index(k.Hash).FindShort(k, len(id), &w.Fixed)
	now := l.clock.Read()
	switch {
	case s == nil, now < w.Start, now >= w.End, cost > limit, l.closed.Load():
	default:
		if l.hit(s, state, cost, limit, w.Stamp(now), w, r) {
			return time.Duration(w.End - now), nil
		}
	}
	return l.countSlow(id, scaleMs, limit, cost, now, w, r)
}

// countSlow is count for a call that did not end in the fast path: one with an ID that is new in
// its window or longer than ids.Inline, with a scale that is not in the first place of the
// window cache, or with an error. tried is the window in which count found no slot at now, or none
// that could decide; windows.NoWindow if count searched none: then now is not set.
func (l *Limiter) countSlow(
	id string, scaleMs, limit, cost, now int64, tried *windows.Window, r *Result,
) (left time.Duration, err error) {
	if tried.Scale <= maxScale { // else it is of a series, whose strategy has parsed the request
		if err = checkArgs(id, scaleMs, limit); err != nil {
			return 0, l.fail(err)
		}
	}
	if tried == windows.NoWindow {
		now = l.clock.Read()
	}
	k := l.buckets.Pack(id)
	for at := slots.NewReading(now); !l.closed.Load(); at.Now = l.clock.Read() {
		w := tried
		if at.Now < w.Start || at.Now >= w.End {
			w = l.windows.Running(at.Now, scaleMs)
		}
		if w != tried && cost <= limit {
			s, state, _ := l.buckets.Find(id, &w.Fixed)
			if s != nil && l.hit(s, state, cost, limit, w.Stamp(at.Now), w, r) {
				return time.Duration(w.End - at.Now), nil
			}
		}
		if err = l.countLocked(k, id, w, &at, limit, cost, r); err != slots.ErrEarlier {
			return time.Duration(w.End - at.Now), err
		}
	}
	*r = Result{} // a hit that failed has set it
	return 0, l.fail(ErrClosed)
}

// hit admits cost if the count allows it under limit, and otherwise tallies a denied hit, and sets
// r. It reports false, and has counted nothing, if the slot was released meanwhile. state was read
// before the key of the slot was compared. cost <= limit <= maxCount.
//
// r is stored before the compare-and-swap, which waits for all earlier stores. A caller that copies
// r loads two words at a time, and such a load waits, for 9 ns, while one of them is being stored.
func (l *Limiter) hit(
	s *slots.Slot, state slots.Word, cost, limit int64, stamp uint64, w *windows.Window, r *Result,
) bool {
	r.ExpiresAt = w.Expires
	for {
		total := state.Count()
		if total > limit-cost {
			r.State, r.TotalRequests = Deny, uint64(total)
			if !s.Deny(state) {
				return false
			}
			break
		}
		r.State, r.TotalRequests = Allow, uint64(total+cost)
		if l.buckets.Admit(s, state, state+slots.Word(cost), 1-cost) {
			break
		}
		epoch := state.Epoch()
		if state = s.State(); state.Epoch() != epoch {
			return false
		}
	}
	if int64(stamp-s.LastUse()) > w.TouchEvery {
		s.Touch(state, stamp)
	}
	return true
}

// countLocked is count under the shard's mutex, for a call that found no slot without it, or whose
// cost is over the limit. It fails with slots.ErrEarlier if the caller is to read the clock and try
// again.
func (l *Limiter) countLocked(
	k ids.Packed, id string, w *windows.Window, at *slots.Reading, limit, cost int64, r *Result,
) error {
	*r = Result{}
	c, err := l.buckets.Lock(k, id, &w.Fixed, at, cost <= limit)
	switch {
	case err == slots.ErrEarlier:
		return err
	case err != nil:
		return l.fail(err)
	}
	defer c.Unlock()
	stamp := w.Stamp(at.Now)
	switch {
	case c.Slot == nil && cost > limit:
		c.Shard.Denied++
	case c.Slot == nil:
		c.Insert(slots.Content{N: cost, Still2: int64(stamp)}) // created, and last used, at stamp
		c.NoteEnd(w.End)
		c.Shard.Moved(cost, 1)
		*r = Result{State: Allow, TotalRequests: uint64(cost), ExpiresAt: w.Expires}
	case cost > limit:
		state := c.Slot.State()
		c.Deny(state)
		c.Touch(state, stamp)
		r.TotalRequests = uint64(state.Count())
	case !l.hit(c.Slot, c.Slot.State(), cost, limit, stamp, w, r):
		return slots.ErrEarlier
	}
	return nil
}
