package weir

import "fmt"

// NewCounterStrategy returns [Limiter.Counter], and NewSortedSetCounterStrategy
// [Limiter.SlidingLog]. Code written for the strategies of these names of a Go limiter over Redis,
// or for redislimit's, gets the same Results in process with one constructor changed. The clock is
// the limiter's: with Config.Now set, an ExpiresAt has its location, and no monotonic reading.
func NewCounterStrategy(l *Limiter) Strategy { return l.Counter() }

// NewSortedSetCounterStrategy returns a rolling window. See [NewCounterStrategy].
func NewSortedSetCounterStrategy(l *Limiter) Strategy { return l.SlidingLog() }

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

// Verdict is [Limiter.CheckRate] with raterlimiter's answer: check_rate(Id, Scale, Limit). Call for
// call the verdict is the original's, but for these differences, which are deliberate:
//
//   - limit 0: the original lets the first hit of a window through; here nothing passes.
//   - scale 0: the original crashes; here it is [ErrScale], as is a negative one.
//   - the scale is part of the key: in the original 3,600,000 ms and 3,600,001 ms share a counter
//     in the windows that have the same number; here each scale counts by itself.
//   - sweeping: the original removes a bucket by idle time alone, so a timeout shorter than the
//     scale removes a live count; here a bucket outlives its window.
//   - rounding of the clock: the original rounds microseconds to the nearest millisecond, and so
//     opens a window up to half a millisecond early; here the clock is rounded down.
//   - a limit that changes inside a window: the original counts denied hits too.
func (l *Limiter) Verdict(id string, scaleMs, limit int64) (Verdict, error) {
	r, err := l.CheckRate(id, scaleMs, limit)
	if err != nil || r.Allowed() {
		return Verdict{OK: err == nil}, err
	}
	return Verdict{Limit: limit}, nil
}
