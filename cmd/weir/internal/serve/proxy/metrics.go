package proxy

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/serve/live"
	"github.com/weirgo/weir/metrics"
	"github.com/weirgo/weir/metrics/weirprom"
	"github.com/weirgo/weir/redislimit"
)

// watch holds the metrics that are recorded as things happen. The others are read when they are
// scraped.
type watch struct {
	decisions *weirprom.Decisions
	calls     *weirprom.Calls          // of Redis
	upstream  *prometheus.HistogramVec // until the header of the response, by class of its status
}

func newWatch() watch {
	return watch{
		weirprom.NewDecisions(""),
		weirprom.NewCalls("", func(err error) string { return redislimit.Classify(err).String() }),
		prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "weir_upstream_duration_seconds",
			Help: "Time to the header of the upstream's response, by class of its status, or error; " +
				"gone: the client left before.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"status"}),
	}
}

// metricsOf returns the handler of the metrics. No label holds anything that a client chooses,
// so the series are as many as the limits and rules are.
func metricsOf(p *Proxy) http.Handler {
	registry := prometheus.NewRegistry()
	table := func() weir.Stats { return p.table.stats(p.limiter) }
	registry.MustRegister(
		weirprom.New("", metrics.Limiter(table), metrics.HTTP(p.tally.count), metrics.Holds()),
		p.watch.decisions,
		p.watch.upstream,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		live.Gauge("weir_requests_in_flight", "Requests that are served now.",
			func() float64 { return float64(p.open.Load()) }),
		live.Gauge("weir_requests_in_flight_limit",
			"How many requests may be in flight: learnt or given, 0 without a bound.",
			func() float64 { most, _ := mostInFlight(p); return float64(most) }),
		live.Gauge("weir_deny_list_entries", "Entries on the deny list.",
			func() float64 { return float64(p.denied.Len()) }),
		live.Gauge("weir_start_time_seconds", "When the proxy started, since the epoch.",
			func() float64 { return float64(p.started.UnixMilli()) / 1e3 }),
		live.Gauge("weir_stopping", "1 while the proxy drains.",
			func() float64 { return live.OneIf(p.stopping.Load()) }),
		live.Metrics(func(ch chan<- prometheus.Metric) {
			if c := p.conns.Load(); c != nil { // the proxy serves
				c.collect(ch)
			}
		}),
	)
	if p.redis != nil {
		registry.MustRegister(p.watch.calls, p.redis)
	}
	if p.full != nil {
		registry.MustRegister(weirprom.New("", metrics.Overload(p.full.Stats)))
	}
	if p.ruled != nil {
		registry.MustRegister(live.Metrics(p.ruled.collect),
			live.Gauge("weir_rules", "Rules in force.",
				func() float64 { return float64(p.ruled.Status().Rules) }))
		p.ruled.Register(registry, "weir_rules")
	}
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

var (
	descConns   = desc("connections", "Connections of clients.")
	descWaiting = desc("connections_waiting", "Connections without a request.")
	descRefused = desc("connections_refused_total",
		"Connections, and requests of an address, over a bound.")
	descEvicted = desc("connections_evicted_total",
		"Connections without a request, closed for new ones.")

	descHits = desc("rule_hits_total", "Requests that a rule was about.", "domain", "rule")
	descOver = desc("rule_over_limit_total", "Those over its limit, shadowed ones included.",
		"domain", "rule")
	descShadow = desc("rule_shadow_mode_total", "Those over the limit of a rule in shadow mode.",
		"domain", "rule")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("weir_"+name, help, labels, nil)
}
