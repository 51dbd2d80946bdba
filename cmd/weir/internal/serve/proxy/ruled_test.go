package proxy

import (
	"encoding/json"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/serve/live"
	"github.com/weirgo/weir/cmd/weir/internal/serve/onredis"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

const ruleText = `
domain: web
descriptors:
  - {key: remote_address, rate_limit: {unit: year, requests_per_unit: 5}}
  - {key: path, value: /login, rate_limit: {unit: year, requests_per_unit: 2, name: logins}}
---
domain: web
rate_limits:
  - actions: [{remote_address: {}}]
  - actions: [{path: {}}]
`

// rulesConfig returns the Config of a proxy with rules in their own directory.
func rulesConfig(t testing.TB, text string) (cfg Config, file string) {
	t.Helper()
	cfg = config(t)
	file = filepath.Join(t.TempDir(), "rules.yaml")
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	cfg.Rules = cli.Rules{Paths: []string{filepath.Dir(file)}, Domain: "web"}
	cfg.Admin.Token = "0123456789abcdef"
	return cfg, file
}

var bearer = []string{"Authorization", "Bearer 0123456789abcdef", changeHeader, "1"}

func TestRules(t *testing.T) {
	cfg, _ := rulesConfig(t, ruleText)
	s := serve(t, cfg)
	assert.Equal(t, "fixed_window 2", s.ruled.counting())
	answer, _ := send(t, "GET", s.front.URL+"/login?x=1", nil)
	assert.Equal(t, 200, answer.StatusCode)
	assert.Contains(t, answer.Header.Get("RateLimit-Policy"),
		`"remote_address";q=5;w=31536000, "logins";q=2;w=31536000`)
	assert.Equal(t, 200, status(t, "GET", s.front.URL+"/login"))
	answer, body := send(t, "GET", s.front.URL+"/login", nil)
	assert.Equal(t, 429, answer.StatusCode)
	assert.NotEmpty(t, answer.Header.Get("Retry-After"))
	assert.Contains(t, body, `"violated-policies":["logins"]`)
	for range 3 {
		assert.Equal(t, 200, status(t, "GET", s.front.URL+"/"),
			"the denied request took nothing from the address")
	}
	assert.Equal(t, 429, status(t, "GET", s.front.URL+"/"))

	f := s.figures()
	assert.Equal(t, []uint64{5, 2}, []uint64{f.Requests["admitted"], f.Requests["denied"]})
	assert.Equal(t, "127.0.0.1", f.Worst[0].Name)
	require.Len(t, f.Rules.Top, 2)
	assert.Equal(t, live.RuleShown{Rule: "path=/login", Limit: "2 per year", Counting: "fixed_window",
		AtOnce: 4, Hits: 3, Within: 2, Near: 1, Over: 1}, f.Rules.Top[1])
	metrics := s.metrics()
	assert.Contains(t, metrics, `weir_requests_total{outcome="denied"} 2`)
	assert.Contains(t, metrics, `weir_rule_over_limit_total{domain="web",rule="path=/login"} 1`)
	assert.Contains(t, metrics, "weir_rules_refused 0")
}

// TestRulesKeepTheLists checks that the deny list, the allow list and the bounds on requests in
// flight work with rules.
func TestRulesKeepTheLists(t *testing.T) {
	cfg, _ := rulesConfig(t, ruleText)
	cfg.Trust = loopback
	cfg.Allow = []netip.Prefix{netip.MustParsePrefix("192.0.2.1/32")}
	cfg.Deny = []httplimit.DenyEntry{entry(t, "192.0.2.2")}
	cfg.MaxInFlight, cfg.MaxInFlightPerClient = 5, 5
	s := serve(t, cfg)
	for range 9 {
		assert.Equal(t, 200, status(t, "GET", s.front.URL+"/login", "X-Forwarded-For", "192.0.2.1"))
		assert.Equal(t, 403, status(t, "GET", s.front.URL+"/login", "X-Forwarded-For", "192.0.2.2"))
	}
	assert.Equal(t, 200, status(t, "GET", s.front.URL+"/login", "X-Forwarded-For", "192.0.2.3"))
	f := s.figures().Requests
	assert.Equal(t, []uint64{9, 9, 1}, []uint64{f["exempt"], f["listed"], f["admitted"]})
}

// The keys of --by have no bucket with rules: a client may have any number.
func TestKeysAreNotBoundedByRules(t *testing.T) {
	cfg, _ := rulesConfig(t, ruleText)
	cfg = by(t, cfg, "header:X-Key")
	log := textLog(&cfg.Log)
	s := serve(t, cfg)
	for i := range 10_001 {
		r := requestOf("198.51.100.1:1", "/")
		r.Header.Set("X-Key", strconv.Itoa(i))
		s.handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	assert.NotContains(t, log.String(), "share one budget")
}

func TestRulesInShadowMode(t *testing.T) {
	cfg, _ := rulesConfig(t, ruleText)
	cfg.Guard.Shadow = true
	s := serve(t, cfg)
	for range 8 {
		answer, _ := send(t, "GET", s.front.URL+"/", nil)
		assert.Equal(t, 200, answer.StatusCode)
		assert.Empty(t, answer.Header.Get("RateLimit"))
	}
	assert.EqualValues(t, 3, s.figures().Requests["denied"])

	cfg.Deny = []httplimit.DenyEntry{entry(t, "127.0.0.1")}
	s = serve(t, cfg)
	assert.Equal(t, 200, status(t, "GET", s.front.URL+"/"))
	f := s.figures().Requests
	assert.Equal(t, []uint64{1, 0}, []uint64{f["listed"], f["admitted"]},
		"the deny list comes before the rules")
}

// TestRulesWithoutRoom fills the table and checks that requests that cannot be decided on get the
// response configured by --fail.
func TestRulesWithoutRoom(t *testing.T) {
	for shadow, want := range map[bool]int{false: 503, true: 200} {
		cfg, _ := rulesConfig(t, strings.Replace(ruleText, "value: /login, ", "", 1))
		cfg.Table.MaxBuckets, cfg.Guard.FailOpen, cfg.Guard.Shadow = 2, true, shadow
		s := serve(t, cfg)
		assert.Equal(t, 200, status(t, "GET", s.front.URL+"/one"),
			"one unit of the address, one of the path")
		assert.Equal(t, want, status(t, "GET", s.front.URL+"/two"))
		assert.Equal(t, 200, status(t, "GET", s.front.URL+"/one"))
		f := s.figures().Requests
		assert.EqualValues(t, 1, f["failed"])
	}
}

// TestRulesAreReloaded changes the rules while clients send requests: counts are kept, and a
// mistake changes nothing.
func TestRulesAreReloaded(t *testing.T) {
	cfg, file := rulesConfig(t, ruleText)
	s := serve(t, cfg)
	for range 2 {
		assert.Equal(t, 200, status(t, "GET", s.front.URL+"/login"))
	}
	reload := func(text string) (int, string) {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		answer, body := send(t, "POST", s.back.URL+"/-/reload", nil, bearer...)
		return answer.StatusCode, body
	}
	code, body := reload(strings.Replace(ruleText, "requests_per_unit: 2", "requests_per_unit: 3", 1))
	assert.Equal(t, 200, code, body)
	assert.Equal(t, 200, status(t, "GET", s.front.URL+"/login"), "one more than before")
	assert.Equal(t, 429, status(t, "GET", s.front.URL+"/login"), "the count was kept")

	code, body = reload("domain: web\ndescriptor: []\n")
	assert.Equal(t, 422, code)
	assert.Contains(t, body, "rules.yaml:2:1: config error, unknown key 'descriptor'")
	code, body = reload("domain: other\n")
	assert.Equal(t, 422, code)
	assert.Contains(t, body, `no domain "web"`)
	assert.Error(t, s.Reload(), "as SIGHUP does")
	assert.Equal(t, 429, status(t, "GET", s.front.URL+"/login"), "the old rules are in force")
	assert.Contains(t, s.figures().Rules.Error, `no domain "web"`)
	assert.Contains(t, s.metrics(), "weir_rules_refused 1")
	assert.Contains(t, s.metrics(), "weir_rules_load_error_total 3")
}

// TestRulesAreWatched changes the files of the rules without a request to reload.
func TestRulesAreWatched(t *testing.T) {
	cfg, file := rulesConfig(t, ruleText)
	r := run(t, cfg)
	ask := func() int { return status(t, "GET", "http://"+r.front+"/login") }
	assert.Equal(t, 200, ask())
	temp := filepath.Join(filepath.Dir(file), ".new")
	require.NoError(t, os.WriteFile(temp,
		[]byte(strings.ReplaceAll(ruleText, "requests_per_unit: 2", "requests_per_unit: 0")), 0o600))
	require.NoError(t, os.Rename(temp, file))
	require.Eventually(t, func() bool {
		return r.ruled.Status().Successes == 2
	}, time.Minute, 5*time.Millisecond)
	assert.Equal(t, 429, ask())
}

// TestACallerIsInspectedAndReset inspects and resets a caller at the admin address, which requires
// the token.
func TestACallerIsInspectedAndReset(t *testing.T) {
	cfg, _ := rulesConfig(t, ruleText)
	s := serve(t, cfg)
	caller := s.back.URL + "/-/caller?descriptor=path%3D/login"
	for i := range 3 {
		assert.Equal(t, i == 2, status(t, "GET", s.front.URL+"/login") == 429)
	}
	explain := s.back.URL + "/-/explain?descriptor=path%3D/login"
	answer, body := send(t, "GET", explain, nil, bearer...)
	assert.Equal(t, 200, answer.StatusCode)
	assert.Contains(t, body, `"name":"path=/login","limit":"2 per year","counting":"fixed_window","at_once":4,"used":2,"left":0,"passes":`)
	assert.Contains(t, body, `"steps":"domain`)
	assert.Equal(t, 403, status(t, "DELETE", caller, bearer[:2]...),
		"a page of another site cannot send the header")
	assert.Equal(t, 200, status(t, "DELETE", caller, bearer...))
	assert.Equal(t, 200, status(t, "GET", s.front.URL+"/login"))
	assert.Equal(t, 401, status(t, "DELETE", caller, changeHeader, "1"))
	assert.Equal(t, 404, status(t, "DELETE", s.back.URL+"/-/caller?descriptor=nobody", bearer...))
	assert.Equal(t, 400, status(t, "GET", s.back.URL+"/-/explain?descriptor=%3D", bearer...))
	assert.Equal(t, 401, status(t, "GET", explain))

	all := s.back.URL + "/-/callers?descriptor=path"
	assert.Equal(t, 200, status(t, "GET", s.front.URL+"/login"))
	assert.Equal(t, 429, status(t, "GET", s.front.URL+"/login"))
	assert.Equal(t, 403, status(t, "DELETE", all, bearer[:2]...))
	answer, body = send(t, "DELETE", all, nil, bearer...)
	assert.Equal(t, 200, answer.StatusCode)
	assert.Regexp(t, `^\{"seen":\d+,"reset":1,"done":true\}\n$`, body)
	assert.Equal(t, 200, status(t, "GET", s.front.URL+"/login"))
	_, body = send(t, "DELETE", s.back.URL+"/-/callers", nil, bearer...)
	assert.Contains(t, body, `"done":true`, "all of the domain")
	assert.Equal(t, 401, status(t, "DELETE", all, changeHeader, "1"))
	assert.Equal(t, 400, status(t, "DELETE", s.back.URL+"/-/callers?descriptor=%3D", bearer...))

	cfg.Admin.Token = ""
	open := serve(t, cfg)
	for _, call := range [][2]string{{"POST", "/-/reload"}, {"DELETE", "/-/caller"},
		{"DELETE", "/-/callers"}} {
		assert.Equal(t, 403, status(t, call[0], open.back.URL+call[1], changeHeader, "1"),
			"%s without a token", call)
	}
}

func TestInvalidRules(t *testing.T) {
	cfg, _ := rulesConfig(t, "domain: other\n")
	_, err := New(cfg)
	assert.ErrorContains(t, err, `no domain "web"`)
	cfg.Limits = config(t, "1/1m").Limits
	_, err = New(cfg)
	assert.ErrorContains(t, err, "want limits or rules")
	cfg.Limits, cfg.Routes = nil, []Route{{Pattern: "/x", Limits: config(t, "1/1m").Limits}}
	_, err = New(cfg)
	assert.ErrorContains(t, err, "want limits or rules")
}

// TestRulesOnRedis checks that two proxies share limits of rules, and that each has half without
// Redis.
func TestRulesOnRedis(t *testing.T) {
	server := redistest.Start(t)
	var proxies []served
	for range 2 {
		cfg, _ := rulesConfig(t, strings.Replace(ruleText, "requests_per_unit: 5",
			"requests_per_unit: 60", 1))
		cfg.Redis = onredis.Config{URL: "redis://" + server.Addr, Prefix: "p:"}
		cfg.Redis.Fallback.Instances, cfg.Redis.Fallback.Timeout = 2, time.Second
		proxies = append(proxies, serve(t, cfg))
	}
	spendTogether := func(n int) (admitted int) {
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				if status(t, "GET", proxies[i%2].front.URL+"/") == 200 {
					mu.Lock()
					admitted++
					mu.Unlock()
				}
			})
		}
		all.Wait()
		return admitted
	}
	assert.Equal(t, 20, spendTogether(20))
	f := proxies[0].figures()
	require.Len(t, f.Deciding, 1)
	assert.Equal(t, "fixed window", f.Deciding[0].Limit)
	assert.Equal(t, "redis", f.Deciding[0].Source)
	assert.Equal(t, 40, spendTogether(60), "exactly the rest")
	assert.Zero(t, spendTogether(2), "and each has seen that")
	server.Kill()
	assert.Zero(t, spendTogether(10), "the counts are kept")
	assert.Contains(t, proxies[0].metrics(),
		`weir_fallback_breaker_state{name="fixed window",state="open"}`)
}

// TestExplainOfAKeyBesideRules denies a caller by rules, of which its key says nothing.
func TestExplainOfAKeyBesideRules(t *testing.T) {
	cfg, _ := rulesConfig(t, ruleText)
	s := serve(t, cfg)
	for range 3 {
		status(t, "GET", s.front.URL+"/login")
	}
	for query, want := range map[string]bool{"key=127.0.0.1": true, "descriptor=path%3D%2Flogin": false} {
		resp, body := send(t, "GET", s.back.URL+"/-/explain?"+query, nil, bearer...)
		require.Equal(t, 200, resp.StatusCode, body)
		var x cli.Explained
		require.NoError(t, json.Unmarshal([]byte(body), &x))
		assert.Equal(t, want, x.Rules, query)
	}
}
