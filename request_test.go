package weir

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A cost over the limit is never admitted, even if both exceed the largest count.
func TestHugeCostsOverHugeLimitsAreDenied(t *testing.T) {
	l := newLimiter(t)
	for name, s := range map[string]Strategy{
		"FixedWindow": l.FixedWindow(), "SlidingWindow": l.SlidingWindow(), "SlidingLog": l.SlidingLog(),
		"Counter": l.Counter(), "List": l.List(),
	} {
		for _, limit := range []uint64{1 << 48, 1 << 62, 1<<63 - 1, 1 << 63, math.MaxUint64 - 1} {
			res := MustRun(t, s, &Request{Key: "id", Limit: limit, Duration: time.Second, Cost: limit + 1})
			require.Equal(t, Result{State: Deny}, *res, "%s, %d", name, limit)
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

func TestParams(t *testing.T) {
	for _, c := range []struct {
		name string
		r    Request
		want params
	}{
		{"a cost of 0 is 1", Request{Key: "k", Limit: 9, Duration: time.Second},
			params{Scale: 1000, Limit: 9, Cost: 1}},
		{"a limit over int64 is the largest int64",
			Request{Key: "k", Limit: math.MaxUint64, Duration: time.Second},
			params{Scale: 1000, Limit: math.MaxInt64, Cost: 1}},
		{"so is a cost", Request{Key: "k", Cost: math.MaxUint64, Duration: time.Second},
			params{Scale: 1000, Cost: math.MaxInt64}},
		{"a millisecond is the least duration", Request{Key: "k", Duration: time.Millisecond, Meta: "m"},
			params{Scale: 1, Cost: 1}},
		{"a year is the largest", Request{Key: "k", Duration: maxScale * time.Millisecond},
			params{Scale: maxScale, Cost: 1}},
		{"a key of 1 KiB", Request{Key: strings.Repeat("k", 1024), Duration: time.Second},
			params{Scale: 1000, Cost: 1}},
	} {
		s := reader{l: newLimiter(t), most: math.MaxInt64}
		got, err := s.parse(&c.r)
		require.NoError(t, err, c.name)
		assert.Equal(t, c.want, got, c.name)
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
