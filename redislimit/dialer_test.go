package redislimit_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// During a partition dials outlive their calls and then fail. They must not stay in the pool, where
// each would fail another call after the partition ends.
func TestLateDialsLeaveThePool(t *testing.T) {
	slow.Test(t)
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	o := redislimit.Options(proxy.Addr)
	o.PoolSize, o.DialTimeout = callers, time.Second
	next := o.Dialer
	var started, ended atomic.Int64
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		started.Add(1)
		defer ended.Add(1)
		return next(ctx, network, addr)
	}
	client := dial(t, o)
	timed := func(timeout time.Duration) weir.Strategy {
		return storeOn(t, client, redislimit.Config{Timeout: timeout}).FixedWindow()
	}
	proxy.Partition(true)
	out, _ := callAll(timed(redislimit.DefaultTimeout), daily)
	for _, o := range out {
		assert.Equal(t, redislimit.Down, redislimit.Classify(o.err))
	}
	require.NotZero(t, started.Load())
	redistest.Eventually(t, 20*time.Second, "the dials end",
		func() bool { return ended.Load() == started.Load() })
	late := started.Load()
	proxy.Partition(false)
	s, lost := timed(generous), 0
	for range 2 * callers {
		if _, err := s.Run(t.Context(), daily); err != nil {
			lost++
		}
	}
	t.Logf("%d late dials, %d calls failed after them", late, lost)
	// A dial that fails just now may be given to a waiting call, on a busy machine to more of them.
	assert.Less(t, lost, callers/4)
}
