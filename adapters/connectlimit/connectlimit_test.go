package connectlimit_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/adapters/connectlimit"
	"github.com/weirgo/weir/httpclient"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/doors/rpclimit"
	"github.com/weirgo/weir/internal/testkit/doortest"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/weirtest"
)

const (
	unaryProcedure  = "/test.v1.Echo/Unary"
	streamProcedure = "/test.v1.Echo/Stream"
)

type (
	message = emptypb.Empty
	request = connect.Request[message]
)

// serve starts a server of a unary and a bidirectional streaming procedure, and returns its URL.
// check is what they answer; nil: OK.
func serve(t *testing.T, check func(context.Context, http.Header) error,
	interceptors ...connect.Interceptor) *httptest.Server {
	if check == nil {
		check = func(context.Context, http.Header) error { return nil }
	}
	options := connect.WithInterceptors(interceptors...)
	mux := http.NewServeMux()
	mux.Handle(unaryProcedure, connect.NewUnaryHandler(unaryProcedure,
		func(ctx context.Context, r *request) (*connect.Response[message], error) {
			if err := check(ctx, r.Header()); err != nil {
				return nil, err
			}
			return connect.NewResponse(&message{}), nil
		}, options))
	mux.Handle(streamProcedure, connect.NewBidiStreamHandler(streamProcedure,
		func(ctx context.Context, s *connect.BidiStream[message, message]) error {
			if err := check(ctx, s.RequestHeader()); err != nil {
				return err
			}
			return s.Send(&message{})
		}, options))
	server := httptest.NewUnstartedServer(mux)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// answer is what a client sees of an RPC.
type answer struct {
	header http.Header
	err    error
}

func (a answer) code() connect.Code {
	if a.err == nil {
		return 0
	}
	return connect.CodeOf(a.err)
}

type caller func(t *testing.T, server *httptest.Server, header http.Header,
	options ...connect.ClientOption) answer

func unary(t *testing.T, server *httptest.Server, header http.Header,
	options ...connect.ClientOption) (a answer) {
	t.Helper()
	r := connect.NewRequest(&message{})
	maps.Copy(r.Header(), header)
	resp, err := connect.NewClient[message, message](server.Client(), server.URL+unaryProcedure,
		options...).CallUnary(deadline(t), r)
	if err != nil {
		return failed(err)
	}
	return answer{header: resp.Header()}
}

func stream(t *testing.T, server *httptest.Server, header http.Header,
	options ...connect.ClientOption) (a answer) {
	t.Helper()
	s := connect.NewClient[message, message](server.Client(), server.URL+streamProcedure,
		options...).CallBidiStream(deadline(t))
	maps.Copy(s.RequestHeader(), header)
	_ = s.Send(nil) // an error of the server is read by Receive
	_ = s.CloseRequest()
	defer func() { assert.NoError(t, s.CloseResponse()) }()
	var err error
	for err == nil { // to the end, at which the interceptors are done
		_, err = s.Receive()
	}
	if !errors.Is(err, io.EOF) {
		return failed(err)
	}
	return answer{header: s.ResponseHeader()}
}

// failed is the answer of an error, which carries header and trailer together.
func failed(err error) answer {
	var e *connect.Error
	if errors.As(err, &e) {
		return answer{e.Meta(), err}
	}
	return answer{http.Header{}, err}
}

// deadline returns a context that keeps a broken test from hanging.
func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// each runs a test with each kind of RPC in each protocol.
func each(t *testing.T, test func(t *testing.T, call caller)) {
	protocols := map[string]connect.ClientOption{
		connect.ProtocolConnect: connect.WithClientOptions(), connect.ProtocolGRPC: connect.WithGRPC(),
		connect.ProtocolGRPCWeb: connect.WithGRPCWeb(),
	}
	for kind, call := range map[string]caller{"unary": unary, "stream": stream} {
		for protocol, option := range protocols {
			t.Run(protocol+" "+kind, func(t *testing.T) {
				test(t, func(t *testing.T, server *httptest.Server, header http.Header,
					options ...connect.ClientOption) answer {
					return call(t, server, header, append(options, option)...)
				})
			})
		}
	}
}

func TestDenialAndRecovery(t *testing.T) {
	each(t, func(t *testing.T, call caller) {
		limiter, clock := doortest.NewLimiter(t)
		server := serve(t, nil, connectlimit.NewServer(limiter.FixedWindow(), httplimit.Config{
			Extractor: httplimit.RemoteAddr(), Limit: 2, Duration: time.Minute, Now: clock.Now,
		}))
		for _, left := range []string{"1", "0"} {
			a := call(t, server, nil)
			require.NoError(t, a.err)
			assert.Equal(t, []string{`"2/1m";q=2;w=60`}, a.header.Values("RateLimit-Policy"))
			assert.Equal(t, []string{`"2/1m";r=` + left + `;t=45`}, a.header.Values("RateLimit"))
		}
		clock.Advance(500 * time.Millisecond)
		a := call(t, server, nil)
		assert.Equal(t, connect.CodeResourceExhausted, a.code())
		assert.ErrorContains(t, a.err, `over the limit "2/1m"`)
		assert.Equal(t, 44500*time.Millisecond, connectlimit.RetryDelay(a.err))
		assert.Equal(t, []string{`"2/1m";r=0;t=45`}, a.header.Values("RateLimit"))
		assert.Equal(t, []string{"45"}, a.header.Values("Retry-After"))
		clock.Advance(connectlimit.RetryDelay(a.err))
		assert.NoError(t, call(t, server, nil).err)
	})
}

func TestLimitsPerProcedureAndKey(t *testing.T) {
	limiter, clock := doortest.NewLimiter(t)
	server := serve(t, nil, connectlimit.NewServer(limiter.FixedWindow(), httplimit.Config{
		Extractor: httplimit.Join(httplimit.Headers("Api-Key"), httplimit.Pattern()),
		Limit:     1, Duration: time.Second, Now: clock.Now,
	}))
	a, b := http.Header{"Api-Key": {"a"}}, http.Header{"Api-Key": {"b"}}
	assert.Equal(t, connect.CodeInvalidArgument, unary(t, server, nil).code(), "no key")
	assert.NoError(t, unary(t, server, a).err)
	assert.Equal(t, connect.CodeResourceExhausted, unary(t, server, a).code())
	assert.NoError(t, unary(t, server, b).err, "another key")
	assert.NoError(t, stream(t, server, a).err, "another procedure")
}

func TestFailOpenOrClosed(t *testing.T) {
	each(t, func(t *testing.T, call caller) {
		cfg := httplimit.Config{
			Extractor: httplimit.RemoteAddr(), Name: "down", Limit: 1, Duration: time.Minute,
			Logger: slog.New(slog.DiscardHandler),
		}
		bypassed := func(ctx context.Context, _ http.Header) error {
			if !httplimit.IsBypassed(ctx) {
				return connect.NewError(connect.CodeInternal, errors.New("not marked"))
			}
			return nil
		}
		down := weirtest.FailAll(errors.New("connection refused"))
		a := call(t, serve(t, bypassed, connectlimit.NewServer(down, cfg)), nil)
		assert.Equal(t, connect.CodeUnavailable, a.code())
		assert.NotContains(t, a.err.Error(), "refused", "the cause is no client's business")
		assert.Zero(t, connectlimit.RetryDelay(a.err))

		cfg.FailOpen = true
		a = call(t, serve(t, bypassed, connectlimit.NewServer(down, cfg)), nil)
		require.NoError(t, a.err)
		assert.Equal(t, []string{`"down"`}, a.header.Values("RateLimit-Bypassed"))
	})
}

// CountIf on 401 counts the failed logins only. Their answers have the fields, too.
func TestCountIf(t *testing.T) {
	each(t, func(t *testing.T, call caller) {
		limiter, clock := doortest.NewLimiter(t)
		wrong := connect.NewError(connect.CodeUnauthenticated, errors.New("wrong password"))
		login := func(_ context.Context, header http.Header) error {
			if header.Get("Password") == "" {
				return wrong // one error for all, which must not be changed
			}
			return nil
		}
		server := serve(t, login, connectlimit.NewServer(limiter.FixedWindow(), httplimit.Config{
			Extractor: httplimit.RemoteAddr(), Limit: 1, Duration: time.Minute, Now: clock.Now,
			CountIf: func(code int) bool { return code == http.StatusUnauthorized },
		}))
		right := http.Header{"Password": {"right"}}
		for range 3 {
			assert.NoError(t, call(t, server, right).err)
		}
		a := call(t, server, nil)
		assert.Equal(t, connect.CodeUnauthenticated, a.code())
		assert.Equal(t, []string{`"1/1m";r=0;t=45`}, a.header.Values("RateLimit"))
		assert.Equal(t, connect.CodeResourceExhausted, call(t, server, right).code())
		assert.Empty(t, wrong.Meta())
	})
}

// CountIf is given the status of the code that is sent for the error of a context.
func TestCountIfSeesContextErrors(t *testing.T) {
	each(t, func(t *testing.T, call caller) {
		coded := connect.NewError(connect.CodeNotFound, context.Canceled)
		for err, want := range map[error]int{context.DeadlineExceeded: 504, context.Canceled: 499,
			coded: 404} {
			statuses := make(chan int, 1)
			server := serve(t, func(context.Context, http.Header) error {
				return err
			}, connectlimit.NewServer(
				&weirtest.Fake{}, httplimit.Config{
					Extractor: httplimit.RemoteAddr(), Limit: 1, Duration: time.Minute,
					CountIf: func(status int) bool { statuses <- status; return true },
				}))
			a := call(t, server, nil)
			status := <-statuses
			assert.Equal(t, want, status, err)
			assert.Equal(t, rpclimit.Code(a.code()).HTTPStatus(), status, "what the client sees")
		}
	})
}

// Each of two limiters in a row reports its limit.
func TestStackedServersSendBothFields(t *testing.T) {
	each(t, func(t *testing.T, call caller) {
		limiter, clock := doortest.NewLimiter(t)
		limit := func(name string, n uint64) *connectlimit.Server {
			return connectlimit.NewServer(limiter.FixedWindow(), httplimit.Config{
				Extractor: httplimit.RemoteAddr(), Name: name, Limit: n, Duration: time.Minute, Now: clock.Now,
			})
		}
		server := serve(t, nil, limit("outer", 3), limit("inner", 1))
		a := call(t, server, nil)
		require.NoError(t, a.err)
		assert.Equal(t, []string{`"outer";r=2;t=45`, `"inner";r=0;t=45`}, a.header.Values("RateLimit"))
		a = call(t, server, nil)
		assert.Equal(t, connect.CodeResourceExhausted, a.code())
		assert.Equal(t, []string{`"outer";r=1;t=45`, `"inner";r=0;t=45`}, a.header.Values("RateLimit"))
		assert.Equal(t, []string{"45"}, a.header.Values("Retry-After"))
	})
}

// The interceptor of a server, given to a client, does nothing, and the other way round.
func TestInterceptorsOnTheOtherSide(t *testing.T) {
	deny := connectlimit.NewServer(weirtest.DenyAll(), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Limit: 1, Duration: time.Minute,
	})
	never := &connectlimit.Client{Transport: httpclient.Transport{Limit: weirtest.DenyAll().Limit(1, time.Hour),
		NoWait: true}}
	server := serve(t, nil, never)
	assert.NoError(t, unary(t, server, nil, connect.WithInterceptors(deny)).err)
	assert.NoError(t, stream(t, server, nil, connect.WithInterceptors(deny)).err)
}

