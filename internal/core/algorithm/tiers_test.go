package algorithm

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func tier(n int, v Verdict) Verdict {
	v.Tier = n
	return v
}

// The per-second counters that are summed with MGET in Redis: 1000 in 1 s, 5000 in 10 s, 7000 in 15
// s. A request counts in its second, and a tier adds up the seconds of its period. The tier of 10 s
// is given first, so it binds among equals.
func TestTiersCountBySecond(t *testing.T) {
	a, s := NewTiers([]Tier{{5000, 10_000}, {1000, 1000}, {7000, 15_000}}), new(Slices)
	assert.EqualValues(t, 1000, a.Slice())
	assert.Equal(t, "1000 10000 15000 ", a.Plan(), "the shortest first")
	const sec = time.Second
	p, ok := a.Prepare(Params{Limit: 1})
	assert.True(t, ok)
	play(t, p, []step{
		{"a second's worth", sec / 2, 1000, tier(0, admitted(1000, 1*sec))},
		{"no more in second 0", sec - 1, 1, tier(0, denied(1000, 1*sec))},
		{"second 1", 1 * sec, 1000, tier(0, admitted(1000, 2*sec))},
		{"second 2", 2 * sec, 1000, tier(0, admitted(1000, 3*sec))},
		{"second 3", 3 * sec, 1000, tier(0, admitted(1000, 4*sec))},
		{"second 4: 5000 in 10 s as well", 5*sec - 1, 1000, tier(1, admitted(5000, 14*sec))},
		{"until second 0 is 10 s old", 5 * sec, 1, tier(1, denied(5000, 10*sec))},
		{"more than that second has, until second 1 is", 5 * sec, 1000, tier(1, denied(5000, 10*sec))},
		{"more than 1000 never pass", 5 * sec, 1001, tier(0, deniedForever(0))},
		{"nor 5001, and the tier of 10 s is given first", 5 * sec, 5001, tier(1, deniedForever(5000))},
		{"second 10", 10 * sec, 1000, tier(1, admitted(5000, 20*sec))},
		{"second 11 leaves 2 of 10 s, and 2 of 15 s", 11 * sec, 998, tier(1, admitted(4998, 21*sec))},
		{"15 s have 6998, of which second 0 is the first to go", 12 * sec, 3,
			tier(2, denied(6998, 15*sec))},
		{"two fit", 12 * sec, 2, tier(2, admitted(7000, 27*sec))},
		{"second 0 is 15 s old", 15 * sec, 1000, tier(0, admitted(1000, 16*sec))},
		{"long after", time.Hour, 1, tier(0, admitted(1, time.Hour+sec))},
	}, func(p Params, now int64) Verdict {
		v := a.Decide(s, p, now)
		if a.Advance(s, p, now); v.Allowed {
			a.Admit(s, p, now, "")
		}
		return v
	})
	assert.Equal(t, 1, s.Len())
	assert.Equal(t, Slice{3600, 1}, s.At(0))
}

// tiersModel is Tiers by its definition. hits are slices of time and their cost.
type tiersModel struct {
	tiers []Tier // as given
	slice int64
	hits  []Slice
}

func (m tiersModel) number(now int64) int64 {
	return (now - (now%m.slice+m.slice)%m.slice) / m.slice // rounded down
}

// used returns the cost that a tier counts in slice current.
func (m tiersModel) used(t Tier, current int64) (used int64) {
	for _, h := range m.hits {
		if current*m.slice < h.Number*m.slice+t.Scale*msec {
			used += h.Cost
		}
	}
	return used
}

func (m tiersModel) decide(cost, now int64) Verdict {
	current := m.number(now)
	sorted := slices.Clone(m.tiers)
	slices.SortFunc(sorted, func(x, y Tier) int { return int(x.Scale - y.Scale) })
	var binds Verdict
	least, latest := int64(math.MaxInt64), int64(math.MinInt64)
	denied := false
	for _, t := range m.tiers { // the first of equals binds
		n, used := slices.Index(sorted, t), m.used(t, current)
		switch until := current; {
		case cost > t.Limit:
			if latest < End {
				latest, denied, binds = End, true, Verdict{Total: used, At: Never, Tier: n}
			}
		case used+cost > t.Limit:
			for m.used(t, until)+cost > t.Limit {
				until++
			}
			if until > latest {
				latest, denied, binds = until, true, Verdict{Total: used, At: until * m.slice, Tier: n}
			}
		case !denied && t.Limit-used-cost < least:
			least = t.Limit - used - cost
			binds = Verdict{true, used + cost, current*m.slice + t.Scale*msec, n}
		}
	}
	return binds
}

// add counts cost in the slice that holds now.
func (m *tiersModel) add(cost, now int64) {
	if n := len(m.hits); n > 0 && m.hits[n-1].Number >= m.number(now) {
		m.hits[n-1].Cost += cost
		return
	}
	m.hits = append(m.hits, Slice{m.number(now), cost})
}

