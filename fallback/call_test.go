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
			OnFail: fallback.FailOpen, MinCalls: 4, FailureRate: 0.7, Stall: -1,
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
		assert.Equal(t, fallback.FromPrimary, source(t, f, hour))
		assert.Equal(t, call{7 * time.Millisecond, nil}, last())

		fails = errDown
		assert.Equal(t, fallback.FromOnFail, source(t, f, hour))
		assert.Equal(t, call{7 * time.Millisecond, errDown}, last())

		takes, fails = time.Second, nil
		assert.Equal(t, fallback.FromOnFail, source(t, f, hour))
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
