package algorithm

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The list of the Redis documentation ("INCR", pattern: rate limiter 2, with RPUSH): the first hit
// makes the list and sets EXPIRE, here of 1 s, and LLEN is the count.
func TestListCountsAsRpushAndExpire(t *testing.T) {
	g, a := new(Listed), List{}
	const ms = time.Millisecond
	play(t, Params{Scale: 1000, Limit: 10}, []step{
		{"a cost over the limit begins no period", 200 * ms, 11, deniedForever(0)},
		{"the first hit begins a period", 300 * ms, 1, admitted(1, 1300*ms)},
		{"nine more, later, expire with it", 900 * ms, 9, admitted(10, 1300*ms)},
		{"the eleventh is denied until then", 1300*ms - 1, 1, denied(10, 1300*ms)},
		{"the next hit begins the next period", 2500 * ms, 10, admitted(10, 3500*ms)},
		{"the end of one may be the start of the next", 3500 * ms, 2, admitted(2, 4500*ms)},
	}, func(p Params, now int64) Verdict {
		v := a.Decide(g, p, now) // also of a period that is over
		if a.Advance(g, p, now); v.Allowed {
			require.Equal(t, v, a.Decide(g, p, now))
			a.Admit(g, p, now, "")
		}
		return v
	})
	assert.Equal(t, logModel{{Hit{3500 * msec, 2}, ""}}, entriesOf(&g.Log))
}

// A list decides as a counter does.
func TestListInstantsAreExact(t *testing.T) {
	rnd := rand.New(rand.NewPCG(15, 16))
	for range 300 {
		p := Params{Scale: 1 + rnd.Int64N(5), Limit: rnd.Int64N(6)}
		g, a, s := new(Listed), List{}, None
		now := rnd.Int64N(20*msec) - 10*msec
		for range 20 {
			now += rnd.Int64N(2 * msec)
			p.Cost = 1 + rnd.Int64N(4)
			var want Verdict
			want, s = (&Counter{}).Decide(s, p, now)
			v := a.Decide(g, p, now)
			require.Equal(t, want, v)
			if v.Allowed {
				a.Advance(g, p, now)
				a.Admit(g, p, now, "")
			}
			requireExact(t, v, p, now, func(p Params, now int64) Verdict { return a.Decide(g, p, now) })
		}
	}
}

// listOf returns a list of hits that were admitted in this order.
func listOf(m logModel) *Listed {
	g := new(Listed)
	for _, e := range m {
		g.Add(e.At, e.Cost, e.meta)
	}
	return g
}

func TestListPeriods(t *testing.T) {
	g := new(Listed)
	assert.EqualValues(t, Never, g.Expires(1000))
	assert.True(t, g.Over(1000, Never))
	g = listOf(logModel{{Hit{300, 0}, ""}, {Hit{400, 2}, "m"}})
	assert.Equal(t, second+300, g.Expires(1000))
	assert.False(t, g.Over(1000, second+299))
	assert.True(t, g.Over(1000, second+300))
	List{}.Advance(g, Params{Scale: 1000}, second+299)
	assert.Equal(t, 2, g.Len())
	List{}.Advance(g, Params{Scale: 1000}, second+300)
	assert.Zero(t, *g)
	assert.EqualValues(t, End, listOf(logModel{{Hit{End - 1, 1}, ""}}).Expires(1000), "ends saturate")
}

func TestListRefunds(t *testing.T) {
	have := logModel{{Hit{10, 2}, "a"}, {Hit{20, 2}, "b"}, {Hit{20, 3}, "a"}, {Hit{30, 2}, "b"}}
	for _, c := range []struct {
		name string
		cost int64
		at   int64 // of the admission
		meta string
		want logModel
	}{
		{"from the hit with the instant and the meta", 2, 20, "b",
			logModel{{Hit{10, 2}, "a"}, {Hit{20, 3}, "a"}, {Hit{30, 2}, "b"}}},
		{"a part of it", 1, 20, "b",
			logModel{{Hit{10, 2}, "a"}, {Hit{20, 1}, "b"}, {Hit{20, 3}, "a"}, {Hit{30, 2}, "b"}}},
		{"more than it has, from others of the instant", 4, 20, "b",
			logModel{{Hit{10, 2}, "a"}, {Hit{20, 1}, "a"}, {Hit{30, 2}, "b"}}},
		{"more than the instant has", 9, 20, "b", logModel{{Hit{10, 2}, "a"}, {Hit{30, 2}, "b"}}},
		{"another meta of the instant, the newest first", 4, 20, "c",
			logModel{{Hit{10, 2}, "a"}, {Hit{20, 1}, "b"}, {Hit{30, 2}, "b"}}},
		{"the first hit stays with a cost of 0", 2, 10, "a",
			logModel{{Hit{10, 0}, "a"}, {Hit{20, 2}, "b"}, {Hit{20, 3}, "a"}, {Hit{30, 2}, "b"}}},
		{"an instant without a hit", 2, 25, "a", have},
		{"of an unknown instant, from the newest with the meta", 4, Never, "a",
			logModel{{Hit{10, 1}, "a"}, {Hit{20, 2}, "b"}, {Hit{30, 2}, "b"}}},
		{"then from the newest of the others", 6, Never, "a",
			logModel{{Hit{10, 0}, "a"}, {Hit{20, 2}, "b"}, {Hit{30, 1}, "b"}}},
		{"from the newest if none has the meta", 3, Never, "c",
			logModel{{Hit{10, 2}, "a"}, {Hit{20, 2}, "b"}, {Hit{20, 2}, "a"}}},
		{"all", 20, Never, "b", logModel{{Hit{10, 0}, "a"}}},
	} {
		g := listOf(have)
		List{}.Refund(g, Params{Scale: 1000, Cost: c.cost}, 0, Taken{Expires: second + 10, At: c.at},
			c.meta)
		assert.Equal(t, c.want, entriesOf(&g.Log), c.name)
		assert.Equal(t, c.want.total(), g.Used(), c.name)
	}
	for _, c := range []struct {
		name       string
		have, want logModel
	}{
		{"an only hit", logModel{{Hit{-30, 2}, "a"}}, logModel{{Hit{-30, 0}, "a"}}},
		{"more than all hits of the instant, before 1970",
			logModel{{Hit{-30, 1}, "a"}, {Hit{-30, 2}, ""}, {Hit{-30, 2}, "a"}},
			logModel{{Hit{-30, 0}, "a"}}},
		{"no further than to what is given back",
			logModel{{Hit{-30, 0}, "a"}, {Hit{-30, 0}, "a"}, {Hit{-30, 7}, "a"}},
			logModel{{Hit{-30, 0}, "a"}, {Hit{-30, 0}, "a"}}},
	} {
		g := listOf(c.have)
		List{}.Refund(g, Params{Scale: 1000, Cost: 7}, 0, Taken{Expires: second - 30, At: -30}, "a")
		assert.Equal(t, c.want, entriesOf(&g.Log), c.name)
	}
	for _, expires := range []int64{second + 9, second + 11, Never} {
		g := listOf(have)
		List{}.Refund(g, Params{Scale: 1000, Cost: 2}, 0, Taken{Expires: expires, At: 20}, "b")
		assert.Equal(t, have, entriesOf(&g.Log), "another period's refund does nothing")
	}
	g := new(Listed)
	List{}.Refund(g, Params{Scale: 1000, Cost: 2}, 0, Taken{Expires: Never, At: Never}, "")
	assert.Zero(t, *g, "an empty list")
}

