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

// idLengths are the lengths at which the storage of an ID changes.
var idLengths = []int{1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 21, inlineID, inlineID + 1, 24, 25, 31, 32,
	33,
	headID + partBytes - 1, headID + partBytes, headID + partBytes + 1, headID + 2*partBytes, 255,
	256, 1000, maxID}

func testID(n int) string {
	id := make([]byte, n)
	for i := range id {
		id[i] = byte(i*37 + n)
	}
	return string(id)
}

func TestSlotHoldsTheKeyItWasGiven(t *testing.T) {
	l, clock := newTestLimiter(t, Config{})
	const scale, number = 1000, 7
	clock.setMs(scale * number)
	p := periodOf(fixedKind, scale, number)
	for _, n := range idLengths {
		id := testID(n)
		_, err := l.CheckRate(id, scale, 1)
		require.NoError(t, err)
		packed := l.buckets.pack(id)
		x := l.buckets.indexes[l.buckets.number(packed.hash)].Load()
		s, _, _ := x.find(packed, id, &p)
		require.NotNil(t, s, "%d bytes", n)
		assert.Equal(t, id, string(x.appendID(nil, s)), "%d bytes", n)
		k, ms, window := unpackPeriod(s[lowWord], s[restWord], s[tailWord])
		assert.Equal(t, []int64{int64(fixedKind), scale, number}, []int64{int64(k), ms, window},
			"%d bytes", n)

		// With equal hashes, keys are compared in full.
		find := func(other string) *slot {
			with := l.buckets.pack(other)
			with.hash = packed.hash
			s, _, _ := x.find(with, other, &p)
			return s
		}
		for i := range n {
			other := []byte(id)
			other[i]++
			require.Nil(t, find(string(other)), "%d bytes, another byte %d", n, i)
		}
		for _, other := range []string{id[1:], id[:n-1], id + "x", id + "\x00", "\x00" + id} {
			assert.Nil(t, find(other), "%d bytes and %q", n, other)
		}
		for _, q := range []period{
			periodOf(fixedKind, scale, number+1), periodOf(fixedKind, scale+1, number),
			periodOf(slidingKind, scale, number),
			periodOf(fixedKind, scale+1<<16, number), periodOf(fixedKind, scale+1<<32, number),
		} {
			q.salt = p.salt
			s, _, _ := x.find(packed, id, &q)
			assert.Nil(t, s, "%d bytes and another period", n)
		}
	}
	seen := map[string]bool{}
	for b := range l.Buckets() {
		require.False(t, seen[b.ID])
		seen[b.ID] = true
		assert.Equal(t, testID(len(b.ID)), b.ID)
	}
	assert.Len(t, seen, len(idLengths))
}

func TestIDsOfZeroBytesDiffer(t *testing.T) {
	l, _ := newTestLimiter(t, Config{})
	breakHash(l, 0)
	for n := range 100 {
		res, err := l.CheckRate(strings.Repeat("\x00", n+1), 1000, 1)
		require.NoError(t, err)
		require.True(t, res.Allowed(), "%d zero bytes", n+1)
	}
}

