package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/redislimit/redistest"
)

// watching is the directory of the dashboard and the alerting rules.
const watching = "../../metrics/weirprom/"

// prometheusProcess starts a Prometheus that scrapes the targets, each as the job of its name, four
// times a second. It returns a function that queries its API.
func prometheusProcess(t *testing.T, targets map[string]string) (read func(path string, into any)) {
	t.Helper()
	dir := t.TempDir()
	rules, err := filepath.Abs(watching + "alerts.yaml")
	require.NoError(t, err)
	config := fmt.Sprintf("global: {scrape_interval: 250ms, evaluation_interval: 250ms}\n"+
		"rule_files: [%q]\nscrape_configs:\n", rules)
	for job, target := range targets {
		u, err := url.Parse(target)
		require.NoError(t, err)
		config += fmt.Sprintf("  - {job_name: %s, metrics_path: %s, static_configs: [{targets: [%q]}]}\n",
			job, u.Path, u.Host)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600))
	at := fmt.Sprintf("127.0.0.1:%d", redistest.FreePort(t))
	cmd := exec.Command("prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+at, "--log.level=warn")
	cmd.Stderr = os.Stderr
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	redistest.Eventually(t, time.Minute, "prometheus is ready", func() bool {
		resp, err := http.Get("http://" + at + "/-/ready")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return func(path string, into any) {
		t.Helper()
		status, text := get(t, "http://"+at+path)
		require.Equal(t, 200, status, "%s: %s", path, text)
		answer := struct{ Data any }{into}
		require.NoError(t, json.Unmarshal([]byte(text), &answer), text)
	}
}

// TestPrometheusScrapes runs a real Prometheus that scrapes a proxy and a decision server through
// an outage of their Redis. Every query of the dashboard must return data, and the alert for the
// outage must be pending or firing.
func TestPrometheusScrapes(t *testing.T) {
	slow.Test(t)
	redis := redistest.Start(t)
	shared := []string{"--redis", "redis://" + redis.Addr, "--instances", "2", "--redis-timeout",
		"200ms"}
	upstream := httptest.NewServer(http.NotFoundHandler())
	defer upstream.Close()
	p := proxyProcess(t, append(shared, "--limit", "40/1d", "--access-log", "off", "--overload",
		"--upstream", upstream.URL)...)
	s := serveProcess(t, append(shared, "--rules", rulesFile(t, yearly))...)
	conn := s.dial(t, nil)
	read := prometheusProcess(t, map[string]string{
		"proxy": p.back + "/-/metrics", "serve": "http://" + s.admin + "/metrics",
	})
	type vector struct {
		Result []struct {
			Metric map[string]string
			Value  [2]any
		}
	}
	query := func(expr string) (v vector) {
		read("/api/v1/query?query="+url.QueryEscape(expr), &v)
		return v
	}
	traffic := func(what, until string) { // sends requests all the time, so that there are rates
		t.Helper()
		redistest.Eventually(t, time.Minute, what, func() bool {
			for range 5 {
				resp, err := http.Get(p.front)
				require.NoError(t, err)
				resp.Body.Close()
				admitted(t, conn, "many", 1)
			}
			time.Sleep(100 * time.Millisecond) // the pace of the clients
			return len(query(until).Result) > 0
		})
	}
	traffic("requests are denied", `rate(weir_requests_total{outcome="denied"}[10s]) > 0`)
	redis.Kill()
	traffic("the outage is seen",
		`rate(weir_primary_call_duration_seconds_count{job="proxy", result!="ok"}[10s]) > 0 `+
			`and on (job) weir_fallback_breaker_state{job="proxy", state="closed"} == 0`)
	traffic("the decision server sees it, too",
		`weir_fallback_breaker_state{job="serve", state="open"} == 1`)

	for _, job := range []string{"proxy", "serve"} {
		assert.Len(t, query(fmt.Sprintf(`weir_buckets{job=%q} / weir_max_buckets`, job)).Result, 1, job)
		assert.NotEmpty(t,
			query(fmt.Sprintf(`rate(weir_fallback_decisions_total{job=%q, source="local"}[10s])`,
				job)).Result, job)
	}
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	text, err := os.ReadFile(watching + "dashboard.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &d))
	require.NotEmpty(t, d.Panels)
	variables := strings.NewReplacer("$__rate_interval", "1m", "$job", ".*", "$instance", ".*")
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			assert.NotEmpty(t, query(variables.Replace(target.Expr)).Result, "%s: no data for %s",
				panel.Title, target.Expr)
		}
	}
	states := map[string]string{}
	redistest.Eventually(t, time.Minute, "the rules are evaluated again", func() bool {
		var rules struct {
			Groups []struct {
				Rules []struct{ Name, State, Health, LastError string }
			}
		}
		read("/api/v1/rules", &rules)
		for _, r := range rules.Groups[0].Rules {
			assert.Equal(t, "ok", r.Health, r.LastError)
			states[r.Name] = r.State
		}
		return states["WeirPrimaryDown"] != "inactive"
	})
	assert.Contains(t, []string{"pending", "firing"}, states["WeirPrimaryDown"])
	delete(states, "WeirPrimaryDown")
	assert.Equal(t, map[string]string{"WeirOverload": "inactive", "WeirTableNearlyFull": "inactive",
		"WeirUndecided": "inactive", "WeirUpstreamFails": "inactive", "WeirUpstreamSlow": "inactive"},
		states)
}
