package algorithm

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// leakyCaller is a caller's bucket, and those in line, each of whom leaves at its instant.
type leakyCaller struct {
	LeakyBucket
	line   []int64 // costs
	length int
}

func (c *leakyCaller) decide(p Params, now int64) Verdict {
	c.LeakyBucket = c.Spaced(p.Each, now)
	for len(c.line) > 0 && c.Next <= now {
		c.Waiting -= c.line[0]
		c.LeakyBucket = c.Leave(c.Next, c.line[0])
		c.line = c.line[1:]
	}
	freeAt := c.Start(now)
	if c.length == 0 {
		freeAt = c.Empty(now)
	}
	v := c.Decide(p, now, len(c.line) < c.length, freeAt)
	switch {
	case v.Allowed && c.Free(now):
		c.LeakyBucket = c.Leave(now, p.Cost)
	case v.Allowed:
		c.line = append(c.line, p.Cost)
		c.Waiting += p.Cost
	}
	return v
}

// The leaky bucket as a queue (J. Turner, "New Directions in Communications", 1986): arrivals leave
// at a constant rate, here two a second, and one that finds the bucket full is lost; here two may
// wait. Total is what is in the bucket, and At is when all of it has leaked.
func TestLeakyBucketLeaksAsTurners(t *testing.T) {
	c := leakyCaller{LeakyBucket: LeakyBucket{Next: Never}, length: 2}
	const ms = time.Millisecond
	play(t, Params{Limit: 2, Each: Spacing(1000, 2)}, []step{
		{"the first leaves at once", 0, 1, admitted(1, 500*ms)},
		{"the second waits until 500 ms", 100 * ms, 1, admitted(2, 1000*ms)},
		{"the third, of cost 2, until 1000 ms", 200 * ms, 2, admitted(4, 2000*ms)},
		{"the fourth finds it full until the second leaves", 300 * ms, 1, denied(4, 500*ms)},
		{"a cost over the limit never passes", 300 * ms, 3, deniedForever(4)},
		{"the second has left: its part is in the bucket, and room", 500 * ms, 1, admitted(4, 2500*ms)},
		{"full again", 501 * ms, 1, denied(4, 1000*ms)},
		{"the last leaves at 2000 ms", 2499 * ms, 1, admitted(2, 3000*ms)},
		{"an empty bucket", 9000 * ms, 2, admitted(2, 10_000*ms)},
	}, c.decide)
}

// By definition a request leaves when it has come and the one before it has leaked.
func TestLeakyBucketByItsDefinition(t *testing.T) {
	rnd := rand.New(rand.NewPCG(17, 18))
	for range 500 {
		p := Params{Limit: 1 + rnd.Int64N(4), Each: 10}
		c := leakyCaller{LeakyBucket: LeakyBucket{Next: Never}, length: rnd.IntN(4)}
		now, leaked := rnd.Int64N(100)-50, int64(math.MinInt64) // when the last one admitted has leaked
		var leaving []int64                                     // instants of those admitted
		for range 40 {
			now += rnd.Int64N(20)
			p.Cost = 1 + rnd.Int64N(4)
			waiting := 0
			for _, at := range leaving {
				if at > now {
					waiting++
				}
			}
			level := (max(leaked, now) - now + p.Each - 1) / p.Each
			want := Verdict{Total: level}
			switch {
			case p.Cost > p.Limit:
				want.At = Never
			case leaked <= now || waiting < c.length:
				leaving = append(leaving, max(leaked, now))
				leaked = max(leaked, now) + p.Cost*p.Each
				want = Verdict{Allowed: true, Total: level + p.Cost, At: leaked}
			case waiting == 0:
				want.At = leaked
			default:
				want.At = leaving[len(leaving)-waiting]
			}
			require.Equal(t, want, c.decide(p, now))
		}
	}
}

