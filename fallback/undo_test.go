package fallback_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/ops"
)

// failsOnce fails one call of another caller on an instance, after which it may seed the server.
func (f *fleet) failsOnce(t *testing.T, i int) {
	f.clock.Advance(2 * time.Second)
	f.server.fails(errDown)
	require.Equal(t, weir.FromLocal,
		source(t, f.instances[i], weir.Request{Key: "other", Limit: 10, Duration: time.Hour}))
	f.server.fails(nil)
	require.Equal(t, fallback.Closed, f.instances[i].Stats().State)
}

// A failed call of one caller does not undo what another instance took back from a second one.
func TestFailedCallUndoesNoReset(t *testing.T) {
	for name, row := range map[string]struct {
		to   front
		want uint64
	}{"reconciles": {whole, 1}, "control: always seeds": {seeding, 100}} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 2, fixedWindow, fallback.Config{}, row.to)
			r := weir.Request{Key: "a", Limit: 100, Duration: 24 * time.Hour}
			for range 50 {
				ask(t, f.instances[0], r)
				ask(t, f.instances[1], r)
			}
			require.NoError(t, ops.Reset(t.Context(), f.instances[0], &r))
			f.failsOnce(t, 1)
			res, by := ask(t, f.instances[1], r)
			assert.Equal(t, weir.FromPrimary, by)
			assert.Equal(t, row.want, res.TotalRequests)
		})
	}
}

// seeding returns a primary that takes every count for one that was lost.
func seeding(s *server) weir.Strategy {
	return newAround(s, func(ctx context.Context, op *weir.Op, next func(context.Context, *weir.Op)) {
		if b := op.Backlog; b != nil && b.Counted != nil {
			op.Err = ops.Seed(ctx, s, &op.Request, b.Counted)
			if op.Err != nil {
				return
			}
		}
		next(ctx, op)
	})
}

// Three instances take 100 and give back 90 of it, and in each round a call of another caller fails
// on each of them. Primary has counted what was used.
func TestFailedCallsCountReservationsOnce(t *testing.T) {
	f := newFleet(t, 3, fixedWindow, fallback.Config{}, whole)
	r := weir.Request{Key: "a", Limit: 1 << 20, Duration: 24 * time.Hour, Cost: 100}
	used := uint64(0)
	for range 8 {
		for range 20 {
			for i, instance := range f.instances {
				f.clock.Advance(time.Millisecond)
				taken, by := ask(t, instance, r)
				require.Equal(t, weir.FromPrimary, by)
				back := r
				back.Cost = 90
				require.NoError(t, ops.Refund(t.Context(), f.instances[(i+1)%3], &back, &taken))
				used += 10
			}
		}
		for i := range f.instances {
			f.failsOnce(t, i)
		}
	}
	res, _ := ask(t, f.instances[0], r)
	assert.Equal(t, used+100, res.TotalRequests)
}
