package weir

import (
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCapacityIsReserved(t *testing.T) {
	r := newCapacity(1, new(janitor))
	r.janitor.closed = true
	assert.False(t, overshoots(counted{&r}))
	assert.Zero(t, r.used())
}

type counted struct{ *capacity }

func (c counted) inUse() int64 { return c.used() }

func TestCapacityControlOvershoots(t *testing.T) {
	assert.True(t, overshoots(new(lookThenTake)))
}

// lookThenTake looks whether there is room for one, and then takes it.
type lookThenTake struct{ used atomic.Int64 }

func (r *lookThenTake) tryTake() bool {
	if r.used.Load() > 0 {
		return false
	}
	runtime.Gosched()
	r.used.Add(1)
	return true
}

func (r *lookThenTake) give()        { r.used.Add(-1) }
func (r *lookThenTake) inUse() int64 { return r.used.Load() }

// overshoots reports whether of 8 callers more than one are in a room for one at a time.
func overshoots(r interface {
	tryTake() bool
	give()
	inUse() int64
}) bool {
	var over atomic.Bool
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := 0; i < 300_000 && !over.Load(); i++ {
				if !r.tryTake() {
					continue
				}
				if i%8 == 0 {
					runtime.Gosched() // with one processor the others come here too, if they can
				}
				if r.inUse() > 1 {
					over.Store(true)
				}
				r.give()
			}
		})
	}
	wg.Wait()
	return over.Load()
}

func TestNeverExceedsCapacity(t *testing.T) {
	const room, callers = 100, 64
	l, _ := newTestLimiter(t, Config{MaxBuckets: room})
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
				if n := l.capacity.used(); n > room {
					t.Errorf("%d buckets, at most %d", n, room)
				}
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, room, admitted.Load())
	assert.EqualValues(t, callers*100-room, full.Load())
	assert.EqualValues(t, room, l.capacity.used())
}

// A caller finds the table full, reads the clock once more, and is slow: at that reading there was
// room, which another caller has taken since, and all the rest is over by then.
func TestFullIsSeenAtOneInstant(t *testing.T) {
	var l *Limiter
	var ms, readings int64
	check := func(id string) error {
		_, err := l.CheckRate(id, 10, 1)
		return err
	}
	l, err := New(Config{MaxBuckets: 2, SweepEvery: time.Hour, Now: func() time.Time {
		now := time.UnixMilli(ms)
		if readings++; readings == 5 { // the second one of slow's
			assert.NoError(t, l.Reset("first", 10))
			ms = 10
			assert.NoError(t, check("next"))
		}
		return now
	}})
	require.NoError(t, err)
	defer l.Close()
	require.NoError(t, check("first"))
	require.NoError(t, check("second"))
	require.NoError(t, check("slow"))
}
