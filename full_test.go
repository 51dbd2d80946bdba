package weir

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestNeverExceedsCapacity(t *testing.T) {
	const capacity, callers = 100, 64
	l, _ := newTestLimiter(t, Config{MaxBuckets: capacity})
	var admitted, full atomic.Int64
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range 100 {
				switch _, err := l.CheckRate(strconv.Itoa(c*100+i), 1000, 1); err {
				case nil:
					admitted.Add(1)
				case ErrFull:
					full.Add(1)
				default:
					t.Error(err)
				}
				if n := l.room.Used(); n > capacity {
					t.Errorf("%d buckets, at most %d", n, capacity)
				}
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, capacity, admitted.Load())
	assert.EqualValues(t, callers*100-capacity, full.Load())
	assert.EqualValues(t, capacity, l.room.Used())
}

// A caller finds the table full and reads the clock once more. After that reading another caller
// takes the room that there was, and everything else expires.
func TestErrFullHoldsAtOneInstant(t *testing.T) {
	var l *Limiter
	var ms, readings int64
	check := func(id string) error {
		_, err := l.CheckRate(id, 10, 1)
		return err
	}
	l = MustNew(t, Config{MaxBuckets: 2, SweepEvery: time.Hour, Now: func() time.Time {
		now := time.UnixMilli(ms)
		if readings++; readings == 5 { // the second reading of "slow"
			assert.NoError(t, l.Reset("first", 10))
			ms = 10
			assert.NoError(t, check("next"))
		}
		return now
	}})
	require.NoError(t, check("first"))
	require.NoError(t, check("second"))
	require.NoError(t, check("slow"))
}

// Whatever a reclaim removes in however many shards, Stats counts.
func TestReclaimedBucketsAreSwept(t *testing.T) {
	const n = 64
	l, clock := newTestLimiter(t, Config{})
	require.Greater(t, len(l.buckets.shards), 1)
	l.room.Max = n // after New, so that there are as many shards as in a large table
	for i := range n {
		MustCheck(t, l, strconv.Itoa(i), 10, 1)
	}
	clock.setMs(10)
	for i := range n {
		MustCheck(t, l, strconv.Itoa(i), 10, 1)
		s := l.Stats()
		require.EqualValues(t, n+i+1, s.Swept+uint64(s.Buckets))
	}
}

// An Admit that fails has no Result, and nothing to give back.
func TestAdmitFailsAtAFullTable(t *testing.T) {
	l, _ := newTestLimiter(t, Config{MaxBuckets: 1})
	MustCheck(t, l, "first", 1000, 1)
	r := &Request{Key: "second", Limit: 1, Duration: time.Second}
	for _, s := range []Strategy{l.FixedWindow(), l.SlidingWindow(), l.TokenBucket(0), l.SlidingLog()} {
		res, back, err := ops.Admit(t.Context(), s, r)
		require.ErrorIs(t, err, ErrFull)
		assert.Nil(t, res)
		assert.Nil(t, back)
	}
}