// A refund of an unknown instant looks at the newest thousand hits, and one of a known instant at
// those from its admission on.
func TestListRefundsOfLongLists(t *testing.T) {
	for _, c := range []struct {
		name string
		at   int64 // of the admission
		hits int   // after the hit that has the meta
		want bool  // whether that is found
	}{
		{"the thousandth", Never, 999, true},
		{"the one before", Never, 1000, false},
		{"one of a known instant", 5, 3000, true},
	} {
		have := logModel{{Hit{1, 1}, ""}, {Hit{5, 1}, "x"}}
		for i := range c.hits {
			have = append(have, entry{Hit{6 + int64(i), 1}, ""})
		}
		g := listOf(have)
		List{}.Refund(g, Params{Scale: 1000, Cost: 1}, 0, Taken{Expires: second + 1, At: c.at}, "x")
		_, meta := g.Hit(1)
		assert.Equal(t, c.want, meta != "x", c.name)
		assert.Equal(t, len(have)-1, g.Len(), c.name)
	}
	short := logModel{{Hit{1, 1}, "x"}, {Hit{2, 1}, ""}}
	g := listOf(short)
	List{}.Refund(g, Params{Scale: 1000, Cost: 1}, 0, Taken{Expires: second + 1, At: Never}, "x")
	assert.Equal(t, logModel{{Hit{1, 0}, "x"}, {Hit{2, 1}, ""}}, entriesOf(&g.Log),
		"all of a short list")
	long := listOf(short)
	for i := range int64(998) {
		long.Add(3+i, 1, "")
	}
	List{}.Refund(long, Params{Scale: 1000, Cost: 1000}, 0, Taken{Expires: second + 1, At: Never}, "x")
	assert.Equal(t, logModel{{Hit{1, 0}, "x"}}, entriesOf(&long.Log), "a thousand hits")
	for i := range int64(1000) {
		long.Add(3+i, 1, "")
	}
	List{}.Refund(long, Params{Scale: 1000, Cost: 1000}, 0, Taken{Expires: second + 1, At: Never}, "x")
	assert.Equal(t, logModel{{Hit{1, 0}, "x"}}, entriesOf(&long.Log), "the newest thousand")
}

func TestListRaises(t *testing.T) {
	p := Params{Scale: 1000}
	for _, c := range []struct {
		name         string
		have         logModel
		now, expires int64
		total        int64
		want         logModel
	}{
		{"what is missing", logModel{{Hit{10, 2}, "a"}}, 500, second, 5,
			logModel{{Hit{10, 2}, "a"}, {Hit{500, 3}, "m"}}},
		{"no more", logModel{{Hit{10, 2}, "a"}}, 500, second, 2, logModel{{Hit{10, 2}, "a"}}},
		{"no less", logModel{{Hit{10, 2}, "a"}}, 500, second, 1, logModel{{Hit{10, 2}, "a"}}},
		{"a period that began elsewhere", logModel{}, 500, second + 400, 5, logModel{{Hit{400, 5}, "m"}}},
		{"which begins now at the latest", logModel{}, 500, second + 501, 5,
			logModel{{Hit{500, 5}, "m"}}},
		{"a total of nothing begins none", logModel{}, 500, second, 0, logModel{}},
	} {
		g := listOf(c.have)
		List{}.Raise(g, p, c.now, c.expires, c.total, "m")
		assert.Equal(t, c.want, entriesOf(&g.Log), c.name)
	}
	g := new(Listed)
	List{}.Raise(g, p, 0, Never+1, 5, "")
	assert.Equal(t, logModel{{Hit{Never, 5}, ""}}, entriesOf(&g.Log), "the start saturates")
}
