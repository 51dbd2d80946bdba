// Package envoy is the decision server behind weir serve: Envoy's rate limit service, with rules
// that are reloaded when they change.
package envoy

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/rules"
)

// service answers the protocol's requests, over gRPC and HTTP.
type service struct {
	pb.UnimplementedRateLimitServiceServer
	engine  *rules.Engine
	answers Answers
	most    int // descriptors of a request; 0: no bound
	tally   *tally
	pool    sync.Pool   // of *exchange
	waiting atomic.Bool // there are no rules yet
}

// errNoRules is the error of a service without rules.
var errNoRules = errors.New("no rate limit configuration loaded")

// Answers selects the optional parts of a response.
type Answers struct {
	Headers  bool // those of Names, and Retry-After on a denial
	Names    HeaderNames
	Metadata bool // the descriptors, and the metadata of the rules that passed
}

// HeaderNames are names of header fields.
type HeaderNames struct{ Limit, Remaining, Reset string }

// DefaultHeaders are the names that Envoy's service uses.
var DefaultHeaders = HeaderNames{"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"}

// exchange is the reusable memory of one decision.
type exchange struct {
	req  rules.Request
	resp rules.Response
}

func newService(engine *rules.Engine, cfg *Config, t *tally) *service {
	s := &service{engine: engine, answers: cfg.Answers, most: cfg.MaxDescriptors, tally: t}
	s.pool.New = func() any { return new(exchange) }
	return s
}

// ShouldRateLimit decides on a request. Its errors have the code Unknown, like those of Envoy's
// service, but InvalidArgument if the request has too many descriptors, and Unavailable if the
// store, such as Redis, failed or if there are no rules yet.
func (s *service) ShouldRateLimit(
	ctx context.Context, in *pb.RateLimitRequest,
) (*pb.RateLimitResponse, error) {
	if err := s.checkSize(in); err != nil {
		s.tally.failed(err)
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	x := s.pool.Get().(*exchange)
	defer s.pool.Put(x)
	x.read(in)
	err := errNoRules
	if !s.waiting.Load() {
		err = s.engine.DecideInto(ctx, &x.req, &x.resp)
	}
	if err != nil {
		if s.tally.failed(err) == storeError {
			err = status.Error(codes.Unavailable, clean(err.Error()))
		}
		return nil, err
	}
	if x.resp.Lost != nil {
		s.tally.failed(x.resp.Lost)
	}
	s.tally.count(&x.req, &x.resp)
	out := x.response()
	if s.answers.Headers {
		out.ResponseHeadersToAdd = s.answers.Names.headers(&x.resp)
	}
	if s.answers.Metadata {
		out.DynamicMetadata, err = metadata(in, &x.resp)
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// checkSize fails for more descriptors than a request may have.
func (s *service) checkSize(in *pb.RateLimitRequest) error {
	if n := len(in.GetDescriptors()); 0 < s.most && s.most < n {
		return fmt.Errorf("%w: %d descriptors, and --max-descriptors is %d", rules.ErrRequest, n, s.most)
	}
	return nil
}

// storeError is the kind of an error of the store, such as Redis.
const storeError = "store"

// errorKind returns the label of an error in the metrics.
func errorKind(err error) string {
	switch {
	case errors.Is(err, rules.ErrRequest):
		return "request"
	case errors.Is(err, weir.ErrFull):
		return "full"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "canceled"
	}
	return storeError
}
