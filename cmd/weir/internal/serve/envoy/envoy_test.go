package envoy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirgo/weir/cmd/weir/internal/serve/live"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/redislimit/redistest"
	"github.com/weirgo/weir/rules"
)

// yearly has periods of a year, so that none ends during a test.
const yearly = `
domain: d
descriptors:
  - {key: one, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: ten, rate_limit: {unit: year, requests_per_unit: 10, name: tens}}
  - {key: halfyear, rate_limit: {unit: day, unit_multiplier: 180, requests_per_unit: 10}}
  - {key: shadow, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: tagged, metadata: {team: {name: a}, weir: {algorithm: token_bucket, burst: 3}}, rate_limit: {unit: year, requests_per_unit: 3}}
`

// everything has all optional parts of a response.
var everything = Answers{Headers: true, Names: DefaultHeaders, Metadata: true}

// running is a server that a test started.
type running struct {
	*Server
	dir    string
	client pb.RateLimitServiceClient
	conn   *grpc.ClientConn
	log    *lockedBuffer
	stop   func() error // stops it and returns the error of Run
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

const token = "0123456789abcdef"

// start runs a server with rules until the test ends.
func start(t testing.TB, text string, change func(*Config)) *running {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(text), 0o644))
	r := &running{dir: dir, log: &lockedBuffer{}}
	cfg := Config{
		Paths: []string{dir}, GRPC: "127.0.0.1:0", HTTP: "127.0.0.1:0", Admin: "127.0.0.1:0",
		AdminToken: token, Drain: 5 * time.Second, Log: slog.New(slog.NewTextHandler(r.log, nil)),
	}
	if change != nil {
		change(&cfg)
	}
	var err error
	r.Server, err = New(cfg)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	r.conn, err = grpc.NewClient(r.Addresses().GRPC,
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	r.client = pb.NewRateLimitServiceClient(r.conn)
	r.stop = sync.OnceValue(func() error {
		stop()
		return <-done
	})
	t.Cleanup(func() {
		assert.NoError(t, r.conn.Close())
		assert.NoError(t, r.stop())
	})
	return r
}

// descriptor returns a descriptor with keys and values, which alternate.
func descriptor(keysAndValues ...string) *common.RateLimitDescriptor {
	d := &common.RateLimitDescriptor{}
	for i := 0; i < len(keysAndValues); i += 2 {
		d.Entries = append(d.Entries,
			&common.RateLimitDescriptor_Entry{Key: keysAndValues[i], Value: keysAndValues[i+1]})
	}
	return d
}

// costing returns a descriptor with a key, the value x and a cost, of which 0 is a peek.
func costing(hits uint64, key string) *common.RateLimitDescriptor {
	d := descriptor(key, "x")
	d.HitsAddend = wrapperspb.UInt64(hits)
	return d
}

// request returns a request to domain d.
func request(descriptors ...*common.RateLimitDescriptor) *pb.RateLimitRequest {
	return &pb.RateLimitRequest{Domain: "d", Descriptors: descriptors}
}

func (r *running) ask(
	t testing.TB, descriptors ...*common.RateLimitDescriptor,
) *pb.RateLimitResponse {
	t.Helper()
	resp, err := r.client.ShouldRateLimit(t.Context(), request(descriptors...))
	require.NoError(t, err)
	return resp
}

