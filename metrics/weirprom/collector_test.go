package weirprom_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/metrics"
	"github.com/weirgo/weir/metrics/weirprom"
	"github.com/weirgo/weir/near"
	"github.com/weirgo/weir/overload"
)

// service is a limited HTTP service with everything that there is to watch.
type service struct {
	handler  http.Handler
	registry *prometheus.Registry
	down     bool // the primary; set between requests
	places   *weir.InFlight
}

// primary is a Strategy that is down at times.
type primary struct {
	weir.Strategy
	down *bool
}

func (p primary) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	if *p.down {
		return nil, errDown
	}
	return p.Strategy.Run(ctx, r)
}

var errDown = errors.New("down: the key was 192.0.2.9")

// newService makes a service that admits two requests a minute to each value of the header Key.
func newService(t *testing.T) *service {
	t.Helper()
	s := &service{registry: prometheus.NewPedanticRegistry()}
	limiter, err := weir.New(weir.Config{MaxBuckets: 100_000})
	require.NoError(t, err)
	t.Cleanup(func() { limiter.Close() })
	calls := weirprom.NewCalls("edge", func(error) string { return "down" })
	remote, err := weir.New(weir.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { remote.Close() })
	leases := near.NewLeases(primary{remote.FixedWindow(), &s.down}, near.LeaseConfig{Block: 1})
	f, err := fallback.New(leases, limiter.FixedWindow(), fallback.Config{
		Timeout: time.Minute, MinCalls: 1, FailureRate: 0.01, Stall: -1, ProbeInterval: time.Hour,
		OnCall: calls.OnCall,
	})
	require.NoError(t, err)
	guard, err := overload.New(limiter, overload.Config{})
	require.NoError(t, err)
	stats, decisions := new(httplimit.Stats), weirprom.NewDecisions("edge")
	s.handler = httplimit.New(f, httplimit.Config{
		Extractor: httplimit.Headers("Key"), Name: "per key", Limit: 2, Duration: 365 * 24 * time.Hour,
		Stats: stats, OnDecision: decisions.OnDecision,
	})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.registry.MustRegister(decisions, calls, weirprom.New("edge", metrics.Limiter(limiter.Stats),
		metrics.HTTP(stats.Count),
		metrics.Fallback(f.Stats), metrics.Leases(leases.Stats), metrics.Holds(),
		metrics.Overload(guard.Stats)))
	s.places = limiter.InFlight()
	return s
}

// ask sends a request with a key and returns the status.
func (s *service) ask(key string) int {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Key", key)
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, r)
	return w.Code
}

// scrape reads the metrics of a registry over HTTP, and parses them with Prometheus' own parser.
func scrape(t *testing.T,
	registry *prometheus.Registry) (families map[string]*dto.MetricFamily, text string) {
	t.Helper()
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer server.Close()
	resp, err := http.Get(server.URL)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, 200, resp.StatusCode)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err = parser.TextToMetricFamilies(bytes.NewReader(body))
	require.NoError(t, err)
	return families, string(body)
}

// value returns the sample of a family whose labels include these pairs.
func value(
	t *testing.T, families map[string]*dto.MetricFamily, name string, pairs ...string,
) float64 {
	t.Helper()
	require.Contains(t, families, name)
	for _, m := range families[name].Metric {
		labels := map[string]string{}
		for _, l := range m.Label {
			labels[l.GetName()] = l.GetValue()
		}
		matches := true
		for i := 0; i < len(pairs); i += 2 {
			matches = matches && labels[pairs[i]] == pairs[i+1]
		}
		if !matches {
			continue
		}
		if m.Histogram != nil {
			return float64(m.Histogram.GetSampleCount())
		}
		return m.Counter.GetValue() + m.Gauge.GetValue()
	}
	require.Fail(t, "no such sample", "%s %v", name, pairs)
	return 0
}