func (m *tiersModel) longest() Tier {
	return slices.MaxFunc(m.tiers, func(x, y Tier) int { return int(x.Scale - y.Scale) })
}

// advance drops what no tier counts.
func (m *tiersModel) advance(now int64) {
	m.hits = slices.DeleteFunc(m.hits, func(h Slice) bool {
		return m.number(now)*m.slice >= h.Number*m.slice+m.longest().Scale*msec
	})
}

// refund gives back to one slice.
func (m *tiersModel) refund(cost int64, t Taken) {
	for i := range slices.Backward(m.hits) {
		h := &m.hits[i]
		found := t.At != Never && h.Number == m.number(t.At)
		for _, tier := range m.tiers {
			end := h.Number*m.slice + tier.Scale*msec
			found = found || t.At == Never && h.Cost > 0 && m.number(t.Expires)*m.slice == end
		}
		if found {
			h.Cost -= min(h.Cost, cost)
			return
		}
	}
}

func TestTiersByTheirDefinition(t *testing.T) {
	rnd := rand.New(rand.NewPCG(19, 20))
	for range 300 {
		slice := 1 + rnd.Int64N(4)
		m := tiersModel{slice: slice * msec}
		for _, i := range rnd.Perm(4)[:2+rnd.IntN(2)] {
			prime := []int64{2, 3, 5, 7}[i]
			m.tiers = append(m.tiers, Tier{rnd.Int64N(9), prime * slice})
		}
		a, s := NewTiers(m.tiers), new(Slices)
		require.Equal(t, slice, a.Slice())
		if rnd.IntN(2) == 0 { // finer slices, each divided by 2 at most twice
			for fine := int64(4); fine > 0; fine /= 2 {
				if slice%fine == 0 && rnd.IntN(2) == 0 {
					a = a.Cut(fine)
					slice = fine
				}
			}
			a = a.Cut(slice)
			require.Equal(t, slice, a.Slice())
			m.slice = slice * msec
			for i := range m.tiers {
				m.tiers[i].Scale += slice // each counts one slice more
			}
		}
		now := rnd.Int64N(20*msec) - 10*msec
		for range 50 {
			now += rnd.Int64N(6) * m.slice / 4
			p, _ := a.Prepare(Params{Limit: -1, Cost: 1 + rnd.Int64N(4)})
			for _, tier := range m.tiers {
				require.LessOrEqual(t, p.Limit, tier.Limit)
			}
			require.True(t, slices.ContainsFunc(m.tiers, func(tier Tier) bool {
				return tier.Limit == p.Limit
			}))
			want := m.decide(p.Cost, now)
			require.Equal(t, want, a.Decide(s, p, now), "%v", m)
			if rnd.IntN(3) == 0 {
				continue // Peek
			}
			a.Advance(s, p, now)
			m.advance(now)
			require.Equal(t, want, a.Decide(s, p, now), "%v", m)
			before, growth := s.Bytes(), s.Growth("")
			switch rnd.IntN(5) {
			case 0:
				taken := Taken{Expires: now + rnd.Int64N(8*m.slice), At: Never}
				if rnd.IntN(2) == 0 {
					taken.At = now - rnd.Int64N(8*m.slice)
				}
				a.Refund(s, p, now, taken, "")
				m.refund(p.Cost, taken)
			case 1:
				total := rnd.Int64N(9)
				a.Raise(s, p, now, End, total, "")
				if more := total - m.used(m.longest(), m.number(now)); more > 0 {
					m.add(more, now)
				}
			default:
				if want.Allowed {
					a.Admit(s, p, now, "")
					m.add(p.Cost, now)
				}
			}
			require.LessOrEqual(t, s.Bytes()-before, growth)
			requireSlices(t, m, s, now)
		}
	}
}

func requireSlices(t *testing.T, m tiersModel, s *Slices, now int64) {
	t.Helper()
	require.Equal(t, len(m.hits), s.Len())
	expires := Never
	for i, h := range m.hits {
		require.Equal(t, h, s.At(i))
		require.Equal(t, h.Number*m.slice, WindowStart(h.Number, m.slice/msec))
		expires = h.Number*m.slice + m.longest().Scale*msec
	}
	require.Equal(t, expires, s.Expires(m.slice/msec))
	require.Equal(t, m.used(m.longest(), m.number(now)), s.Used())
	if n := len(m.hits); n > 0 {
		require.Equal(t, m.hits[n-1].Number*m.slice, s.Latest(m.slice/msec))
	}
}

