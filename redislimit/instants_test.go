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