func TestClientKeepsToItsLimit(t *testing.T) {
	each(t, func(t *testing.T, call caller) {
		limiter, clock := doortest.NewLimiter(t)
		var stats httplimit.Stats
		server := serve(t, nil, connectlimit.NewServer(&weirtest.Fake{}, httplimit.Config{
			Extractor: httplimit.RemoteAddr(), Limit: 1, Duration: time.Minute, Stats: &stats,
		}))
		limit := connect.WithInterceptors(&connectlimit.Client{Transport: httpclient.Transport{
			Limit: limiter.FixedWindow().Limit(2, time.Minute), NoWait: true, Now: clock.Now,
		}})
		for range 2 {
			require.NoError(t, call(t, server, nil, limit).err)
		}
		a := call(t, server, nil, limit)
		assert.Equal(t, connect.CodeResourceExhausted, a.code())
		assert.Equal(t, 45*time.Second, connectlimit.RetryDelay(a.err))
		assert.EqualValues(t, 2, stats.Count(httplimit.Admitted), "the third was sent")
		assert.Zero(t, connectlimit.RetryDelay(errors.New("no RPC")))
		clock.Advance(45 * time.Second)
		assert.NoError(t, call(t, server, nil, limit).err)
	})
}

// After a denial nothing more is sent before its RetryInfo is over.
func TestClientFollowsServer(t *testing.T) {
	each(t, func(t *testing.T, call caller) {
		limiter, clock := doortest.NewLimiter(t)
		var stats httplimit.Stats
		server := serve(t, nil, connectlimit.NewServer(limiter.FixedWindow(), httplimit.Config{
			Extractor: httplimit.RemoteAddr(), Limit: 1, Duration: time.Minute, Now: clock.Now,
			Stats: &stats,
		}))
		paused := connect.WithInterceptors(&connectlimit.Client{Transport: httpclient.Transport{NoWait: true,
			Now: clock.Now}})
		require.NoError(t, call(t, server, nil, paused).err)
		for range 3 {
			a := call(t, server, nil, paused)
			assert.Equal(t, connect.CodeResourceExhausted, a.code())
			assert.Equal(t, 45*time.Second, connectlimit.RetryDelay(a.err))
		}
		assert.EqualValues(t, 1, stats.Count(httplimit.Denied), "only the first of the three was sent")
		clock.Advance(45 * time.Second)
		assert.NoError(t, call(t, server, nil, paused).err)
	})
}

