package verify

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// flights is work in flight under test.
type flights interface {
	// take takes a place, or a lease.
	take(r *weir.Request, lease bool) (*weir.Result, func() error, error)
}

type flightsOf struct{ *weir.InFlight }

func (f flightsOf) take(r *weir.Request, lease bool) (*weir.Result, func() error, error) {
	ctx := context.Background()
	if lease {
		res, giveBack, err := ops.Admit(ctx, f.InFlight, r)
		return res, func() error { return giveBack(ctx, r.Cost) }, err
	}
	res, place, err := ops.Acquire(ctx, f.InFlight, r)
	return res, func() error { return place.Release(ctx) }, err
}

// While places and leases are taken and given back, and slots swept and recycled, as fast as
// possible, never more than the limit is in flight, no place is lost or counted twice, and nothing
// is left.
func TestPlacesCountExactly(t *testing.T) {
	const goroutines, limit = 64, 4
	steps := slow.N(20_000, 200_000, 10_000_000)
	l := newLimiter(t, weir.Config{MaxBuckets: 6, Timeout: 1, SweepEvery: time.Microsecond})
	f, ids := flightsOf{l.InFlight()}, mixedIDs()
	inside := make([]atomic.Int64, len(ids))
	var admitted, denied, full, over, turn atomic.Int64
	var g errgroup.Group
	for i := range goroutines {
		g.Go(func() error {
			rnd := rand.New(rand.NewPCG(1, uint64(i)))
			for range steps / goroutines {
				id := (int(turn.Add(1)/40) + rnd.IntN(2)) % len(ids)
				cost := 1 + rnd.Int64N(2)
				r := &weir.Request{Key: ids[id], Limit: limit, Duration: time.Hour, Cost: uint64(cost)}
				res, giveBack, err := f.take(r, rnd.IntN(8) == 0)
				switch {
				case errors.Is(err, weir.ErrFull):
					full.Add(1)
					continue
				case err != nil:
					return err
				case !res.Allowed():
					denied.Add(1)
					continue
				}
				admitted.Add(1)
				if inside[id].Add(cost) > limit {
					over.Add(1)
				}
				if rnd.IntN(8) == 0 {
					runtime.Gosched()
				}
				inside[id].Add(-cost)
				if err := giveBack(); err != nil {
					return err
				}
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	s := l.Stats()
	t.Logf("%d admitted, %d denied, %d ErrFull; %d swept", admitted.Load(), denied.Load(), full.Load(),
		s.Swept)
	assert.Zero(t, over.Load(), "admissions beyond the limit")
	assert.EqualValues(t, admitted.Load(), s.Allowed)
	assert.EqualValues(t, denied.Load(), s.Denied)
	assert.EqualValues(t, full.Load(), s.Full)
	assert.Positive(t, denied.Load())
	assert.Greater(t, admitted.Load(), int64(steps/50))
	for i := range ids {
		res, err := ops.Peek(t.Context(), f.InFlight, &weir.Request{Key: ids[i], Limit: limit, Duration: time.Hour})
		require.NoError(t, err)
		assert.EqualValues(t, 1, res.TotalRequests, "nothing is in flight of key %d", i)
	}
	l.Sweep()
	assert.Zero(t, l.Stats().Buckets)
}
