package proxy

import (
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/metrics"
	weirprom "github.com/weirgo/weir/metrics/prometheus"
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
			Name:    "weir_upstream_duration_seconds",
			Help:    "Time to the header of the upstream's response, by class of its status, or error.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"status"}),
	}
}

// serveMetrics returns the handler of the metrics. No label holds anything that a client chooses,
// so the series are as many as the limits and rules are.
func (p *Proxy) serveMetrics() http.Handler {
	registry := prometheus.NewRegistry()
	table := func() weir.Stats { return p.table.stats(p.limiter) }
	registry.MustRegister(
		weirprom.New("", metrics.Limiter(table), metrics.HTTP(p.count), metrics.Holds()),
		p.watch.decisions,
		p.watch.upstream,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		gauge("weir_requests_in_flight", "Requests that are served now.",
			func() float64 { return float64(p.open.Load()) }),
		gauge("weir_deny_list_entries", "Entries on the deny list.",
			func() float64 { return float64(p.denied.Len()) }),
		gauge("weir_start_time_seconds", "When the proxy started, since the epoch.",
			func() float64 { return float64(p.started.UnixMilli()) / 1e3 }),
		gauge("weir_stopping", "1 while the proxy drains.",
			func() float64 { return oneIf(p.stopping.Load()) }),
		collect(p.collectConns),
	)
	if p.redis != nil {
		registry.MustRegister(p.watch.calls, p.redis)
	}
	if p.ruled != nil {
		registry.MustRegister(collect(p.ruled.collect),
			gauge("weir_rules", "Rules in force.",
				func() float64 { return float64(p.ruled.Status().Rules) }),
			gauge("weir_rules_loaded_timestamp_seconds", "When the rules in force were loaded.",
				func() float64 { return float64(p.ruled.Status().Loaded.UnixMilli()) / 1e3 }),
			counter("weir_rules_load_success_total", "Rules loaded.",
				func() float64 { return float64(p.ruled.Status().Successes) }),
			counter("weir_rules_load_error_total", "Rules refused.",
				func() float64 { return float64(p.ruled.Status().Failures) }),
			gauge("weir_rules_refused", "1 if the last rules were refused and older ones are in force.",
				func() float64 { return oneIf(p.ruled.Status().Err != nil) }),
		)
	}
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

func gauge(name, help string, read func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read)
}

func counter(name, help string, read func() float64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, read)
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// collect is a prometheus.Collector of metrics that are not known beforehand.
type collect func(ch chan<- prometheus.Metric)

// Describe implements prometheus.Collector.
func (collect) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collect) Collect(ch chan<- prometheus.Metric) { c(ch) }

var (
	descConns   = prometheus.NewDesc("weir_connections", "Connections of clients.", nil, nil)
	descWaiting = prometheus.NewDesc("weir_connections_waiting", "Connections without a request.", nil,
		nil)
	descRefused = prometheus.NewDesc("weir_connections_refused_total",
		"Connections, and requests of an address, over a bound.", nil, nil)
	descEvicted = prometheus.NewDesc("weir_connections_evicted_total",
		"Connections without a request, closed for new ones.", nil, nil)
)

// collectConns collects the figures of the clients' connections, once the proxy serves.
func (p *Proxy) collectConns(ch chan<- prometheus.Metric) {
	c := p.conns.Load()
	if c == nil {
		return
	}
	c.mu.Lock()
	open, waiting := c.open, c.waiting.Len()
	c.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(descConns, prometheus.GaugeValue, float64(open))
	ch <- prometheus.MustNewConstMetric(descWaiting, prometheus.GaugeValue, float64(waiting))
	ch <- prometheus.MustNewConstMetric(descRefused, prometheus.CounterValue,
		float64(c.refused.Load()))
	ch <- prometheus.MustNewConstMetric(descEvicted, prometheus.CounterValue,
		float64(c.evicted.Load()))
}

var (
	ruleLabels = []string{"domain", "rule"}
	descHits   = prometheus.NewDesc("weir_rule_hits_total", "Requests that a rule was about.",
		ruleLabels, nil)
	descOver = prometheus.NewDesc("weir_rule_over_limit_total",
		"Those over its limit, shadowed ones included.", ruleLabels, nil)
	descShadow = prometheus.NewDesc("weir_rule_shadow_mode_total",
		"Those over the limit of a rule in shadow mode.", ruleLabels, nil)
)

// collect collects the figures of each rule.
func (r *ruled) collect(ch chan<- prometheus.Metric) {
	for of, f := range r.Figures.All() {
		domain, rule := strings.ToValidUTF8(of.Domain, "\uFFFD"), strings.ToValidUTF8(of.Path, "\uFFFD")
		send := func(d *prometheus.Desc, n uint64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), domain, rule)
		}
		send(descHits, f.Hits)
		send(descOver, f.Over)
		send(descShadow, f.Shadowed)
	}
}
