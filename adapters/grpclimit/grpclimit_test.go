package grpclimit_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/adapters/grpclimit"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/doors/rpclimit"
	"github.com/weirgo/weir/internal/testkit/doortest"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/weirtest"
)

// service is gRPC's health service: a unary Check and a streaming Watch.
type service struct {
	grpc_health_v1.UnimplementedHealthServer
	check func(ctx context.Context) error
}

func (s service) Check(ctx context.Context,
	_ *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	if s.check != nil {
		if err := s.check(ctx); err != nil {
			return nil, err
		}
	}
	return &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}, nil
}

func (s service) Watch(
	_ *grpc_health_v1.HealthCheckRequest, stream grpc_health_v1.Health_WatchServer,
) error {
	if s.check != nil {
		if err := s.check(stream.Context()); err != nil {
			return err
		}
	}
	return stream.Send(
		&grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING},
	)
}

// serve starts a server on loopback and returns its address.
func serve(t *testing.T, s service, limit *grpclimit.Server, opts ...grpc.ServerOption) string {
	t.Helper()
	server := grpc.NewServer(append(opts, grpc.ChainUnaryInterceptor(limit.Unary),
		grpc.ChainStreamInterceptor(limit.Stream))...)
	grpc_health_v1.RegisterHealthServer(server, s)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		assert.NoError(t, <-done)
	})
	return listener.Addr().String()
}

func dial(t *testing.T, addr string, opts ...grpc.DialOption) grpc_health_v1.HealthClient {
	t.Helper()
	conn, err := grpc.NewClient(addr,
		append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	return grpc_health_v1.NewHealthClient(conn)
}

// answer is what a client sees of an RPC.
type answer struct {
	header, trailer metadata.MD
	err             error
}

func (a answer) code() codes.Code { return status.Code(a.err) }

// retryInfo returns the delay of the RetryInfo, or 0.
func (a answer) retryInfo() time.Duration {
	for _, detail := range status.Convert(a.err).Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return info.GetRetryDelay().AsDuration()
		}
	}
	return 0
}

// The RPCs of the service, one unary and one streaming.
var rpcs = map[string]func(ctx context.Context, c grpc_health_v1.HealthClient) answer{
	"unary": func(ctx context.Context, c grpc_health_v1.HealthClient) (a answer) {
		_, a.err = c.Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.Header(&a.header),
			grpc.Trailer(&a.trailer))
		return a
	},
	"stream": func(ctx context.Context, c grpc_health_v1.HealthClient) (a answer) {
		stream, err := c.Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
		if err != nil {
			return answer{err: err}
		}
		for a.err == nil {
			_, a.err = stream.Recv()
		}
		if a.err == io.EOF {
			a.err = nil
		}
		a.header, _ = stream.Header()
		a.trailer = stream.Trailer()
		return a
	},
}

func check(t *testing.T, c grpc_health_v1.HealthClient, md ...string) answer {
	t.Helper()
	return rpcs["unary"](metadata.AppendToOutgoingContext(deadline(t), md...), c)
}

// deadline returns a context that keeps a broken test from hanging.
func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func TestDenialAndRecovery(t *testing.T) {
	for name, call := range rpcs {
		t.Run(name, func(t *testing.T) {
			limiter, clock := doortest.NewLimiter(t)
			client := dial(t, serve(t, service{}, grpclimit.NewServer(limiter.FixedWindow(),
				httplimit.Config{
					Extractor: httplimit.RemoteAddr(), Limit: 2, Duration: time.Minute, Now: clock.Now,
				})))
			for _, left := range []string{"1", "0"} {
				a := call(deadline(t), client)
				require.NoError(t, a.err)
				assert.Equal(t, []string{`"2/1m";q=2;w=60`}, a.header["ratelimit-policy"])
				assert.Equal(t, []string{`"2/1m";r=` + left + `;t=45`}, a.header["ratelimit"])
				assert.Empty(t, a.trailer["grpc-retry-pushback-ms"])
			}
			clock.Advance(500 * time.Millisecond)
			a := call(deadline(t), client)
			assert.Equal(t, codes.ResourceExhausted, a.code())
			assert.ErrorContains(t, a.err, `over the limit "2/1m"`)
			assert.Equal(t, 44500*time.Millisecond, a.retryInfo())
			assert.Equal(t, []string{"44500"}, a.trailer["grpc-retry-pushback-ms"])
			assert.Equal(t, []string{`"2/1m";r=0;t=45`}, a.trailer["ratelimit"])
			assert.Equal(t, []string{"45"}, a.trailer["retry-after"])

			clock.Advance(a.retryInfo())
			assert.NoError(t, call(deadline(t), client).err)
		})
	}
}

