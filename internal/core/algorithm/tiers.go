package algorithm

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/weirgo/weir/internal/core/arith"
	"github.com/weirgo/weir/internal/core/bounds"
)

// Tiers is the arithmetic of several limits at once. Time is cut into slices; a tier counts those
// of its period, the current one included.
type Tiers struct {
	// ms: the greatest common divisor of the tiers' periods, unless Cut has made it less
	slice  int64
	bounds []bound // the shortest first
	order  []int   // of bounds: as given
	least  int64   // the lowest limit
	more   int64   // how many slices a tier counts beside those of its period: 1 after Cut
}

// bound is a tier in slices.
type bound struct {
	limit int64
	n     int64 // how many slices it counts
	given int   // its place among the tiers as given
}

// Tier is one limit: at most Limit in Scale milliseconds.
type Tier struct{ Limit, Scale int64 }

// NewTiers returns the arithmetic of tiers with different scales.
func NewTiers(tiers []Tier) *Tiers {
	a := &Tiers{order: make([]int, len(tiers)), least: math.MaxInt64}
	for i, t := range tiers {
		a.slice = arith.GCD(a.slice, t.Scale)
		a.bounds = append(a.bounds, bound{limit: t.Limit, n: t.Scale, given: i})
		a.least = min(a.least, t.Limit)
	}
	slices.SortFunc(a.bounds, func(x, y bound) int { return cmp.Compare(x.n, y.n) })
	for i := range a.bounds {
		a.bounds[i].n /= a.slice
		a.order[a.bounds[i].given] = i
	}
	return a
}

// Cut returns the same tiers with slices of ms, a divisor of a.Slice. Each tier counts one slice
// more than its period has, since a span as long as its period touches so many.
func (a *Tiers) Cut(ms int64) *Tiers {
	cut := *a
	cut.slice, cut.more, cut.bounds = ms, 1, slices.Clone(a.bounds)
	for i := range cut.bounds {
		cut.bounds[i].n = (cut.bounds[i].n-a.more)*a.slice/ms + 1
	}
	return &cut
}

// Plan returns the periods and the slices of the tiers, as a text: tiers with the same plan count
// together.
func (a *Tiers) Plan() string {
	var plan []byte
	for _, b := range a.bounds {
		plan = append(strconv.AppendInt(plan, (b.n-a.more)*a.slice, 10), ' ')
	}
	if a.more > 0 {
		plan = strconv.AppendInt(append(plan, '/'), a.slice, 10)
	}
	return string(plan)
}

// PlannedTiers returns the tiers of a plan, without their limits. It reports false if there can be
// none.
func PlannedTiers(plan string) (a *Tiers, ok bool) {
	periods, slice, cut := strings.Cut(plan, "/")
	var tiers []Tier
	for period := range strings.FieldsSeq(periods) {
		ms, _ := strconv.ParseInt(period, 10, 64) // 0 of what is no number
		if ms < 1 || ms > bounds.MaxScale || slices.Contains(tiers, Tier{Scale: ms}) {
			return nil, false
		}
		tiers = append(tiers, Tier{Scale: ms})
	}
	a = NewTiers(tiers)
	if cut {
		ms, _ := strconv.ParseInt(slice, 10, 64)
		if ms < 1 || a.slice%ms != 0 {
			return nil, false
		}
		a = a.Cut(ms)
	}
	return a, len(tiers) > 0 && a.Plan() == plan
}

// Slice returns the length of a slice, in milliseconds.
func (a *Tiers) Slice() int64 { return a.slice }

// Slices is one caller's counts.
type Slices struct {
	counts  Ring[Slice] // of the slices that have any, the oldest first
	sums    []sum       // one a tier, the shortest first
	longest int64       // tier, in slices
}

// Slice is the cost admitted in one slice of time: Number slices after the Unix epoch.
type Slice struct{ Number, Cost int64 }

// sum is the running total of one tier: of counts from the first on.
type sum struct {
	first int
	cost  int64
}

const sliceBytes, sumBytes = 16, 16

// Len returns how many slices have a count.
func (s *Slices) Len() int { return s.counts.Len() }

// At returns the i-th oldest of them.
func (s *Slices) At(i int) Slice { return *s.counts.At(i) }

// Restore makes s the same as saved.
func (s *Slices) Restore(saved *Slices) { *s = *saved }

// Used returns the sum of the longest tier.
func (s *Slices) Used() int64 { return s.sums[len(s.sums)-1].cost }

// Latest returns when the newest slice begins.
func (s *Slices) Latest(sliceMs int64) int64 {
	return WindowStart(s.counts.Newest().Number, sliceMs)
}

// Bytes returns how many bytes the counts take beside themselves, and Growth how many more they may
// take with a hit.
func (s *Slices) Bytes() int64 { return int64(s.counts.Cap()*sliceBytes + len(s.sums)*sumBytes) }

// Growth is described at Bytes.
func (s *Slices) Growth(string) int64 {
	return int64(s.counts.Growth()*sliceBytes + len(s.sums)*sumBytes)
}

// Expires returns when nothing counts any more; Never if nothing does.
func (s *Slices) Expires(sliceMs int64) int64 {
	if newest := s.counts.Newest(); newest != nil {
		return WindowStart(newest.Number+s.longest, sliceMs)
	}
	return Never
}

