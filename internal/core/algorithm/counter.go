package algorithm

import "github.com/weirgo/weir/internal/core/arith"

// Counter counts in a period that begins with the first hit.
//
// State.N is the cost admitted in the period, and Still1 its start.
type Counter struct{}

// current returns the state of the period that holds now; if it is over, of one that begins now.
func current(s State, scaleMs, now int64) State {
	if now < arith.Add(s.Still1, scaleMs*msec) {
		return s
	}
	return State{Still1: now}
}

// Decide returns the verdict on p at now, and the state after it.
func (a *Counter) Decide(s State, p Params, now int64) (Verdict, State) {
	next, end := s, s.Still1+p.Scale*msec
	if now >= end { // also if end overflows
		next = current(s, p.Scale, now)
		end = arith.Add(next.Still1, p.Scale*msec)
	}
	switch {
	case p.Cost > p.Limit:
		return Verdict{Total: next.N, At: Never}, s
	case next.N > p.Limit-p.Cost:
		return Verdict{Total: next.N, At: end}, s
	}
	next.N += p.Cost
	return Verdict{Allowed: true, Total: next.N, At: end}, next
}

// Full returns when nothing counts if nothing more is admitted: now, or the end of the period.
func (a *Counter) Full(s State, p Params, now int64) int64 {
	if s = current(s, p.Scale, now); s.N == 0 {
		return now
	}
	return a.Expires(s, p.Scale)
}

// Admit counts p.Cost at now, whether it fits or not.
func (a *Counter) Admit(s State, p Params, now int64) State {
	s = current(s, p.Scale, now)
	s.N = addCount(s.N, p.Cost)
	return s
}

// Refund takes p.Cost back, if expires is the end of the period, which does not end sooner for it.
func (a *Counter) Refund(s State, p Params, _, expires int64) State {
	if expires == a.Expires(s, p.Scale) {
		s.N = max(0, s.N-p.Cost)
	}
	return s
}

// Raise raises the count to total. A period that began elsewhere goes on here, and ends at expires
// or, if that is sooner, one period after now.
func (a *Counter) Raise(s State, p Params, now, expires, total int64) State {
	if total > 0 && now >= a.Expires(s, p.Scale) {
		s = State{Still1: min(now, arith.Sub(expires, p.Scale*msec))}
	}
	s.N = max(s.N, min(total, MaxCount))
	return s
}

// Merge raises the count to that of other. A period that goes on elsewhere goes on here, also if
// nothing is counted in it.
func (a *Counter) Merge(s, other State, scaleMs, now, _ int64) State {
	if now >= a.Expires(s, scaleMs) {
		return State{N: other.N, Still1: other.Still1}
	}
	s.N = max(s.N, current(other, scaleMs, now).N)
	return s
}

// Expires returns when the period ends.
func (a *Counter) Expires(s State, scaleMs int64) int64 { return arith.Add(s.Still1, scaleMs*msec) }
