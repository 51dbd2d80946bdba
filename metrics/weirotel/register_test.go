package weirotel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/metrics"
	"github.com/weirgo/weir/metrics/weirotel"
	"github.com/weirgo/weir/near"
	"github.com/weirgo/weir/weirtest"
)

// newMeter returns a meter of the SDK, and a server from which its Prometheus exporter can be
// scraped.
func newMeter(t *testing.T) (metric.Meter, *httptest.Server) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	exporter, err := otelprom.New(
		otelprom.WithRegisterer(registry), otelprom.WithoutScopeInfo(), otelprom.WithoutTargetInfo())
	require.NoError(t, err)
	provider := sdk.NewMeterProvider(sdk.WithReader(exporter))
	t.Cleanup(func() { _ = provider.Shutdown(context.WithoutCancel(t.Context())) })
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	t.Cleanup(server.Close)
	return provider.Meter("github.com/weirgo/weir"), server
}

// scrape reads the metrics over HTTP, and parses them with Prometheus' own parser.
func scrape(t *testing.T,
	server *httptest.Server) (samples map[string]float64, families map[string]*dto.MetricFamily) {
	t.Helper()
	resp, err := http.Get(server.URL)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, 200, resp.StatusCode)
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err = parser.TextToMetricFamilies(strings.NewReader(string(body)))
	require.NoError(t, err)
	samples = make(map[string]float64)
	for name, f := range families {
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			slices.Sort(labels)
			value := m.Counter.GetValue() + m.Gauge.GetValue()
			if m.Histogram != nil {
				value = float64(m.Histogram.GetSampleCount())
			}
			samples[name+" "+strings.Join(labels, ",")] = value
		}
	}
	return samples, families
}

