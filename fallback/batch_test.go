package fallback_test

import (
	"cmp"
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/limits"
)

// far is a store of limits, each call of which takes a round trip.
type far struct {
	*server
	took  time.Duration
	exits atomic.Bool // a call of several limits ends its goroutine
	trips atomic.Int64
}

func (s *far) trip(c call) (*weir.Result, error) {
	s.trips.Add(1)
	select {
	case <-time.After(s.took):
		return c.do()
	case <-c.ctx.Done():
		return nil, c.ctx.Err()
	}
}

func (s *far) About() *weir.About {
	a := s.server.About().By(s)
	a.Store = s
	return a
}

func (s *far) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return weir.Run(ctx, s, r)
}

func (s *far) Do(ctx context.Context, ops []*weir.Op) {
	if len(ops) == 1 {
		s.one(ctx, ops[0])
		return
	}
	if s.exits.Load() {
		runtime.Goexit()
	}
	_, err := s.trip(call{ctx, nil, func() (*weir.Result, error) {
		for _, op := range ops {
			res, err := s.carryOut(ctx, op)
			op.Err = err
			if res != nil && err == nil {
				op.Result = *res
			}
		}
		return nil, nil
	}})
	for _, op := range ops {
		op.Err = cmp.Or(err, op.Err)
	}
}

// together returns limits on two Fallbacks of one server, and what is counted there.
func together(
	t *testing.T, took time.Duration, cfg fallback.Config,
) (*far, limits.Attempts, func() [2]uint64) {
	// in no Limiter of this process, as far as is known
	counting := func() weir.Strategy { return chargingOnly(local(t)) }
	s := &far{server: newServer(counting), took: took}
	s.passes = s.trip
	own := local(t)
	var attempts limits.Attempts
	for _, key := range []string{"a", "b"} {
		l := limits.NewAttempt(newFallback(t, s, own, cfg))
		l.Op.Request = weir.Request{Key: key, Limit: 100, Duration: time.Hour}
		attempts = append(attempts, l)
	}
	return s, attempts, func() (counts [2]uint64) {
		for i := range counts {
			r := attempts[i].Op.Request
			r.Cost = 1
			counts[i] = total(t, s.counting(), r)
		}
		return counts
	}
}

// Whatever the verb, the calls of several primaries are one.
func TestSeveralCallsAreOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, attempts, counts := together(t, time.Millisecond, fallback.Config{Timeout: time.Second})
		take := func(set func(l *limits.Attempt)) int64 {
			for i := range attempts {
				set(&attempts[i])
			}
			s.trips.Store(0)
			_, err := attempts.Take(context.Background(), nil)
			require.NoError(t, err)
			synctest.Wait()
			return s.trips.Load()
		}
		assert.EqualValues(t, 1, take(func(*limits.Attempt) {}))
		assert.Equal(t, [2]uint64{1, 1}, counts())
		require.NoError(t, attempts.Refund(context.Background()))
		assert.EqualValues(t, 2, s.trips.Load())
		assert.Equal(t, [2]uint64{}, counts())
		assert.EqualValues(t, 1, take(func(l *limits.Attempt) { l.Look = true }))
		assert.EqualValues(t, 2, take(func(l *limits.Attempt) {
			l.Look, l.Afterwards, l.Op.Request.Cost = false, true, 150
		}), "what is over its limit is charged")
		assert.Equal(t, [2]uint64{150, 150}, counts())

		here := limits.NewAttempt(local(t))
		here.Op.Request = weir.Request{Key: "none", Limit: 0, Duration: time.Hour}
		attempts = append(attempts, here)
		assert.EqualValues(t, 1, take(func(l *limits.Attempt) {
			l.Afterwards = false
		}), "peeks after a denial")
	})
}

// A panic of a user's function reaches the caller, from a call with others too.
func TestPanicsReachTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, attempts, counts := together(t, time.Millisecond,
			fallback.Config{Timeout: time.Second, Partition: func(key string) string {
				if key == "bad" {
					panic("no partition")
				}
				return key
			}})
		attempts[1].Op.Request.Key = "bad"
		assert.PanicsWithValue(t, "no partition", func() {
			_, _ = attempts.Take(context.Background(), nil)
		})
		attempts[1].Op.Request.Key = "b"
		allowed, err := attempts.Take(context.Background(), nil)
		require.NoError(t, err)
		assert.True(t, allowed)
		assert.Equal(t, [2]uint64{1, 1}, counts(), "primary was not called before the panic")
	})
}

// A primary that ends the goroutine of a call of several limits has decided on none of them.
func TestPrimaryThatExitsInABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, attempts, counts := together(t, time.Millisecond, fallback.Config{Timeout: time.Second})
		s.exits.Store(true)
		allowed, err := attempts.Take(context.Background(), nil)
		require.NoError(t, err)
		assert.True(t, allowed)
		assert.Equal(t, weir.FromLocal, attempts[0].Op.Source)
		assert.Equal(t, weir.FromLocal, attempts[1].Op.Source)
		s.exits.Store(false)
		allowed, err = attempts.Take(context.Background(), nil)
		require.NoError(t, err)
		assert.True(t, allowed)
		assert.Equal(t, [2]uint64{2, 2}, counts())
	})
}

// Callers that give up before their call begins do not count against primary.
func TestCallersThatGiveUpTogetherAreNoFailure(t *testing.T) {
	var errs atomic.Int64
	_, attempts, _ := together(t, 0, fallback.Config{Timeout: time.Minute, OnError: func(error) {
		errs.Add(1)
	}})
	for i := range 2000 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i%50)*time.Microsecond)
		_, _ = attempts.Take(ctx, nil)
		cancel()
	}
	assert.Zero(t, errs.Load())
}

// A caller that owes something holds up no other one.
func TestDebtsHoldUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, attempts, counts := together(t, 120*time.Millisecond,
			fallback.Config{Timeout: 200 * time.Millisecond})
		s.fails(errDown)
		_, err := attempts[:1].Take(context.Background(), nil)
		require.NoError(t, err)
		s.fails(nil)
		start := time.Now()
		allowed, err := attempts.Take(context.Background(), nil)
		require.NoError(t, err)
		assert.True(t, allowed)
		assert.Equal(t, []weir.Source{weir.FromPrimary, weir.FromPrimary},
			[]weir.Source{attempts[0].Op.Source, attempts[1].Op.Source})
		assert.Equal(t, 120*time.Millisecond, time.Since(start), "at the same time")
		assert.Equal(t, [2]uint64{2, 1}, counts())
	})
}