func TestScrape(t *testing.T) {
	s := newService(t)
	for _, want := range []int{200, 200, 429} {
		assert.Equal(t, want, s.ask("a"))
	}
	held, err := weir.Hold(t.Context(), s.places,
		&weir.Request{Key: "a", Limit: 3, Duration: time.Minute})
	require.NoError(t, err)
	s.down = true
	for range 3 {
		assert.Equal(t, 200, s.ask(fmt.Sprint("b", time.Now().UnixNano())), "local decides")
	}
	var families map[string]*dto.MetricFamily
	require.Eventually(t, func() bool { // OnCall runs after the caller has its answer
		families, _ = scrape(t, s.registry)
		calls := uint64(0)
		for _, m := range families["weir_primary_call_duration_seconds"].GetMetric() {
			calls += m.Histogram.GetSampleCount()
		}
		return calls == 4
	}, time.Minute, time.Millisecond)
	of := func(name string, pairs ...string) float64 {
		return value(t, families, name, append(pairs, "name", "edge")...)
	}
	assert.EqualValues(t, 5, of("weir_requests_total", "outcome", "admitted"))
	assert.EqualValues(t, 1, of("weir_requests_total", "outcome", "denied"))
	assert.EqualValues(t, 3, of("weir_decisions_total", "policy", "per key", "outcome", "admitted",
		"source", "local"))
	assert.EqualValues(t, 1, of("weir_decisions_total", "policy", "per key", "outcome", "denied",
		"source", "primary"))
	assert.EqualValues(t, 3, of("weir_fallback_decisions_total", "source", "local"))
	assert.EqualValues(t, 1, of("weir_fallback_breaker_state", "state", "open"))
	assert.EqualValues(t, 0, of("weir_fallback_breaker_state", "state", "closed"))
	assert.EqualValues(t, 1, of("weir_fallback_breaker_opens_total"))
	assert.EqualValues(t, 1, of("weir_fallback_failures_total"))
	assert.EqualValues(t, 3, of("weir_primary_call_duration_seconds", "result", "ok"))
	assert.EqualValues(t, 1, of("weir_primary_call_duration_seconds", "result", "down"))
	assert.EqualValues(t, 100_000, of("weir_max_buckets"))
	assert.Positive(t, of("weir_buckets"))
	assert.Positive(t, of("weir_checks_total", "outcome", "allowed"))
	assert.Contains(t, families, "weir_last_sweep_seconds")
	assert.EqualValues(t, 1, of("weir_hold_places"))
	for _, name := range []string{"weir_hold_leases", "weir_hold_waits_total",
		"weir_hold_lapsed_total"} {
		assert.Zero(t, of(name), name)
	}
	require.NoError(t, held.Release(t.Context()))
	families, _ = scrape(t, s.registry)
	assert.Zero(t, of("weir_hold_places"))

	problems, err := testutil.GatherAndLint(s.registry)
	require.NoError(t, err)
	assert.Empty(t, problems, "names and help texts are as Prometheus wants them")
}

// No key, whatever it is, becomes the value of a label, and no number of keys makes another series.
func TestNoKeyBecomesALabel(t *testing.T) {
	s := newService(t)
	ask := func(n int) {
		for i := range n {
			s.ask(fmt.Sprintf("caller-%d", i))
			s.ask(fmt.Sprintf("caller-\"%d\\\xff", i))
			s.ask("caller-0")
		}
		s.ask("") // no key: its error quotes the request
	}
	ask(10)
	s.down = true
	ask(10)
	require.Eventually(t, func() bool {
		_, text := scrape(t, s.registry)
		return strings.Contains(text, `result="down"`)
	}, time.Minute, time.Millisecond)
	_, text := scrape(t, s.registry)
	before := strings.Count(text, "\n")
	ask(1000)
	families, text := scrape(t, s.registry)
	assert.Equal(t, before, strings.Count(text, "\n"))
	assert.NotContains(t, text, "caller-")
	assert.NotContains(t, text, "192.0.2.9", "nor what errors quote")
	allowed := []string{"name", "outcome", "policy", "source", "state", "class", "reason", "result", "le"}
	for name, f := range families {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				assert.Contains(t, allowed, l.GetName(), name)
			}
		}
	}
}

// What programs choose is bounded as well: the names of policies, and the results of calls.
func TestLabelsOfTheProgramAreBounded(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	decisions, calls := weirprom.NewDecisions(""), weirprom.NewCalls("", error.Error)
	registry.MustRegister(decisions, calls)
	for i := range 10_000 {
		decisions.OnDecision(nil, httplimit.Decision{Policy: fmt.Sprint("policy \xff", i)})
		calls.OnCall(time.Millisecond, fmt.Errorf("error %d", i))
	}
	families, _ := scrape(t, registry)
	assert.Len(t, families["weir_decisions_total"].Metric, metrics.MaxValues+1)
	assert.Len(t, families["weir_primary_call_duration_seconds"].Metric, metrics.MaxValues+1)
	assert.EqualValues(t, 10_000-metrics.MaxValues, value(t, families, "weir_decisions_total",
		"policy", "other"))
}

func TestNamesDistinguishCollectors(t *testing.T) {
	limiter, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer limiter.Close()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(weirprom.New("a", metrics.Limiter(limiter.Stats))))
	require.NoError(t, registry.Register(weirprom.New("b", metrics.Limiter(limiter.Stats))))
	var twice prometheus.AlreadyRegisteredError
	require.ErrorAs(t, registry.Register(weirprom.New("a", metrics.Limiter(limiter.Stats))), &twice)
	families, _ := scrape(t, registry)
	assert.Len(t, families["weir_buckets"].Metric, 2)
}

// A call without an error is ok even where errors are not classified.
func TestCallsWithoutClassify(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	calls := weirprom.NewCalls("", nil)
	registry.MustRegister(calls)
	calls.OnCall(30*time.Millisecond, nil)
	calls.OnCall(time.Second, errDown)
	families, text := scrape(t, registry)
	assert.EqualValues(t, 1, value(t, families, "weir_primary_call_duration_seconds", "result", "ok"))
	assert.EqualValues(t, 1, value(t, families, "weir_primary_call_duration_seconds", "result",
		"error"))
	assert.Contains(t, text, `weir_primary_call_duration_seconds_bucket{result="ok",le="0.025"} 0`)
	assert.Contains(t, text, `weir_primary_call_duration_seconds_bucket{result="ok",le="0.05"} 1`)
}