// A period keeps every valid scale and all window numbers possible in it.
func TestPeriodIsPackedWithoutLoss(t *testing.T) {
	for _, ms := range []int64{1, 2, 1000, 1<<16 - 1, 1 << 16, 1<<16 + 1, 1 << 32, maxScale} {
		first, last := windowAt(math.MinInt64, ms).number, windowAt(math.MaxInt64, ms).number
		for _, k := range []kind{fixedKind, slidingKind, tokenKind} {
			for _, number := range []int64{first - 1, first, -1, 0, 1, last, last + 1} {
				p := periodOf(k, ms, number)
				require.Zero(t, p.mid&countMask, "the bits of the ID")
				require.Zero(t, p.high&lenMask, "the bits of the length")
				require.Zero(t, p.high&^keyMask, "the bits of the stamp")
				gotKind, gotMs, gotNumber := unpackPeriod(p.low, p.mid|countMask, p.high|lenMask|1<<63)
				assert.Equal(t, k, gotKind)
				assert.Equal(t, ms, gotMs)
				assert.Equal(t, number, gotNumber)
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

// These scales have periods that differ in each word.
var salted = []int64{1000, 60_000, 1000 + 1<<16, 3_600_000, 86_400_000, maxScale}

// In a shard the windows of one ID differ only by the salt.
func TestSaltsOfWindowsDiffer(t *testing.T) {
	seen := make(map[uint64]int64)
	for _, k := range []kind{fixedKind, slidingKind, tokenKind} {
		for _, scale := range salted {
			for number := int64(-5000); number < 5000; number++ {
				s := periodOf(k, scale, number).salt
				if other, taken := seen[s]; taken {
					t.Fatalf("window %d of scale %d has the salt of %d", number, scale, other)
				}
				seen[s] = number
			}
		}
	}
}

// The buckets of one ID in consecutive windows must not share a position of the index.
func TestSaltSpreadsPositions(t *testing.T) {
	const places, n = 1 << 10, 1 << 15
	for _, scale := range salted {
		var high, low [places]int
		for number := range int64(n) {
			at := uint32(periodOf(fixedKind, scale, number+29_919_571).salt)
			high[at>>22]++
			low[at%places]++
		}
		for i := range places {
			require.InDelta(t, 32, high[i], 32, "place %d, scale %d", i, scale)
			require.InDelta(t, 32, low[i], 32, "tag %d, scale %d", i, scale)
		}
	}
}

func TestHashIsSeededPerLimiter(t *testing.T) {
	a, _ := newTestLimiter(t, Config{})
	b, _ := newTestLimiter(t, Config{})
	same := 0
	for range 64 {
		id := string(rune('a' + rand.IntN(26)))
		if a.buckets.hash(id) == b.buckets.hash(id) {
			same++
		}
	}
	assert.Zero(t, same, "limiters must not share a hash seed")
}

func TestParams(t *testing.T) {
	for _, c := range []struct {
		name string
		r    Request
		want params
		err  error
	}{
		{"a cost of 0 is 1", Request{Key: "k", Limit: 9, Duration: time.Second},
			params{Scale: 1000, Limit: 9, Cost: 1}, nil},
		{"a limit over int64 is the largest int64",
			Request{Key: "k", Limit: math.MaxUint64, Duration: time.Second},
			params{Scale: 1000, Limit: math.MaxInt64, Cost: 1}, nil},
		{"so is a cost", Request{Key: "k", Cost: math.MaxUint64, Duration: time.Second},
			params{Scale: 1000, Cost: math.MaxInt64}, nil},
		{"a millisecond is the least duration", Request{Key: "k", Duration: time.Millisecond, Meta: "m"},
			params{Scale: 1, Cost: 1}, nil},
		{"a nanosecond is not whole", Request{Key: "k", Duration: 1}, params{}, ErrScale},
		{"nor is a millisecond and one", Request{Key: "k", Duration: time.Millisecond + 1}, params{},
			ErrScale},
		{"no duration", Request{Key: "k"}, params{}, ErrScale},
		{"a negative duration", Request{Key: "k", Duration: -time.Second}, params{}, ErrScale},
		{"the most negative duration", Request{Key: "k", Duration: math.MinInt64}, params{}, ErrScale},
		{"a year", Request{Key: "k", Duration: maxScale * time.Millisecond},
			params{Scale: maxScale, Cost: 1}, nil},
		{"over a year", Request{Key: "k", Duration: (maxScale + 1) * time.Millisecond}, params{},
			ErrScale},
		{"no key", Request{Duration: time.Second}, params{}, ErrID},
		{"a key of 1 KiB", Request{Key: strings.Repeat("k", 1024), Duration: time.Second},
			params{Scale: 1000, Cost: 1}, nil},
		{"a key over 1 KiB", Request{Key: strings.Repeat("k", 1025), Duration: time.Second}, params{},
			ErrID},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, _ := newTestLimiter(t, Config{})
			s := reader{l: l, most: math.MaxInt64}
			got, err := s.parse(&c.r)
			require.ErrorIs(t, err, c.err)
			if c.err == nil {
				assert.Equal(t, c.want, got)
			}
		})
	}
}

func TestLargeLimitsAndCostsCountAsTheMost(t *testing.T) {
	const most = maxCount
	l, _ := newTestLimiter(t, Config{})
	s := l.onSlots(counterKind)
	for _, c := range []struct {
		name                    string
		limit, cost             uint64
		wantedLimit, wantedCost int64
	}{
		{"small numbers stay", 5, 3, 5, 3},
		{"the most stays", most, most, most, most},
		{"a large limit becomes the most", most + 1, 3, most, 3},
		{"a large cost within a large limit becomes the most", most + 1, most + 1, most, most},
		{"a small cost over the limit stays over it", 3, 4, 3, 4},
		{"a large cost over a small limit stays over it", 3, most + 9, 3, most},
		{"a large cost over the most as limit stays over it", most, most + 1, most - 1, most},
		{"a large cost over a large limit stays over it", most + 1, most + 2, most - 1, most},
		{"the largest numbers", math.MaxUint64, math.MaxUint64, most, most},
		{"limit 0", 0, math.MaxUint64, 0, most},
	} {
		p, err := s.parse(&Request{Key: "k", Limit: c.limit, Cost: c.cost, Duration: time.Second})
		require.NoError(t, err, c.name)
		assert.Equal(t, params{Scale: 1000, Limit: c.wantedLimit, Cost: c.wantedCost}, p, c.name)
		assert.Equal(t, c.cost > c.limit, p.ExceedsLimit(), c.name)
	}
}
