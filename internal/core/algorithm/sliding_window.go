package algorithm

import (
	"math/bits"

	"github.com/weirgo/weir/internal/core/arith"
)

// SlidingWindow counts in windows aligned to the Unix epoch, and adds the window before, weighted
// by how much of it the last period covers: the hits in it are taken to be evenly spread. Its
// instants are whole milliseconds.
//
// State.N is the cost admitted in the current window, Still1 that of the window before, and Still2
// the start of the current window.
type SlidingWindow struct{}

// Decide returns the verdict on p at now, and the state after it. An instant before the current
// window counts as its start.
func (a *SlidingWindow) Decide(s State, p Params, now int64) (Verdict, State) {
	next, end := s, s.Still2+p.Scale*msec
	if now >= end { // also if end overflows
		next = slide(s, p.Scale, now)
		end = arith.Add(next.Still2, p.Scale*msec)
	}
	switch used := estimate(next, p.Scale, now); {
	case p.Cost > p.Limit:
		return Verdict{Total: used, At: Never}, s
	case used > p.Limit-p.Cost:
		return Verdict{Total: used, At: arith.Sub(end, early(next, p.Scale, p.Limit-p.Cost)*msec)}, s
	default:
		next.N += p.Cost
		return Verdict{Allowed: true, Total: used + p.Cost, At: arith.Add(end, p.Scale*msec)}, next
	}
}

// estimate returns the cost counted at now, rounded up: it is never below the weight that it stands
// for.
func estimate(s State, scaleMs, now int64) int64 {
	if s.Still1 <= 0 {
		return s.N
	}
	left := scaleMs - (max(now, s.Still2)-s.Still2)/msec // 0 < left <= scaleMs
	return s.N + mulDiv(uint64(s.Still1), left, scaleMs, scaleMs-1)
}

// slide returns the state in the window that holds now, or in its own if now is before that.
func slide(s State, scaleMs, now int64) State {
	scale := scaleMs * msec
	if now < arith.Add(s.Still2, scale) {
		return s
	}
	_, into := arith.FloorDiv(now, scale)
	next := State{Still2: arith.Sub(now, into)}
	if arith.Sub(next.Still2, scale) == s.Still2 { // the first instant, too, starts a window
		next.Still1 = s.N
	}
	return next
}

// early returns how many milliseconds before the end of the current window at most rest is counted,
// if nothing else is admitted; after its end, if negative. More than rest is counted now.
func early(s State, scaleMs, rest int64) int64 {
	if spare := rest - s.N; spare >= 0 {
		return mulDiv(uint64(spare), scaleMs, s.Still1, 0) // the window before has more
	}
	return mulDiv(uint64(rest), scaleMs, s.N, 0) - scaleMs // the current window will be the one before
}

// More returns when less than total is counted, if nothing else is admitted; Never if it is so at
// the start of the window.
func (a *SlidingWindow) More(s State, scaleMs, total int64) int64 {
	if total > s.N+max(s.Still1, 0) {
		return Never
	}
	return arith.Sub(arith.Add(s.Still2, scaleMs*msec), early(s, scaleMs, total-1)*msec)
}

// Full returns when nothing counts if nothing more is admitted: now, or the end of the window after
// the latest one with a count.
func (a *SlidingWindow) Full(s State, p Params, now int64) int64 {
	switch s = slide(s, p.Scale, now); {
	case s.N > 0:
		return a.Expires(s, p.Scale)
	case s.Still1 > 0:
		return arith.Add(s.Still2, p.Scale*msec)
	}
	return now
}

// mulDiv returns (a*b+add)/c in 128 bits, or the largest int64. b and add are not negative, and c
// is positive.
func mulDiv(a uint64, b, c, add int64) int64 {
	hi, lo := bits.Mul64(a, uint64(b))
	lo, carry := bits.Add64(lo, uint64(add), 0)
	hi += carry
	if hi >= uint64(c) {
		return End
	}
	quo, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(quo, uint64(End)))
}

// Admit counts p.Cost at now, whether it fits or not.
func (a *SlidingWindow) Admit(s State, p Params, now int64) State {
	s = slide(s, p.Scale, now)
	s.N = addCount(s.N, p.Cost)
	return s
}

// Refund takes p.Cost back from the window in which it was admitted, while that counts: its
// admission was to expire at expires.
func (a *SlidingWindow) Refund(s State, p Params, now, expires int64) State {
	s = slide(s, p.Scale, now)
	switch end := arith.Add(s.Still2, p.Scale*msec); expires {
	case arith.Add(end, p.Scale*msec):
		s.N = max(0, s.N-p.Cost)
	case end:
		s.Still1 = max(0, arith.Sub(s.Still1, p.Cost)) // from Never, too
	}
	return s
}

// Raise admits at now what total is more than counted.
func (a *SlidingWindow) Raise(s State, p Params, now, _, total int64) State {
	s = slide(s, p.Scale, now)
	s.N = addCount(s.N, max(0, total-estimate(s, p.Scale, now)))
	return s
}

// Merge returns the state at now, with the counts of other where they are larger. other.Still2 may
// be any instant of its window, as in snapshots of older releases. If other is of a later window,
// and that begins at most ahead after now, the result is in that window: its counts must not be
// lost because the clock is behind.
func (a *SlidingWindow) Merge(s, other State, scaleMs, now, ahead int64) State {
	now = max(now, min(other.Still2, arith.Add(now, ahead)))
	other.Still2 = slide(None, scaleMs, other.Still2).Still2
	s, other = slide(s, scaleMs, now), slide(other, scaleMs, now)
	s.Still1, s.N = max(s.Still1, other.Still1), max(s.N, other.N)
	return s
}

// Expires returns when nothing of what was admitted counts.
func (a *SlidingWindow) Expires(s State, scaleMs int64) int64 {
	return arith.Add(arith.Add(s.Still2, scaleMs*msec), scaleMs*msec)
}
