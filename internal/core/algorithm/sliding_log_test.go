package algorithm

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Growth must predict exactly how much Bytes increases, as the bound on bytes relies on it.
func TestGrowthOfALogIsKnownInAdvance(t *testing.T) {
	rnd := rand.New(rand.NewPCG(9, 10))
	for range 40 {
		g, a := new(Log), SlidingLog{}
		now := int64(0)
		for range 200 {
			p := Params{Scale: 1, Limit: math.MaxInt64, Cost: 1 + rnd.Int64N(3)}
			meta := ""
			if rnd.IntN(3) == 0 {
				meta = strings.Repeat("m", 1+rnd.IntN(50))
			}
			now += rnd.Int64N(msec / 20)
			a.Advance(g, p, now)
			before, growth := g.Bytes(), g.Growth(meta)
			a.Admit(g, p, now, meta)
			require.Equal(t, growth, g.Bytes()-before)
			var used, metas int64
			for _, h := range contents(&g.hits) {
				used += h.Cost
			}
			for _, m := range contents(&g.metas) {
				metas += int64(len(m))
			}
			require.Equal(t, used, g.used)
			require.Equal(t, metas, g.bytes)
			require.Contains(t, []int{0, g.hits.Len()}, g.metas.Len())
		}
	}
}

// A log whose first meta comes late has as much memory for metas as for hits, and no more than
// Growth says.
func TestGrowthOfALogByItsFirstMeta(t *testing.T) {
	g, a := new(Log), SlidingLog{}
	assert.Zero(t, g.Bytes())
	for now := range int64(9) {
		a.Admit(g, Params{Cost: 1}, now, "")
	}
	assert.EqualValues(t, 16*hitBytes, g.Bytes())
	a.Advance(g, Params{Scale: 1}, msec+5) // three stay
	assert.EqualValues(t, 16*stringBytes+3, g.Growth("abc"))
	a.Admit(g, Params{Cost: 1}, 9, "abc")
	assert.EqualValues(t, 16*(hitBytes+stringBytes)+3, g.Bytes())
	assert.Zero(t, g.Growth(""))
}

// contents returns the elements of a ring from the oldest to the newest.
func contents[T any](r *Ring[T]) (list []T) {
	for i := range r.Len() {
		list = append(list, *r.At(i))
	}
	return list
}

// The log of the article "Better Rate Limiting With Redis Sorted Sets" (ClassDojo, 2015): a set of
// the instants of the hits, of which those that are one period old are removed before they are
// counted. Here a denied request leaves nothing.
func TestSlidingLogCountsAsASortedSet(t *testing.T) {
	g, a := new(Log), SlidingLog{}
	const ms, sec = time.Millisecond, time.Second
	play(t, Params{Scale: 10_000, Limit: 5}, []step{
		{"a hit", 1 * sec, 1, admitted(1, 11*sec)},
		{"two at once", 4 * sec, 2, admitted(3, 14*sec)},
		{"two at once, later", 5 * sec, 2, admitted(5, 15*sec)},
		{"one more, when the first has expired", 6 * sec, 1, denied(5, 11*sec)},
		{"two more, when the next has", 6 * sec, 2, denied(5, 14*sec)},
		{"three more, as it cost two", 6 * sec, 3, denied(5, 14*sec)},
		{"four more", 6 * sec, 4, denied(5, 15*sec)},
		{"six never", 6 * sec, 6, deniedForever(5)},
		{"1 ns before the first expires", 11*sec - 1, 1, denied(5, 11*sec)},
		{"no more in any 10 s", 11 * sec, 1, admitted(5, 21*sec)},
		{"an hour later", time.Hour, 5, admitted(5, time.Hour+10*sec)},
		{"an earlier instant", time.Hour - ms, 1, denied(5, time.Hour+10*sec)},
	}, func(p Params, now int64) Verdict {
		v := a.Decide(g, p, now)
		if a.Advance(g, p, now); v.Allowed {
			a.Admit(g, p, now, "")
		}
		return v
	})
	assert.Equal(t, 1, g.Len())
}