func TestGRPC(t *testing.T) {
	s := start(t, yearly, nil)
	first := s.ask(t, descriptor("ten", "x"), descriptor("halfyear", "x"), descriptor("free", "x"),
		descriptor("other", "x"))
	assert.Equal(t, pb.RateLimitResponse_OK, first.OverallCode)
	ten := first.Statuses[0]
	assert.EqualValues(t, 9, ten.LimitRemaining)
	assert.Equal(t, "tens", ten.CurrentLimit.Name)
	assert.Equal(t, pb.RateLimitResponse_RateLimit_YEAR, ten.CurrentLimit.Unit)
	assert.EqualValues(t, 10, ten.CurrentLimit.RequestsPerUnit)
	assert.Nil(t, ten.CurrentLimit.UnitMultiplier)
	assert.Positive(t, ten.DurationUntilReset.Seconds)
	assert.EqualValues(t, 180, first.Statuses[1].CurrentLimit.UnitMultiplier.GetValue())
	assert.Empty(t, first.Statuses[1].CurrentLimit.Name, "Envoy sends it to clients: not the path")
	assert.EqualValues(t, math.MaxUint32, first.Statuses[2].LimitRemaining)
	assert.Nil(t, first.Statuses[2].CurrentLimit)
	assert.Nil(t, first.Statuses[3].CurrentLimit)
	assert.Empty(t, first.ResponseHeadersToAdd)
	assert.Nil(t, first.DynamicMetadata)

	s.ask(t, descriptor("one", "x"))
	assert.Equal(t, pb.RateLimitResponse_OVER_LIMIT, s.ask(t, descriptor("one", "x")).OverallCode)
	s.ask(t, descriptor("shadow", "x"))
	shadowed := s.ask(t, descriptor("shadow", "x"))
	assert.Equal(t, pb.RateLimitResponse_OK, shadowed.OverallCode)
	assert.Equal(t, pb.RateLimitResponse_OK, shadowed.Statuses[0].Code)
	assert.Zero(t, shadowed.Statuses[0].LimitRemaining)

	assert.EqualValues(t, 9, s.ask(t, costing(0, "ten")).Statuses[0].LimitRemaining)
	back := costing(1, "ten")
	back.IsNegativeHits = true
	assert.EqualValues(t, 10, s.ask(t, back).Statuses[0].LimitRemaining)

	own := descriptor("any", "x")
	own.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1,
		Unit: typev3.RateLimitUnit_YEAR}
	assert.Equal(t, pb.RateLimitResponse_OK, s.ask(t, own).OverallCode)
	assert.Equal(t, pb.RateLimitResponse_OVER_LIMIT, s.ask(t, own).OverallCode)
}

func TestHealth(t *testing.T) {
	s := start(t, yearly, nil)
	client := healthpb.NewHealthClient(s.conn)
	for _, name := range []string{"", "ratelimit"} {
		answer, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
		require.NoError(t, err)
		assert.Equal(t, healthpb.HealthCheckResponse_SERVING, answer.Status)
	}
	_, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "other"})
	assert.Equal(t, codes.NotFound, status.Code(err))
	code, body := s.http(t, "GET", "http://"+s.Addresses().HTTP+"/healthcheck", "")
	assert.Equal(t, 200, code)
	assert.Equal(t, "OK", body)
}

// http sends a request with the admin token.
func (r *running) http(t testing.TB, method, url, body string) (int, string) {
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(text)
}

func TestJSON(t *testing.T) {
	s := start(t, yearly, nil)
	const one = `{"domain": "d", "descriptors": [{"entries": [{"key": "one", "value": "x"}]}]}`
	for _, row := range []struct {
		name, method, body string
		code               int
		want               string
	}{
		{"within the limit", "POST", one, 200, `"OK"`},
		{"over it", "POST", one, 429, `"OVER_LIMIT"`},
		{"any method", "PUT", one, 429, `"OVER_LIMIT"`},
		{"snake case, numbers as strings", "POST", `{"domain": "d", "hits_addend": "1", "descriptors": ` +
			`[{"entries": [{"key": "one", "value": "y"}]}]}`, 200, "OK"},
		{"no JSON", "POST", "x", 400, "Bad Request\n"},
		{"nothing", "GET", "", 400, "Bad Request\n"},
		{"an unknown field", "POST", `{"domian": "d"}`, 400, "Bad Request\n"},
		{"no domain", "POST", `{}`, 400, "Bad Request\n"},
		{"an override without a unit", "POST",
			`{"domain": "d", "descriptors": [{"limit": {}, "entries": [{"key": "one"}]}]}`, 400,
			"Bad Request\n"},
	} {
		code, body := s.http(t, row.method, "http://"+s.Addresses().HTTP+"/json", row.body)
		assert.Equal(t, row.code, code, row.name)
		assert.Contains(t, body, row.want, row.name)
	}
}

