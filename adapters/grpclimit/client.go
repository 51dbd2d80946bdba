package grpclimit

import (
	"context"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirgo/weir/httpclient"
	"github.com/weirgo/weir/internal/doors/rpclimit"
)

// Client keeps the RPCs of a client under a limit of its own, and follows the RetryInfo of servers:
// after a ResourceExhausted or Unavailable that has one, it sends nothing of that key until the
// delay is over. RPCs that wait are sent in order; one whose deadline comes first fails at once.
// See [httpclient.Transport].
//
//	client := &grpclimit.Client{Transport: httpclient.Transport{
//		Limit: limiter.TokenBucket(20).Limit(100, time.Second),
//	}}
//	conn, err := grpc.NewClient(target, grpc.WithChainUnaryInterceptor(client.Unary),
//		grpc.WithChainStreamInterceptor(client.Stream), …)
//
// An RPC that is not sent fails with codes.ResourceExhausted and the time to wait as a RetryInfo;
// with DeadlineExceeded or Canceled if its context ends the wait; and with Unavailable if the
// Strategy cannot decide. Client never sends an RPC twice. The zero value has no limit of its own
// and follows servers. It is safe for concurrent use, and must not be copied or changed after the
// first RPC.
type Client struct {
	// Transport holds the limit. Base and Key are not used.
	Transport httpclient.Transport

	// Key returns the key of an RPC; RPCs with one key share a limit and a pause. target is that of
	// the connection, method is "/package.Service/Method". nil: the target.
	Key func(ctx context.Context, target, method string) string
}

// Unary is a grpc.UnaryClientInterceptor.
func (c *Client) Unary(
	ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	key := c.key(ctx, cc.Target(), method)
	if err := c.Transport.Admit(ctx, key); err != nil {
		return notSent(ctx, err)
	}
	err := invoke(ctx, method, req, reply, cc, opts...)
	c.pause(key, err)
	return err
}

// Stream is a grpc.StreamClientInterceptor. A stream counts once, when it is opened.
func (c *Client) Stream(
	ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
	streamer grpc.Streamer, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	key := c.key(ctx, cc.Target(), method)
	if err := c.Transport.Admit(ctx, key); err != nil {
		return nil, notSent(ctx, err)
	}
	stream, err := streamer(ctx, desc, cc, method, opts...)
	if err != nil {
		c.pause(key, err)
		return nil, err
	}
	return &clientStream{stream, c, key}, nil
}

// Messages returns a grpc.StreamClientInterceptor that waits before each message that the program
// sends in a stream, in place of its opening. A Send that fails by the limit has sent nothing, and
// leaves the stream open.
func (c *Client) Messages() grpc.StreamClientInterceptor {
	return func(
		ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
		streamer grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		key := c.key(ctx, cc.Target(), method)
		stream, err := streamer(ctx, desc, cc, method, opts...)
		if err != nil {
			c.pause(key, err)
			return nil, err
		}
		return &messageClientStream{clientStream{stream, c, key}}, nil
	}
}

// messageClientStream is a stream whose messages wait.
type messageClientStream struct{ clientStream }

func (s *messageClientStream) SendMsg(m any) error {
	ctx := s.Context()
	if err := s.client.Transport.Admit(ctx, s.key); err != nil {
		return notSent(ctx, err)
	}
	return s.ClientStream.SendMsg(m)
}

// clientStream pauses after an error of a stream, which arrives when it is read.
type clientStream struct {
	grpc.ClientStream
	client *Client
	key    string
}

func (s *clientStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	s.client.pause(s.key, err)
	return err
}

func (c *Client) key(ctx context.Context, target, method string) string {
	if c.Key == nil {
		return target
	}
	return c.Key(ctx, target, method)
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
// ResourceExhausted or Unavailable; 0 if there is none.
func RetryDelay(err error) time.Duration {
	s, ok := status.FromError(err)
	if !ok || s.Code() != codes.ResourceExhausted && s.Code() != codes.Unavailable {
		return 0
	}
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return max(0, info.GetRetryDelay().AsDuration())
		}
	}
	return 0
}

// notSent returns the status error of an RPC that was not sent.
func notSent(ctx context.Context, err error) error {
	code, wait := rpclimit.NotSent(ctx, err)
	return withRetryInfo(status.New(codes.Code(code), err.Error()), wait).Err()
}
