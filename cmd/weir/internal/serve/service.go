// Package serve is the decision server behind weir serve: Envoy's rate limit service, with rules
// that are reloaded when they change.
package serve

import (
	"context"
	"errors"
	"sync"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/rules"
)

// service answers the protocol's requests, over gRPC and HTTP.
type service struct {
	pb.UnimplementedRateLimitServiceServer
	engine  *rules.Engine
	answers Answers
	tally   *tally
	pool    sync.Pool // of *exchange
}

// Answers selects the optional parts of a response.
type Answers struct {
	Headers  bool // RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset, and Retry-After on a denial
	Metadata bool // the descriptors, and the metadata of the rules that passed
}

// exchange is the reusable memory of one decision.
type exchange struct {
	req  rules.Request
	resp rules.Response
}

func newService(engine *rules.Engine, answers Answers, t *tally) *service {
	s := &service{engine: engine, answers: answers, tally: t}
	s.pool.New = func() any { return new(exchange) }
	return s
}

// ShouldRateLimit decides on a request. Its errors have the code Unknown, like those of Envoy's
// service.
func (s *service) ShouldRateLimit(ctx context.Context, in *pb.RateLimitRequest) (*pb.RateLimitResponse,
	error) {
	x := s.pool.Get().(*exchange)
	defer s.pool.Put(x)
	x.read(in)
	if err := s.engine.DecideInto(ctx, &x.req, &x.resp); err != nil {
		s.tally.failed(err)
		return nil, err
	}
	if x.resp.Lost != nil {
		s.tally.failed(x.resp.Lost)
	}
	s.tally.count(&x.req, &x.resp)
	out := x.response()
	if s.answers.Headers {
		out.ResponseHeadersToAdd = headers(&x.resp)
	}
	if s.answers.Metadata {
		var err error
		if out.DynamicMetadata, err = metadata(&x.req, &x.resp); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// errorKind returns the label of an error in the metrics.
func errorKind(err error) string {
	switch {
	case errors.Is(err, rules.ErrNoDomain), errors.Is(err, rules.ErrNoDescriptors),
		errors.Is(err, rules.ErrOverride):
		return "request"
	case errors.Is(err, weir.ErrFull):
		return "full"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "canceled"
	}
	return "store"
}