func TestLimitsPerMethodAndPeer(t *testing.T) {
	limiter, clock := doortest.NewLimiter(t)
	s := limiter.FixedWindow()
	watches := s.Limit(2, time.Minute)
	addr := serve(t, service{}, grpclimit.NewServer(s.Limit(1, time.Minute), httplimit.Config{
		Extractor: httplimit.Join(httplimit.RemoteAddr(), httplimit.Pattern()),
		Name:      "per peer and method",
		LimitFunc: func(r *http.Request) *weir.Limit {
			if r.URL.Path == grpc_health_v1.Health_Watch_FullMethodName {
				return watches
			}
			return nil
		},
		Now: clock.Now,
	}))
	client := dial(t, addr)
	assert.NoError(t, rpcs["unary"](deadline(t), client).err)
	assert.Equal(t, codes.ResourceExhausted, rpcs["unary"](deadline(t), client).code())
	assert.NoError(t, rpcs["stream"](deadline(t), client).err, "another method")
	assert.NoError(t, rpcs["stream"](deadline(t), client).err)
	assert.Equal(t, codes.ResourceExhausted, rpcs["stream"](deadline(t), client).code())

	other := dial(t, addr, grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn,
		error) {
		from := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
		return from.DialContext(ctx, "tcp", addr)
	}))
	if a := rpcs["unary"](deadline(t), other); a.code() == codes.Unavailable {
		t.Skip("there is no second loopback address: ", a.err)
	} else {
		assert.NoError(t, a.err, "another peer")
	}
	assert.Equal(t, codes.ResourceExhausted, rpcs["unary"](deadline(t), other).code())
}

// The functions of the Config see the request that an RPC is, with the state of its TLS connection.
func TestRequestOfAnRPC(t *testing.T) {
	https := httptest.NewTLSServer(http.NotFoundHandler()) // for its certificate
	defer https.Close()
	seen := make(chan *http.Request, 1)
	limit := grpclimit.NewServer(new(weirtest.Fake).Limit(1, time.Minute), httplimit.Config{
		Extractor: httplimit.ClientIP([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}),
		Name:      "plan",
		LimitFunc: func(r *http.Request) *weir.Limit { seen <- r; return nil },
		OnDecision: func(_ *http.Request, d httplimit.Decision) {
			assert.Equal(t, "198.51.100.7", d.Key, "of x-forwarded-for, which a trusted proxy wrote")
		},
	})
	addr := serve(t, service{}, limit,
		grpc.Creds(credentials.NewServerTLSFromCert(&https.TLS.Certificates[0])))
	roots := https.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
	conn, err := grpc.NewClient(addr,
		grpc.WithTransportCredentials(credentials.NewClientTLSFromCert(roots, "example.com")))
	require.NoError(t, err)
	defer func() { assert.NoError(t, conn.Close()) }()
	client := grpc_health_v1.NewHealthClient(conn)
	require.NoError(t, check(t, client, "x-forwarded-for", "198.51.100.7", "tenant", "acme").err)
	r := <-seen
	assert.Equal(t, grpc_health_v1.Health_Check_FullMethodName, r.URL.Path)
	assert.Equal(t, "acme", r.Header.Get("Tenant"))
	assert.Equal(t, "example.com", r.Host)
	assert.NotNil(t, r.TLS)
}