func fieldsOf(resp *pb.RateLimitResponse) map[string]string {
	fields := map[string]string{}
	for _, h := range resp.ResponseHeadersToAdd {
		fields[h.Key] = h.Value
	}
	return fields
}

func TestAnswers(t *testing.T) {
	s := start(t, yearly, func(c *Config) { c.Answers = everything })
	resp := s.ask(t, descriptor("ten", "x"), descriptor("tagged", "x"))
	fields := fieldsOf(resp)
	assert.Equal(t, "3", fields["RateLimit-Limit"], "the one with the least left")
	assert.Equal(t, "2", fields["RateLimit-Remaining"])
	assert.NotContains(t, fields, "Retry-After")
	metadata := resp.DynamicMetadata.AsMap()
	assert.Equal(t, "d", metadata["domain"])
	assert.Equal(t, map[string]any{"team": map[string]any{"name": "a"}}, metadata["metadata"],
		"without weir's own")
	assert.Equal(t, []any{"ten=x"}, metadata["descriptors"].([]any)[0].(map[string]any)["entries"])

	for _, d := range metadata["descriptors"].([]any) {
		assert.NotContains(t, d, "limit", "the request overrides none")
	}
	own := costing(0, "ten")
	own.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 7,
		Unit: typev3.RateLimitUnit_DAY}
	metadata = s.ask(t, own).DynamicMetadata.AsMap()
	assert.Equal(t, []any{map[string]any{"entries": []any{"ten=x"},
		"limit":      "requests_per_unit:7 unit:DAY",
		"hitsAddend": 0.}}, metadata["descriptors"])

	s.ask(t, descriptor("one", "x"))
	fields = fieldsOf(s.ask(t, descriptor("one", "x"), descriptor("ten", "x")))
	assert.Equal(t, "1", fields["RateLimit-Limit"], "the one that is over")
	assert.Equal(t, fields["RateLimit-Reset"], fields["Retry-After"])
}

// TestHeaderNames renames one header.
func TestHeaderNames(t *testing.T) {
	s := start(t, yearly, func(c *Config) {
		c.Answers = Answers{Headers: true, Names: HeaderNames{"RateLimit-Limit", "x-left", "RateLimit-Reset"}}
	})
	var names []string
	s.ask(t, descriptor("one", "x"))
	for _, h := range s.ask(t, descriptor("one", "x")).ResponseHeadersToAdd {
		names = append(names, h.Key)
	}
	assert.Equal(t, []string{"RateLimit-Limit", "x-left", "RateLimit-Reset", "Retry-After"}, names)
}

// TestHalfSentBodiesEnd sends half of many bodies to /json. The server closes their connections
// although nothing more arrives, and a stop before that does not take the whole Drain.
func TestHalfSentBodiesEnd(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		s := start(t, yearly, func(c *Config) { c.Drain = 6 * time.Second })
		var conns []net.Conn
		for range 100 {
			conn, err := net.Dial("tcp", s.Addresses().HTTP)
			require.NoError(t, err)
			defer conn.Close()
			_, err = io.WriteString(conn,
				"POST /json HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n{")
			require.NoError(t, err)
			line := make([]byte, len("HTTP/1.1 100 Continue\r\n\r\n"))
			_, err = io.ReadFull(conn, line)
			require.NoError(t, err, "the request is under way")
			conns = append(conns, conn)
		}
		if stopped {
			assert.NoError(t, s.stop())
		}
		for _, conn := range conns {
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
			answer, err := io.ReadAll(conn)
			require.NoError(t, err, "the server closes the connection")
			require.Contains(t, string(answer), "400 Bad Request")
		}
	}
}

