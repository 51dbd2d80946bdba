package envoy

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
	"github.com/weirgo/weir/rules"
)

// record makes TestConformance write what another server answers:
//
//	go test ./internal/envoy -run TestConformance -record 127.0.0.1:8081,127.0.0.1:8080
//
// The file has the answers of envoyproxy/ratelimit v1.4.1-0.20260122083618-3fb702589d36 with an
// empty Redis, testdata/envoy.yaml as its only rules, and RESPONSE_DYNAMIC_METADATA and
// LIMIT_RESPONSE_HEADERS_ENABLED set to true.
var record = flag.String("record", "",
	"record the answers of the server at these `addresses`: GRPC,HTTP")

// step is a request, and what envoyproxy/ratelimit answers to it after those before.
type step struct {
	Name    string          `json:"name"`
	Request json.RawMessage `json:"request,omitempty"` // over gRPC
	Body    string          `json:"body,omitempty"`    // without a Request, to /json
	Code    string          `json:"code"`              // of gRPC or of HTTP
	Answer  any             `json:"answer"`            // a response, or the text of an error
}

// answer makes the request of a step.
func (s *step) answer(
	t *testing.T, client pb.RateLimitServiceClient, httpAt string,
) (code string, answer any) {
	if s.Request != nil {
		var in pb.RateLimitRequest
		require.NoError(t, protojson.Unmarshal(s.Request, &in))
		resp, err := client.ShouldRateLimit(t.Context(), &in)
		if err != nil {
			return status.Code(err).String(), status.Convert(err).Message()
		}
		return status.Code(err).String(), comparable(t, resp)
	}
	reply, err := http.Post("http://"+httpAt+"/json", "application/json", strings.NewReader(s.Body))
	require.NoError(t, err)
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	require.NoError(t, err)
	if reply.Header.Get("Content-Type") != "application/json" {
		return reply.Status, string(text)
	}
	var resp pb.RateLimitResponse
	require.NoError(t, protojson.Unmarshal(text, &resp))
	return reply.Status, comparable(t, &resp)
}

// comparable returns a response without what depends on the time, once that is checked, and without
// what only one of the servers has: Retry-After is weir's own, and quotaModeEnabled that of one
// version of envoyproxy/ratelimit.
func comparable(t *testing.T, resp *pb.RateLimitResponse) any {
	resets := map[string]bool{}
	for _, s := range resp.Statuses {
		if s.DurationUntilReset == nil {
			assert.Nil(t, s.CurrentLimit)
			continue
		}
		resets[strconv.FormatInt(s.DurationUntilReset.Seconds, 10)] = true
		assert.Positive(t, s.DurationUntilReset.Seconds)
		assert.LessOrEqual(t, s.DurationUntilReset.AsDuration(),
			rules.Unit(s.CurrentLimit.Unit).Duration())
		s.DurationUntilReset.Seconds = 0
	}
	resp.ResponseHeadersToAdd = slices.DeleteFunc(resp.ResponseHeadersToAdd,
		func(h *core.HeaderValue) bool {
			if h.Key == "RateLimit-Reset" || h.Key == "Retry-After" {
				assert.Contains(t, resets, h.Value)
				h.Value = ""
			}
			return h.Key == "Retry-After"
		})
	delete(resp.DynamicMetadata.GetFields(), "quotaModeEnabled")
	for _, d := range resp.DynamicMetadata.GetFields()["descriptors"].GetListValue().GetValues() {
		if l := d.GetStructValue().GetFields()["limit"]; l != nil { // the number of its spaces is random
			d.GetStructValue().Fields["limit"] = structpb.NewStringValue(
				strings.Join(strings.Fields(l.GetStringValue()), " "),
			)
		}
	}
	text, err := protojson.Marshal(resp)
	require.NoError(t, err)
	var out any
	require.NoError(t, json.Unmarshal(text, &out))
	return out
}

// TestConformance makes requests with go-control-plane's client whose answers envoyproxy/ratelimit
// has given to the same client: names, limits, metadata, headers, codes and errors must be the
// same, in memory and on Redis.
func TestConformance(t *testing.T) {
	const file = "testdata/envoy.json"
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	var steps []*step
	require.NoError(t, json.Unmarshal(text, &steps))
	if *record != "" {
		recordSteps(t, steps, file)
		return
	}
	limits, err := os.ReadFile("testdata/envoy.yaml")
	require.NoError(t, err)
	client := redis.NewClient(redislimit.Options(redistest.Start(t).Addr))
	defer client.Close()
	store, err := redislimit.New(client, redislimit.Config{Timeout: 10 * time.Second})
	require.NoError(t, err)
	for name, strategies := range map[string]rules.Strategies{"memory": nil,
		"redis": rules.StrategiesOf(store)} {
		t.Run(name, func(t *testing.T) {
			s := start(t, string(limits), func(c *Config) {
				c.Engine.Strategies, c.Engine.CountDenied, c.Answers = strategies, true, everything
			})
			for _, step := range steps {
				code, answer := step.answer(t, s.client, s.Addresses().HTTP)
				assert.Equal(t, step.Code, code, step.Name)
				assert.Equal(t, step.Answer, answer, step.Name)
			}
		})
	}
}

// recordSteps writes the answers of another server to a file, a step a line.
func recordSteps(t *testing.T, steps []*step, file string) {
	grpcAt, httpAt, _ := strings.Cut(*record, ",")
	conn, err := grpc.NewClient(grpcAt, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	var lines [][]byte
	for _, s := range steps {
		s.Code, s.Answer = s.answer(t, pb.NewRateLimitServiceClient(conn), httpAt)
		var line bytes.Buffer
		e := json.NewEncoder(&line)
		e.SetEscapeHTML(false)
		require.NoError(t, e.Encode(s))
		lines = append(lines, bytes.TrimSpace(line.Bytes()))
	}
	text := append(append([]byte("[\n"), bytes.Join(lines, []byte(",\n"))...), "\n]\n"...)
	require.NoError(t, os.WriteFile(file, text, 0o644))
}
