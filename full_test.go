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
