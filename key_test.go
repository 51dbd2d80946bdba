package weir

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestEntryHoldsTheKeyItWasGiven(t *testing.T) {
	of := periodOf(1000, 7)
	for _, n := range []int{1, 2, inline - 1, inline, inline + 1, inline + 2,
		inline + nearby, inline + nearby + 1, 254, 255, 256, 256 + inline, maxID} {
		id := strings.Repeat("x", n)
		e := newEntry[bucket](id, of)
		assert.Equal(t, n > inline, e.more != nil, "%d bytes", n)
		assert.Equal(t, id, e.id(), "%d bytes", n)
		assert.Equal(t, of, e.period(), "%d bytes", n)
		assert.True(t, e.is(id, of), "%d bytes", n)
		for _, other := range []string{id[1:], id + "x", id[1:] + "y", "y" + id[1:], id + "\x00", "\x00" + id} {
			assert.False(t, e.is(other, of), "%d bytes and %q", n, other)
		}
		for _, other := range []period{periodOf(1001, 7), periodOf(1000, 8), periodOf(sliding.scale(1000), 7), periodOf(1000+1<<16, 7)} {
			assert.False(t, e.is(id, other), "%d bytes, scale %d and number %d", n, other.scale(), other.number())
		}
	}
}

func TestEntryTellsZeroBytesApart(t *testing.T) {
	var seen []name
	for n := range inline {
		e := newEntry[bucket](strings.Repeat("\x00", n+1), periodOf(1, 0))
		require.NotContains(t, seen, e.name, "%d zero bytes", n+1)
		seen = append(seen, e.name)
	}
}

// Every scale that is legal, with every number that a window of it can have.
func TestPeriodIsPackedWithoutLoss(t *testing.T) {
	for _, ms := range []int64{1, 2, 1000, 1<<16 - 1, 1 << 16, 1<<16 + 1, 1 << 32, maxScale} {
		first, last := windowAt(math.MinInt64, ms).period.number(), windowAt(math.MaxInt64, ms).period.number()
		for _, k := range []kind{fixed, sliding} {
			for _, number := range []int64{first - 1, first, -1, 0, 1, last, last + 1} {
				of := periodOf(k.scale(ms), number)
				assert.Equal(t, k.scale(ms), of.scale())
				assert.Equal(t, number, of.number(), "of %d ms", ms)
				assert.Equal(t, of, periodOf(k.scale(ms), number+1).plus(-1), "of %d ms", ms)
				assert.Equal(t, k, of.kind())
				assert.Equal(t, ms, of.length())
			}
		}
	}
}

func TestJoinKeyIsInjective(t *testing.T) {
	for _, c := range []struct {
		name string
		a, b []string
	}{
		{"a delimiter in the first part or the second", []string{"a", "b:c"}, []string{"a:b", "c"}},
		{"one part or two", []string{"ab"}, []string{"a", "b"}},
		{"an empty part before or after", []string{"", "a"}, []string{"a", ""}},
		{"no part or an empty one", nil, []string{""}},
		{"two empty parts or three", []string{"", ""}, []string{"", "", ""}},
		{"a part that is a joined key", []string{"a", "b"}, []string{JoinKey("a", "b")}},
		{"a part that looks like a length", []string{"1:a"}, []string{"1", "a"}},
		{"a zero byte", []string{"a\x00", "b"}, []string{"a", "\x00b"}},
		{"invalid UTF-8", []string{"\xff", "\xfe"}, []string{"\xff\xfe", ""}},
	} {
		t.Run(c.name, func(t *testing.T) { assert.NotEqual(t, JoinKey(c.a...), JoinKey(c.b...)) })
	}
	assert.Equal(t, JoinKey("a", "b"), JoinKey("a", "b"), "the same parts")
}

// Scales whose periods differ in the low part, in the high one, and in the kind.
var salted = []int64{1000, 60_000, 1000 + 1<<16, 3_600_000, 86_400_000, maxScale, sliding.scale(1000), sliding.scale(60_000)}

// Windows of one id are mixed into its one hash by the salt alone: two of them on one digest share a chain.
func TestSaltTellsWindowsApart(t *testing.T) {
	seen := make(map[uint64][2]int64)
	for _, scale := range salted {
		for number := int64(-5000); number < 5000; number++ {
			s := periodOf(scale, number).salt()
			if other, taken := seen[s]; taken {
				t.Fatalf("window %d of scale %d has the salt of %v", number, scale, other)
			}
			seen[s] = [2]int64{scale, number}
		}
	}
}

// The buckets of one id, window after window, must not fill one slot of the index in front of the map.
func TestSaltSpreadsItsLowBits(t *testing.T) {
	const slots, n = 1 << 10, 1 << 15
	for _, scale := range salted {
		var hits [slots]int
		for number := range int64(n) {
			hits[periodOf(scale, number+29_919_571).salt()%slots]++
		}
		for slot, n := range hits {
			require.InDelta(t, 32, n, 32, "slot %d, scale %d", slot, scale)
		}
	}
}

func TestKindTravelsInTheScale(t *testing.T) {
	for _, k := range []kind{fixed, sliding} {
		for _, ms := range []int64{1, 1000, maxScale} {
			assert.Equal(t, k, kindOf(k.scale(ms)))
			assert.Equal(t, ms, scaleOf(k.scale(ms)))
		}
	}
}

func TestDemand(t *testing.T) {
	for _, c := range []struct {
		name string
		r    Request
		want demand
		err  error
	}{
		{"a cost of 0 is 1", Request{Key: "k", Limit: 9, Duration: time.Second}, demand{"k", 1000, 9, 1}, nil},
		{"a limit over int64 is the largest int64", Request{Key: "k", Limit: math.MaxUint64, Duration: time.Second}, demand{"k", 1000, math.MaxInt64, 1}, nil},
		{"so is a cost", Request{Key: "k", Cost: math.MaxUint64, Duration: time.Second}, demand{"k", 1000, 0, math.MaxInt64}, nil},
		{"a millisecond is the least duration", Request{Key: "k", Duration: time.Millisecond}, demand{"k", 1, 0, 1}, nil},
		{"a nanosecond is not whole", Request{Key: "k", Duration: 1}, demand{}, ErrScale},
		{"nor is a millisecond and one", Request{Key: "k", Duration: time.Millisecond + 1}, demand{}, ErrScale},
		{"no duration", Request{Key: "k"}, demand{}, ErrScale},
		{"a negative duration", Request{Key: "k", Duration: -time.Second}, demand{}, ErrScale},
		{"over a year", Request{Key: "k", Duration: (maxScale + 1) * time.Millisecond}, demand{}, ErrScale},
		{"no key", Request{Duration: time.Second}, demand{}, ErrID},
		{"a key over 1 KiB", Request{Key: strings.Repeat("k", 1025), Duration: time.Second}, demand{}, ErrID},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got demand
			err := got.read(&c.r)
			require.ErrorIs(t, err, c.err)
			if c.err == nil {
				assert.Equal(t, c.want, got)
			}
		})
	}
}

func TestHashIsSeededPerLimiter(t *testing.T) {
	a, _ := newTestLimiter(t, Config{})
	b, _ := newTestLimiter(t, Config{})
	same := 0
	for range 64 {
		id := string(rune('a' + rand.IntN(26)))
		if a.buckets.place(id, 0) == b.buckets.place(id, 0) {
			same++
		}
	}
	assert.Zero(t, same, "whoever knows the hashes of one process knows those of another")
}
