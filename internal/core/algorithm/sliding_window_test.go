package algorithm

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The example of Cloudflare's article ("How we built rate limiting capable of scaling to millions
// of domains", 2017): of 50 a minute there were 42 in the minute before, and there are 18 in this
// one, 15 s into it: 42*(60-15)/60 + 18 = 49.5. The estimate is rounded up, so that 49.5 and one do
// not pass.
func TestSlidingWindowEstimatesAsCloudflare(t *testing.T) {
	a, state := &SlidingWindow{}, None
	const ms, s, m = time.Millisecond, time.Second, time.Minute
	play(t, Params{Scale: 60_000, Limit: 50}, []step{
		{"42 in the minute before", 2*m - 1, 42, admitted(42, 3*m)},
		{"17 in this one: 42*45/60 + 17 = 48.5", 2*m + 15*s, 17, admitted(49, 4*m)},
		{"the 18th: 49.5", 2*m + 15*s, 1, admitted(50, 4*m)},
		{"not one more until 42*44.285/60 + 18 = 48.9995", 2*m + 15*s, 1, denied(50, 2*m+15_715*ms)},
		{"1 ms before, 42*44.286/60 + 18 = 49.0002", 2*m + 15_714*ms, 1, denied(50, 2*m+15_715*ms)},
		{"42*44.285/60 + 18 and one", 2*m + 15_715*ms, 1, admitted(50, 4*m)},
		{"31 have to wait for the window's end", 2*m + 20*s, 31, denied(47, 3*m)},
		{"32 for a part of the next one: until 19*56.842/60 = 17.99997", 2*m + 20*s, 32,
			denied(47, 3*m+3158*ms)},
		{"50 for two windows", 2*m + 20*s, 50, denied(47, 4*m)},
		{"51 never pass", 2*m + 20*s, 51, deniedForever(47)},
		{"the end of the window: the 19 are the minute before", 3 * m, 31, admitted(50, 5*m)},
		{"a minute without hits leaves nothing", 5 * m, 50, admitted(50, 7*m)},
		{"an instant before the window counts as its start", 4 * m, 1, denied(50, 6*m+1200*ms)},
	}, func(p Params, now int64) (v Verdict) {
		v, state = a.Decide(state, p, now)
		return v
	})
}

// Of all small states at all instants, the estimate is the least integer that is not below the
// weighted count, and the instants are exact.
func TestSlidingWindowByItsDefinition(t *testing.T) {
	a := &SlidingWindow{}
	for scale := int64(1); scale <= 5; scale++ {
		for prev := range int64(7) {
			for cur := range int64(7) {
				for ms := range scale {
					s := State{cur, prev, -2 * scale * msec}
					used := cur
					for (used-cur)*scale < prev*(scale-ms) {
						used++
					}
					for cost := int64(1); cost <= 6; cost++ {
						p := Params{Scale: scale, Limit: 5, Cost: cost}
						now := s.Still2 + ms*msec + ms*(msec-1)/max(1, scale-1)
						v, next := a.Decide(s, p, now)
						require.Equal(t, used+cost <= 5, v.Allowed)
						if v.Allowed {
							require.Equal(t, used+cost, v.Total)
							require.Equal(t, State{cur + cost, prev, s.Still2}, next)
						} else {
							require.Equal(t, used, v.Total)
							require.Equal(t, s, next)
						}
						requireExact(t, v, p, now, func(p Params, now int64) Verdict {
							v, _ := a.Decide(next, p, now)
							return v
						})
					}
				}
			}
		}
	}
}

func TestSlidingWindowInstantsAreExactOfLargeCounts(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	const year = 365 * 24 * 3600 * 1000
	a := &SlidingWindow{}
	for range 5_000 {
		p := Params{Scale: 1 + rnd.Int64N(year), Limit: 1 + rnd.Int64N(1<<48)}
		p.Cost = 1 + rnd.Int64N(p.Limit)
		s := State{rnd.Int64N(p.Limit + 1), rnd.Int64N(p.Limit + 1),
			WindowStart(rnd.Int64N(20)-10, p.Scale)}
		now := s.Still2 + rnd.Int64N(p.Scale*msec)
		v, next := a.Decide(s, p, now)
		requireExact(t, v, p, now, func(p Params, now int64) Verdict {
			v, _ := a.Decide(next, p, now)
			return v
		})
	}
}

