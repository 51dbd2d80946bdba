package weir

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/states"
)

// Tiers holds several limits at once over one key, all or nothing. Make one with [Limiter.Tiers].
type Tiers struct {
	stateStrategy[*algorithm.Slices]
	resolution time.Duration
}

// Tiers returns a Strategy that admits a request if every tier has room for it, and charges it to
// all of them; a request that one tier denies is charged to none. The request's own Limit and
// Duration are ignored. The Result is that of the tier that binds: of a denial, the one that has
// room last; of an admission, the one with the least room left; among equals, the first given.
// Its Limit is the Result's. After ExpiresAt of an admission longer tiers
// may still count it. A Result does not say which slice it is of: so a plain Refund gives back to
// the newest slice that may have admitted the request, and Seed raises the longest tier. A
// Reservation of package limits knows its slice.
//
// Time is cut into slices as long as the greatest common divisor of the Durations: 1000 in 1 s,
// 5000 in 10 s and 7000 in 15 s are counted by the second. A tier counts the slices of the last
// Duration, the current one included. So at most Limit are admitted in any span that is one slice
// shorter than Duration, and up to twice Limit in a whole one, unless [Tiers.Resolution] makes the
// slices finer. It keeps 16 bytes for each slice of the longest tier that has a hit, within the
// bound of [Limiter.SlidingLog]. Two Tiers of one Limiter count together if they have the same
// Durations and Resolution.
//
// Without tiers, with a Duration that no Request has, or with two of the same, its Limit panics,
// and [NewLimit] and each call fail with [ErrScale].
//
// The scheme is that of per-second counters in Redis, summed with MGET, in one decision, not two.
func (l *Limiter) Tiers(tiers ...Tier) *Tiers {
	if err := checkTiers(tiers); err != nil {
		t := l.Tiers(Tier{Duration: time.Millisecond})
		t.bad = err
		return t
	}
	list := make([]algorithm.Tier, len(tiers))
	for i, tier := range tiers {
		list[i] = algorithm.Tier{Limit: clampCost(tier.Limit), Scale: tier.Duration.Milliseconds()}
	}
	a := algorithm.NewTiers(list)
	sorted := make([]Tier, len(tiers))
	var plan strings.Builder
	for i, given := range a.Given() {
		sorted[i] = tiers[given]
		fmt.Fprint(&plan, list[given].Scale, " ")
	}
	t := &Tiers{stateStrategy: stateStrategy[*algorithm.Slices]{
		reader: reader{l: l, duration: time.Duration(a.Slice()) * time.Millisecond,
			most: math.MaxInt64, preparer: a},
		algorithm: a, table: &l.slices, plan: plan.String(), tiers: sorted,
	}}
	return t.described()
}

// Resolution returns the same tiers with slices of d, and with each tier counting one slice more.
// So at most Limit are admitted in any span of one Duration, and an admission counts for up to d
// longer than Duration. With a tenth of Duration, a caller that is always back at once gets its
// Limit in each 1.1 Durations, and in any span of 1.1 Durations at most twice. The longest tier
// costs up to 16 bytes for each d of it, and a decision is no slower: 5000 in 10 s by the tenth of
// a second takes up to 101 slices in place of 10, 2 KB a caller. Unless d divides t's slices, what
// is made of it fails as bad Tiers do.
func (t *Tiers) Resolution(d time.Duration) *Tiers {
	bad := cmp.Or(t.bad, checkDuration(d))
	if bad == nil && t.duration%d != 0 {
		bad = fmt.Errorf("%w: a resolution of %v does not divide slices of %v", ErrScale, d, t.duration)
	}
	if bad != nil {
		of := *t
		of.bad = bad
		return of.described()
	}
	a, fine := t.algorithm.(*algorithm.Tiers).Cut(d.Milliseconds()), *t
	durations, _, _ := strings.Cut(t.plan, "/")
	fine.preparer, fine.duration = a, d
	fine.algorithm, fine.plan, fine.resolution = a, fmt.Sprint(durations, "/", d.Milliseconds()), d
	return fine.described()
}

func writeTiers(e *encoder, s *algorithm.Slices) {
	e.Int(int64(s.Len()))
	for i := range s.Len() {
		e.Int(s.At(i).Number)
		e.Int(s.At(i).Cost)
	}
}

func readTiers(d *decoder) error {
	id, scale, plan := d.key()
	var tiers []Tier
	durations, _, fine := strings.Cut(plan, "/")
	for ms := range strings.FieldsSeq(durations) {
		n, err := strconv.ParseInt(ms, 10, 64)
		d.Bad = d.Bad || err != nil || n > maxScale
		tiers = append(tiers, Tier{Duration: time.Duration(n) * time.Millisecond})
	}
	t := d.l.Tiers(tiers...)
	if fine {
		t = t.Resolution(time.Duration(scale) * time.Millisecond)
	}
	d.Bad = d.Bad || t.bad != nil || t.plan != plan || t.duration != time.Duration(scale*msec)
	if d.Bad {
		return nil
	}
	var counts []algorithm.Slice
	total, last := int64(0), int64(math.MinInt64)
	for n := d.Int(0, math.MaxInt64); n > 0 && !d.Bad; n-- {
		last = d.Int(last, math.MaxInt64)
		counts = append(counts, algorithm.Slice{Number: last, Cost: d.Int(0, math.MaxInt64-total)})
		total += counts[len(counts)-1].Cost
	}
	s := new(algorithm.Slices)
	t.algorithm.(*algorithm.Tiers).Restore(s, counts)
	return restoreState(d, &t.stateStrategy, states.Key{ID: id, Scale: scale, Plan: plan}, s)
}

// described sets what t is.
func (t *Tiers) described() *Tiers {
	a := t.algorithm.(*algorithm.Tiers)
	t.left = func(s *algorithm.Slices, p params, now int64, admitted bool) (left int64, unsaid bool) {
		if !admitted && p.Cost > 1 { // else nothing is left
			left = a.Left(s, now)
		}
		return left, !admitted // by the tier that binds: another one may have less left
	}
	t.describe(t, About{
		Name: "tiers", Tiers: t.tiers, Longest: t.tiers[len(t.tiers)-1].Duration + t.resolution,
	})
	return t
}

// Limit returns the limit by t.
func (t *Tiers) Limit() *Limit { return mustLimit(t, 0, 0) }

func (t *Tiers) check(m *Limit) error {
	m.n, m.d = 0, 0
	return t.bad
}

func (t *Tiers) bind(m *Limit) (Counter, error) {
	of, limits := *t, make([]uint64, len(t.tiers))
	for i, tier := range t.tiers {
		limits[i] = tier.Limit
	}
	err := of.bindTo(m, limits...)
	return of.described(), err
}
