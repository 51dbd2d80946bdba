package fallback_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/near"
)

// counting are the strategies of which a Fallback knows the least that they still count.
func counting() map[string]strategyOf {
	all := strategies()
	delete(all, "SlidingLog")
	all["Calendar"] = func(l *weir.Limiter) weir.Strategy { return l.Calendar(weir.Day, time.UTC) }
	return all
}

// A primary that loses counts without a failed call is raised to them by the next one: what each
// loss adds to the limit is a call of each instance, and what the first to call has not seen. The
// negative control, a primary that remembers nothing of what was taken back, is not raised.
func TestCountsThatAreLostWithoutAFailedCall(t *testing.T) {
	for name, row := range map[string]struct {
		instances int
		admit     int // before each loss
		losses    int
		left      uint64 // that the server still counts
		want      uint64 // admitted at most
		of, to    string
	}{
		"FLUSHALL":                     {1, 60, 1, 0, 101, "", ""},
		"to an empty replica":          {1, 80, 1, 0, 101, "", ""},
		"to a late replica":            {2, 100, 1, 60, 103, "", ""},
		"a key that is evicted often":  {1, 9, 11, 0, 111, "", ""},
		"a bucket":                     {1, 60, 1, 0, 104, "TokenBucket", ""},
		"a sliding window":             {1, 60, 1, 0, 103, "SlidingWindow", ""},
		"a day":                        {2, 80, 1, 0, 103, "Calendar", ""},
		"control: remembers no refund": {1, 60, 1, 0, 0, "", "seeds and charges"},
	} {
		t.Run(name, func(t *testing.T) {
			of, to := fixedWindow, whole
			if row.of != "" {
				of = counting()[row.of]
			}
			if row.to != "" {
				to = fronts[row.to]
			}
			f := newFleet(t, row.instances, of, fallback.Config{}, to)
			r, admitted := weir.Request{Key: "a", Limit: 100, Duration: time.Hour}, uint64(0)
			take := func(i int) {
				if res, _ := ask(t, f.instances[i%row.instances], r); res.Allowed() {
					admitted++
				}
			}
			for range row.losses {
				for i := range row.admit {
					take(i)
				}
				f.server.lose(t, r, row.left)
			}
			for i := range 300 {
				take(i)
			}
			lost := uint64(0)
			for _, i := range f.instances {
				s := i.Stats()
				assert.Zero(t, s.Failures)
				assert.Zero(t, s.Opens)
				lost += s.Losses
			}
			if row.want == 0 {
				assert.EqualValues(t, 160, admitted, "the control")
				return
			}
			assert.LessOrEqual(t, admitted, row.want)
			assert.EqualValues(t, row.losses*row.instances, lost, "each instance notices")
		})
	}
}

// A count that another instance has taken back, by a refund or a reset, is lower too. It costs the
// next call a Backlog, and stays as it is.
func TestWhatOthersTakeBackIsNoDebt(t *testing.T) {
	for name, takeBack := range map[string]func(f *fallback.Fallback, r *weir.Request, res *weir.Result) error{
		"a refund": func(f *fallback.Fallback, r *weir.Request, res *weir.Result) error {
			return ops.Refund(context.Background(), f, r, res)
		},
		"a reset": func(f *fallback.Fallback, r *weir.Request, _ *weir.Result) error {
			return ops.Reset(context.Background(), f, r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, 2, fixedWindow, fallback.Config{}, whole)
			r := weir.Request{Key: "a", Limit: 100, Duration: time.Hour, Cost: 50}
			res, _ := ask(t, f.instances[1], r)
			one := r
			one.Cost = 1
			ask(t, f.instances[0], one)
			f.clock.Advance(time.Second)
			require.NoError(t, takeBack(f.instances[1], &r, &res))
			f.clock.Advance(time.Second)
			used := f.server.counted(t.Context(), &r)
			before := f.server.reconciles.Load()
			for range 3 {
				ask(t, f.instances[0], one)
				used++
				assert.Equal(t, used, f.server.counted(t.Context(), &r))
			}
			assert.EqualValues(t, 1, f.server.reconciles.Load()-before)
			assert.Zero(t, f.instances[0].Stats().Losses)
			assert.Zero(t, f.server.raised)
		})
	}
}

// A request that is answered after a charge, and before that has ended here, has its cost in the
// count: that is no loss.
func TestAChargeThatWasAnsweredBeforeItsEndIsNoLoss(t *testing.T) {
	f := newFleet(t, 1, fixedWindow, fallback.Config{}, whole)
	i := f.instances[0]
	r := weir.Request{Key: "a", Limit: 100, Duration: time.Hour}
	ten, five := r, r
	ten.Cost, five.Cost = 10, 5
	ask(t, i, ten)
	f.server.passes = func(c call) (*weir.Result, error) {
		res, err := c.do()
		if c.op.Verb == weir.OpCharge {
			ask(t, i, r)
		}
		return res, err
	}
	require.NoError(t, ops.Charge(t.Context(), i, &five))
	for range 3 {
		ask(t, i, r)
	}
	assert.EqualValues(t, 19, f.server.counted(t.Context(), &r))
	assert.Zero(t, i.Stats().Losses)
}

