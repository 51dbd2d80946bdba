package envoy

import (
	"context"
	"strconv"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"
)

// BenchmarkShouldRateLimit decides on requests with 10,000 values, and decodes and encodes the
// messages as gRPC does.
func BenchmarkShouldRateLimit(b *testing.B) {
	s := serviceOf(b,
		"domain: d\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 1000000000}}]\n")
	s.answers = Answers{}
	var requests [10_000]*pb.RateLimitRequest
	var encoded [10_000][]byte
	for i := range requests {
		requests[i] = &pb.RateLimitRequest{Domain: "d",
			Descriptors: []*common.RateLimitDescriptor{descriptor("user", strconv.Itoa(i))}}
		encoded[i], _ = proto.Marshal(requests[i])
	}
	b.Run("decide", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if _, err := s.ShouldRateLimit(context.Background(), requests[i%len(requests)]); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("whole", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			wire(b, encoded[i%len(requests)], s.ShouldRateLimit)
		}
	})
	b.Run("bare", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			wire(b, encoded[i%len(requests)],
				func(context.Context, *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
					return &pb.RateLimitResponse{OverallCode: pb.RateLimitResponse_OK}, nil
				})
		}
	})
}

// wire decodes a request, decides on it and encodes the response.
func wire(b *testing.B, request []byte,
	decide func(context.Context, *pb.RateLimitRequest) (*pb.RateLimitResponse, error)) {
	var in pb.RateLimitRequest
	if err := proto.Unmarshal(request, &in); err != nil {
		b.Fatal(err)
	}
	out, err := decide(context.Background(), &in)
	if err == nil {
		_, err = proto.Marshal(out)
	}
	if err != nil {
		b.Fatal(err)
	}
}