func TestFailOpenOrClosed(t *testing.T) {
	for name, call := range rpcs {
		t.Run(name, func(t *testing.T) {
			cfg := httplimit.Config{
				Extractor: httplimit.RemoteAddr(), Name: "down", Limit: 1, Duration: time.Minute,
				Logger: slog.New(slog.DiscardHandler),
			}
			bypassed := service{check: func(ctx context.Context) error {
				if !httplimit.IsBypassed(ctx) {
					return status.Error(codes.Internal, "not marked")
				}
				return nil
			}}
			down := weirtest.FailAll(errors.New("connection refused"))
			a := call(deadline(t), dial(t, serve(t, bypassed, grpclimit.NewServer(down, cfg))))
			assert.Equal(t, codes.Unavailable, a.code())
			assert.NotContains(t, a.err.Error(), "refused", "the cause is no client's business")
			assert.Zero(t, a.retryInfo())

			cfg.FailOpen = true
			a = call(deadline(t), dial(t, serve(t, bypassed, grpclimit.NewServer(down, cfg))))
			require.NoError(t, a.err)
			assert.Equal(t, []string{`"down"`}, a.header["ratelimit-bypassed"])
		})
	}
}

// CountIf on 401 counts the failed logins only.
func TestCountIf(t *testing.T) {
	for name, call := range rpcs {
		t.Run(name, func(t *testing.T) {
			limiter, clock := doortest.NewLimiter(t)
			login := service{check: func(ctx context.Context) error {
				if md, _ := metadata.FromIncomingContext(ctx); len(md["password"]) == 0 {
					return status.Error(codes.Unauthenticated, "wrong password")
				}
				return nil
			}}
			client := dial(t, serve(t, login, grpclimit.NewServer(limiter.FixedWindow(), httplimit.Config{
				Extractor: httplimit.RemoteAddr(), Limit: 1, Duration: time.Minute, Now: clock.Now,
				CountIf: func(code int) bool { return code == http.StatusUnauthorized },
			})))
			right := metadata.AppendToOutgoingContext(deadline(t), "password", "right")
			for range 3 {
				assert.NoError(t, call(right, client).err)
			}
			assert.Equal(t, codes.Unauthenticated, call(deadline(t), client).code())
			assert.Equal(t, codes.ResourceExhausted, call(right, client).code())
		})
	}
}

// CountIf is given the status of the code that is sent for the error of a context.
func TestCountIfSeesContextErrors(t *testing.T) {
	for name, call := range rpcs {
		t.Run(name, func(t *testing.T) {
			coded := status.Error(codes.NotFound, "canceled")
			for err, want := range map[error]int{context.DeadlineExceeded: 504, context.Canceled: 499,
				coded: 404} {
				statuses := make(chan int, 1)
				client := dial(t, serve(t, service{check: func(context.Context) error {
					return err
				}}, grpclimit.NewServer(
					&weirtest.Fake{}, httplimit.Config{
						Extractor: httplimit.RemoteAddr(), Limit: 1, Duration: time.Minute,
						CountIf: func(status int) bool { statuses <- status; return true },
					})))
				a := call(deadline(t), client)
				got := <-statuses
				assert.Equal(t, want, got, err)
				assert.Equal(t, rpclimit.Code(a.code()).HTTPStatus(), got, "what the client sees")
			}
		})
	}
}

// A cost that can never pass has no RetryInfo, so that clients do not repeat it.
func TestNeverPasses(t *testing.T) {
	limiter, clock := doortest.NewLimiter(t)
	client := dial(t, serve(t, service{}, grpclimit.NewServer(limiter.FixedWindow(), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Limit: 5, Duration: time.Minute, Now: clock.Now,
		CostFunc: func(*http.Request) uint64 { return 6 },
	})))
	a := check(t, client)
	assert.Equal(t, codes.ResourceExhausted, a.code())
	assert.Zero(t, a.retryInfo())
	assert.Empty(t, a.trailer["grpc-retry-pushback-ms"])
}

// gRPC's own retries wait for grpc-retry-pushback-ms.
func TestRetryPolicyFollowsPushback(t *testing.T) {
	limiter, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer limiter.Close()
	var stats httplimit.Stats
	client := dial(t, serve(t, service{}, grpclimit.NewServer(limiter.TokenBucket(1), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Limit: 1, Duration: 300 * time.Millisecond, Stats: &stats,
	})), grpc.WithDefaultServiceConfig(`{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":2,
		"initialBackoff":"0.001s","maxBackoff":"0.001s","backoffMultiplier":1,
		"retryableStatusCodes":["RESOURCE_EXHAUSTED"]}}]}`))
	// a slow machine may take longer than the bucket for one RPC
	for stats.Count(httplimit.Denied) == 0 {
		require.NoError(t, check(t, client).err,
			"a second attempt right away would be denied, and there is no third")
	}
}

