package fallback

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/arith"
	"github.com/weirgo/weir/internal/core/calendar"
)

// windows are the windows of primary, which begin and end by its clock, and local's by the
// clock here, so that a limit in each of local's windows is none in each of primary's. What local
// counts of a caller is therefore counted here, too, in primary's windows, and a request is
// admitted if there is room in both.
type windows struct {
	algorithm interface {
		Decide(s algorithm.State, p algorithm.Params, now int64) (algorithm.Verdict, algorithm.State)
		Admit(s algorithm.State, p algorithm.Params, now int64) algorithm.State
		Raise(s algorithm.State, p algorithm.Params, now, expires, total int64) algorithm.State
		Full(s algorithm.State, p algorithm.Params, now int64) int64
	}
	sliding bool
	around  func(scaleMs, now int64) (start, end int64) // the window that holds an instant
	own     weir.Tier                                   // the numbers of local, if requests have none

	began time.Time // an instant
	unix  int64     // began, in ns since the Unix epoch

	last atomic.Pointer[phase] // that was learnt last, of any caller
}

// phase is by how many ns the windows of a length begin later than if primary's clock were the one
// here.
type phase struct{ scaleMs, lag int64 }

// windowCount is local's count of one caller, in primary's windows. The zero windowCount is
// none. A windowCount is not safe for concurrent use.
type windowCount struct {
	algorithm.State // by primary's clock; Still2 is the start of the window
	lag             int64
	placed          bool // lag is set
}

// windowsOf returns the windows of primary, or nil if none are known.
func windowsOf(primary, local *weir.About, cfg Config) *windows {
	w := &windows{began: cfg.Now()}
	w.unix = w.began.UnixNano()
	if cfg.OwnLimits {
		all := numbers(local)
		if len(all) != 1 {
			return nil
		}
		w.own = all[0]
	}
	if primary.Window > 0 {
		return w.ofCalendar(primary.Period)
	}
	lapses := primary.Lapses
	if lapses == weir.LapsesAnyhow { // primary is of the same algorithm
		lapses = local.Lapses
	}
	switch lapses {
	case weir.LapsesWithWindow:
		w.algorithm = new(algorithm.FixedWindow)
	case weir.LapsesWithWindows:
		w.sliding, w.algorithm = true, new(algorithm.SlidingWindow)
	default:
		return nil
	}
	w.around = func(scaleMs, now int64) (start, end int64) {
		_, start, end = algorithm.Window(scaleMs, now)
		return start, end
	}
	return w
}

// ofCalendar returns w with the windows of a Calendar, or nil if the rules of its zone are not
// found by the name of its period.
func (w *windows) ofCalendar(period string) *windows {
	of, err := calendar.Parse(period)
	if err != nil {
		return nil
	}
	w.around = func(_, now int64) (start, end int64) {
		s, _ := arith.FloorDiv(now, int64(time.Second))
		start, end = of.Window(s)
		return start * int64(time.Second), end * int64(time.Second)
	}
	w.algorithm = &algorithm.FixedWindow{End: func(scaleMs, now int64) int64 {
		_, end := w.around(scaleMs, now)
		return end
	}}
	return w
}

// at returns an instant as a number. Like local's clock, at does not follow a step of the wall
// clock.
func (w *windows) at(t time.Time) int64 { return arith.Add(w.unix, int64(t.Sub(w.began))) }

// time is the inverse of at, of an instant of primary's clock that lags behind the one here.
func (w *windows) time(at, lag int64) time.Time {
	return w.began.Add(time.Duration(arith.Sub(arith.Add(at, lag), w.unix)))
}

// nearest returns the lag of windows of which one ends at an instant of the clock here.
func (w *windows) nearest(scaleMs, at int64) (lag int64) {
	start, end := w.around(scaleMs, at)
	if at-start <= end-at {
		return at - start
	}
	return at - end
}

// learn records the lag that an answer showed. An answer of longer windows says more.
func (w *windows) learn(scaleMs, lag int64) {
	p := w.last.Load()
	if p == nil || scaleMs > p.scaleMs || w.guess(scaleMs) != lag {
		w.last.Store(&phase{scaleMs, lag})
	}
}

// guess returns the lag of windows of a length, as far as that follows from the last one that was
// learnt.
func (w *windows) guess(scaleMs int64) int64 {
	p := w.last.Load()
	switch {
	case p == nil:
		return 0
	case p.scaleMs == scaleMs:
		return p.lag
	}
	return w.nearest(scaleMs, p.lag)
}

// inWindow is a request for local's share of a limit, at an instant, in primary's window that runs.
// Its account is locked.
type inWindow struct {
	w   *windows     // nil: primary has none
	c   *windowCount // of the caller
	p   algorithm.Params
	now time.Time

	ahead uint64 // the cost of the calls under way that local counts: some may be of a new window
}

