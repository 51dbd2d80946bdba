// Package envoy is the decision server behind weir serve: Envoy's rate limit service, with rules
// that are reloaded when they change.
package envoy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

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

// headers returns the header fields for the client. They describe the last descriptor that is over
// its limit and not in quota mode or, if there is none, the one with the least remaining.
func (n *HeaderNames) headers(resp *rules.Response) []*core.HeaderValue {
	var shown *rules.Status
	for i := range resp.Statuses {
		s := &resp.Statuses[i]
		if s.Limit == nil {
			continue
		}
		denies := s.Reason == rules.Over && (s.Rule == nil || !s.Rule.Quota)
		if shown == nil || denies || shown.Reason != rules.Over && s.Remaining < shown.Remaining {
			shown = s
		}
	}
	if shown == nil {
		return nil
	}
	field := func(key string, n uint64) *core.HeaderValue {
		return &core.HeaderValue{Key: key, Value: strconv.FormatUint(n, 10)}
	}
	list := []*core.HeaderValue{
		field(n.Limit, uint64(shown.Limit.Requests)),
		field(n.Remaining, shown.Remaining),
		field(n.Reset, uint64(shown.ResetSeconds())),
	}
	if !resp.Allowed() {
		longest := int64(0)
		for i := range resp.Statuses {
			if resp.Statuses[i].Reason == rules.Over {
				longest = max(longest, resp.Statuses[i].ResetSeconds())
			}
		}
		list = append(list, field("Retry-After", uint64(longest)))
	}
	return list
}

// DefaultHeaders are the names that Envoy's service uses.
var DefaultHeaders = HeaderNames{"RateLimit-Limit", "RateLimit-Remaining", "RateLimit-Reset"}

// exchange is the reusable memory of one decision.
type exchange struct {
	req  rules.Request
	resp rules.Response
}

// read fills x.req and reuses its memory.
func (x *exchange) read(in *pb.RateLimitRequest) {
	x.req.Domain, x.req.Hits = in.GetDomain(), uint64(in.GetHitsAddend())
	list := in.GetDescriptors()
	if cap(x.req.Descriptors) < len(list) {
		x.req.Descriptors = make([]rules.Descriptor, len(list))
	}
	x.req.Descriptors = x.req.Descriptors[:len(list)]
	for i, d := range list {
		to := &x.req.Descriptors[i]
		entries := to.Entries[:0]
		for _, e := range d.GetEntries() {
			entries = append(entries, rules.Entry{Key: e.GetKey(), Value: e.GetValue()})
		}
		*to = rules.Descriptor{Entries: entries, GiveBack: d.GetIsNegativeHits(),
			Override: override(d.GetLimit())}
		if h := d.GetHitsAddend(); h != nil {
			to.Hits, to.HasHits = h.GetValue(), true
		}
	}
}

// response converts x.resp to the protocol's response.
func (x *exchange) response() *pb.RateLimitResponse {
	statuses := make([]descriptorStatus, len(x.resp.Statuses))
	out := &pb.RateLimitResponse{
		OverallCode: code(x.resp.Denied),
		Statuses:    make([]*pb.RateLimitResponse_DescriptorStatus, len(statuses)),
	}
	for i := range statuses {
		statuses[i].fill(&x.resp.Statuses[i])
		out.Statuses[i] = &statuses[i].status
	}
	return out
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

// serveJSON answers /json as Envoy's service does: for any method, 200 or 429 with the response, or
// 400 if the request is invalid or cannot be decided. It says why only of too many descriptors.
func (s *service) serveJSON(w http.ResponseWriter, r *http.Request) {
	var in pb.RateLimitRequest
	var resp *pb.RateLimitResponse
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil {
		err = protojson.Unmarshal(body, &in)
	}
	if err == nil {
		resp, err = s.ShouldRateLimit(r.Context(), &in)
	}
	if err != nil {
		text := "Bad Request"
		if of, ok := status.FromError(err); ok && of.Code() == codes.InvalidArgument {
			text = of.Message()
		}
		http.Error(w, text, http.StatusBadRequest)
		return
	}
	out, err := protojson.Marshal(resp)
	if err != nil {
		http.Error(w, "Internal Server Error", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if resp.GetOverallCode() == pb.RateLimitResponse_OVER_LIMIT {
		w.WriteHeader(http.StatusTooManyRequests)
	}
	_, _ = w.Write(out) // an error means that the client disconnected
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

// maxBody bounds a request at /json.
const maxBody = 4 << 20

// clean replaces invalid UTF-8, which a message must not contain.
func clean(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
