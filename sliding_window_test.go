package weir_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
)

// A bucket remembers what the window before admitted. What changes that afterwards must not pass it by.

func TestSlidingWindowHearsOfARefundToTheWindowBefore(t *testing.T) {
	l, clock := newOnClock(t, weir.Config{})
	s := l.SlidingWindow()
	r := weir.Request{Key: "a", Limit: 100, Duration: time.Second, Cost: 10}
	taken := run(t, s, r)
	clock.Advance(time.Second) // the weight of the window before is still 1
	one := r
	one.Cost = 1
	require.EqualValues(t, 11, run(t, s, one).TotalRequests)
	r.Cost = 4
	require.NoError(t, s.Refund(context.Background(), &r, taken))
	require.EqualValues(t, 8, run(t, s, one).TotalRequests)
	require.NoError(t, s.Refund(context.Background(), &r, taken))
	require.EqualValues(t, 5, run(t, s, one).TotalRequests)
}

func TestSlidingWindowHearsOfARefundAtTheEdge(t *testing.T) {
	l, clock := newOnClock(t, weir.Config{})
	s := l.SlidingWindow()
	r := weir.Request{Limit: 100, Duration: time.Second, Cost: 10}
	for i := range 5000 {
		r.Key = strconv.Itoa(i)
		taken := run(t, s, r)
		clock.Advance(time.Second)
		var wg sync.WaitGroup
		wg.Go(func() { assert.NoError(t, s.Refund(context.Background(), &r, taken)) })
		wg.Go(func() { run(t, s, r) })
		wg.Wait()
		require.EqualValues(t, 20, run(t, s, r).TotalRequests, "nothing of the window before, and two of 10")
	}
}

func TestSlidingWindowHearsOfABucketThatAClockSetBackMade(t *testing.T) {
	l, clock := newOnClock(t, weir.Config{})
	s := l.SlidingWindow()
	r := weir.Request{Key: "a", Limit: 100, Duration: time.Second}
	clock.Advance(time.Second)
	require.EqualValues(t, 1, run(t, s, r).TotalRequests)
	clock.Advance(-time.Second)
	require.EqualValues(t, 1, run(t, s, r).TotalRequests)
	clock.Advance(time.Second)
	require.EqualValues(t, 3, run(t, s, r).TotalRequests)
}
