package weir

import (
	"container/list"
	"context"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// A waiter leaves the queue at a cost that does not depend on its length: it looks at its neighbors
// only.
func TestLeavingALongQueueIsCheap(t *testing.T) {
	var q queue
	var line []*list.Element
	for range 1001 {
		line = append(line, q.line.PushBack(&waiter{cost: 1}))
		q.Waiting++
	}
	cutLinks(line, 500)
	q.remove(line[500])
	assert.Equal(t, 1000, q.line.Len())
	assert.EqualValues(t, 1000, q.Waiting)
}

func TestLeavingALongQueueControlIsRejected(t *testing.T) {
	var l list.List
	var line []*list.Element
	for i := range 1001 {
		line = append(line, l.PushBack(i))
	}
	search := func() bool {
		for e := l.Front(); e != nil; e = e.Next() {
			if e == line[500] {
				return true
			}
		}
		return false
	}
	assert.True(t, search())
	cutLinks(line, 500)
	assert.False(t, search(), "a walk through the queue finds no waiter")
}

// cutLinks clears every element of a list but the i-th, so that nothing else can walk to it. It can
// still be removed.
func cutLinks(elements []*list.Element, i int) {
	for j, e := range elements {
		if j != i {
			*e = list.Element{Value: e.Value}
		}
	}
}

// ExpiresAt of a denial is an instant at which the same request is admitted, even if buckets of
// other lengths share the queue.
func TestDenialWithASharedQueue(t *testing.T) {
	for _, length := range []int{0, 1, 3, 7} {
		Waiting(t, func(t *testing.T, l *Limiter) {
			r := &Request{Key: "id", Limit: 1, Duration: time.Second}
			long, short := l.LeakyBucket(10), l.LeakyBucket(length)
			var waiting errgroup.Group
			for range 8 {
				waiting.Go(func() error {
					_, err := long.Run(t.Context(), r)
					return err
				})
			}
			synctest.Wait()
			res := MustPeek(t, short, r)
			require.False(t, res.Allowed())
			time.Sleep(time.Until(res.ExpiresAt) - time.Nanosecond)
			synctest.Wait()
			early := MustPeek(t, short, r)
			assert.False(t, early.Allowed(), "length %d: just before ExpiresAt", length)
			assert.Equal(t, res.ExpiresAt, early.ExpiresAt)
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			then := MustPeek(t, short, r)
			assert.True(t, then.Allowed(), "length %d", length)
			require.NoError(t, waiting.Wait())
		})
	}
}

func TestWaitersAreBoundedInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := MustNew(t, Config{MaxBuckets: 1})
		l.room.MaxBytes = 5 * waiterBytes
		r := &Request{Key: "id", Limit: 1, Duration: time.Hour}
		ctx, cancel := context.WithCancel(t.Context())
		var waiting errgroup.Group
		_, err := l.LeakyBucket(100).Run(ctx, r)
		require.NoError(t, err)
		for range 5 {
			waiting.Go(func() error {
				_, err := l.LeakyBucket(100).Run(ctx, r)
				return err
			})
		}
		synctest.Wait()
		_, err = l.LeakyBucket(100).Run(ctx, r)
		require.ErrorIs(t, err, ErrFull)
		assert.EqualValues(t, 1, l.Stats().Allowed,
			"waiting requests are not counted yet, as counts never fall")
		cancel()
		require.ErrorIs(t, waiting.Wait(), context.Canceled)
		assert.Zero(t, l.room.Bytes.Load())
		assert.EqualValues(t, 1, l.Stats().Allowed, "canceled requests are not counted")
	})
}

func TestWaitersForCenturies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(Config{})
		require.NoError(t, err)
		s, r := l.LeakyBucket(3),
			&Request{Key: "id", Limit: math.MaxInt64, Cost: 1 << 62, Duration: time.Hour}
		MustRun(t, s, r)
		var waiting errgroup.Group
		for range 3 {
			waiting.Go(func() error {
				_, err := s.Run(t.Context(), r)
				return err
			})
		}
		synctest.Wait()
		res := MustPeek(t, s, r)
		assert.Greater(t, res.TotalRequests, uint64(1<<62))
		require.NoError(t, l.Close())
		require.ErrorIs(t, waiting.Wait(), ErrClosed)
	})
}

// What waited can be given back until its own cost has leaked, however many wait behind it.
func TestRefundOfOneThatWaited(t *testing.T) {
	Waiting(t, func(t *testing.T, l *Limiter) {
		b, r := l.LeakyBucket(10), &Request{Key: "a", Limit: 1, Duration: time.Second}
		start, left := time.Now(), make(chan time.Duration, 6)
		backs := make(chan func(context.Context, uint64) error, 6)
		for range 6 {
			go func() {
				res, giveBack, err := ops.Admit(t.Context(), b, r)
				assert.NoError(t, err)
				assert.Equal(t, time.Now().Add(time.Second), res.ExpiresAt)
				left <- time.Since(start)
				backs <- giveBack
			}()
			synctest.Wait()
		}
		time.Sleep(2500 * time.Millisecond)
		for range 3 { // of which the third has half of its cost in the bucket
			require.NoError(t, (<-backs)(t.Context(), 1))
		}
		const s = time.Second
		for _, want := range []time.Duration{0, s, 2 * s, 5 * s / 2, 7 * s / 2, 9 * s / 2} {
			assert.Equal(t, want, <-left)
		}
	})
}

// The first in line looks at a clock that is set by hand every millisecond of real time.
func TestAWaiterSeesTheClockSetByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, clock := newTestLimiter(t, Config{})
		b, r := l.LeakyBucket(1), &Request{Key: "a", Limit: 1, Duration: time.Second}
		MustRun(t, b, r)
		left := make(chan error, 1)
		go func() {
			_, err := b.Run(t.Context(), r)
			left <- err
		}()
		time.Sleep(10 * time.Millisecond)
		assert.Empty(t, left)
		clock.setMs(1000)
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		require.Len(t, left, 1)
		assert.NoError(t, <-left)
	})
}

// A panic of Config.Now does not leave its caller in the line, before all others for good.
func TestWaiterWhoseClockPanicsLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var panics atomic.Bool
		l := MustNew(t, Config{Now: func() time.Time {
			if panics.Swap(false) {
				panic("no time")
			}
			return time.Now()
		}})
		b, r := l.LeakyBucket(10), &Request{Key: "a", Limit: 1, Duration: time.Second}
		MustRun(t, b, r)
		caught := make(chan any, 1)
		go func() {
			defer func() { caught <- recover() }()
			_, _ = b.Run(t.Context(), r)
		}()
		synctest.Wait()
		panics.Store(true)
		assert.Equal(t, "no time", <-caught)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := b.Run(ctx, r)
		assert.NoError(t, err)
	})
}
