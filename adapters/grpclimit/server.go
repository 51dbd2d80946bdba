// Package grpclimit limits RPCs of gRPC servers and clients with any [weir.Strategy].
//
//	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
//	limit := grpclimit.NewServer(perClient, httplimit.Config{
//		Extractor: httplimit.Join(httplimit.RemoteAddr(), httplimit.Pattern()), // per peer and method
//	})
//	server := grpc.NewServer(
//		grpc.ChainUnaryInterceptor(limit.Unary),
//		grpc.ChainStreamInterceptor(limit.Stream),
//	)
//
// The Config is that of the HTTP middleware. Its functions see an RPC as the HTTP request that it
// is: a POST to "/package.Service/Method", with the metadata as headers and the peer's address as
// RemoteAddr.
package grpclimit

import (
	"context"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/doors/rpclimit"
)

// Server limits the RPCs that a server handles. It is safe for concurrent use. Make one with
// [NewServer].
type Server struct {
	// OnDenied returns the error of an RPC that is not admitted, a status error. What it says of a
	// denial is up to it; a RetryInfo is added, and the trailer is set. Set it before the first RPC.
	// nil, and an error that is nil: see [NewServer].
	OnDenied func(ctx context.Context, d httplimit.Decision) error

	guard *rpclimit.Guard
}

// NewServer returns the interceptors that consult s before each RPC, as cfg says; see
// [httplimit.New], which panics for the same reasons. NewServer also panics if cfg has Respond or
// CORS, which are HTTP's.
//
//   - The key: [httplimit.RemoteAddr] is the peer, [httplimit.Pattern] the full method,
//     [httplimit.Headers] reads metadata. A LimitFunc or CostFunc finds the method in r.URL.Path,
//     metadata in r.Header, a client certificate in r.TLS.
//   - A denial is codes.ResourceExhausted with a google.rpc.RetryInfo, and the same delay as the
//     trailer grpc-retry-pushback-ms, which clients with a retry policy follow. A denial that can
//     never pass has neither.
//   - A caller on the deny list gets codes.PermissionDenied, or ResourceExhausted if the listing
//     ends. An RPC without a key gets InvalidArgument. If a Strategy cannot decide, or too many
//     RPCs of all clients are in flight, it is Unavailable; with FailOpen the handler runs, and
//     [httplimit.IsBypassed] is true of its context.
//   - An RPC that cfg.Overload refuses is Unavailable, or ResourceExhausted if its caller holds its
//     share, with a RetryInfo. Streams take no place of it while they last.
//   - The fields of cfg.Headers are sent as metadata, "ratelimit" and "ratelimit-policy": in the
//     header of an RPC that is admitted, and in the trailer of one that is not.
//   - CountIf is given the HTTP status that google.rpc.Code maps a code to: 401 for
//     Unauthenticated.
func NewServer(s weir.Strategy, cfg httplimit.Config) *Server {
	return &Server{guard: rpclimit.New(s, cfg)}
}

// Unary is a grpc.UnaryServerInterceptor.
func (s *Server) Unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler,
) (resp any, err error) {
	call := callOf(ctx, info.FullMethod)
	refusal := s.guard.Run(ctx, call, func(ctx context.Context, fields http.Header) rpclimit.Code {
		// It fails if an interceptor sent the header already: the fields are then lost.
		_ = grpc.SetHeader(ctx, metadataOf(fields))
		resp, err = handler(ctx, req)
		return codeOf(err)
	})
	if refusal != nil {
		return nil, s.refuse(ctx, refusal)
	}
	return resp, err
}

// Stream is a grpc.StreamServerInterceptor. A stream counts once, when it is opened.
func (s *Server) Stream(
	srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
) (err error) {
	ctx := stream.Context()
	call := callOf(ctx, info.FullMethod)
	call.Stream = true
	refusal := s.guard.Run(ctx, call, func(ctx context.Context, fields http.Header) rpclimit.Code {
		_ = stream.SetHeader(metadataOf(fields))
		err = handler(srv, &serverStream{stream, ctx})
		return codeOf(err)
	})
	if refusal != nil {
		return s.refuse(ctx, refusal)
	}
	return err
}

// Messages returns a grpc.StreamServerInterceptor that consults the Strategy about each message of
// a client in place of the opening of the stream. Over the limit, the handler's Recv fails with the
// error of an RPC that is not admitted; a handler that returns it ends the stream. It can be
// chained with the Stream of another Server:
//
//	messages := grpclimit.NewServer(limiter.TokenBucket(20), httplimit.Config{…})
//	grpc.ChainStreamInterceptor(limit.Stream, messages.Messages())
//
// The functions of the Config see the request that opened the stream. Messages panics if the Config
// has CountIf, MaxInFlight, Overload or Concurrency: a message has no end.
func (s *Server) Messages() grpc.StreamServerInterceptor {
	s.checkNoHandler("Messages")
	return func(
		srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
	) error {
		return handler(srv, &messageStream{stream, s, callOf(stream.Context(), info.FullMethod)})
	}
}