func TestScrape(t *testing.T) {
	meter, server := newMeter(t)
	limiter, err := weir.New(weir.Config{MaxBuckets: 2000})
	require.NoError(t, err)
	defer limiter.Close()
	calls, err := weirotel.NewCalls(meter, "edge", func(error) string { return "down" })
	require.NoError(t, err)
	decisions, err := weirotel.NewDecisions(meter, "edge")
	require.NoError(t, err)
	f, err := fallback.New(weirtest.FailAll(errors.New("down")), limiter.FixedWindow(), fallback.Config{
		Timeout: time.Minute, MinCalls: 1, Stall: -1, ProbeInterval: time.Hour, OnCall: calls.OnCall,
	})
	require.NoError(t, err)
	stats := new(httplimit.Stats)
	h := httplimit.New(f, httplimit.Config{
		Extractor: httplimit.Headers("Key"), Name: "per key", Limit: 2, Duration: 365 * 24 * time.Hour,
		Stats: stats, OnDecision: decisions.OnDecision,
	})(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	registration, err := weirotel.Register(meter, "edge",
		metrics.Limiter(limiter.Stats), metrics.HTTP(stats.Count), metrics.Fallback(f.Stats),
		metrics.Holds())
	require.NoError(t, err)
	held, err := weir.Hold(t.Context(), limiter.InFlight(),
		&weir.Request{Key: "caller-a", Limit: 3, Duration: time.Minute})
	require.NoError(t, err)
	ask := func(key string) {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Key", key)
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	for range 3 {
		ask("caller-a")
	}
	const slowest = "weir_primary_call_duration_seconds name=edge,result=down"
	require.Eventually(t, func() bool {
		s, _ := scrape(t, server)
		return s[slowest] == 1
	}, time.Minute, time.Millisecond)
	samples, families := scrape(t, server)
	for sample, want := range map[string]float64{
		"weir_requests_total name=edge,outcome=admitted":                            2,
		"weir_requests_total name=edge,outcome=denied":                              1,
		"weir_decisions_total name=edge,outcome=denied,policy=per key,source=local": 1,
		"weir_fallback_breaker_state name=edge,state=open":                          1,
		"weir_fallback_decisions_total name=edge,source=local":                      3,
		"weir_fallback_failures_total name=edge":                                    1,
		"weir_max_buckets name=edge":                                                2000,
		"weir_hold_places name=edge":                                                1,
		"weir_hold_leases name=edge":                                                0,
		"weir_hold_waits_total name=edge":                                           0,
		"weir_hold_lapsed_total name=edge":                                          0,
	} {
		assert.Contains(t, samples, sample)
		assert.Equal(t, want, samples[sample], sample)
	}
	require.Len(t, families["weir_primary_call_duration_seconds"].Metric, 1)
	assert.Len(t, families["weir_primary_call_duration_seconds"].Metric[0].Histogram.Bucket,
		len(metrics.CallBounds())+1)

	require.NoError(t, held.Release(t.Context()))
	after, _ := scrape(t, server)
	assert.Zero(t, after["weir_hold_places name=edge"])
	before := len(samples)
	for i := range 1000 {
		ask(fmt.Sprint("caller-", i))
	}
	samples, _ = scrape(t, server)
	assert.Len(t, samples, before, "no caller makes a series of its own")
	for sample := range samples {
		assert.NotContains(t, sample, "caller-")
	}

	require.NoError(t, registration.Unregister())
	samples, _ = scrape(t, server)
	assert.NotContains(t, samples, "weir_max_buckets name=edge")
}

// recordOne records one decision and one call.
func recordOne(t *testing.T, meter metric.Meter) {
	t.Helper()
	decisions, err := weirotel.NewDecisions(meter, "")
	require.NoError(t, err)
	decisions.OnDecision(httptest.NewRequest(http.MethodGet, "/", nil), httplimit.Decision{})
	calls, err := weirotel.NewCalls(meter, "", nil)
	require.NoError(t, err)
	calls.OnCall(time.Second, nil)
}

// The exporter gives every metric the name that module metrics/weirprom does, so one dashboard
// serves both.
func TestNamesAreThoseOfPrometheus(t *testing.T) {
	meter, server := newMeter(t)
	limiter, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer limiter.Close()
	groups := []metrics.Group{
		metrics.Limiter(limiter.Stats), metrics.HTTP(new(httplimit.Stats).Count),
		metrics.Fallback(func() fallback.Stats { return fallback.Stats{} }),
		metrics.Leases(func() near.LeaseStats { return near.LeaseStats{} }), metrics.Holds(),
	}
	_, err = weirotel.Register(meter, "", groups...)
	require.NoError(t, err)
	recordOne(t, meter)
	want := []string{metrics.Decisions.PrometheusName(), metrics.Calls.PrometheusName()}
	for _, s := range groups {
		for _, d := range s.Descs {
			want = append(want, d.PrometheusName())
		}
	}
	_, families := scrape(t, server)
	assert.ElementsMatch(t, want, slices.Collect(maps.Keys(families)))
}

// Every counter, gauge and histogram has the unit of its Desc.
func TestUnits(t *testing.T) {
	reader := sdk.NewManualReader()
	meter := sdk.NewMeterProvider(sdk.WithReader(reader)).Meter("github.com/weirgo/weir")
	limited := metrics.Limiter(func() weir.Stats { return weir.Stats{} })
	_, err := weirotel.Register(meter, "", limited)
	require.NoError(t, err)
	recordOne(t, meter)

	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	got, want := make(map[string]string), make(map[string]string)
	for _, m := range all.ScopeMetrics[0].Metrics {
		got[m.Name] = m.Unit
	}
	for _, d := range append(slices.Clone(limited.Descs), metrics.Decisions, metrics.Calls) {
		want[d.Name] = d.Unit
		assert.NotEmpty(t, d.Unit, d.Name)
	}
	assert.Equal(t, want, got)
}

// What programs choose is bounded as well: the names of policies, and the results of calls.
func TestLabelsOfTheProgramAreBounded(t *testing.T) {
	meter, server := newMeter(t)
	decisions, err := weirotel.NewDecisions(meter, "")
	require.NoError(t, err)
	calls, err := weirotel.NewCalls(meter, "", error.Error)
	require.NoError(t, err)
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	for i := range 1000 {
		decisions.OnDecision(r, httplimit.Decision{Policy: fmt.Sprint("policy ", i)})
		calls.OnCall(time.Millisecond, fmt.Errorf("error %d", i))
	}
	_, families := scrape(t, server)
	assert.Len(t, families["weir_decisions_total"].Metric, metrics.MaxValues+1)
	assert.Len(t, families["weir_primary_call_duration_seconds"].Metric, metrics.MaxValues+1)
}