func TestMulDiv(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 10))
	for range 2_000 {
		c := 1 + rnd.Int64()>>rnd.IntN(63)
		a, b, add := rnd.Int64()>>rnd.IntN(63), rnd.Int64N(c+1), rnd.Int64N(c)
		want := new(big.Int).Mul(big.NewInt(a), big.NewInt(b))
		want.Div(want.Add(want, big.NewInt(add)), big.NewInt(c))
		require.Equal(t, want.Int64(), mulDiv(uint64(a), b, c, add), "(%d*%d+%d)/%d", a, b, add, c)
	}
	assert.Equal(t, End, mulDiv(1<<63-1, 1, 1, 0), "the largest that fits")
	assert.Equal(t, End, mulDiv(1<<63, 1, 1, 0), "one more")
	assert.Equal(t, End, mulDiv(1<<62, 4, 1, 0), "1 << 64")
	assert.Equal(t, End, mulDiv(1<<62, 8, 1, 0), "1 << 65")
}

func TestSlidingWindowMovesOn(t *testing.T) {
	const start = 60 * second
	s := State{3, 4, start}
	for _, c := range []struct {
		name string
		now  int64
		want State
	}{
		{"the start", start, s},
		{"the last nanosecond", start + minute - 1, s},
		{"before the start", start - 5*minute, s},
		{"the next window", start + minute, State{0, 3, start + minute}},
		{"the end of the next window", start + 2*minute - 1, State{0, 3, start + minute}},
		{"two windows later", start + 2*minute, State{Still2: start + 2*minute}},
		{"three windows later", start + 3*minute + 1, State{Still2: start + 3*minute}},
		{"the first instant of all", Never, s},
		{"the last instant of all", End - 1, State{Still2: (End - 1) / minute * minute}},
	} {
		assert.Equal(t, c.want, slide(s, 60_000, c.now), c.name)
	}
	assert.Equal(t, State{Still2: -minute}, slide(None, 60_000, -1))
	assert.Equal(t, State{0, 3, 0}, slide(State{3, 4, -minute}, 60_000, 0))
	first := State{3, 4, Never} // its window would start before the first instant
	assert.Equal(t, State{0, 3, Never / minute * minute}, slide(first, 60_000, Never+minute))
}

func TestSlidingWindowChanges(t *testing.T) {
	const start, end = minute, 2 * minute
	a, p := &SlidingWindow{}, Params{Scale: 60_000, Limit: 10, Cost: 3}
	s := State{4, 5, start}
	merge := func(other State, now int64) State { return a.Merge(s, other, 60_000, now, 20*second) }
	for _, c := range []struct {
		name       string
		have, want State
	}{
		{"an admission counts", a.Admit(s, p, end-1), State{7, 5, start}},
		{"an admission in the next window", a.Admit(s, p, end), State{3, 4, end}},
		{"counts have a most", a.Admit(State{MaxCount - 1, 5, start}, p, start),
			State{MaxCount, 5, start}},
		{"a refund in the window", a.Refund(s, p, start, end+minute), State{1, 5, start}},
		{"a refund in the next window", a.Refund(s, p, end, end+minute), State{0, 1, end}},
		{"a refund of the window before", a.Refund(s, p, start, end), State{4, 2, start}},
		{"a refund of the window before that does nothing", a.Refund(s, p, start, start), s},
		{"a refund of the next window does nothing", a.Refund(s, p, start, end+2*minute), s},
		{"a refund leaves no less than 0", a.Refund(State{2, 2, start}, p, start, end+minute),
			State{0, 2, start}},
		{"nor of nothing before", a.Refund(State{2, Never, start}, p, start, end), State{2, 0, start}},
		{"nor before", a.Refund(State{2, 2, start}, p, start, end), State{2, 0, start}},
		{"a total that is more: 5/2 and 4 are 7", a.Raise(s, p, start+minute/2, 0, 9),
			State{6, 5, start}},
		{"a total that is counted", a.Raise(s, p, start+minute/2, 0, 7), s},
		{"a total that is less", a.Raise(s, p, start+minute/2, 0, 6), s},
		{"a total in the next window", a.Raise(s, p, end, 0, 5), State{1, 4, end}},
		{"merging raises the counts", merge(State{6, 7, start}, end-1), State{6, 7, start}},
		{"merging does not lower them", merge(State{3, 4, start}, end-1), s},
		{"merging the window before", merge(State{7, 9, start - minute}, end-1), State{4, 7, start}},
		{"merging in the next window", merge(State{6, 7, start}, end), State{0, 6, end}},
		{"merging with a later window", merge(State{6, 7, end}, end-20*second), State{6, 7, end}},
		{"merging with one too far ahead", merge(State{6, 7, end}, end-20*second-1), State{6, 7, start}},
		{"merging with any instant of a window", merge(State{6, 7, end - 1}, end-1), State{6, 7, start}},
		{"of which that is the one before", merge(State{6, 7, start + 5*second}, end+10*second),
			State{0, 6, end}},
		{"merging nothing", merge(None, end-1), s},
	} {
		assert.Equal(t, c.want, c.have, c.name)
	}
	assert.EqualValues(t, end+minute, a.Expires(s, 60_000))
	assert.EqualValues(t, End, a.Expires(State{Still2: End - minute}, 60_000), "ends saturate")
}

