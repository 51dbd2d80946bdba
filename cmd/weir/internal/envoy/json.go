package envoy

import (
	"io"
	"net/http"
	"strings"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
)

// maxBody bounds a request at /json.
const maxBody = 4 << 20

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

// clean replaces invalid UTF-8, which a message must not contain.
func clean(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