// A rule that is peeked at, and whose reports are denied, by its own limit or by another, is named
// once a minute in the log and counted, unless it is marked.
func TestLostReportsAreNamed(t *testing.T) {
	s := start(t, `
domain: d
descriptors:
  - {key: second, metadata: {weir: {costs: afterwards}}, rate_limit: {unit: year, requests_per_unit: 100}}
  - {key: day, rate_limit: {unit: year, requests_per_unit: 10000}}
  - {key: other, rate_limit: {unit: year, requests_per_unit: 1}}
`, nil)
	ask := func(hits uint64, keys ...string) {
		var all []*common.RateLimitDescriptor
		for _, key := range keys {
			all = append(all, costing(hits, key))
		}
		s.ask(t, all...)
	}
	for range 3 {
		ask(0, "second", "day")
		ask(5000, "second", "day")
		ask(2, "other") // was never peeked at
	}
	assert.Equal(t, 1, strings.Count(s.log.String(), "peeked"))
	assert.Contains(t, s.log.String(), "rule=day")
	assert.Contains(t, s.log.String(), "metadata: {weir: {costs: afterwards}}")
	_, metrics := s.http(t, http.MethodGet, "http://"+s.Addresses().Admin+"/metrics", "")
	assert.Contains(t, metrics, `ratelimit_service_rate_limit_lost_total{domain="d",rule="day"} 15000`)
	assert.NotContains(t, metrics, `lost_total{domain="d",rule="second"} 5`)
	assert.NotContains(t, metrics, `lost_total{domain="d",rule="other"} 2`)
}

// TestAFailingStoreIsLogged asks a server whose Redis does not answer. The log says why requests
// fail, once a second and not once a request.
func TestAFailingStoreIsLogged(t *testing.T) {
	client := redis.NewClient(redislimit.Options("127.0.0.1:1"))
	defer client.Close()
	store, err := redislimit.New(client, redislimit.Config{Timeout: 50 * time.Millisecond})
	require.NoError(t, err)
	r := start(t, yearly, func(c *Config) { c.Engine.Strategies = rules.StrategiesOf(store) })
	const requests = 50
	for range requests {
		_, err := r.client.ShouldRateLimit(t.Context(), request(descriptor("ten", "a")))
		require.Equal(t, codes.Unavailable, status.Code(err), err)
	}
	logged := strings.Count(r.log.String(), "cannot decide")
	assert.Positive(t, logged)
	assert.Less(t, logged, requests)
	assert.Contains(t, r.log.String(), "connection refused")
}

// TestMemoryAndRedisAgree makes the same requests to servers in memory and on Redis.
func TestMemoryAndRedisAgree(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(redislimit.Options(server.Addr))
	defer client.Close()
	store, err := redislimit.New(client, redislimit.Config{Timeout: time.Second})
	require.NoError(t, err)
	memory := start(t, yearly, nil)
	shared := start(t, yearly, func(c *Config) { c.Engine.Strategies = rules.StrategiesOf(store) })
	random := rand.New(rand.NewPCG(3, 4))
	for range 150 {
		var list []*common.RateLimitDescriptor
		for range 1 + random.IntN(3) {
			d := descriptor([]string{"one", "ten", "shadow", "tagged", "other"}[random.IntN(5)],
				fmt.Sprint(random.IntN(2)))
			if random.IntN(2) == 0 {
				d.HitsAddend = wrapperspb.UInt64(uint64(random.IntN(5)))
			}
			list = append(list, d)
		}
		a, b := memory.ask(t, list...), shared.ask(t, list...)
		require.Equal(t, a.OverallCode, b.OverallCode)
		for i := range a.Statuses {
			require.Equal(t, a.Statuses[i].Code, b.Statuses[i].Code)
			require.Equal(t, a.Statuses[i].LimitRemaining, b.Statuses[i].LimitRemaining)
		}
	}
}

