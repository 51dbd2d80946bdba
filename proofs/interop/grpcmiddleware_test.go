package interop_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/ratelimit"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/adapters/grpclimit"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/weirtest"
)

var _ ratelimit.Limiter = grpclimit.Limiter{}

// go-grpc-middleware's ratelimit interceptors on a Limiter: denial and recovery, per method.
func TestGRPCMiddleware(t *testing.T) {
	clock := weirtest.NewClock(start.Add(15 * time.Second))
	limiter, err := weir.New(weir.Config{Now: clock.Now})
	require.NoError(t, err)
	defer limiter.Close()
	limit := grpclimit.NewServer(limiter.FixedWindow(), httplimit.Config{
		Extractor: httplimit.Join(httplimit.RemoteAddr(), httplimit.Pattern()), Limit: 1,
		Duration: time.Minute,
		Now:      clock.Now,
	}).Limiter()
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(ratelimit.UnaryServerInterceptor(limit)),
		grpc.ChainStreamInterceptor(ratelimit.StreamServerInterceptor(limit)),
	)
	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	defer func() { server.Stop(); assert.NoError(t, <-done) }()
	conn, err := grpc.NewClient(listener.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { assert.NoError(t, conn.Close()) }()
	client := grpc_health_v1.NewHealthClient(conn)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	var trailer metadata.MD
	check := func() error {
		_, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.Trailer(&trailer))
		return err
	}
	watch := func() error {
		stream, err := client.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
		require.NoError(t, err)
		_, err = stream.Recv()
		return err
	}
	for name, call := range map[string]func() error{"unary": check, "stream": watch} {
		require.NoError(t, call(), name)
		err := call()
		assert.Equal(t, codes.ResourceExhausted, status.Code(err), name)
		assert.ErrorContains(t, err, `over the limit "1/1m"`)
	}
	assert.Error(t, check())
	assert.Equal(t, []string{`"1/1m";r=0;t=45`}, trailer["ratelimit"])
	assert.Equal(t, []string{"45000"}, trailer["grpc-retry-pushback-ms"])
	clock.Advance(45 * time.Second)
	assert.NoError(t, check())
	assert.NoError(t, watch())
}