// normal has instances decide at the same time for the callers of a server that loses nothing, on
// a line with delays, so that answers overtake each other; refunds are sent by the instance that
// admitted, if any. It returns how often a count was taken for lost.
func normal(
	t *testing.T, seed uint64, of strategyOf, to front, refunds bool,
) (suspected, losses, raised uint64) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seed, 12))
		s := newServer(func() weir.Strategy { return of(limiterOn(t, nil)) })
		var mu sync.Mutex
		pause := func(most time.Duration) {
			mu.Lock()
			d := time.Duration(rng.Int64N(int64(most)))
			mu.Unlock()
			time.Sleep(d) // in a bubble
		}
		s.passes = func(c call) (*weir.Result, error) {
			pause(20 * time.Millisecond)
			res, err := c.do()
			pause(20 * time.Millisecond)
			return res, err
		}
		var all sync.WaitGroup
		var instances []*fallback.Fallback
		n := 1 + rng.IntN(3)
		d := []time.Duration{200 * time.Millisecond, time.Second, time.Minute}[rng.IntN(3)]
		limit := 1 + rng.Uint64N(60)
		for range n {
			instances = append(instances, newFallback(t, to(s), of(limiterOn(t, nil)), fallback.Config{
				Instances: n, Timeout: 500 * time.Millisecond,
			}))
		}
		for w := range n * 4 {
			all.Go(func() {
				f := instances[w%n]
				for range 30 {
					mu.Lock()
					r := weir.Request{Key: "a", Limit: limit, Duration: d, Cost: 1 + rng.Uint64N(3)}
					back := refunds && rng.IntN(4) == 0
					mu.Unlock()
					res, _, err := runSource(t.Context(), f, &r)
					if assert.NoError(t, err) && back && res.Allowed() {
						pause(d / 8)
						assert.NoError(t, ops.Refund(t.Context(), f, &r, res))
					}
					pause(d / 8)
				}
			})
		}
		all.Wait()
		for _, f := range instances {
			assert.Zero(t, f.Stats().Failures)
			losses += f.Stats().Losses
		}
		suspected, raised = s.reconciles.Load(), s.raised
	})
	return suspected, losses, raised
}

// In normal operation no count is taken for lost: whatever the strategy, the number of callers and
// of instances, the delays, and the refunds of the only instance. Refunds of other instances are
// found out, and no count is raised. The control, a server whose answers are sometimes too low, is
// suspected.
func TestNoCountIsTakenForLost(t *testing.T) {
	leases := func(s *server) weir.Strategy { return near.NewLeases(s, near.LeaseConfig{Block: 5}) }
	denials := func(s *server) weir.Strategy { return near.NewDenials(s, near.DenialsConfig{}) }
	for name, of := range counting() {
		for kind, to := range map[string]front{"plain": whole, "leases": leases, "denials": denials} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				for seed := range uint64(slow.N(5, 100, 1000)) {
					suspected, losses, _ := normal(t, seed, of, to, false)
					require.Zero(t, suspected, "seed %d", seed)
					require.Zero(t, losses, "seed %d", seed)
					_, _, raised := normal(t, seed, of, to, true)
					require.Zero(t, raised, "seed %d, with refunds", seed)
				}
			})
		}
	}
	t.Run("control", func(t *testing.T) {
		suspected := uint64(0)
		for seed := range uint64(20) {
			n, _, _ := normal(t, seed, fixedWindow, understating, false)
			suspected += n
		}
		assert.Positive(t, suspected)
	})
}

// understating returns a server that answers with less than it has counted.
func understating(s *server) weir.Strategy {
	return newAround(s, func(ctx context.Context, op *weir.Op, next func(context.Context, *weir.Op)) {
		next(ctx, op)
		if op.Verb == weir.OpTake && op.Backlog == nil {
			op.Result.TotalRequests -= min(op.Result.TotalRequests, 2) * (s.runs.Load() % 2)
		}
	})
}

// Without OnError a loss is one line of the log, at most one a second.
func TestALossIsLogged(t *testing.T) {
	var log bytes.Buffer
	was := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(was)
	var got []error
	for _, onError := range []func(error){nil, func(err error) { got = append(got, err) }} {
		f := newFleet(t, 1, fixedWindow, fallback.Config{OnError: onError}, whole)
		for range 3 {
			ask(t, f.instances[0], hour)
			ask(t, f.instances[0], hour)
			f.server.restart()
			ask(t, f.instances[0], hour)
		}
	}
	assert.Equal(t, 1, bytes.Count(log.Bytes(), []byte("primary had lost counts")), log.String())
	assert.Contains(t, log.String(), "level=WARN")
	require.Len(t, got, 2)
	assert.True(t, errors.Is(got[0], fallback.ErrLost), fmt.Sprint(got))
}