func TestAdmin(t *testing.T) {
	s := start(t, yearly, nil)
	at := "http://" + s.Addresses().Admin
	s.ask(t, descriptor("one", "x"))
	s.ask(t, descriptor("one", "x"))
	code, page := s.http(t, "GET", at+"/-/", "")
	assert.Equal(t, 200, code)
	assert.Contains(t, page, "/-/page.js")
	_, stats := s.http(t, "GET", at+"/-/stats", "")
	assert.Contains(t, stats, `"name":"d: one=x","n":1`, "who was denied")
	assert.Regexp(t, `"version":"[0-9a-f]{12}","loaded":\d+,"loads":1,"refused":0,"warnings":`, stats)
	assert.Contains(t, stats, `{"rule":"d: one","limit":"1 per year","counting":"fixed_window","at_once":2,`+
		`"hits":2,"within":1,"near":1,"over":1,"shadowed":0,"lost":0}`)
	assert.Contains(t, stats, `"denied":1,"failed":0}`)
	_, metrics := s.http(t, "GET", at+"/metrics", "")
	assert.Contains(t, metrics,
		`ratelimit_service_rate_limit_over_limit_total{domain="d",rule="one"} 1`)
	assert.NotContains(t, metrics, `"x"`, "no values")
	_, config := s.http(t, "GET", at+"/rlconfig", "")
	assert.Contains(t, config, "d: ten: 10 per year (named tens) at ")

	_, caller := s.http(t, "GET", at+"/-/explain?domain=d&descriptor=one%3Dx", "")
	assert.Contains(t, caller, `"name":"one","limit":"1 per year","counting":"fixed_window","at_once":2,"used":1,"left":0,"passes":`)
	assert.Contains(t, caller, `"denials":1,"last":[{"at":`)
	_, same := s.http(t, "GET", at+"/-/explain?key=d:+one%3Dx", "")
	assert.Contains(t, same, `"name":"one","limit":"1 per year","counting":"fixed_window","at_once":2,"used":1`)
	_, same = s.http(t, "GET", at+"/-/explain?id="+live.ID("d: one=x"), "")
	assert.Contains(t, same, `"denials":1,"last":[{"at":`)
	code, hint := s.http(t, "GET", at+"/-/explain?key=192.0.2.7", "")
	assert.Equal(t, 400, code)
	assert.Contains(t, hint, `"192.0.2.7" names no caller: rules count descriptors, such as -d remote_address=192.0.2.7`)
	code, _ = s.http(t, "DELETE", at+"/-/caller?domain=d&descriptor=one%3Dx", "")
	assert.Equal(t, 200, code)
	assert.Equal(t, pb.RateLimitResponse_OK, s.ask(t, descriptor("one", "x")).OverallCode)
	code, _ = s.http(t, "DELETE", at+"/-/caller?domain=d&descriptor=nobody", "")
	assert.Equal(t, 404, code)
	code, _ = s.http(t, "DELETE", at+"/-/caller?domain=d", "")
	assert.Equal(t, 400, code)

	for _, path := range []string{"POST /-/reload", "DELETE /-/caller", "GET /-/explain"} {
		method, path, _ := strings.Cut(path, " ")
		req, err := http.NewRequestWithContext(t.Context(), method, at+path, nil)
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		resp.Body.Close()
		assert.Equal(t, 401, resp.StatusCode, path)
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "http://evil.example/", nil)
	s.admin().ServeHTTP(w, r)
	assert.Equal(t, http.StatusMisdirectedRequest, w.Code)
	_, err := New(Config{Admin: "0.0.0.0:6070"})
	assert.ErrorContains(t, err, "is not a loopback address")
}

