package fallback_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
)

// far is a store of limits, each call of which takes a round trip.
type far struct {
	limiter *weir.Limiter
	took    time.Duration
	down    atomic.Bool
	exits   atomic.Bool // a call of several limits ends its goroutine
	trips   atomic.Int64
}

func (s *far) trip(ctx context.Context) error {
	if s.down.Load() {
		return errors.New("down")
	}
	s.trips.Add(1)
	select {
	case <-time.After(s.took):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// batched is a fixed window on a far store.
type batched struct {
	window *weir.FixedWindow
	server *far
}

func (b *batched) Store() (any, weir.Strategy) { return b.server, b }

func (b *batched) Batch(ctx context.Context, op weir.Op, limits []*weir.Attempt) {
	if b.server.exits.Load() && len(limits) > 1 {
		runtime.Goexit()
	}
	err := b.server.trip(ctx)
	for _, l := range limits {
		if l.Err = err; err != nil {
			continue
		}
		var res *weir.Result
		switch op {
		case weir.OpRun:
			res, l.Err = b.window.Run(ctx, &l.Request)
		case weir.OpPeek:
			res, l.Err = b.window.Peek(ctx, &l.Request)
		case weir.OpRefund:
			l.Err = b.window.Refund(ctx, &l.Request, &l.Result)
		case weir.OpCharge:
			l.Err = b.window.Charge(ctx, &l.Request)
		}
		if res != nil {
			l.Result = *res
		}
	}
}

// one makes a call by itself.
func (b *batched) one(
	ctx context.Context, op weir.Op, r *weir.Request, res weir.Result,
) (*weir.Result, error) {
	l := &weir.Attempt{Request: *r, Result: res}
	b.Batch(ctx, op, []*weir.Attempt{l})
	return &l.Result, l.Err
}

func (b *batched) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return b.one(ctx, weir.OpRun, r, weir.Result{})
}

func (b *batched) Peek(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return b.one(ctx, weir.OpPeek, r, weir.Result{})
}

func (b *batched) Refund(ctx context.Context, r *weir.Request, taken *weir.Result) error {
	_, err := b.one(ctx, weir.OpRefund, r, *taken)
	return err
}

func (b *batched) Charge(ctx context.Context, r *weir.Request) error {
	_, err := b.one(ctx, weir.OpCharge, r, weir.Result{})
	return err
}

func (b *batched) Reconcile(
	ctx context.Context, r *weir.Request, l *weir.Backlog,
) (*weir.Result, error) {
	if err := b.server.trip(ctx); err != nil {
		return nil, err
	}
	if l.Total > l.Charged {
		q := *r
		q.Cost = l.Total - l.Charged
		if err := b.window.Charge(ctx, &q); err != nil {
			return nil, err
		}
	}
	return b.window.Run(ctx, r)
}

// together returns limits on two Fallbacks of one server, and what is counted there.
func together(
	t *testing.T, took time.Duration, cfg fallback.Config,
) (*far, weir.Attempts, func() [2]uint64) {
	s, local := &far{limiter: limiterOn(t, nil), took: took}, limiterOn(t, nil)
	var limits weir.Attempts
	for _, key := range []string{"a", "b"} {
		f, err := fallback.New(&batched{s.limiter.FixedWindow(), s}, local.FixedWindow(), cfg)
		require.NoError(t, err)
		l := weir.NewAttempt(f)
		l.Request = weir.Request{Key: key, Limit: 100, Duration: time.Hour}
		limits = append(limits, l)
	}
	return s, limits, func() (counts [2]uint64) {
		for i := range 2 {
			r := limits[i].Request
			r.Cost = 1
			res, err := s.limiter.FixedWindow().Peek(context.Background(), &r)
			require.NoError(t, err)
			if counts[i] = res.TotalRequests; res.Allowed() {
				counts[i]--
			}
		}
		return counts
	}
}

// Whatever the method, the calls of several primaries are one.
func TestSeveralCallsAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, limits, counts := together(t, time.Millisecond, fallback.Config{Timeout: time.Second})
		take := func(set func(l *weir.Attempt)) int64 {
			for i := range limits {
				set(&limits[i])
			}
			s.trips.Store(0)
			_, err := limits.Take(context.Background(), nil)
			require.NoError(t, err)
			synctest.Wait()
			return s.trips.Load()
		}
		assert.EqualValues(t, 1, take(func(*weir.Attempt) {}))
		assert.Equal(t, [2]uint64{1, 1}, counts())
		require.NoError(t, limits.Refund(context.Background()))
		assert.EqualValues(t, 2, s.trips.Load())
		assert.Equal(t, [2]uint64{}, counts())
		assert.EqualValues(t, 1, take(func(l *weir.Attempt) { l.Look = true }))
		assert.EqualValues(t, 2, take(func(l *weir.Attempt) {
			l.Look, l.Afterwards, l.Request.Cost = false, true, 150
		}),
			"what is over its limit is charged")
		assert.Equal(t, [2]uint64{150, 150}, counts())

		local := weir.NewAttempt(s.limiter.FixedWindow())
		local.Request = weir.Request{Key: "none", Limit: 0, Duration: time.Hour}
		limits = append(limits, local)
		assert.EqualValues(t, 1, take(func(l *weir.Attempt) {
			l.Afterwards = false
		}), "peeks after a denial")
	})
}

