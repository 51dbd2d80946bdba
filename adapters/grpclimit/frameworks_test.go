package grpclimit_test

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/weirgo/weir/adapters/grpclimit"
	"github.com/weirgo/weir/httpclient"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/testkit/docblocks"
	"github.com/weirgo/weir/internal/testkit/doortest"
	"github.com/weirgo/weir/weirtest"
)

// The code of these tests is in docs/http.md.
func TestDocsShowTheseTests(t *testing.T) {
	docblocks.CheckRows(t, "../../docs/http.md", "gRPC", "frameworks_test.go")
	docblocks.Check(t, "../../docs/http.md", "## gRPC and Connect",
		"frameworks_test.go", "../connectlimit/frameworks_test.go")
}

var bidirectional = &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}

// echo sends each message of a stream back.
func echo(_ any, stream grpc.ServerStream) error {
	for {
		m := new(emptypb.Empty)
		if err := stream.RecvMsg(m); err != nil {
			return err
		}
		if err := stream.SendMsg(m); err != nil {
			return err
		}
	}
}

// run serves the health service on a listener and returns a connection to it.
func run(
	t *testing.T, server *grpc.Server, listener net.Listener, target string, opts ...grpc.DialOption,
) *grpc.ClientConn {
	t.Helper()
	grpc_health_v1.RegisterHealthServer(server, service{})
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))
	conn, err := grpc.NewClient(target, opts...)
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, conn.Close())
		server.Stop()
		assert.NoError(t, <-done)
	})
	return conn
}

func start(t *testing.T, server *grpc.Server, opts ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	return run(t, server, listener, listener.Addr().String(), opts...)
}

// admitted makes sure that a limit of 100 admits so many RPCs, and denies the next one, which it
// returns.
func admitted(t *testing.T, c grpc_health_v1.HealthClient, md ...string) answer {
	t.Helper()
	for range 100 {
		require.NoError(t, check(t, c, md...).err)
	}
	denied := check(t, c, md...)
	require.Equal(t, codes.ResourceExhausted, denied.code())
	assert.NotZero(t, denied.retryInfo())
	assert.NotEmpty(t, denied.trailer["ratelimit"])
	return denied
}

func TestPerUser(t *testing.T) {
	limiter, _ := doortest.NewLimiter(t)
	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
	limit := grpclimit.NewServer(perClient, httplimit.Config{
		// metadata that an interceptor before this one has checked
		Extractor: httplimit.Headers("X-User"),
	})
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(limit.Unary),
		grpc.ChainStreamInterceptor(limit.Stream),
	)
	c := grpc_health_v1.NewHealthClient(start(t, server))
	admitted(t, c, "x-user", "alice")
	assert.NoError(t, check(t, c, "x-user", "bob").err)
	assert.Equal(t, codes.InvalidArgument, check(t, c).code())
}

func TestBehindAProxy(t *testing.T) {
	limiter, _ := doortest.NewLimiter(t)
	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
	proxies := []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	limit := grpclimit.NewServer(perClient, httplimit.Config{Extractor: httplimit.ClientIP(proxies)})
	c := grpc_health_v1.NewHealthClient(start(t,
		grpc.NewServer(grpc.ChainUnaryInterceptor(limit.Unary))))
	admitted(t, c, "x-forwarded-for", "203.0.113.1")
	assert.Equal(t, codes.ResourceExhausted,
		check(t, c, "x-forwarded-for", "198.51.100.7, 203.0.113.1").code())
	assert.NoError(t, check(t, c, "x-forwarded-for", "203.0.113.2").err)
}

func TestOnDenied(t *testing.T) {
	limiter, clock := doortest.NewLimiter(t)
	limit := grpclimit.NewServer(limiter.SlidingWindow(), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Limit: 100, Duration: time.Minute, Now: clock.Now,
	})
	limit.OnDenied = func(_ context.Context, d httplimit.Decision) error {
		return status.Errorf(codes.ResourceExhausted, "%d calls in %v are enough", d.Limit, d.Duration)
	}
	var seen error
	outer := func(
		ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
	) (resp any, err error) {
		resp, err = handler(ctx, req)
		seen = err
		return resp, err
	}
	c := grpc_health_v1.NewHealthClient(start(t,
		grpc.NewServer(grpc.ChainUnaryInterceptor(outer, limit.Unary))))
	denied := admitted(t, c)
	assert.Equal(t, "100 calls in 1m0s are enough", status.Convert(denied.err).Message())
	assert.Equal(t, codes.ResourceExhausted, status.Code(seen),
		"the interceptor before it has the error")

	limit.OnDenied = func(context.Context, httplimit.Decision) error { return nil }
	assert.Equal(t, `over the limit "100/1m"`, status.Convert(check(t, c).err).Message())
}

