package weir

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/arith"
	"github.com/weirgo/weir/internal/ring"
)

// Tier is one of several limits that hold at once: at most Limit in Duration.
type Tier struct {
	Limit    uint64
	Duration time.Duration // a whole number of milliseconds, 1 ms to 365 days
}

// Tiers holds several limits at once over one key, all or nothing. Make one with [Limiter.Tiers].
type Tiers struct {
	locked[sliceCounts]
	tiers []Tier // the shortest first
}

// Tiers returns a Strategy that admits a request if every tier has room for it, and charges it to
// all of them; a request that one tier denies is charged to none. The request's own Limit and
// Duration are ignored. The Result is that of the tier that binds: of a denial, the one that has
// room last; of an admission, the one with the least room left; among equals, the first given.
// RunTier returns it too. After ExpiresAt of an admission longer tiers may still count it. Refund
// gives back to the newest slice that may have admitted the request, and Seed raises the longest
// tier, since a Result does not say which tier it is of.
//
// Time is cut into slices as long as the greatest common divisor of the Durations: 1000 in 1 s,
// 5000 in 10 s and 7000 in 15 s are counted by the second. A tier counts the slices of the last
// Duration, the current one included. So at most Limit are admitted in any span that is one slice
// shorter than Duration, and up to twice Limit in a whole one. It keeps 16 bytes for each slice of
// the longest tier that has a hit, within the bound of [Limiter.SlidingLog]. Two Tiers of one
// Limiter count together if they have the same Durations.
//
// It fails with [ErrScale] for no tier, a Duration that no Request has, or two of the same.
//
// The scheme is that of per-second counters in Redis, summed with MGET, in one decision, not two.
func (l *Limiter) Tiers(tiers ...Tier) (*Tiers, error) {
	if len(tiers) == 0 {
		return nil, fmt.Errorf("%w: no tiers", ErrScale)
	}
	a := &tierSums{least: math.MaxInt64}
	for i, tier := range tiers {
		p, err := parse(&Request{Key: "tier", Duration: tier.Duration}, 0)
		if err != nil {
			return nil, err
		}
		a.slice = arith.GCD(a.slice, p.scale)
		a.bounds = append(a.bounds, bound{limit: clampCost(tier.Limit), n: p.scale, given: i})
		a.least = min(a.least, clampCost(tier.Limit))
	}
	slices.SortFunc(a.bounds, func(x, y bound) int { return cmp.Compare(x.n, y.n) })
	var durations strings.Builder
	for i := range a.bounds {
		if i > 0 && a.bounds[i].n == a.bounds[i-1].n {
			return nil, fmt.Errorf("%w: two tiers of %v", ErrScale, tiers[a.bounds[i].given].Duration)
		}
		fmt.Fprint(&durations, a.bounds[i].n, " ")
	}
	t := &Tiers{newLocked(l, a, &planned[sliceCounts]{l.slices(), durations.String()}), make([]Tier, len(tiers))}
	for i, b := range a.bounds {
		a.bounds[i].n, t.tiers[i] = b.n/a.slice, tiers[b.given]
	}
	t.period = time.Duration(a.slice * msec)
	return t, nil
}

// Longest returns the longest tier's Duration: for so long an admission counts, even if its Result
// is of a shorter one.
func (t *Tiers) Longest() time.Duration { return t.tiers[len(t.tiers)-1].Duration }

func (t *Tiers) plan() string { return t.store.(*planned[sliceCounts]).plan }

// tierSums is the arithmetic of Tiers.
type tierSums struct {
	bounds []bound // the shortest first
	slice  int64   // ms
	least  int64   // the lowest limit
}

// bound is a tier in slices.
type bound struct {
	limit, n int64
	given    int // its place among the tiers as given
}

// sliceCounts is one caller's counts.
type sliceCounts struct {
	counts  ring.Ring[sliceCount] // of the slices that have any, the oldest first
	sums    []sum                 // one a tier, the shortest first
	longest int64                 // slices
}

// sliceCount is the cost admitted in one slice.
type sliceCount struct{ slice, cost int64 }

// sum is the running total of one tier: of counts from the first on.
type sum struct {
	first int
	cost  int64
}

const sliceBytes, sumBytes = 16, 16

func (s *sliceCounts) end(key stateKey) int64 {
	if newest := s.counts.Newest(); newest != nil {
		return windowStart(newest.slice+s.longest, key.scale)
	}
	return math.MinInt64
}

func (s *sliceCounts) size() int64 { return int64(s.counts.Cap()*sliceBytes + len(s.sums)*sumBytes) }

func (s *sliceCounts) growth(string) int64 {
	return int64(s.counts.Growth()*sliceBytes + len(s.sums)*sumBytes)
}

