package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/rules"
)

// oneFile has periods of a year, so that none ends during the test.
const oneFile = `
domain: web
descriptors:
  - {key: remote_address, rate_limit: {unit: year, requests_per_unit: 20}}
  - {key: path, value: /shared, rate_limit: {unit: year, requests_per_unit: 12}}
  - {key: path, value: "/docs/*", share_threshold: true, rate_limit: {unit: year, requests_per_unit: 20}}
  - {key: path, value: /quiet, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
  - key: path
    value: /login*
    descriptors:
      - {key: remote_address, metadata: {weir: {algorithm: sliding_log}}, rate_limit: {unit: year, requests_per_unit: 4}}
  - {key: agent, value: "bot*", rate_limit: {unit: year, requests_per_unit: 20}}
  - {key: page, rate_limit: {unit: year, requests_per_unit: 12}}
---
domain: web
rate_limits:
  - actions: [{remote_address: {}}]
  - actions: [{path: {}}]
  - actions: [{path: {}}, {remote_address: {}}]
  - actions: [{request_headers: {header_name: User-Agent, descriptor_key: agent}}]
  - {actions: [{query_parameters: {query_parameter_name: page, descriptor_key: page}}], hits_addend: {number: 2}}
`

// oneRequest is a request that is sent to each of them.
type oneRequest struct{ ip, target, agent string }

// some returns requests such that each rule of oneFile denies some of them.
func some() []oneRequest {
	random := rand.New(rand.NewPCG(7, 8))
	var all []oneRequest
	targets := []string{"/", "/shared", "/docs/a", "/docs/b", "/quiet", "/login", "/login/x?y=1",
		"/search?page=1", "/search?page=2"}
	for range 700 {
		all = append(all, oneRequest{
			fmt.Sprintf("192.0.2.%d", random.IntN(9)), targets[random.IntN(len(targets))],
			[]string{"bot/1", "bot/2", "cat", "cat", "cat", "cat", "cat", "cat"}[random.IntN(8)],
		})
	}
	return all
}

func (r oneRequest) http(t *testing.T, base string) *http.Request {
	req, err := http.NewRequestWithContext(t.Context(), "GET", base+r.target, nil)
	require.NoError(t, err)
	req.Header.Set("X-Forwarded-For", r.ip)
	req.Header.Set("User-Agent", r.agent)
	req.RemoteAddr = "127.0.0.1:1"
	return req
}

// denials counts denied requests by rule and caller; the rule "all rules" counts all of them.
type denials map[string]int

func (d denials) add(caller string, rules ...string) {
	for _, r := range append(rules, "all rules") {
		d[r+" of "+caller]++
	}
}

// addProblem adds the denial in a response of the middleware.
func (d denials) addProblem(t *testing.T, caller string, status int, body io.Reader) {
	if status == http.StatusOK {
		return
	}
	require.Equal(t, http.StatusTooManyRequests, status)
	var problem struct {
		Policies []string `json:"violated-policies"`
	}
	require.NoError(t, json.NewDecoder(body).Decode(&problem))
	d.add(caller, problem.Policies...)
}

// TestOneFileEverywhere checks that a replay, the proxy, the middleware and the server deny the
// same requests of the same callers by the same rules.
func TestOneFileEverywhere(t *testing.T) {
	file := rulesFile(t, oneFile)
	requests := some()
	want := byMiddleware(t, file, requests)
	assert.Greater(t, want["all rules of 192.0.2.1"], 5)
	for _, rule := range []string{"remote_address", "path=/shared", "path=/docs/*",
		"path=/login*,remote_address", "agent=bot*", "page"} {
		assert.Positive(t, len(want.of(rule)), rule)
	}
	assert.Empty(t, want.of("path=/quiet"))
	assert.Equal(t, want, byReplay(t, file, requests), "replay")
	assert.Equal(t, want, byProxy(t, file, requests), "proxy")
	assert.Equal(t, want, byServer(t, file, requests), "server")
}