// state returns the reading of primary's clock, and the state then.
// The first call places the windows where other callers have theirs.
func (in inWindow) state() (s algorithm.State, now int64) {
	w, c, scaleMs := in.w, in.c, in.p.Scale
	if !c.placed {
		c.State, c.lag, c.placed = algorithm.None, w.guess(scaleMs), true
	}
	s, now = c.State, max(w.at(in.now)-c.lag, c.Still2)
	if start, _ := w.around(scaleMs, now); !w.sliding && start > s.Still2 {
		s = algorithm.State{N: clamp(in.ahead), Still1: algorithm.Never, Still2: start}
	}
	return s, now
}

// clamp returns n, or the largest count.
func clamp(n uint64) int64 { return int64(min(n, algorithm.MaxCount)) }

// decide has local do an OpTake or OpPeek, if there is room in primary's window.
func (in inWindow) decide(ctx context.Context, local weir.Counter, op *weir.Op) error {
	if in.w == nil {
		return by(ctx, local, op)
	}
	cost, takes := costOf(&op.Request), op.Verb == weir.OpTake
	s, reading := in.state()
	verdict, next := in.w.algorithm.Decide(s, in.p, reading)
	if !verdict.Allowed {
		op.Verb = weir.OpPeek
	}
	err, res := by(ctx, local, op), &op.Result
	switch {
	case !verdict.Allowed && supported(err) == nil:
		if err != nil {
			res = nil
		}
		op.Result = in.deny(verdict, res, cost)
	case err != nil:
		return err
	case !res.Allowed():
		res.TotalRequests = max(res.TotalRequests, uint64(verdict.Total)-cost)
	default:
		if takes {
			s = next
			in.c.State = next
		}
		res.TotalRequests = max(res.TotalRequests, uint64(verdict.Total))
	}
	if !op.FullAt.IsZero() {
		full := in.w.time(in.w.algorithm.Full(s, in.p, reading), in.c.lag)
		op.FullAt = later(op.FullAt, full)
	}
	return nil
}

// deny returns a denial for want of room in primary's window. Local has peeked, of a cost: its
// Result is here, or nil.
func (in inWindow) deny(d algorithm.Verdict, here *weir.Result, cost uint64) weir.Result {
	res := weir.Result{TotalRequests: uint64(d.Total)}
	if d.At != algorithm.Never {
		res.ExpiresAt = in.w.time(d.At, in.c.lag)
	}
	switch {
	case here == nil:
	case here.Allowed():
		res.TotalRequests = max(res.TotalRequests, here.TotalRequests-min(here.TotalRequests, cost))
	case here.ExpiresAt.IsZero(), res.ExpiresAt.IsZero():
		res.ExpiresAt = time.Time{}
	default:
		res.ExpiresAt = later(res.ExpiresAt, here.ExpiresAt)
	}
	return res
}

// admit counts the cost, with room or without.
func (in inWindow) admit() {
	if in.w != nil {
		s, reading := in.state()
		in.c.State = in.w.algorithm.Admit(s, in.p, reading)
	}
}

// takeBack takes the cost back, of the window that began at an instant, if that still runs; Never
// stands for any window that counts.
func (in inWindow) takeBack(began int64) {
	if in.w == nil {
		return
	}
	n := in.p.Cost
	in.p.Cost = 0
	in.admit() // nothing, in the window of now
	s := in.c.State
	switch {
	case began == algorithm.Never: // the window before, which counts less
		before := max(0, min(s.Still1, n))
		s.Still1, n = s.Still1-before, n-before
	case s.Still2 != began:
		n = 0
	}
	s.N -= min(s.N, n)
	in.c.State = s
}

// end returns when nothing counts any more of the window, in which something was admitted.
func (in inWindow) end() time.Time {
	_, end := in.w.around(in.p.Scale, in.c.Still2)
	if in.w.sliding {
		end += in.p.Scale * int64(time.Millisecond)
	}
	return in.w.time(end, in.c.lag)
}

// follow has the count come up to the cost, as after res, an answer of primary. If its
// windows begin at other times than before, as after its clock was set, the cost counts in the one
// of the answer, and the debts besides.
func (in inWindow) follow(res *weir.Result, owed uint64) {
	if in.w == nil || res.ExpiresAt.IsZero() {
		return
	}
	w, c, scale, ends, total := in.w, in.c, in.p.Scale, res.ExpiresAt, in.p.Cost
	if w.sliding {
		ends = ends.Add(-time.Duration(scale) * time.Millisecond)
	}
	s, reading := in.state()
	if !w.sliding || res.Allowed() { // else this is no end of a window
		if !ends.After(in.now) {
			return
		}
		at := w.at(ends)
		lag := w.nearest(scale, at)
		w.learn(scale, lag)
		of, _ := w.around(scale, at-lag-1)
		if runs, _ := w.around(scale, reading); runs != of {
			s = algorithm.State{N: clamp(owed), Still1: algorithm.Never, Still2: of}
			total = clamp(plus(uint64(total), owed))
		}
		c.lag, reading = lag, max(w.at(in.now)-lag, s.Still2)
	}
	c.State = w.algorithm.Raise(s, in.p, reading, 0, total)
}