// A stream is in flight until it ends, and a unary RPC until it is answered.
func TestConcurrency(t *testing.T) {
	limiter, err := weir.New(weir.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, limiter.Close()) })
	limit := connectlimit.NewServer(limiter.InFlight(), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Concurrency: httplimit.Policy{Limit: 2},
	})
	inside, leave := make(chan bool), make(chan bool)
	server := serve(t, func(context.Context, http.Header) error {
		inside <- true
		<-leave
		return nil
	}, limit)
	ends := make(chan answer, 2)
	callers := []caller{stream, unary}
	for _, call := range callers {
		go func() { ends <- call(t, server, nil) }()
		<-inside
	}
	for _, call := range callers {
		a := call(t, server, nil)
		assert.Equal(t, connect.CodeResourceExhausted, a.code())
		assert.ErrorContains(t, a.err, `over the limit "in flight"`)
	}
	close(leave)
	for range callers {
		assert.NoError(t, (<-ends).err)
	}
	assert.Eventually(t, func() bool {
		res, err := ops.Peek(t.Context(), limiter.InFlight(), &weir.Request{
			Key: httplimit.Policy{Name: "in flight"}.Key("127.0.0.1"), Limit: 1000, Duration: time.Minute,
		})
		return err == nil && res.TotalRequests == 1
	}, time.Minute, time.Millisecond)
}