// Each message of a stream counts.
func TestMessages(t *testing.T) {
	limiter, clock := doortest.NewLimiter(t)
	perMessage := limiter.TokenBucket(20).Limit(100, time.Minute).Named("messages")
	messages := grpclimit.NewServer(perMessage, httplimit.Config{Extractor: httplimit.RemoteAddr()})
	option := grpc.ChainStreamInterceptor(messages.Messages())
	conn := start(t, grpc.NewServer(option, grpc.UnknownServiceHandler(echo)))
	for first := true; ; first = false {
		stream, err := conn.NewStream(deadline(t), bidirectional, "/a.B/C")
		require.NoError(t, err)
		n := 0
		for err == nil && n < 30 {
			require.NoError(t, stream.SendMsg(new(emptypb.Empty)))
			if err = stream.RecvMsg(new(emptypb.Empty)); err == nil {
				n++
			}
		}
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		assert.NotZero(t, answer{err: err}.retryInfo())
		assert.NotEmpty(t, stream.Trailer()["grpc-retry-pushback-ms"])
		if !first {
			assert.Equal(t, 2, n, "after the time of two messages")
			break
		}
		assert.Equal(t, 20, n)
		clock.Advance(1200 * time.Millisecond)
	}
	const want = "grpclimit: Messages: bounds on calls in flight need the end of the handler"
	assert.PanicsWithValue(t, want, func() {
		cfg := httplimit.Config{Extractor: httplimit.RemoteAddr(), MaxInFlight: 1}
		grpclimit.NewServer(&weirtest.Fake{}, cfg).Messages()
	})
}

// A client can limit the messages that it sends.
func TestClientMessages(t *testing.T) {
	limiter, _ := doortest.NewLimiter(t)
	client := &grpclimit.Client{Transport: httpclient.Transport{
		Limit: limiter.FixedWindow().Limit(3, time.Hour), NoWait: true,
	}}
	conn := start(t, grpc.NewServer(grpc.UnknownServiceHandler(echo)),
		grpc.WithChainStreamInterceptor(client.Messages()))
	stream, err := conn.NewStream(deadline(t), bidirectional, "/a.B/C")
	require.NoError(t, err)
	for range 3 {
		require.NoError(t, stream.SendMsg(new(emptypb.Empty)))
		require.NoError(t, stream.RecvMsg(new(emptypb.Empty)))
	}
	err = stream.SendMsg(new(emptypb.Empty))
	assert.Equal(t, codes.ResourceExhausted, status.Code(err))
	assert.NoError(t, stream.CloseSend(), "the stream is open still")
}

// RemoteAddr admits peers without an IP address, which are processes of this machine.
func TestPeersWithoutAnAddress(t *testing.T) {
	for _, network := range []string{"bufconn", "unix"} {
		limit := grpclimit.NewServer(&weirtest.Fake{}, httplimit.Config{
			Extractor: httplimit.RemoteAddr(), Limit: 1, Duration: time.Minute,
			OnDecision: func(_ *http.Request, d httplimit.Decision) { assert.Equal(t, "127.0.0.1", d.Key) },
		})
		server := grpc.NewServer(grpc.ChainUnaryInterceptor(limit.Unary))
		var conn *grpc.ClientConn
		if network == "unix" {
			path := filepath.Join(t.TempDir(), "s")
			listener, err := net.Listen("unix", path)
			require.NoError(t, err)
			conn = run(t, server, listener, "unix:"+path)
		} else {
			listener := bufconn.Listen(1 << 16)
			dialer := func(ctx context.Context, _ string) (net.Conn, error) {
				return listener.DialContext(ctx)
			}
			conn = run(t, server, listener, "passthrough:///bufconn", grpc.WithContextDialer(dialer))
		}
		assert.NoError(t, check(t, grpc_health_v1.NewHealthClient(conn)).err, network)
	}
}