func TestSlidingWindowAtTheEndsOfTimeAndOfCounts(t *testing.T) {
	const most = MaxCount
	a := &SlidingWindow{}
	p := Params{Scale: 60_000, Limit: most, Cost: most}
	v, s := a.Decide(None, p, End-1)
	assert.Equal(t, Verdict{Allowed: true, Total: most, At: End}, v)
	v, _ = a.Decide(s, p, End-1)
	assert.Equal(t, Verdict{Total: most, At: End}, v, "the end saturates")
	v, _ = a.Decide(State{most, most, minute}, p, minute)
	assert.Equal(t, Verdict{Total: 2 * most, At: 3 * minute}, v)
	v, _ = a.Decide(State{0, 5, End / minute * minute}, Params{Scale: 60_000, Limit: 7, Cost: 1},
		Never)
	assert.EqualValues(t, 6, v.Total, "an instant long before the window counts as its start")
	v, s = a.Decide(None, Params{Scale: 1000, Limit: 7, Cost: 1}, Never)
	assert.Equal(t, Verdict{Allowed: true, Total: 1, At: Never + 2*second}, v)
	assert.Equal(t, State{1, Never, Never}, s)
}

// In Cloudflare's example 50 are counted of 50, 15 s into the minute. The 42 of the minute before
// weigh less and less; then the 18 of this one do.
func TestSlidingWindowSaysWhenMoreIsLeft(t *testing.T) {
	a, s := &SlidingWindow{}, State{18, 42, 2 * minute}
	for _, c := range []struct {
		name  string
		total int64
		want  int64
	}{
		{"49 of 50 counted: 42*44.285/60 + 18 = 48.9995", 50, 2*minute + 15_715*msec},
		{"all of the minute before counts at its end, 42 + 18", 60, 2*minute + 1429*msec},
		{"more was never counted in this minute", 61, Never},
		{"42*1.428/60 + 18 = 18.9996", 20, 2*minute + 58_572*msec},
		{"the minute before is gone: 18 are left", 19, 3 * minute},
		{"the 18 weigh 18*56.666/60 = 16.9998", 18, 3*minute + 3334*msec},
		{"the last one: 0", 1, 4 * minute},
	} {
		assert.Equal(t, c.want, a.More(s, 60_000, c.total), c.name)
	}
	assert.EqualValues(t, Never, a.More(State{3, -1, 0}, 1000, 4), "a negative count is none")
	assert.EqualValues(t, End, a.More(State{1, 1, End - second/2}, 1000, 1), "the last window of all")
}

// More is the first instant at which less is counted.
func TestSlidingWindowMoreIsExact(t *testing.T) {
	rnd := rand.New(rand.NewPCG(13, 14))
	a := &SlidingWindow{}
	for range 20_000 {
		most := int64(1) << rnd.IntN(48)
		s := State{N: rnd.Int64N(most), Still1: rnd.Int64N(most)}
		if s.N+s.Still1 == 0 {
			continue
		}
		total := 1 + rnd.Int64N(s.N+s.Still1)
		p := Params{Scale: 1 + rnd.Int64N(1<<rnd.IntN(30)), Limit: total, Cost: 1}
		s.Still2 = WindowStart(rnd.Int64N(20)-10, p.Scale)
		at := a.More(s, p.Scale, total)
		v, _ := a.Decide(s, p, at)
		require.True(t, v.Allowed)
		v, _ = a.Decide(s, p, at-1)
		require.False(t, v.Allowed)
		require.Equal(t, at, v.At)
	}
}
