package weirprom_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/metrics"
	"github.com/weirgo/weir/metrics/weirprom"
)

// A service that exports what its limiter counts.
func ExampleNew() {
	limiter, err := weir.New(weir.Config{MaxBuckets: 1000})
	if err != nil {
		panic(err)
	}
	defer limiter.Close()

	decisions := weirprom.NewDecisions("")
	guard := httplimit.New(limiter.SlidingWindow(), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Name: "per client", Limit: 2, Duration: time.Minute,
		OnDecision: decisions.OnDecision,
	})
	registry := prometheus.NewRegistry() // or prometheus.DefaultRegisterer
	registry.MustRegister(decisions, weirprom.New("", metrics.Limiter(limiter.Stats)))

	mux := http.NewServeMux()
	mux.Handle("/", guard(http.NotFoundHandler()))
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	server := httptest.NewServer(mux)
	defer server.Close()

	get := func(path string) string {
		resp, err := http.Get(server.URL + path)
		if err != nil {
			panic(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			panic(err)
		}
		return string(body)
	}
	for range 3 {
		get("/")
	}
	for line := range strings.Lines(get("/metrics")) {
		if !strings.HasPrefix(line, "#") &&
			(strings.Contains(line, "_decisions") || strings.Contains(line, "_buckets ")) {
			fmt.Print(line)
		}
	}
	// Output:
	// weir_buckets 1
	// weir_decisions_total{outcome="admitted",policy="per client",source="local"} 2
	// weir_decisions_total{outcome="denied",policy="per client",source="local"} 1
	// weir_max_buckets 1000
}