func TestTiersBytes(t *testing.T) {
	a, s := NewTiers([]Tier{{5, 1000}, {9, 3000}}), new(Slices)
	assert.Zero(t, s.Bytes())
	assert.EqualValues(t, sliceBytes, s.Growth(""))
	a.Advance(s, Params{}, 0)
	assert.EqualValues(t, 2*sumBytes, s.Bytes())
	assert.EqualValues(t, sliceBytes+2*sumBytes, s.Growth(""), "the sums may be new")
	a.Admit(s, Params{Cost: 1}, 0, "")
	assert.EqualValues(t, sliceBytes+2*sumBytes, s.Bytes())
	a.Admit(s, Params{Cost: 1}, second, "")
	assert.EqualValues(t, 2*sliceBytes+2*sumBytes, s.Bytes())
	assert.EqualValues(t, 2*sliceBytes+2*sumBytes, s.Growth(""))
}

// filled returns the counts of tiers after these costs, the oldest first.
func filled(a *Tiers, counts ...Slice) *Slices {
	s := new(Slices)
	a.Advance(s, Params{}, Never)
	for _, c := range counts {
		a.Admit(s, Params{Cost: c.Cost}, WindowStart(c.Number, a.Slice()), "")
	}
	return s
}

func TestTiersAreFilledFromTheOldestOn(t *testing.T) {
	a := NewTiers([]Tier{{9, 1000}, {9, 3000}})
	s := filled(a, Slice{4, 2}, Slice{6, 3})
	assert.EqualValues(t, 5, s.Used())
	assert.Equal(t, 9*second, s.Expires(1000))
	assert.Equal(t, 6*second, s.Latest(1000))
	a.Advance(s, Params{}, 7*second)
	v := a.Decide(s, Params{Cost: 6}, 7*second)
	assert.Equal(t, tier(1, Verdict{Allowed: true, Total: 9, At: 10 * second}), v, "3 and 6")
}

func TestTiersRefundIsNotSwallowedByAnEmptySlice(t *testing.T) {
	a := NewTiers([]Tier{{9, 1000}, {9, 3000}})
	s := filled(a, Slice{4, 2}, Slice{6, 0})
	a.Refund(s, Params{Cost: 1}, 6*second, Taken{Expires: 7 * second, At: Never}, "")
	assert.Equal(t, Slice{4, 1}, s.At(0), "both end at 7 s in one of the tiers")
}

func TestTiersAtTheEndsOfTimeAndOfCounts(t *testing.T) {
	const most int64 = math.MaxInt64
	a, s := NewTiers([]Tier{{most, 1000}, {most, 3000}}), new(Slices)
	p, _ := a.Prepare(Params{Cost: most})
	assert.EqualValues(t, most, p.Limit)
	now := End - 1
	assert.Equal(t, Verdict{Allowed: true, Total: most, At: End}, a.Decide(s, p, now))
	v := a.Decide(s, Params{Cost: 1}, now)
	assert.Equal(t, Verdict{Allowed: true, Total: 1, At: End}, v, "most of all is left")
	a.Advance(s, p, now)
	a.Admit(s, Params{Cost: 5}, now-second, "")
	a.Admit(s, p, now, "")
	assert.Equal(t, Slice{now / second, most - 5}, s.At(1),
		"what is added is what is subtracted later")
	assert.Equal(t, tier(1, Verdict{Total: most, At: End}), a.Decide(s, p, now))
	a.Advance(s, p, now)
	a.Refund(s, p, now, Taken{Expires: End, At: now}, "")
	assert.EqualValues(t, 5, s.Used())

	s = new(Slices)
	v = a.Decide(s, p, Never)
	assert.Equal(t, Verdict{Allowed: true, Total: most, At: Never / second * second}, v)
}

func TestPlansOfTiers(t *testing.T) {
	minute := NewTiers([]Tier{{9, 60_000}, {5, 10_000}})
	for _, a := range []*Tiers{minute, minute.Cut(500), minute.Cut(500).Cut(100)} {
		again, ok := PlannedTiers(a.Plan())
		assert.True(t, ok, a.Plan())
		assert.Equal(t, a.Plan(), again.Plan())
		assert.Equal(t, a.Slice(), again.Slice())
		for i := range a.bounds {
			assert.Equal(t, a.bounds[i].n, again.bounds[i].n)
		}
	}
	assert.Equal(t, "10000 60000 ", minute.Plan())
	assert.Equal(t, "10000 60000 /500", minute.Cut(500).Plan())
	for _, plan := range []string{"", " ", "/1", "0 ", "-1 ", "1000", "1000  ", "1000 1000 ",
		"2000 1000 ", "31536000001 ", "99999999999999999999 ", "x ", "1000 /", "1000 /0", "1000 /-1",
		"1000 /300", "1000 /x", "1000 /500/250", "1000 / 500", "+1000 "} {
		_, ok := PlannedTiers(plan)
		assert.False(t, ok, "%q", plan)
	}
}
