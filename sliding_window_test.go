package weir

import (
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Even if each reading of the clock is in another window, a decision returns, before Close and
// after.
func TestClockThatCrossesAWindowAtEachReading(t *testing.T) {
	var ms atomic.Int64
	l, err := New(Config{Now: func() time.Time { return time.UnixMilli(ms.Add(10)) }})
	require.NoError(t, err)
	r := &Request{Key: "id", Limit: 5, Duration: 10 * time.Millisecond}
	for i := range 100 {
		r.Key = strconv.Itoa(i % 10)
		for _, s := range []Strategy{l.FixedWindow(), l.SlidingWindow(), l.SlidingLog(),
			l.TokenBucket(0)} {
			MustRun(t, s, r)
		}
	}
	require.NoError(t, l.Close())
	_, err = l.SlidingWindow().Run(t.Context(), r)
	require.ErrorIs(t, err, ErrClosed)
}

// A caller has one bucket across windows.
func TestSlidingWindowHoldsOneBucketACaller(t *testing.T) {
	l, clock := newTestLimiter(t, Config{})
	r := &Request{Key: "id", Limit: 5, Duration: time.Second}
	for ms := range int64(50) {
		clock.setMs(ms * 100)
		MustRun(t, l.SlidingWindow(), r)
		require.Equal(t, 1, l.Stats().Buckets)
	}
	clock.setMs(60_000)
	res := MustRun(t, l.SlidingWindow(), r)
	assert.EqualValues(t, 1, res.TotalRequests)
}
