package clock

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/internal/core/algorithm"
)

func TestClockIgnoresWallClockSteps(t *testing.T) {
	// Stepping the wall clock after New equals a wall clock that disagrees with the instant recorded
	// by New.
	for _, step := range []time.Duration{-time.Hour, -time.Millisecond, time.Hour,
		26 * 365 * 24 * time.Hour} {
		c := New(nil)
		c.unix -= int64(step)
		before := c.unix
		got := c.Read()
		assert.GreaterOrEqual(t, got, before, "step %v: the clock went back", step)
		assert.Less(t, got, before+int64(time.Minute), "step %v: the clock followed the wall", step)
		assert.Less(t, time.Until(c.Time(got)).Abs(), time.Minute,
			"step %v: what is handed out is as far from time.Now as from the clock", step)
	}
}

func TestInstantSaturates(t *testing.T) {
	for _, c := range []struct {
		name string
		at   time.Time
		want int64
	}{
		{"the epoch is zero", time.Unix(0, 0), 0},
		{"a nanosecond before the epoch is negative", time.Unix(0, -1), -1},
		{"the zone does not matter", time.Unix(1, 0).In(time.FixedZone("", 3600)), 1e9},
		{"the first year is the least instant", time.Time{}, math.MinInt64},
		{"the year 1600 is the least instant", time.Date(1600, 1, 1, 0, 0, 0, 0, time.UTC),
			math.MinInt64},
		{"the year 1700 is counted", time.Date(1700, 1, 1, 0, 0, 0, 0, time.UTC), -8520336000e9},
		{"the year 2200 is counted", time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC), 7258118400e9},
		{"the year 2300 is the last instant", time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC),
			algorithm.End - 1},
		{"the end of int64 seconds is the last instant", time.Unix(math.MaxInt64/2, 0), algorithm.End - 1},
	} {
		t.Run(c.name, func(t *testing.T) { assert.Equal(t, c.want, instant(c.at)) })
	}
}

func TestClockTimeIsTheInverseOfRead(t *testing.T) {
	zone := time.FixedZone("somewhere", 5*3600)
	virtual := New(func() time.Time { return time.Unix(0, 0).In(zone) })
	monotonic := New(nil)
	for _, ns := range []int64{0, -1, 1, -1e18, 1e18, 1795174273e9} {
		for _, c := range []*Clock{&virtual, &monotonic} {
			got := c.Time(ns)
			assert.Equal(t, ns, got.UnixNano())
			assert.Equal(t, ns, c.Instant(got))
			assert.Equal(t, ns, c.Instant(got.Round(0)),
				"without its monotonic reading, as from another store")
		}
		assert.Equal(t, zone, virtual.Time(ns).Location(), "times are handed out in the zone of Now")
	}
}
