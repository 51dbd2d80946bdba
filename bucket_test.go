package weir

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestWindowHoldsOnlyItsOwnInstants(t *testing.T) {
	w := windowAt(0, 10)
	assert.False(t, w.holds(maxInstant), "a window that ended long ago holds the last instant that can be counted")
	assert.True(t, windowAt(maxInstant, 10).holds(maxInstant), "the last window holds the last instant")
}

// A stamp tells the instant it was made at, to the millisecond, or to 8 in windows that are longer than 49 days.
func TestStampsTellTheirInstant(t *testing.T) {
	for _, c := range []struct{ ms, unit int64 }{
		{1, 1}, {1000, 1}, {1 << 32, 1}, {1<<32 + 1, 2}, {1 << 33, 2}, {1 << 34, 4}, {maxScale, 8},
	} {
		for _, at := range []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, 1_700_000_000_123_456_789, maxInstant - 1, maxInstant} {
			w := windowAt(at, c.ms)
			for _, now := range []int64{w.start, at, w.end - 1} {
				told := w.period.at(w.stamp(now))
				assert.LessOrEqual(t, told, now, "%d ms at %d", c.ms, now)
				assert.Less(t, uint64(now-told), uint64(c.unit*msec), "%d ms at %d", c.ms, now)
			}
		}
	}
}

// What a window before admitted is learned where 31 bits can count it, and looked up each time where they cannot.
func TestBucketLearnsWhatItCanCount(t *testing.T) {
	for _, prior := range []int64{0, 1, math.MaxInt32 - 1, math.MaxInt32, math.MaxUint32 - 1, math.MaxUint32, math.MaxInt64} {
		var b bucket
		b.learn(prior)
		if told := b.prior(); told >= 0 || prior < math.MaxInt32 {
			assert.Equal(t, prior, told)
		}
		b.doubt()
		b.learn(prior)
		assert.Negative(t, b.prior())
	}
}
