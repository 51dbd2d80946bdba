package connectlimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/adapters/connectlimit"
	"github.com/weirgo/weir/httpclient"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/testkit/docblocks"
	"github.com/weirgo/weir/internal/testkit/doortest"
	"github.com/weirgo/weir/weirtest"
)

// The code of these tests is in docs/http.md.
func TestDocsShowTheseTests(t *testing.T) {
	docblocks.CheckRows(t, "../../docs/http.md", "Connect", "frameworks_test.go")
}

// ping is the handler of a procedure.
func ping(context.Context, *request) (*connect.Response[message], error) {
	return connect.NewResponse(&message{}), nil
}

func start(t *testing.T, handler http.Handler) *httptest.Server {
	mux := http.NewServeMux()
	mux.Handle("/", handler)
	server := httptest.NewUnstartedServer(mux)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

// admitted makes sure that a limit of 100 admits so many RPCs, and denies the next one, which it
// returns.
func admitted(t *testing.T, server *httptest.Server, header http.Header) answer {
	t.Helper()
	for range 100 {
		require.NoError(t, unary(t, server, header).err)
	}
	denied := unary(t, server, header)
	require.Equal(t, connect.CodeResourceExhausted, denied.code())
	assert.NotZero(t, connectlimit.RetryDelay(denied.err))
	assert.NotEmpty(t, denied.header.Get("RateLimit"))
	return denied
}

func TestPerUser(t *testing.T) {
	limiter, _ := doortest.NewLimiter(t)
	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
	limit := connectlimit.NewServer(perClient, httplimit.Config{
		Extractor: httplimit.Headers("X-User"), // that an interceptor before this one has checked
	})
	handler := connect.NewUnaryHandler(unaryProcedure, ping, connect.WithInterceptors(limit))
	server := start(t, handler)
	admitted(t, server, http.Header{"X-User": {"alice"}})
	assert.NoError(t, unary(t, server, http.Header{"X-User": {"bob"}}).err)
	assert.Equal(t, connect.CodeInvalidArgument, unary(t, server, nil).code())
}

func TestBehindAProxy(t *testing.T) {
	limiter, _ := doortest.NewLimiter(t)
	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
	proxies := []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	limit := connectlimit.NewServer(perClient, httplimit.Config{Extractor: httplimit.ClientIP(proxies)})
	server := start(t, connect.NewUnaryHandler(unaryProcedure, ping, connect.WithInterceptors(limit)))
	admitted(t, server, http.Header{"X-Forwarded-For": {"203.0.113.1"}})
	assert.Equal(t, connect.CodeResourceExhausted,
		unary(t, server, http.Header{"X-Forwarded-For": {"198.51.100.7, 203.0.113.1"}}).code())
	assert.NoError(t, unary(t, server, http.Header{"X-Forwarded-For": {"203.0.113.2"}}).err)
}

func TestOnDenied(t *testing.T) {
	limiter, clock := doortest.NewLimiter(t)
	limit := connectlimit.NewServer(limiter.SlidingWindow(), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Limit: 100, Duration: time.Minute, Now: clock.Now,
	})
	limit.OnDenied = func(_ context.Context, d httplimit.Decision) error {
		reason := fmt.Errorf("%d calls in %v are enough", d.Limit, d.Duration)
		return connect.NewError(connect.CodeResourceExhausted, reason)
	}
	server := start(t, connect.NewUnaryHandler(unaryProcedure, ping, connect.WithInterceptors(limit)))
	assert.ErrorContains(t, admitted(t, server, nil).err, "100 calls in 1m0s are enough")

	limit.OnDenied = func(context.Context, httplimit.Decision) error { return nil }
	assert.ErrorContains(t, unary(t, server, nil).err, `over the limit "100/1m"`)
	limit.OnDenied = func(context.Context, httplimit.Decision) error {
		return context.DeadlineExceeded
	}
	assert.Equal(t, connect.CodeUnknown, unary(t, server, nil).code())
}

// echo sends each message of a stream back.
func echo(_ context.Context, s *connect.BidiStream[message, message]) error {
	for {
		m, err := s.Receive()
		if err != nil {
			return err
		}
		if err := s.Send(m); err != nil {
			return err
		}
	}
}

// sendAll sends messages in a stream until one fails, at most 30, and returns how many were
// answered.
func sendAll(
	t *testing.T, server *httptest.Server, options ...connect.ClientOption,
) (n int, err error) {
	s := connect.NewClient[message, message](server.Client(), server.URL+streamProcedure, options...).
		CallBidiStream(deadline(t))
	for n < 30 && err == nil {
		if err = s.Send(&message{}); err != nil && !errors.Is(err, io.EOF) {
			break // after an EOF Receive has the error
		}
		if _, err = s.Receive(); err == nil {
			n++
		}
	}
	_ = s.CloseRequest()
	_ = s.CloseResponse()
	return n, err
}

// Each message of a stream counts.
func TestMessages(t *testing.T) {
	limiter, clock := doortest.NewLimiter(t)
	perMessage := limiter.TokenBucket(20).Limit(100, time.Minute).Named("messages")
	messages := connectlimit.NewServer(perMessage, httplimit.Config{Extractor: httplimit.RemoteAddr()})
	handler := connect.NewBidiStreamHandler(streamProcedure, echo,
		connect.WithInterceptors(messages.Messages()))
	server := start(t, handler)
	n, err := sendAll(t, server)
	assert.Equal(t, 20, n)
	assert.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err))
	assert.NotZero(t, connectlimit.RetryDelay(err))
	clock.Advance(1200 * time.Millisecond)
	n, err = sendAll(t, server, connect.WithGRPC())
	assert.Equal(t, 2, n, "after the time of two messages")
	assert.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err))
	assert.Panics(t, func() {
		cfg := httplimit.Config{Extractor: httplimit.RemoteAddr(), MaxInFlight: 1}
		connectlimit.NewServer(&weirtest.Fake{}, cfg).Messages()
	})
}

// A client can limit the messages that it sends.
func TestClientMessages(t *testing.T) {
	limiter, _ := doortest.NewLimiter(t)
	client := &connectlimit.Client{Transport: httpclient.Transport{
		Limit: limiter.FixedWindow().Limit(3, time.Hour), NoWait: true,
	}}
	server := start(t, connect.NewBidiStreamHandler(streamProcedure, echo))
	n, err := sendAll(t, server, connect.WithInterceptors(client.Messages()))
	assert.Equal(t, 3, n)
	assert.Equal(t, connect.CodeResourceExhausted, connect.CodeOf(err))
}