func TestLeakyBucketChanges(t *testing.T) {
	p := Params{Limit: 5, Cost: 2, Each: 10}
	b := LeakyBucket{Next: 150, Waiting: 3, Each: 10}
	for _, c := range []struct {
		name       string
		have, want LeakyBucket
	}{
		{"the first in line leaves in time", b.Leave(150, 2), LeakyBucket{170, 3, 10}},
		{"late", b.Leave(155, 2), LeakyBucket{175, 3, 10}},
		{"a reading before it", b.Leave(145, 2), LeakyBucket{170, 3, 10}},
		{"the first of all", LeakyBucket{Never, 0, 10}.Leave(-5, 2), LeakyBucket{15, 0, 10}},
		{"instants saturate", LeakyBucket{End - 5, 0, 10}.Leave(0, 2), LeakyBucket{End, 0, 10}},
		{"a refund moves the line up", b.Refund(p, 100, 150), LeakyBucket{130, 3, 10}},
		{"by what has yet to leak", b.Refund(p, 100, 115), LeakyBucket{135, 3, 10}},
		{"to now at most", b.Refund(p, 140, 180), LeakyBucket{140, 3, 10}},
		{"by nothing if all has leaked", b.Refund(p, 100, 100), b},
		{"by as much cost at another spacing", b.Spaced(15, 100).Refund(p, 100, 150),
			LeakyBucket{145, 3, 15}},
		{"rounded down", b.Refund(Params{Cost: 2, Each: 3}, 100, 102), LeakyBucket{144, 3, 10}},
		{"at the shortest spacing", LeakyBucket{150, 3, 1}.Refund(p, 100, 150), LeakyBucket{148, 3, 1}},
		{"at the spacing of p, if the bucket has none", LeakyBucket{150, 3, 0}.Refund(p, 100, 150),
			LeakyBucket{130, 3, 0}},
		{"the first in line waits for a total", b.Raise(100, 6), LeakyBucket{160, 3, 10}},
		{"a total that it waits for", b.Raise(100, 5), b},
		{"a total of nothing", LeakyBucket{50, 0, 10}.Raise(100, 0), LeakyBucket{100, 0, 10}},
		{"totals saturate", b.Raise(100, math.MaxInt64), LeakyBucket{End, 3, 10}},
		{"a spacing twice as long", b.Spaced(20, 100), LeakyBucket{200, 3, 20}},
		{"rounded up", b.Spaced(3, 101), LeakyBucket{116, 3, 3}},
		{"a small part of a nanosecond is one", b.Spaced(9, 101), LeakyBucket{146, 3, 9}},
		{"from the shortest spacing", LeakyBucket{150, 3, 1}.Spaced(2, 100), LeakyBucket{200, 3, 2}},
		{"when all has leaked", b.Spaced(20, 160), LeakyBucket{150, 3, 20}},
		{"the first spacing", LeakyBucket{150, 3, 0}.Spaced(20, 100), LeakyBucket{150, 3, 20}},
		{"the same spacing", b.Spaced(10, 100), b},
		{"a limit of 0", b.Spaced(0, 100), b},
	} {
		assert.Equal(t, c.want, c.have, c.name)
	}
}

func TestLeakyBucketLevels(t *testing.T) {
	for _, c := range []struct {
		name         string
		b            LeakyBucket
		now          int64
		start, empty int64
		level        int64
		free         bool
	}{
		{"nobody came yet", LeakyBucket{Never, 0, 10}, 100, 100, 100, 0, true},
		{"the last one has leaked", LeakyBucket{100, 0, 10}, 100, 100, 100, 0, true},
		{"but for 1 ns", LeakyBucket{101, 0, 10}, 100, 101, 101, 1, false},
		{"one waits for it", LeakyBucket{101, 1, 10}, 100, 101, 111, 2, false},
		{"one could leave", LeakyBucket{90, 1, 10}, 100, 100, 110, 1, false},
		{"instants saturate", LeakyBucket{End - 1, 1, 10}, 0, End - 1, End, End/10 + 2, false},
	} {
		assert.Equal(t, c.start, c.b.Start(c.now), c.name)
		assert.Equal(t, c.empty, c.b.Empty(c.now), c.name)
		assert.Equal(t, c.level, c.b.Level(c.now), c.name)
		assert.Equal(t, c.free, c.b.Free(c.now), c.name)
	}
	v := LeakyBucket{End - 1, 10, 1}.Decide(Params{Limit: 5, Cost: 5, Each: 1}, 0, true, 0)
	assert.Equal(t, Verdict{Allowed: true, Total: math.MaxInt64, At: End}, v)
	v = LeakyBucket{90, 0, 10}.Decide(Params{Limit: 5, Cost: 5, Each: 10}, 100, false, 7)
	assert.Equal(t, Verdict{Allowed: true, Total: 5, At: 150}, v, "who leaves at once needs no room")
}
