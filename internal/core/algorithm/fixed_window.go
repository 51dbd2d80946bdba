package algorithm

import "github.com/weirgo/weir/internal/core/arith"

// FixedWindow counts in windows aligned to the Unix epoch, or in others.
//
// State.N is the cost admitted in the window that holds the instant of the decision: there is a
// state for each window.
type FixedWindow struct {
	// End returns when the window that holds now ends; nil: those aligned to the Unix epoch.
	End func(scaleMs, now int64) int64
}

// Window returns the number of the window that holds now, and when it starts and ends. They
// saturate.
func Window(scaleMs, now int64) (number, start, end int64) {
	number, into := arith.FloorDiv(now, scaleMs*msec)
	return number, arith.Sub(now, into), arith.Add(now, scaleMs*msec-into)
}

// WindowStart returns when window number of a scale begins, which is number scales after the Unix
// epoch. It saturates, at an instant after Never.
func WindowStart(number, scaleMs int64) int64 {
	if number < 0 {
		return -arith.Mul(uint64(-number), scaleMs*msec)
	}
	return arith.Mul(uint64(number), scaleMs*msec)
}

// Ends returns when the window that holds now ends.
func (a *FixedWindow) Ends(scaleMs, now int64) int64 {
	if a.End != nil {
		return a.End(scaleMs, now)
	}
	_, _, end := Window(scaleMs, now)
	return end
}

// Decide returns the verdict on p at now, and the state after it.
func (a *FixedWindow) Decide(s State, p Params, now int64) (Verdict, State) {
	v := p.Verdict(s.N, a.Ends(p.Scale, now))
	if v.Allowed {
		s.N += p.Cost
	}
	return v, s
}

// Full returns when nothing counts if nothing more is admitted: now, or the end of the window.
func (a *FixedWindow) Full(s State, p Params, now int64) int64 {
	if s.N == 0 {
		return now
	}
	return a.Ends(p.Scale, now)
}

// Admit counts p.Cost, whether it fits or not.
func (a *FixedWindow) Admit(s State, p Params, _ int64) State {
	s.N = addCount(s.N, p.Cost)
	return s
}

// Refund takes p.Cost back, if expires is the end of the window that holds now.
func (a *FixedWindow) Refund(s State, p Params, now, expires int64) State {
	if expires == a.Ends(p.Scale, now) {
		s.N = max(0, s.N-p.Cost)
	}
	return s
}

// Raise raises the count to total.
func (a *FixedWindow) Raise(s State, _ Params, _, _, total int64) State {
	s.N = max(s.N, min(total, MaxCount))
	return s
}

// Merge raises the count to that of other.
func (a *FixedWindow) Merge(s, other State, _, _, _ int64) State {
	s.N = max(s.N, other.N)
	return s
}

// Expires returns when the window ends of which Still1 is the start.
func (a *FixedWindow) Expires(s State, scaleMs int64) int64 {
	return arith.Add(s.Still1, scaleMs*msec)
}
