// Package connectlimit limits RPCs of connect-go handlers and clients with any [weir.Strategy].
//
//	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
//	limit := connectlimit.NewServer(perClient, httplimit.Config{
//		// The limit is per peer and procedure.
//		Extractor: httplimit.Join(httplimit.RemoteAddr(), httplimit.Pattern()),
//	})
//	path, handler := pingv1connect.NewPingServiceHandler(server, connect.WithInterceptors(limit))
//
// The Config is that of the HTTP middleware, whose functions see a POST to the procedure,
// "/package.Service/Method", with the request's headers and the peer's address as RemoteAddr. The
// middleware itself works around a connect handler too, but answers as HTTP does: clients of gRPC
// and streams would not understand it.
package connectlimit

import (
	"context"
	"errors"
	"net/http"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/doors/rpclimit"
)

// Server is a connect.Interceptor for handlers. It is safe for concurrent use. Make one with
// [NewServer].
type Server struct {
	// OnDenied returns the error of an RPC that is not admitted, a connect.Error. What it says of a
	// denial is up to it; a RetryInfo is added, and the headers are set. Set it before the first RPC.
	// nil, and an error that is nil: see [NewServer].
	OnDenied func(ctx context.Context, d httplimit.Decision) error

	guard *rpclimit.Guard
}

// NewServer returns the interceptor that consults s before each RPC, as cfg says; see
// [httplimit.New], which panics for the same reasons. NewServer also panics if cfg has Respond or
// CORS: put a CORS middleware around the handler.
//
//   - The key: [httplimit.RemoteAddr] is the peer, [httplimit.Pattern] the procedure,
//     [httplimit.Headers] reads headers. A LimitFunc or CostFunc finds the procedure in r.URL.Path.
//     The host and the TLS state are not known.
//   - A denial is connect.CodeResourceExhausted with a google.rpc.RetryInfo, and the header
//     Retry-After. A denial that can never pass has neither.
//   - A caller on the deny list gets CodePermissionDenied, or CodeResourceExhausted if the listing
//     ends. An RPC without a key gets CodeInvalidArgument. If a Strategy cannot decide, or too many
//     RPCs of all clients are in flight, it is CodeUnavailable; with FailOpen the handler runs, and
//     [httplimit.IsBypassed] is true of its context.
//   - An RPC that cfg.Overload refuses is CodeUnavailable, or CodeResourceExhausted if its caller
//     holds its share, with a RetryInfo. Streams take no place of it while they last.
//   - The fields of cfg.Headers are sent as response headers.
//   - CountIf is given the HTTP status that google.rpc.Code maps a code to: 401 for
//     CodeUnauthenticated.
func NewServer(s weir.Strategy, cfg httplimit.Config) *Server {
	return &Server{guard: rpclimit.New(s, cfg)}
}

// WrapUnary implements connect.Interceptor.
func (s *Server) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (resp connect.AnyResponse, err error) {
		if req.Spec().IsClient {
			return next(ctx, req)
		}
		info, _ := connect.CallInfoForHandlerContext(ctx)
		err = s.run(ctx, callOf(req.Spec(), req.Peer(), req.Header()), info,
			func(ctx context.Context) error {
				resp, err = next(ctx, req)
				return err
			})
		return resp, err
	}
}

// WrapStreamingHandler implements connect.Interceptor. A stream counts once, when it is opened.
func (s *Server) WrapStreamingHandler(
	next connect.StreamingHandlerFunc,
) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		call := callOf(conn.Spec(), conn.Peer(), conn.RequestHeader())
		call.Stream = true
		return s.run(ctx, call, conn, func(ctx context.Context) error { return next(ctx, conn) })
	}
}

// WrapStreamingClient implements connect.Interceptor, and does nothing.
func (s *Server) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

// response is where the headers of an answer are set, an error's too: a CallInfo or a
// StreamingHandlerConn.
type response interface{ ResponseHeader() http.Header }