// messageStream is a stream whose messages are limited.
type messageStream struct {
	grpc.ServerStream
	server *Server
	call   rpclimit.Call
}

func (s *messageStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err // the end is no message
	}
	if _, refusal := s.server.guard.Admit(s.Context(), s.call); refusal != nil {
		return s.server.refuse(s.Context(), refusal)
	}
	return nil
}

// serverStream is a stream with the context of an admitted RPC.
type serverStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *serverStream) Context() context.Context { return s.ctx }

// Limiter returns s as the Limiter of go-grpc-middleware's ratelimit interceptors, for servers that
// have them already:
//
//	ratelimit.UnaryServerInterceptor(limit.Limiter())
//
// These make a ResourceExhausted of their own from its error: clients read the reason in the text,
// but get no RetryInfo. The fields and grpc-retry-pushback-ms are sent. Limiter panics if the
// Config has CountIf, MaxInFlight, Overload or Concurrency: it does not see how and when the RPC
// ends. Only servers can use it.
func (s *Server) Limiter() Limiter {
	s.checkNoHandler("Limiter")
	return Limiter{s}
}

func (s *Server) checkNoHandler(method string) {
	if err := s.guard.CheckNoHandler(); err != nil {
		panic("grpclimit: " + method + ": " + err.Error())
	}
}

// Limiter is made by [Server.Limiter].
type Limiter struct{ server *Server }

// Limit returns the status error of an RPC that is not admitted, with its RetryInfo. ctx is that of
// the server's RPC. An RPC that is admitted undecided is not marked: [httplimit.IsBypassed] needs
// the interceptors of Server.
func (l Limiter) Limit(ctx context.Context) error {
	method, _ := grpc.Method(ctx)
	fields, refusal := l.server.guard.Admit(ctx, callOf(ctx, method))
	if refusal != nil {
		return l.server.refuse(ctx, refusal)
	}
	_ = grpc.SetHeader(ctx, metadataOf(fields))
	return nil
}

// refuse sets the trailer of an RPC that was not admitted, and returns its error.
func (s *Server) refuse(ctx context.Context, r *rpclimit.Refusal) error {
	_ = grpc.SetTrailer(ctx, trailerOf(r))
	answer := status.New(codes.Code(r.Code), r.Message)
	if s.OnDenied != nil {
		if err := s.OnDenied(ctx, r.Decision); err != nil {
			answer = status.Convert(err)
		}
	}
	return withRetryInfo(answer, r.Decision.RetryAfter).Err()
}

// callOf describes the RPC of a server's context.
func callOf(ctx context.Context, method string) rpclimit.Call {
	c := rpclimit.Call{Method: method}
	if p, ok := peer.FromContext(ctx); ok {
		if p.Addr != nil {
			c.Peer = p.Addr.String()
		}
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			c.TLS = &info.State
		}
	}
	md, _ := metadata.FromIncomingContext(ctx)
	c.Header = make(http.Header, len(md))
	for key, values := range md {
		if strings.HasPrefix(key, ":") {
			continue
		}
		c.Header[textproto.CanonicalMIMEHeaderKey(key)] = values
	}
	if authority := md[":authority"]; len(authority) == 1 {
		c.Host = authority[0]
	}
	return c
}

// codeOf returns the code that gRPC sends for a handler's error.
func codeOf(err error) rpclimit.Code {
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err)
	}
	return rpclimit.Code(s.Code())
}

// metadataOf returns fields by the keys of metadata.
func metadataOf(fields http.Header) metadata.MD {
	md := make(metadata.MD, len(fields))
	for name, values := range fields {
		md[strings.ToLower(name)] = values
	}
	return md
}

// trailerOf returns the metadata of an RPC that was not admitted. It is all in the trailer, since
// clients do not retry once they have a header.
func trailerOf(r *rpclimit.Refusal) metadata.MD {
	md := metadataOf(r.Fields)
	if r.Decision.RetryAfter > 0 {
		ms := (r.Decision.RetryAfter + time.Millisecond - 1) / time.Millisecond
		md.Set("grpc-retry-pushback-ms", strconv.FormatInt(int64(ms), 10)) // gRFC A6
	}
	return md
}

// withRetryInfo adds a RetryInfo, unless waiting is of no use.
func withRetryInfo(s *status.Status, delay time.Duration) *status.Status {
	if delay <= 0 {
		return s
	}
	detailed, err := s.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(delay)})
	if err != nil {
		return s // OK has no details, and a RetryInfo can be marshaled
	}
	return detailed
}
