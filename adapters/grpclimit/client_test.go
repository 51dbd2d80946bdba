package grpclimit_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/adapters/grpclimit"
	"github.com/weirgo/weir/httpclient"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/testkit/doortest"
	"github.com/weirgo/weir/weirtest"
)

// unlimited is a server that admits everything and counts it.
func unlimited(t *testing.T) (addr string, stats *httplimit.Stats) {
	stats = new(httplimit.Stats)
	return serve(t, service{}, grpclimit.NewServer(&weirtest.Fake{}, httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Limit: 1, Duration: time.Minute, Stats: stats,
	})), stats
}

func limited(t *testing.T, addr string, c *grpclimit.Client) grpc_health_v1.HealthClient {
	return dial(t, addr, grpc.WithChainUnaryInterceptor(c.Unary),
		grpc.WithChainStreamInterceptor(c.Stream))
}

func TestClientKeepsToItsLimit(t *testing.T) {
	for name, call := range rpcs {
		t.Run(name, func(t *testing.T) {
			limiter, clock := doortest.NewLimiter(t)
			addr, stats := unlimited(t)
			client := limited(t, addr, &grpclimit.Client{Transport: httpclient.Transport{
				Limit: limiter.FixedWindow().Limit(2, time.Minute), NoWait: true, Now: clock.Now,
			}})
			for range 2 {
				require.NoError(t, call(deadline(t), client).err)
			}
			a := call(deadline(t), client)
			assert.Equal(t, codes.ResourceExhausted, a.code())
			assert.Equal(t, 45*time.Second, a.retryInfo())
			assert.EqualValues(t, 2, stats.Count(httplimit.Admitted), "the third was sent")
			clock.Advance(45 * time.Second)
			assert.NoError(t, call(deadline(t), client).err)
		})
	}
}

func TestClientWaits(t *testing.T) {
	limiter, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer limiter.Close()
	addr, _ := unlimited(t)
	client := limited(t, addr, &grpclimit.Client{Transport: httpclient.Transport{
		Limit: limiter.TokenBucket(1).Limit(1, 50*time.Millisecond),
	}})
	start := time.Now()
	for range 4 {
		require.NoError(t, check(t, client).err)
	}
	assert.GreaterOrEqual(t, time.Since(start), 150*time.Millisecond)
}

// After a denial nothing more is sent before its RetryInfo is over.
func TestClientFollowsServer(t *testing.T) {
	for name, call := range rpcs {
		t.Run(name, func(t *testing.T) {
			limiter, clock := doortest.NewLimiter(t)
			var stats httplimit.Stats
			addr := serve(t, service{}, grpclimit.NewServer(limiter.FixedWindow(), httplimit.Config{
				Extractor: httplimit.RemoteAddr(), Limit: 1, Duration: time.Minute, Now: clock.Now,
				Stats: &stats,
			}))
			client := limited(t, addr,
				&grpclimit.Client{Transport: httpclient.Transport{NoWait: true, Now: clock.Now}})
			require.NoError(t, call(deadline(t), client).err)
			for range 3 {
				a := call(deadline(t), client)
				assert.Equal(t, codes.ResourceExhausted, a.code())
				assert.Equal(t, 45*time.Second, a.retryInfo())
			}
			assert.EqualValues(t, 1, stats.Count(httplimit.Denied), "only the first of the three was sent")
			clock.Advance(45 * time.Second)
			assert.NoError(t, call(deadline(t), client).err)
		})
	}
}

func TestClientKeysByMethod(t *testing.T) {
	limiter, clock := doortest.NewLimiter(t)
	addr, _ := unlimited(t)
	client := limited(t, addr, &grpclimit.Client{
		Transport: httpclient.Transport{
			Limit: limiter.FixedWindow().Limit(1, time.Minute), NoWait: true, Now: clock.Now,
		},
		Key: func(_ context.Context, _, method string) string { return method },
	})
	require.NoError(t, rpcs["unary"](deadline(t), client).err)
	require.NoError(t, rpcs["stream"](deadline(t), client).err)
	assert.Equal(t, codes.ResourceExhausted, rpcs["unary"](deadline(t), client).code())
}

// The delay of other errors is no business of a limiter.
func TestRetryDelay(t *testing.T) {
	var served atomic.Int32
	addr := serve(t, service{check: func(context.Context) error {
		served.Add(1)
		return status.Error(codes.Unavailable, "restarting")
	}}, grpclimit.NewServer(&weirtest.Fake{}, httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Limit: 1, Duration: time.Minute,
		Skip: func(r *http.Request) bool {
			return r.URL.Path == grpc_health_v1.Health_Check_FullMethodName
		},
	}))
	client := limited(t, addr, &grpclimit.Client{Transport: httpclient.Transport{NoWait: true}})
	for range 2 {
		a := check(t, client)
		assert.Equal(t, codes.Unavailable, a.code())
		assert.Zero(t, grpclimit.RetryDelay(a.err))
	}
	assert.EqualValues(t, 2, served.Load(), "without a RetryInfo nothing is held back")
	assert.Zero(t, grpclimit.RetryDelay(errors.New("no status")))
}