// run runs the handler if the RPC is admitted, and returns its error or that of the refusal.
func (s *Server) run(
	ctx context.Context, call rpclimit.Call, resp response, handle func(context.Context) error,
) (err error) {
	refusal := s.guard.Run(ctx, call, func(ctx context.Context, fields http.Header) rpclimit.Code {
		setFields(resp, fields)
		err = handle(ctx)
		return codeOf(err)
	})
	if refusal == nil {
		return err
	}
	setFields(resp, refusal.Fields)
	return s.refuse(ctx, refusal)
}

// refuse returns the error of an RPC that was not admitted.
func (s *Server) refuse(ctx context.Context, r *rpclimit.Refusal) error {
	answer := connect.NewError(connect.Code(r.Code), errors.New(r.Message))
	if s.OnDenied != nil {
		if err := s.OnDenied(ctx, r.Decision); err != nil && !errors.As(err, &answer) {
			answer = connect.NewError(connect.CodeUnknown, err)
		}
	}
	return withRetryInfo(answer, r.Decision.RetryAfter)
}

// Messages returns a connect.Interceptor that consults the Strategy about each message of a client
// in place of the opening of the stream. Over the limit, the handler's Receive fails with the error
// of an RPC that is not admitted; a handler that returns it ends the stream. RPCs that are unary
// are not limited. It can be given together with another Server:
//
//	messages := connectlimit.NewServer(limiter.TokenBucket(20), httplimit.Config{…})
//	connect.WithInterceptors(limit, messages.Messages())
//
// The functions of the Config see the request that opened the stream. Messages panics if the Config
// has CountIf, MaxInFlight, Overload or Concurrency: a message has no end.
func (s *Server) Messages() connect.Interceptor {
	if err := s.guard.CheckNoHandler(); err != nil {
		panic("connectlimit: Messages: " + err.Error())
	}
	return messages{s}
}

type messages struct{ server *Server }

func (messages) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc { return next }

func (messages) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return next
}

func (m messages) WrapStreamingHandler(
	next connect.StreamingHandlerFunc,
) connect.StreamingHandlerFunc {
	return func(ctx context.Context, conn connect.StreamingHandlerConn) error {
		call := callOf(conn.Spec(), conn.Peer(), conn.RequestHeader())
		return next(ctx, &messageConn{conn, ctx, m.server, call})
	}
}

// messageConn is a stream whose messages are limited.
type messageConn struct {
	connect.StreamingHandlerConn
	ctx    context.Context
	server *Server
	call   rpclimit.Call
}

func (c *messageConn) Receive(m any) error {
	if err := c.StreamingHandlerConn.Receive(m); err != nil {
		return err // the end is no message
	}
	if _, refusal := c.server.guard.Admit(c.ctx, c.call); refusal != nil {
		return c.server.refuse(c.ctx, refusal)
	}
	return nil
}

// setFields adds fields to those of another interceptor. Retry-After has one value.
func setFields(resp response, fields http.Header) {
	if resp == nil {
		return // an interceptor of tests may have no CallInfo
	}
	header := resp.ResponseHeader()
	for name, values := range fields {
		if name != "Retry-After" {
			values = append(header[name], values...)
		}
		header[name] = values
	}
}

func callOf(spec connect.Spec, peer connect.Peer, header http.Header) rpclimit.Call {
	return rpclimit.Call{Method: spec.Procedure, Peer: peer.Addr, Header: header}
}

// codeOf returns the code that connect sends for a handler's error.
func codeOf(err error) rpclimit.Code {
	var coded *connect.Error
	switch {
	case err == nil:
		return rpclimit.OK
	case errors.As(err, &coded):
		return rpclimit.Code(coded.Code())
	case errors.Is(err, context.DeadlineExceeded):
		return rpclimit.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return rpclimit.Canceled
	}
	return rpclimit.Code(connect.CodeOf(err))
}

// withRetryInfo adds a RetryInfo, unless waiting is of no use.
func withRetryInfo(err *connect.Error, delay time.Duration) *connect.Error {
	if delay <= 0 {
		return err
	}
	info := &errdetails.RetryInfo{RetryDelay: durationpb.New(delay)}
	if detail, failed := connect.NewErrorDetail(info); failed == nil {
		err.AddDetail(detail)
	}
	return err
}