func TestNewServerPanics(t *testing.T) {
	cfg := httplimit.Config{Extractor: httplimit.RemoteAddr(), Limit: 1, Duration: time.Minute}
	respond, cors, counts := cfg, cfg, cfg
	respond.Respond = func(http.ResponseWriter, *http.Request, httplimit.Decision) {}
	cors.CORS.Origins = []string{"*"}
	counts.CountIf = func(int) bool { return true }
	assert.PanicsWithValue(t, "rpclimit: Respond writes HTTP answers", func() {
		grpclimit.NewServer(&weirtest.Fake{}, respond)
	})
	assert.PanicsWithValue(t, "rpclimit: CORS is for HTTP answers", func() {
		grpclimit.NewServer(&weirtest.Fake{}, cors)
	})
	assert.PanicsWithValue(t, "grpclimit: Limiter: CountIf needs the outcome of the handler", func() {
		grpclimit.NewServer(&weirtest.Fake{}, counts).Limiter()
	})
}

// A stream is in flight until it ends, and a unary RPC until it is answered: also if the handler
// panics, or the client cancels.
func TestConcurrency(t *testing.T) {
	limiter, err := weir.New(weir.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, limiter.Close()) })
	limit := grpclimit.NewServer(limiter.InFlight(), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Concurrency: httplimit.Policy{Limit: 3},
	})
	inside, leave := make(chan bool), make(chan bool)
	recovering := func(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo,
		h grpc.StreamHandler) (err error) {
		defer func() {
			if recover() != nil {
				err = status.Error(codes.Internal, "a panic")
			}
		}()
		return h(srv, s)
	}
	addr := serve(t, service{check: func(ctx context.Context) error {
		if md, _ := metadata.FromIncomingContext(ctx); len(md.Get("mode")) > 0 {
			panic(md.Get("mode")[0])
		}
		inside <- true
		select {
		case <-leave:
		case <-ctx.Done():
		}
		return nil
	}}, limit, grpc.ChainStreamInterceptor(recovering))
	client := dial(t, addr)
	held := func() uint64 {
		res, err := ops.Peek(t.Context(), limiter.InFlight(), &weir.Request{
			Key: httplimit.Policy{Name: "in flight"}.Key("127.0.0.1"), Limit: 1000, Duration: time.Minute,
		})
		require.NoError(t, err)
		return res.TotalRequests - 1
	}
	ends := make(chan answer, 3)
	begin := func(ctx context.Context, rpc string) {
		go func() { ends <- rpcs[rpc](ctx, client) }()
		<-inside
	}
	canceled, cancel := context.WithCancel(t.Context())
	defer cancel()
	begin(t.Context(), "stream")
	begin(t.Context(), "unary")
	begin(canceled, "stream")
	for name, rpc := range rpcs {
		a := rpc(t.Context(), client)
		assert.Equal(t, codes.ResourceExhausted, a.code(), name)
		assert.Equal(t, time.Second, a.retryInfo(), name)
		assert.Equal(t, `over the limit "in flight"`, status.Convert(a.err).Message())
	}
	assert.EqualValues(t, 3, held())
	cancel()
	assert.Equal(t, codes.Canceled, (<-ends).code())
	assert.Eventually(t, func() bool { return held() == 2 }, time.Minute, time.Millisecond)
	a := rpcs["stream"](metadata.AppendToOutgoingContext(t.Context(), "mode", "panic"), client)
	assert.Equal(t, codes.Internal, a.code())
	assert.EqualValues(t, 2, held(), "a handler that panics holds none")
	close(leave)
	assert.Equal(t, []codes.Code{codes.OK, codes.OK}, []codes.Code{(<-ends).code(), (<-ends).code()})
	assert.Eventually(t, func() bool { return held() == 0 }, time.Minute, time.Millisecond)
}