// A panic of a user's function reaches the caller, from a call with others too.
func TestPanicsReachTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, limits, counts := together(t, time.Millisecond,
			fallback.Config{Timeout: time.Second, Partition: func(key string) string {
				if key == "bad" {
					panic("no partition")
				}
				return key
			}})
		limits[1].Request.Key = "bad"
		assert.PanicsWithValue(t, "no partition", func() {
			_, _ = limits.Take(context.Background(), nil)
		})
		limits[1].Request.Key = "b"
		allowed, err := limits.Take(context.Background(), nil)
		require.NoError(t, err)
		assert.True(t, allowed)
		assert.Equal(t, [2]uint64{2, 1}, counts(), "what was called before the panic stands")
	})
}

// A primary that ends the goroutine of a call of several limits has decided on none of them.
func TestPrimaryThatExitsInABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, limits, counts := together(t, time.Millisecond, fallback.Config{Timeout: time.Second})
		s.exits.Store(true)
		allowed, err := limits.Take(context.Background(), nil)
		require.NoError(t, err)
		assert.True(t, allowed)
		assert.Equal(t, "local", limits[0].Source)
		assert.Equal(t, "local", limits[1].Source)
		s.exits.Store(false)
		allowed, err = limits.Take(context.Background(), nil)
		require.NoError(t, err)
		assert.True(t, allowed)
		assert.Equal(t, [2]uint64{2, 2}, counts())
	})
}

// Callers that give up before their call begins do not count against primary.
func TestCallersThatGiveUpTogetherAreNoFailure(t *testing.T) {
	failures := func(n int) (failed int64) {
		var errs atomic.Int64
		_, limits, _ := together(t, 0, fallback.Config{Timeout: time.Minute, OnError: func(error) {
			errs.Add(1)
		}})
		for i := range 2000 {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i%50)*time.Microsecond)
			_, _ = limits[:n].Take(ctx, nil)
			cancel()
		}
		return errs.Load()
	}
	assert.Zero(t, failures(2))
}

// A caller that owes something holds up no other one.
func TestDebtsHoldUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, limits, counts := together(t, 120*time.Millisecond,
			fallback.Config{Timeout: 200 * time.Millisecond})
		s.down.Store(true)
		_, err := limits[:1].Take(context.Background(), nil)
		require.NoError(t, err)
		s.down.Store(false)
		start := time.Now()
		allowed, err := limits.Take(context.Background(), nil)
		require.NoError(t, err)
		assert.True(t, allowed)
		assert.Equal(t, []string{"primary", "primary"}, []string{limits[0].Source, limits[1].Source})
		assert.Equal(t, 120*time.Millisecond, time.Since(start), "at the same time")
		assert.Equal(t, [2]uint64{2, 1}, counts())
	})
}