// of returns the denials by one rule.
func (d denials) of(rule string) denials {
	out := denials{}
	for name, n := range d {
		if strings.HasPrefix(name, rule+" of ") {
			out[name] = n
		}
	}
	return out
}

func loadEngine(t *testing.T, file string) *rules.Engine {
	set, err := rules.LoadFiles(file)
	require.NoError(t, err)
	engine, err := rules.New(set, rules.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, engine.Close()) })
	return engine
}

// behindProxy returns an extractor of the client's address behind a proxy on this machine.
func behindProxy() httplimit.IP {
	return httplimit.ClientIP([]netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")})
}

func byMiddleware(t *testing.T, file string, requests []oneRequest) denials {
	guard := rules.NewGuard(rules.Decider{Engine: loadEngine(t, file), Domain: "web"},
		httplimit.Config{ClientIP: behindProxy()})
	h := guard.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	all := denials{}
	for _, r := range requests {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r.http(t, "http://h"))
		all.addProblem(t, r.ip, w.Code, w.Body)
	}
	return all
}

func byProxy(t *testing.T, file string, requests []oneRequest) denials {
	p := proxyProcess(t, "--rules", file, "--trust", "127.0.0.1")
	all := denials{}
	for _, r := range requests {
		resp, err := http.DefaultClient.Do(r.http(t, p.front))
		require.NoError(t, err)
		all.addProblem(t, r.ip, resp.StatusCode, resp.Body)
		_, _ = io.Copy(io.Discard, resp.Body)
		require.NoError(t, resp.Body.Close())
	}
	return all
}

func byServer(t *testing.T, file string, requests []oneRequest) denials {
	s := serveProcess(t, "--rules", file)
	client := pb.NewRateLimitServiceClient(s.dial(t, nil))
	set := loadEngine(t, file).Set()
	all := denials{}
	for _, r := range requests {
		in := &pb.RateLimitRequest{Domain: "web"}
		described := set.RequestOf("web", r.http(t, "http://h"), behindProxy()).Descriptors
		for _, d := range described {
			in.Descriptors = append(in.Descriptors, envoyDescriptor(d))
		}
		resp, err := client.ShouldRateLimit(t.Context(), in)
		require.NoError(t, err)
		if resp.OverallCode != pb.RateLimitResponse_OVER_LIMIT {
			continue
		}
		var names []string
		for i, s := range resp.Statuses { // which have no paths
			if s.Code == pb.RateLimitResponse_OVER_LIMIT {
				names = append(names, set.Match("web", described[i].Entries).Name())
			}
		}
		all.add(r.ip, names...)
	}
	return all
}

func byReplay(t *testing.T, file string, requests []oneRequest) denials {
	at := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	var text strings.Builder
	for i, r := range requests {
		when := at.Add(time.Duration(i) * time.Second).Format("02/Jan/2006:15:04:05 -0700")
		fmt.Fprintf(&text, "%s - - [%s] \"GET %s HTTP/1.1\" 200 1 \"-\" \"%s\"\n", r.ip, when, r.target,
			r.agent)
	}
	log := filepath.Join(t.TempDir(), "access.log")
	require.NoError(t, os.WriteFile(log, []byte(text.String()), 0o600))
	all := denials{}
	for _, r := range replayJSON(t, "replay", "--rules", file, "--top", "1000", log).Rules {
		for _, c := range r.Worst {
			if !r.Shadow {
				all[r.Name+" of "+c.Caller] = c.Denied
			}
		}
	}
	return all
}

// envoyDescriptor converts a descriptor to its form in the protocol.
func envoyDescriptor(d rules.Descriptor) *common.RateLimitDescriptor {
	out := &common.RateLimitDescriptor{}
	for _, e := range d.Entries {
		out.Entries = append(out.Entries, &common.RateLimitDescriptor_Entry{Key: e.Key, Value: e.Value})
	}
	if d.HasHits {
		out.HitsAddend = hitsOf(d.Hits)
	}
	return out
}