func TestBadRulesAtTheStart(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "r.yaml"), []byte("domain: ''\n"), 0o644))
	_, err := New(Config{Paths: []string{dir}, GRPC: "127.0.0.1:0"})
	assert.ErrorContains(t, err, "r.yaml:1:9: config file cannot have empty domain")
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for began := time.Now(); !ok(); time.Sleep(5 * time.Millisecond) { // between two looks
		if time.Since(began) > time.Minute {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func generation(n int) string {
	return fmt.Sprintf(`
domain: d
descriptors:
  - {key: user, rate_limit: {unit: year, requests_per_unit: 1000, name: g%d}}
  - {key: other, rate_limit: {unit: year, requests_per_unit: 10, name: g%d}}
`, n, n)
}

// TestReloadUnderLoad reloads by renaming files, by replacing links as in a ConfigMap, and with
// broken files in between, while clients make requests. Every decision uses the rules of one
// generation, none fails, and the counts are kept.
func TestReloadUnderLoad(t *testing.T) {
	reloads := slow.N(6, 30, 300)
	s := start(t, generation(0), nil)
	var asked, failed, mixed, admitted atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for i := range 64 {
		clients.Go(func() {
			for ctx.Err() == nil {
				resp, err := s.client.ShouldRateLimit(context.Background(), request(
					descriptor("user", "u"), descriptor("other", fmt.Sprint(i, asked.Add(1)))))
				switch {
				case err != nil:
					failed.Add(1)
				case resp.Statuses[0].CurrentLimit.GetName() != resp.Statuses[1].CurrentLimit.GetName():
					mixed.Add(1)
				case resp.OverallCode == pb.RateLimitResponse_OK:
					admitted.Add(1)
				}
				time.Sleep(time.Millisecond) // the pace of a client
			}
		})
	}
	for n := 1; n <= reloads; n++ {
		before := s.live.Status()
		if n%3 == 0 {
			replace(t, s.dir, "domain: [")
			eventually(t, "a broken file is refused", func() bool {
				return s.live.Status().Failures > before.Failures
			})
			after := s.live.Status()
			assert.ErrorContains(t, after.Err, "error loading config file")
			assert.Equal(t, before.Version, after.Version, "the old rules stay")
		}
		if n%2 == 0 {
			link(t, s.dir, n)
		} else {
			replace(t, s.dir, generation(n))
		}
		eventually(t, "the rules are loaded", func() bool {
			r := s.live.Engine.Set().Match("d", []rules.Entry{{Key: "user", Value: "u"}})
			return r != nil && r.Limit.Name == fmt.Sprint("g", n)
		})
	}
	eventually(t, "the limit is used up", func() bool { return admitted.Load() >= 1000 })
	stop()
	clients.Wait()
	assert.Zero(t, failed.Load(), "failed requests")
	assert.Zero(t, mixed.Load(), "decisions by two generations")
	assert.EqualValues(t, 1000, admitted.Load(), "the counts are kept")
	assert.Contains(t, s.log.String(), "rules refused; the old ones stay in force")
	_, page := s.http(t, "GET", "http://"+s.Addresses().Admin+"/metrics", "")
	assert.Contains(t, page, "ratelimit_service_config_load_error_total "+fmt.Sprint(reloads/3))
}

// replace renames a new file to rules.yaml.
func replace(t testing.TB, dir, text string) {
	temp := filepath.Join(dir, ".new")
	require.NoError(t, os.WriteFile(temp, []byte(text), 0o644))
	require.NoError(t, os.Rename(temp, filepath.Join(dir, "rules.yaml")))
}

// link installs new rules as Kubernetes does: in a directory, through a link that is replaced.
func link(t testing.TB, dir string, n int) {
	version := fmt.Sprintf("..v%d", n)
	require.NoError(t, os.Mkdir(filepath.Join(dir, version), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, version, "rules.yaml"), []byte(generation(n)),
		0o644))
	require.NoError(t, os.Symlink(version, filepath.Join(dir, "..tmp")))
	require.NoError(t, os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")))
	if info, err := os.Lstat(filepath.Join(dir, "rules.yaml")); err == nil &&
		info.Mode()&os.ModeSymlink != 0 {
		return
	}
	require.NoError(t, os.Symlink("..data/rules.yaml", filepath.Join(dir, "..link")))
	require.NoError(t, os.Rename(filepath.Join(dir, "..link"), filepath.Join(dir, "rules.yaml")))
}

func TestReloadByRequest(t *testing.T) {
	s := start(t, yearly, nil)
	loads := s.live.Status().Successes
	code, body := s.http(t, "POST", "http://"+s.Addresses().Admin+"/-/reload", "")
	assert.Equal(t, 200, code, body)
	assert.Equal(t, loads+1, s.live.Status().Successes)
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "rules.yaml"), []byte("domain: [\n"), 0o644))
	code, body = s.http(t, "POST", "http://"+s.Addresses().Admin+"/-/reload", "")
	assert.Equal(t, http.StatusUnprocessableEntity, code)
	assert.Contains(t, body, "rules.yaml:2:1: error loading config file")
	_, page := s.http(t, "GET", "http://"+s.Addresses().Admin+"/-/stats", "")
	assert.Contains(t, page, "error loading config file", "the page says why")
	assert.Equal(t, pb.RateLimitResponse_OK, s.ask(t, descriptor("one", "x")).OverallCode)
}

