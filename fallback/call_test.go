package fallback_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/testkit/ops"
)

// OnCall is called once for each call and probe of primary, with its duration.
func TestOnCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type call struct {
			took time.Duration
			err  error
		}
		var mu sync.Mutex
		var calls []call
		var takes time.Duration
		var fails error
		f := newFallback(t, primaryFunc(func(context.Context) (*weir.Result, error) {
			time.Sleep(takes) // in a bubble
			return &weir.Result{State: weir.Allow}, fails
		}), nil, fallback.Config{
			OnFail: fallback.FailOpen, MinCalls: 6, FailureRate: 0.7, Stall: -1,
			OnError: func(error) { time.Sleep(time.Second) }, // not part of the measured call
			OnCall: func(took time.Duration, err error) {
				mu.Lock()
				defer mu.Unlock()
				calls = append(calls, call{took, err})
				panic("must not reach the caller")
			},
		})
		last := func() call {
			time.Sleep(time.Minute)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			require.NotEmpty(t, calls)
			return calls[len(calls)-1]
		}
		takes = 7 * time.Millisecond
		assert.Equal(t, weir.FromPrimary, source(t, f, hour))
		assert.Equal(t, call{7 * time.Millisecond, nil}, last())

		fails = errDown
		assert.Equal(t, weir.FromOnFail, source(t, f, hour))
		assert.Equal(t, call{7 * time.Millisecond, errDown}, last())

		takes, fails = time.Second, nil
		assert.Equal(t, weir.FromOnFail, source(t, f, hour))
		late := last()
		assert.Equal(t, fallback.DefaultTimeout, late.took, "a late call is reported with the timeout")
		assert.Error(t, late.err)
		assert.Len(t, calls, 3)
		assert.EqualValues(t, 3, f.Stats().Panics)

		takes, fails = time.Millisecond, errDown
		for range 4 {
			source(t, f, hour)
		}
		require.Equal(t, fallback.Open, f.Stats().State)
		last()
		fails = nil
		source(t, f, hour) // starts a probe
		assert.Equal(t, call{time.Millisecond, nil}, last())
		assert.Equal(t, fallback.Closed, f.Stats().State)
		assert.Len(t, calls, 8)
		assert.False(t, errors.Is(late.err, errDown))
	})
}

// A server that hangs costs a caller who comes alone five timeouts, or six if the breaker opens
// only after the next call has begun, however long they are.
func TestAFrozenServerAndOneCaller(t *testing.T) {
	for _, timeout := range []time.Duration{50 * time.Millisecond, 300 * time.Millisecond, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			f := newFallback(t, primaryFunc(func(ctx context.Context) (*weir.Result, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}), local(t), fallback.Config{Timeout: timeout, ProbeInterval: time.Hour})
			began := time.Now()
			for range 20 {
				assert.Equal(t, weir.FromLocal, source(t, f, hour))
			}
			assert.LessOrEqual(t, time.Since(began), 6*timeout)
			assert.EqualValues(t, 1, f.Stats().Opens)
			synctest.Wait()
		})
	}
}

// InstancesFunc is called with no lock held: it may use the Fallback, for the same caller too.
func TestInstancesFuncMayUseTheFallback(t *testing.T) {
	limiter := limiterOn(t, nil)
	var f *fallback.Fallback
	asks := false
	f = newFallback(t, primaryFunc(func(context.Context) (*weir.Result, error) {
		return nil, errDown
	}), limiter.FixedWindow(), fallback.Config{MinCalls: 1, Stall: -1, InstancesFunc: func() int {
		if asks {
			asks = false
			_, err := f.Run(t.Context(), &hour)
			assert.NoError(t, err)
		}
		return 1
	}})
	for _, verb := range []weir.Verb{weir.OpTake, weir.OpPeek, weir.OpCharge, weir.OpReturn} {
		asks = true
		op := &weir.Op{Verb: verb, Request: hour, Result: weir.Result{State: weir.Allow,
			TotalRequests: 1, ExpiresAt: time.Now().Add(time.Hour)}}
		f.Do(t.Context(), []*weir.Op{op})
		assert.NoError(t, op.Err, verb)
		assert.False(t, asks, verb)
	}
}

// A failure of primary is recorded while local still decides for the caller: local may be slow.
func TestAFailureIsRecordedBeforeLocalHasDecided(t *testing.T) {
	decides := make(chan struct{})
	slow := newAround(limiterOn(t, nil).FixedWindow(),
		func(ctx context.Context, op *weir.Op, next func(context.Context, *weir.Op)) {
			if op.Verb == weir.OpTake {
				<-decides
			}
			next(ctx, op)
		})
	hung := primaryFunc(func(ctx context.Context) (*weir.Result, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	f := newFallback(t, hung, slow, fallback.Config{MinCalls: 1, Stall: -1,
		Timeout: 100 * time.Millisecond, AllowUnlike: true})
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		_, err := f.Run(ctx, &hour) // which waits for half of that
		assert.NoError(t, err)
	}()
	assert.Eventually(t, func() bool { return f.Stats().State == fallback.Open }, 10*time.Second,
		time.Millisecond)
	close(decides)
	<-done
}

// Primary decides while local is still charged for the caller.
func TestPrimaryDecidesWhileLocalIsCharged(t *testing.T) {
	charged, charges := make(chan struct{}), make(chan struct{})
	slow := newAround(limiterOn(t, nil).FixedWindow(),
		func(ctx context.Context, op *weir.Op, next func(context.Context, *weir.Op)) {
			if op.Verb == weir.OpCharge {
				close(charges)
				<-charged
			}
			next(ctx, op)
		})
	s := newServer(func() weir.Strategy { return limiterOn(t, nil).FixedWindow() })
	f := newFallback(t, s, slow, fallback.Config{AllowUnlike: true})
	done, decided := make(chan struct{}), make(chan weir.Source, 1)
	go func() {
		defer close(done)
		assert.NoError(t, ops.Charge(context.Background(), f, &hour))
	}()
	<-charges
	go func() {
		_, by, err := runSource(context.Background(), f, &hour)
		assert.NoError(t, err)
		decided <- by
	}()
	select {
	case by := <-decided:
		assert.Equal(t, weir.FromPrimary, by)
	case <-time.After(10 * time.Second):
		t.Error("no decision")
	}
	close(charged)
	<-done
}
