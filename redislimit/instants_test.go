package redislimit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A count is taken to be older than it is: by slack, and by a second for each 1024 s.
func TestACountIsKnownSinceEarlier(t *testing.T) {
	now := time.Unix(2000, 0)
	for ago, want := range map[time.Duration]int64{
		0: 100, -time.Hour: 100, 10 * time.Second: 10_109, 1024 * time.Second: 1_025_100,
	} {
		age, unix := knownAt(now.Add(-ago), reading{now: now})
		assert.Equal(t, want, age, "%v ago, in ms", ago)
		assert.InDelta(t, 2_000_000-want, unix, 1, "%v ago, by the clock", ago)
	}
	for _, at := range []time.Time{time.Unix(-1<<40, 0), time.Unix(-9e9, 0), time.Unix(-7e9, 0)} {
		age, unix := knownAt(at, reading{now: now})
		assert.Greater(t, age, int64(100*365*24*3600*1000), "%v", at)
		assert.Less(t, unix, int64(-60*365*24*3600*1000), "%v", at)
	}
	age, unix := knownAt(time.Time{}, reading{now: now})
	assert.Less(t, age, int64(-1<<51), "not known: nothing was taken back since")
	assert.Greater(t, unix, int64(1<<51))
}

// What was taken is looked for within slack of its end, or within half of a period that is shorter,
// so that it is not found in the next one.
func TestRefundsLookNoFurtherThanHalfAPeriod(t *testing.T) {
	for d, want := range map[time.Duration]time.Duration{
		50 * time.Millisecond: 25 * time.Millisecond, 2 * slack: slack, time.Hour: slack, 0: slack,
	} {
		args := reading{clocks: new(clocks), now: time.Unix(2000, 0)}.refunded(time.Unix(2001, 0), d)
		assert.Equal(t, []any{int64(0), int64(want)}, args[2:], "%v", d)
	}
	args := reading{now: time.Unix(2000, 0)}.refunded(time.Unix(2001, 0), time.Hour)
	assert.Equal(t, []any{int64(2001), int64(0), int64(0), int64(0)}, args, "of Config.Now")
}