// hostile returns requests that an attacker may make.
func hostile() map[string]*pb.RateLimitRequest {
	many := request()
	for i := range 1000 {
		many.Descriptors = append(many.Descriptors, descriptor("ten", fmt.Sprint(i)))
	}
	unitless := descriptor("ten", "x")
	unitless.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1}
	never := descriptor("ten", "x")
	never.Limit = &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1, Unit: 99,
		UnitMultiplier: wrapperspb.UInt32(0)}
	return map[string]*pb.RateLimitRequest{
		"an override of unit 0":       request(unitless),
		"an override of unit 99":      request(never),
		"a cost of 2^64-1":            request(costing(math.MaxUint64, "ten")),
		"1,000 descriptors":           many,
		"no entries":                  request(&common.RateLimitDescriptor{}),
		"empty entries":               request(descriptor("", "", "", "")),
		"control characters":          request(descriptor("ten", "\x00\x01\n\u2028")),
		"a value of a megabyte":       request(descriptor("ten", strings.Repeat("x", 1<<20))),
		"a descriptor that is no one": request(nil),
		"a domain of a megabyte": {Domain: strings.Repeat("x", 1<<20),
			Descriptors: []*common.RateLimitDescriptor{descriptor("a", "b")}},
	}
}

func TestHostileRequests(t *testing.T) {
	s := start(t, yearly, func(c *Config) { c.Answers = everything })
	s.ask(t, descriptor("ten", "watched"))
	for name, req := range hostile() {
		resp, err := s.client.ShouldRateLimit(t.Context(), req)
		assert.True(t, err != nil && status.Code(err) == codes.Unknown ||
			err == nil && len(resp.Statuses) == len(req.Descriptors), "%s: %v", name, err)
		peek := descriptor("ten", "watched")
		peek.HitsAddend = wrapperspb.UInt64(0)
		assert.EqualValues(t, 9, s.ask(t, peek).Statuses[0].LimitRemaining, name)
	}
	_, metrics := s.http(t, "GET", "http://"+s.Addresses().Admin+"/metrics", "")
	assert.NotContains(t, metrics, "xxx", "no client makes a series of its own")
	assert.Contains(t, metrics, "ratelimit_service_domain_not_found_total 1")
}