// prepare sets p.limit to the lowest limit.
func (a *tierSums) prepare(p params) (params, error) {
	p.limit = a.least
	return p, nil
}

// current returns the slice that holds now.
func (a *tierSums) current(now int64) int64 {
	current, _ := arith.FloorDiv(now, a.slice*msec)
	return current
}

// sum returns the total of the i-th tier from current on.
func (a *tierSums) sum(s *sliceCounts, i int, current int64) (t sum) {
	if s.sums != nil {
		t = s.sums[i]
	}
	for t.first < s.counts.Len() && s.counts.At(t.first).slice <= current-a.bounds[i].n {
		t.cost -= s.counts.At(t.first).cost
		t.first++
	}
	return t
}

// tierVerdict is what one tier decides. Its at is not set.
type tierVerdict struct {
	verdict
	left  int64 // of the tier's limit; below 0 in a denial
	until int64 // the slice with which a denial ends, or an admission no longer counts; maxInstant: none
}

func (a *tierSums) decide(s *sliceCounts, p params, now int64) verdict {
	current := a.current(now)
	var v tierVerdict
	for i, b := range a.bounds {
		t := a.sum(s, i, current)
		this := tierVerdict{
			verdict: verdict{state: Allow, total: t.cost + p.cost, tier: i},
			left:    arith.Sub(b.limit-p.cost, t.cost),
			until:   current + b.n,
		}
		if this.left < 0 {
			this.state, this.total, this.until = Deny, t.cost, maxInstant
			if p.cost <= b.limit {
				this.until = a.freeAt(s, t, b, -this.left)
			}
		}
		if i == 0 || a.binds(this, v) {
			v = this
		}
	}
	v.at = noInstant
	if v.until < maxInstant {
		v.at = windowStart(v.until, a.slice)
	}
	return v.verdict
}

// binds reports whether a verdict comes before another: a denial before an admission, of denials
// the one that ends last, of admissions the one with less left.
func (a *tierSums) binds(v, other tierVerdict) bool {
	switch {
	case v.state != other.state:
		return v.state == Deny
	case v.state == Deny && v.until != other.until:
		return v.until > other.until
	case v.state == Allow && v.left != other.left:
		return v.left < other.left
	}
	return a.bounds[v.tier].given < a.bounds[other.tier].given
}

// freeAt returns the first slice by whose start at least excess has expired in a tier.
func (a *tierSums) freeAt(s *sliceCounts, t sum, b bound, excess int64) int64 {
	for ; excess > s.counts.At(t.first).cost; t.first++ {
		excess -= s.counts.At(t.first).cost
	}
	return s.counts.At(t.first).slice + b.n
}

func (a *tierSums) admit(s *sliceCounts, _ params, now, cost int64, _ string) {
	current := a.current(now)
	if newest := s.counts.Newest(); newest == nil || newest.slice < current {
		s.counts.Push(sliceCount{slice: current})
	}
	for _, t := range s.sums {
		cost = min(cost, math.MaxInt64-t.cost) // what is added here is what is subtracted later
	}
	s.counts.Newest().cost += cost
	for i := range s.sums {
		s.sums[i].cost += cost
	}
}

// sumUp makes the sums of counts that come to total.
func (a *tierSums) sumUp(s *sliceCounts, total int64) {
	s.sums, s.longest = slices.Repeat([]sum{{cost: total}}, len(a.bounds)), a.bounds[len(a.bounds)-1].n
}

func (a *tierSums) advance(s *sliceCounts, _ params, now int64) {
	if s.sums == nil {
		a.sumUp(s, 0)
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

// refund gives back to the newest slice that a tier has end at expires.
func (a *tierSums) refund(s *sliceCounts, p params, _, expires int64, _ string) {
	end, _ := arith.FloorDiv(expires, a.slice*msec)
	for j := s.counts.Len() - 1; j >= 0; j-- {
		c := s.counts.At(j)
		if !slices.ContainsFunc(a.bounds, func(b bound) bool { return c.slice == end-b.n }) {
			continue
		}
		back := min(c.cost, p.cost)
		c.cost -= back
		for i := range s.sums {
			if s.sums[i].first <= j {
				s.sums[i].cost -= back
			}
		}
		return
	}
}

// raise adds what the longest tier's sum, which is the highest, lacks.
func (a *tierSums) raise(s *sliceCounts, p params, now, _, total int64, meta string) {
	if missing := total - s.sums[len(s.sums)-1].cost; missing > 0 {
		a.admit(s, p, now, missing, meta)
	}
}

// RunTier is Run, and returns the tier that binds too.
func (t *Tiers) RunTier(_ context.Context, r *Request) (*Result, Tier, error) {
	v, err := t.verdict(r)
	if err != nil {
		return nil, Tier{}, err
	}
	return t.l.result(v), t.tiers[v.tier], nil
}
