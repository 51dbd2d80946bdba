package connectlimit

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"

	"github.com/weirgo/weir/httpclient"
	"github.com/weirgo/weir/internal/doors/rpclimit"
)

// Client is a connect.Interceptor for clients: it keeps their RPCs under a limit of their own, and
// follows the RetryInfo of servers. After a CodeResourceExhausted or CodeUnavailable that has one,
// it sends nothing of that key until the delay is over. RPCs that wait are sent in order; one whose
// deadline comes first fails at once. See [httpclient.Transport].
//
//	limit := &connectlimit.Client{Transport: httpclient.Transport{
//		Limit: limiter.TokenBucket(20).Limit(100, time.Second),
//	}}
//	client := pingv1connect.NewPingServiceClient(http.DefaultClient, url,
//		connect.WithInterceptors(limit))
//
// An RPC that is not sent fails with CodeResourceExhausted and the time to wait as a RetryInfo;
// with CodeDeadlineExceeded or CodeCanceled if its context ends the wait; and with CodeUnavailable
// if the Strategy cannot decide. Client never sends an RPC twice. The zero value has no limit of
// its own and follows servers. It is safe for concurrent use, and must not be copied or changed
// after the first RPC.
type Client struct {
	// Transport holds the limit. Base and Key are not used.
	Transport httpclient.Transport

	// Key returns the key of an RPC; RPCs with one key share a limit and a pause. nil: the server's
	// host.
	Key func(ctx context.Context, peer connect.Peer, spec connect.Spec) string
}

// WrapUnary implements connect.Interceptor.
func (c *Client) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		if !req.Spec().IsClient {
			return next(ctx, req)
		}
		key := c.key(ctx, req.Peer(), req.Spec())
		if err := c.Transport.Admit(ctx, key); err != nil {
			return nil, notSent(ctx, err)
		}
		resp, err := next(ctx, req)
		c.pause(key, err)
		return resp, err
	}
}

// WrapStreamingClient implements connect.Interceptor. A stream counts once. It waits when it is
// first used, since its request is sent then.
func (c *Client) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		key := c.key(ctx, conn.Peer(), spec)
		admit := sync.OnceValue(func() error {
			if err := c.Transport.Admit(ctx, key); err != nil {
				return notSent(ctx, err)
			}
			return nil
		})
		return &clientConn{conn, c, key, admit}
	}
}

// WrapStreamingHandler implements connect.Interceptor, and does nothing.
func (c *Client) WrapStreamingHandler(
	next connect.StreamingHandlerFunc,
) connect.StreamingHandlerFunc {
	return next
}

// Messages returns a connect.Interceptor that waits before each message that the program sends in a
// stream, in place of its opening. A Send that fails by the limit has sent nothing, and leaves the
// stream open. RPCs that are unary do not wait.
func (c *Client) Messages() connect.Interceptor { return clientMessages{c} }

type clientMessages struct{ client *Client }

func (clientMessages) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc { return next }

func (clientMessages) WrapStreamingHandler(
	next connect.StreamingHandlerFunc,
) connect.StreamingHandlerFunc {
	return next
}

func (m clientMessages) WrapStreamingClient(
	next connect.StreamingClientFunc,
) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		conn := next(ctx, spec)
		return &messageClientConn{conn, ctx, m.client, m.client.key(ctx, conn.Peer(), spec)}
	}
}

// messageClientConn is a stream whose messages wait.
type messageClientConn struct {
	connect.StreamingClientConn
	ctx    context.Context
	client *Client
	key    string
}

func (s *messageClientConn) Send(m any) error {
	if m == nil {
		return s.StreamingClientConn.Send(m) // the header alone
	}
	if err := s.client.Transport.Admit(s.ctx, s.key); err != nil {
		return notSent(s.ctx, err)
	}
	return s.StreamingClientConn.Send(m)
}

func (s *messageClientConn) Receive(m any) error {
	err := s.StreamingClientConn.Receive(m)
	s.client.pause(s.key, err)
	return err
}

// clientConn is a stream whose request is sent once it is admitted. Its methods that may send the
// request, or wait for the response, ask first.
type clientConn struct {
	connect.StreamingClientConn
	client *Client
	key    string
	admit  func() error
}

func (s *clientConn) Send(m any) error {
	if err := s.admit(); err != nil {
		return err
	}
	return s.StreamingClientConn.Send(m)
}

func (s *clientConn) CloseRequest() error {
	if err := s.admit(); err != nil {
		return err
	}
	return s.StreamingClientConn.CloseRequest()
}

func (s *clientConn) Receive(m any) error {
	if err := s.admit(); err != nil {
		return err
	}
	err := s.StreamingClientConn.Receive(m)
	s.client.pause(s.key, err)
	return err
}

func (s *clientConn) CloseResponse() error {
	if sent := s.admit() == nil; !sent {
		return nil
	}
	return s.StreamingClientConn.CloseResponse()
}

func (s *clientConn) ResponseHeader() http.Header {
	if s.admit() != nil {
		return http.Header{}
	}
	return s.StreamingClientConn.ResponseHeader()
}

func (s *clientConn) ResponseTrailer() http.Header {
	if s.admit() != nil {
		return http.Header{}
	}
	return s.StreamingClientConn.ResponseTrailer()
}

func (c *Client) key(ctx context.Context, peer connect.Peer, spec connect.Spec) string {
	if c.Key == nil {
		return peer.Addr
	}
	return c.Key(ctx, peer, spec)
}

// pause records the delay that err requests.
func (c *Client) pause(key string, err error) {
	if err == nil {
		return
	}
	if d := RetryDelay(err); d > 0 {
		c.Transport.Pause(key, d)
	}
}

// RetryDelay returns the delay that a server requests with err: the RetryInfo of a
// CodeResourceExhausted or CodeUnavailable; 0 if there is none.
func RetryDelay(err error) time.Duration {
	var e *connect.Error
	if !errors.As(err, &e) {
		return 0
	}
	if c := e.Code(); c != connect.CodeResourceExhausted && c != connect.CodeUnavailable {
		return 0
	}
	for _, detail := range e.Details() {
		value, err := detail.Value()
		if err != nil {
			continue // a type that this program does not know
		}
		if info, ok := value.(*errdetails.RetryInfo); ok {
			return max(0, info.GetRetryDelay().AsDuration())
		}
	}
	return 0
}

// notSent returns the error of an RPC that was not sent.
func notSent(ctx context.Context, err error) error {
	code, wait := rpclimit.NotSent(ctx, err)
	return withRetryInfo(connect.NewError(connect.Code(code), err), wait)
}