// Prepare sets p.Limit to the lowest limit.
func (a *Tiers) Prepare(p Params) (Params, bool) {
	p.Limit = a.least
	return p, true
}

// current returns the slice that holds now.
func (a *Tiers) current(now int64) int64 {
	current, _ := arith.FloorDiv(now, a.slice*msec)
	return current
}

// sum returns the total of the i-th tier from current on.
func (a *Tiers) sum(s *Slices, i int, current int64) (t sum) {
	if s.sums != nil {
		t = s.sums[i]
	}
	for t.first < s.counts.Len() && s.counts.At(t.first).Number <= current-a.bounds[i].n {
		t.cost -= s.counts.At(t.first).Cost
		t.first++
	}
	return t
}

// Advance drops what no longer counts at now.
func (a *Tiers) Advance(s *Slices, _ Params, now int64) {
	if s.sums == nil {
		s.sums, s.longest = make([]sum, len(a.bounds)), a.bounds[len(a.bounds)-1].n
	}
	for i := range s.sums {
		s.sums[i] = a.sum(s, i, a.current(now))
	}
	unused := s.sums[len(s.sums)-1].first // the longest tier's
	for range unused {
		s.counts.Pop()
	}
	for i := range s.sums {
		s.sums[i].first -= unused
	}
}

// Decide returns the verdict on p at now of the tier that binds: a denial before an admission, of
// denials the one that ends last, of admissions the one with the least left, of equals the first
// given.
func (a *Tiers) Decide(s *Slices, p Params, now int64) (v Verdict) {
	current, highest := a.current(now), int64(math.MinInt64)
	for _, i := range a.order {
		b, t := a.bounds[i], a.sum(s, i, current)
		p.Limit = b.limit
		this := p.Verdict(t.cost, WindowStart(current+b.n, a.slice))
		this.Tier = i
		rank := -1 - arith.Sub(b.limit-p.Cost, t.cost) // of an admission: below 0
		switch {
		case this.At == Never:
			rank = End
		case !this.Allowed:
			rank = a.freeAt(s, t, b, rank+1) - current
			this.At = WindowStart(current+rank, a.slice)
		}
		if rank > highest {
			v, highest = this, rank
		}
	}
	return v
}

// Left returns how much cost is admitted at now: what the tier with the least has left.
func (a *Tiers) Left(s *Slices, now int64) int64 {
	current, least := a.current(now), int64(math.MaxInt64)
	for i, b := range a.bounds {
		least = min(least, max(0, arith.Sub(b.limit, a.sum(s, i, current).cost)))
	}
	return least
}

// Full returns when nothing counts in any tier if nothing more is admitted: now, or when the
// longest tier no longer counts the newest slice with a cost.
func (a *Tiers) Full(s *Slices, _ Params, now int64) int64 {
	for i := s.counts.Len() - 1; i >= 0; i-- {
		if c := s.counts.At(i); c.Cost > 0 { // else it was given back
			return max(WindowStart(c.Number+s.longest, a.slice), now)
		}
	}
	return now
}

// freeAt returns the first slice by whose start at least excess has expired in a tier.
func (a *Tiers) freeAt(s *Slices, t sum, b bound, excess int64) int64 {
	for ; excess > s.counts.At(t.first).Cost; t.first++ {
		excess -= s.counts.At(t.first).Cost
	}
	return s.counts.At(t.first).Number + b.n
}

// Admit counts p.Cost at now in all tiers, whether it fits or not.
func (a *Tiers) Admit(s *Slices, p Params, now int64, _ string) {
	current, cost := a.current(now), p.Cost
	if newest := s.counts.Newest(); newest == nil || newest.Number < current {
		s.counts.Push(Slice{Number: current})
	}
	for _, t := range s.sums {
		cost = min(cost, math.MaxInt64-t.cost) // what is added here is what is subtracted later
	}
	s.counts.Newest().Cost += cost
	for i := range s.sums {
		s.sums[i].cost += cost
	}
}

// Refund gives back to the slice of the admission. If that is not known, it gives back to the
// newest slice with a cost that a tier has end at the instant given.
func (a *Tiers) Refund(s *Slices, p Params, _ int64, t Taken, _ string) {
	end, _ := arith.FloorDiv(t.Expires, a.slice*msec)
	for j := s.counts.Len() - 1; j >= 0; j-- {
		c := s.counts.At(j)
		admitted := c.Number == a.current(t.At)
		if t.At == Never {
			admitted = c.Cost > 0 &&
				slices.ContainsFunc(a.bounds, func(b bound) bool { return c.Number == end-b.n })
		}
		if !admitted {
			continue
		}
		back := min(c.Cost, p.Cost)
		c.Cost -= back
		for i := range s.sums {
			if s.sums[i].first <= j {
				s.sums[i].cost -= back
			}
		}
		return
	}
}

// Raise adds what the longest tier's sum, which is the highest, lacks.
func (a *Tiers) Raise(s *Slices, p Params, now, _, total int64, meta string) {
	p.Cost = total - s.Used()
	if p.Cost > 0 {
		a.Admit(s, p, now, meta)
	}
}