// TestRandomRequests makes random requests. The server must answer, and no count may go down.
func TestRandomRequests(t *testing.T) {
	s := serviceOf(t, yearly)
	random := rand.New(rand.NewPCG(5, 6))
	texts := []string{"", "one", "ten", "tagged", "free", "shadow", "x", "y", "\xff", "\x00"}
	used := uint32(0)
	for n := range slow.N(20_000, 60_000, 1_000_000) {
		req := &pb.RateLimitRequest{Domain: []string{"d", "d", "d", "", "e"}[random.IntN(5)],
			HitsAddend: random.Uint32() >> random.IntN(33)}
		for range random.IntN(4) {
			d := &common.RateLimitDescriptor{}
			for range random.IntN(3) {
				d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{
					Key: texts[random.IntN(len(texts))], Value: texts[random.IntN(len(texts))]})
			}
			if random.IntN(3) == 0 {
				d.HitsAddend = wrapperspb.UInt64(random.Uint64() >> random.IntN(65))
			}
			if random.IntN(5) == 0 {
				d.Limit = &common.RateLimitDescriptor_RateLimitOverride{
					RequestsPerUnit: random.Uint32(), Unit: typev3.RateLimitUnit(random.IntN(12) - 2),
					UnitMultiplier: wrapperspb.UInt32(random.Uint32() >> random.IntN(33))}
			}
			req.Descriptors = append(req.Descriptors, d)
		}
		resp, err := s.ShouldRateLimit(context.Background(), req)
		require.True(t, err != nil || len(resp.Statuses) == len(req.Descriptors))
		if n%10 == 0 {
			resp, err := s.ShouldRateLimit(context.Background(), request(costing(0, "ten")))
			require.NoError(t, err)
			now := 10 - resp.Statuses[0].LimitRemaining
			require.GreaterOrEqual(t, now, used)
			used = now
		}
	}
	assert.Positive(t, used, "it was counted")
}

// serviceOf returns a service without a server.
func serviceOf(t testing.TB, text string) *service {
	name := filepath.Join(t.TempDir(), "r.yaml")
	require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	l, err := live.New(live.Config{Paths: []string{name}})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, l.Engine.Close()) })
	return newService(l.Engine, &Config{Answers: everything},
		newTally(l.Figures, slog.New(slog.DiscardHandler)))
}

// TestTheTokenCannotBeGuessed tries more wrong tokens from one address than are allowed.
func TestTheTokenCannotBeGuessed(t *testing.T) {
	s := start(t, yearly, nil)
	codes := map[int]int{}
	for range 100 {
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+s.Addresses().Admin+
			"/-/reload", nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer wrong")
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		resp.Body.Close()
		codes[resp.StatusCode]++
	}
	assert.LessOrEqual(t, codes[401], 20, "at most ten in each of two windows")
	assert.Equal(t, 100, codes[401]+codes[429])
	assert.EqualValues(t, 1, s.live.Status().Successes, "no rules were loaded")
}

// TestWithoutATokenNothingIsChanged runs a server without a token.
func TestWithoutATokenNothingIsChanged(t *testing.T) {
	s := start(t, yearly, func(c *Config) { c.AdminToken = "" })
	for _, token := range []string{"", "Bearer ", "Bearer x"} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "http://127.0.0.1/-/reload", nil)
		r.Header.Set("Authorization", token)
		s.admin().ServeHTTP(w, r)
		assert.Equal(t, http.StatusForbidden, w.Code)
	}
}

// A browser that was given the token sends it with the requests of every site.
func TestOtherSitesChangeNothing(t *testing.T) {
	s := start(t, yearly, nil)
	for site, want := range map[string]int{"cross-site": 403, "same-origin": 200} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "http://127.0.0.1/-/reload", nil)
		r.SetBasicAuth("", token)
		r.Header.Set("Sec-Fetch-Site", site)
		s.admin().ServeHTTP(w, r)
		assert.Equal(t, want, w.Code, site)
	}
}

// FuzzJSON posts arbitrary bodies: the response must be 200, 429 or 400.
func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"domain": "d", "descriptors": [{"entries": [{"key": "one", "value": "x"}], ` +
		`"hitsAddend": ` +
		`"18446744073709551615"}]}`))
	f.Add([]byte(`{"domain": "d", "hits_addend": 4294967295, "descriptors": [{"limit": {"unit": 0, ` +
		`"unitMultiplier": 0}}, {}]}`))
	s := serviceOf(f, yearly)
	f.Fuzz(func(t *testing.T, body []byte) {
		w := httptest.NewRecorder()
		s.serveJSON(w, httptest.NewRequest("POST", "/json", bytes.NewReader(body)))
		assert.Contains(t, []int{200, 429, 400}, w.Code)
		assert.Equal(t, w.Code == 400, w.Body.String() == "Bad Request\n")
	})
}