func TestSlidingLogByItsDefinition(t *testing.T) {
	rnd := rand.New(rand.NewPCG(13, 14))
	for range 200 {
		g, a, model := new(Log), SlidingLog{}, logModel{}
		now := rnd.Int64N(10*msec) - 5*msec
		scale := 1 + rnd.Int64N(3)
		for range 60 {
			now += rnd.Int64N(4) * msec / 4
			p := Params{Scale: scale, Limit: rnd.Int64N(9), Cost: 1 + rnd.Int64N(4)}
			meta := []string{"", "", "m", "meta"}[rnd.IntN(4)]
			if rnd.IntN(2) == 0 { // else Peek
				model = model.without(scale, now)
				a.Advance(g, p, now)
				require.Equal(t, model, entriesOf(g))
			}
			n, expired := g.Expired(scale, now)
			require.Equal(t, len(model)-len(model.without(scale, now)), n)
			require.Equal(t, model.used(scale, now), g.Used()-expired)
			v := a.Decide(g, p, now)
			require.Equal(t, model.decide(p, now), v)
			switch rnd.IntN(6) {
			case 0:
				expires := now + rnd.Int64N(scale*4+1)*msec/4
				a.Refund(g, p, now, Taken{Expires: expires, At: Never}, "")
				model = model.refund(expires-scale*msec, p.Cost)
			case 1:
				total := rnd.Int64N(9)
				a.Raise(g, p, now, End, total, meta)
				if n := total - model.total(); n > 0 {
					model = append(model, entry{Hit{now, n}, meta})
				}
			default:
				if v.Allowed {
					a.Admit(g, p, now, meta)
					model = append(model, entry{Hit{now, p.Cost}, meta})
				}
				requireExact(t, v, p, now, func(p Params, now int64) Verdict { return a.Decide(g, p, now) })
			}
			require.Equal(t, model, entriesOf(g))
			expires := Never
			if len(model) > 0 {
				expires = model[len(model)-1].At + scale*msec
				require.Equal(t, model[len(model)-1].At, g.Latest(scale))
			}
			require.Equal(t, expires, g.Expires(scale))
		}
	}
}

func TestSlidingLogAtTheEndsOfTimeAndOfCounts(t *testing.T) {
	const most int64 = math.MaxInt64
	g, a, p := new(Log), SlidingLog{}, Params{Scale: 1000, Limit: most, Cost: most}
	v := a.Decide(g, p, End-1)
	assert.Equal(t, Verdict{Allowed: true, Total: most, At: End}, v)
	a.Admit(g, Params{Cost: 5}, Never, "a")
	a.Admit(g, p, End-2, "")
	a.Admit(g, p, End-1, "b")
	want := logModel{{Hit{Never, 5}, "a"}, {Hit{End - 2, most - 5}, ""}, {Hit{End - 1, 0}, "b"}}
	assert.Equal(t, want, entriesOf(g), "what is added is what is subtracted later")
	assert.EqualValues(t, most, g.Used())
	assert.EqualValues(t, End, g.Expires(1000))
	assert.Equal(t, Verdict{Total: most - 5, At: End}, a.Decide(g, p, End-1))
	a.Advance(g, p, End-1)
	assert.Equal(t, 2, g.Len())
	assert.EqualValues(t, 1, g.bytes)
	a.Advance(g, p, End)
	assert.Zero(t, g.Len())
	assert.Zero(t, g.metas, "an empty log keeps no memory for metas")
}

func TestSizesOfStateElements(t *testing.T) {
	held := []uintptr{unsafe.Sizeof(Hit{}), unsafe.Sizeof(""), unsafe.Sizeof(Slice{}),
		unsafe.Sizeof(sum{})}
	for i, charged := range []uintptr{hitBytes, stringBytes, sliceBytes, sumBytes} {
		if bits.UintSize == 64 {
			assert.Equal(t, held[i], charged)
		}
		assert.LessOrEqual(t, held[i], charged, "it may be less on a 32-bit machine")
	}
}
