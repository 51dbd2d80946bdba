package weir

import (
	"context"
	"time"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/calendar"
	"github.com/weirgo/weir/internal/core/slots"
	"github.com/weirgo/weir/internal/core/windows"
)

// FixedWindow is CheckRate as a [Strategy], with its counts. Make one with [Limiter.FixedWindow].
//
// In a window aligned to the Unix epoch exactly Limit is admitted; in a span of one Duration that
// lies across two windows up to twice that. A decision on a key that has a bucket takes no lock.
//
// Each window needs a new bucket. So while made-up keys fill the table, known ones get [ErrFull]
// too from the next window on. The other strategies keep a caller's bucket until its count has
// expired.
type FixedWindow struct{ windowStrategy }

// FixedWindow returns the fixed window counter as a Strategy. It is the cheapest of them.
func (l *Limiter) FixedWindow() *FixedWindow {
	return (&FixedWindow{windowStrategy{slotStrategy: l.onSlots(fixedKind)}}).described()
}

// limitedWindows returns the strategy for a limit of n in the windows of a series.
func (l *Limiter) limitedWindows(
	name windows.SeriesName, c *calendar.Calendar, n uint64,
) (s windowStrategy, err error) {
	in, err := l.named(name, c)
	if err != nil {
		return windowStrategy{slotStrategy: l.onSlots(fixedKind)}, err
	}
	s = l.inWindows(in)
	s.bound, s.limit = true, n
	return s, nil
}

// windowStrategy is what [FixedWindow] and [Calendar] have in common.
type windowStrategy struct {
	slotStrategy
	in *windows.Series // nil: the windows are those of the request's Duration
}

// inWindows returns the strategy whose windows, and counts, are those of a series.
func (l *Limiter) inWindows(in *windows.Series) windowStrategy {
	s := windowStrategy{slotStrategy: l.onSlots(fixedKind), in: in}
	s.duration, s.reader.series = time.Duration(in.Scale()*msec), in.Number
	s.algorithm = &algorithm.FixedWindow{End: func(_, now int64) int64 { return in.Window(now).End }}
	return s
}

// Run implements [Strategy]. It fails as [Limiter.CheckRate] does.
func (s *windowStrategy) Run(_ context.Context, r *Request) (*Result, error) {
	res := new(Result)
	if _, err := s.run(r, res, noSight); err != nil {
		return nil, err
	}
	return res, nil
}

// run decides on r at the present, and goes on from where a look has seen that its bucket admits
// it.
func (s *windowStrategy) run(r *Request, res *Result, at *sight) (left time.Duration, err error) {
	if slot := at.Slot; slot != nil {
		at.Slot = nil
		if s.l.hit(slot, at.State, at.Cost, at.Limit, at.Window.Stamp(at.Now), at.Window, res) {
			return time.Duration(at.Window.End - at.Now), nil
		}
	}
	p, err := s.parse(r)
	switch {
	case err != nil:
		return 0, err
	case s.in == nil:
		return s.l.count(r.Key, p.Scale, p.Limit, p.Cost, res)
	}
	w := s.in.Current.Load()
	slot, state, _ := s.table.find(r.Key, &w.Fixed)
	now := s.l.clock.Read()
	if !s.hit(slot, state, w, p, now, res) {
		return s.l.countSlow(r.Key, p.Scale, p.Limit, p.Cost, now, w, res)
	}
	return time.Duration(w.End - now), nil
}

// hit decides p at now on the bucket in a slot of a window, as Limiter.hit does. It reports false
// if there is none, or if the window does not hold now.
func (s *windowStrategy) hit(
	slot *slots.Slot, state slots.Word, w *windows.Window, p params, now int64, res *Result,
) bool {
	return slot != nil && w.Holds(now) && p.Cost <= p.Limit &&
		s.l.hit(slot, state, p.Cost, p.Limit, w.Stamp(now), w, res)
}

// described sets what f is.
func (f *FixedWindow) described() *FixedWindow {
	f.describe(f, About{Name: "fixed window", Lapses: LapsesWithWindow})
	return f
}

// Limit returns the limit of n in each window of d. It panics where [NewLimit] fails.
func (f *FixedWindow) Limit(n uint64, d time.Duration) *Limit { return mustLimit(f, n, d) }

func (f *FixedWindow) bind(m *Limit) (Counter, error) {
	name := m.seriesName()
	name.Length = m.d.Milliseconds()
	s, err := f.l.limitedWindows(name, nil, m.n)
	s.numbersOf = Tier{m.n, m.d}
	return (&FixedWindow{s}).described(), err
}
