// Package weirprom exports the metrics of weir to Prometheus:
//
//	prometheus.MustRegister(weirprom.New("api",
//		metrics.Limiter(limiter.Stats), metrics.HTTP(stats.Count)))
//
// The labels are the name given to New, and outcome, policy, source, state, class, reason and
// result, whose values are few whatever clients send. The metrics are listed in package [metrics];
// dashboard.json is a dashboard for Grafana, and alerts.yaml has four alerting rules.
package weirprom

import (
	"cmp"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/metrics"
)

// labels returns the constant labels of what is called name.
func labels(name string) prometheus.Labels {
	if name == "" {
		return nil
	}
	return prometheus.Labels{"name": name}
}

// Collector collects the metrics of groups. It is a prometheus.Collector.
type Collector struct {
	groups []metrics.Group
	descs  [][]*prometheus.Desc // as the groups' Descs
}

var _ prometheus.Collector = (*Collector)(nil)

// New returns a Collector of the metrics of groups, with the label name, which distinguishes
// several collectors in one registry; without the label if name is empty. To read the groups is
// all that it costs, and only when it is scraped.
func New(name string, groups ...metrics.Group) *Collector {
	c := &Collector{groups: groups}
	for _, s := range groups {
		var descs []*prometheus.Desc
		for _, d := range s.Descs {
			var variable []string
			if d.Label != "" {
				variable = strings.Split(d.Label, ",")
			}
			descs = append(descs, prometheus.NewDesc(d.PrometheusName(), d.Help, variable, labels(name)))
		}
		c.descs = append(c.descs, descs)
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, descs := range c.descs {
		for _, d := range descs {
			ch <- d
		}
	}
}

// Collect implements prometheus.Collector.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	for i, s := range c.groups {
		s.Read(func(j int, label string, value float64) {
			kind := prometheus.GaugeValue
			if s.Descs[j].Counter {
				kind = prometheus.CounterValue
			}
			if s.Descs[j].Label == "" {
				ch <- prometheus.MustNewConstMetric(c.descs[i][j], kind, value)
			} else {
				ch <- prometheus.MustNewConstMetric(c.descs[i][j], kind, value, strings.Split(label, ",")...)
			}
		})
	}
}

// Decisions counts the decisions of HTTP middleware by policy, outcome and source. Make one with
// [NewDecisions], register it, and set its OnDecision in the middleware's Config; several
// middlewares may share it. It is safe for concurrent use. A request costs about two decisions on a
// busy key more (see BenchmarkHooks), and allocates nothing.
type Decisions struct {
	*prometheus.CounterVec
	policies metrics.Label
}

// NewDecisions returns a counter of decisions, with the label name as that of [New].
func NewDecisions(name string) *Decisions {
	d := metrics.Decisions
	opts := prometheus.CounterOpts{Name: d.PrometheusName(), Help: d.Help, ConstLabels: labels(name)}
	return &Decisions{CounterVec: prometheus.NewCounterVec(opts,
		[]string{"policy", "outcome", "source"})}
}

// OnDecision counts d. It is made for httplimit.Config.OnDecision. Of more than metrics.MaxValues
// policies the last ones are counted as "other".
func (d *Decisions) OnDecision(_ *http.Request, of httplimit.Decision) {
	d.WithLabelValues(d.policies.Value(of.Policy), of.Kind.String(),
		cmp.Or(of.Source, "none")).Inc()
}

// Calls measures the calls of a remote strategy by result. Make one with [NewCalls], register it,
// and set its OnCall in redislimit.Config or, to see late calls too, in fallback.Config. It is safe
// for concurrent use.
type Calls struct {
	*prometheus.HistogramVec
	classify func(error) string
	results  metrics.Label
}

// NewCalls returns a histogram of the duration of calls, with the label name as that of [New]. The
// label result is "ok", or what classify returns of an error; nil: "error". With redislimit:
//
//	weirprom.NewCalls("redis", func(err error) string { return redislimit.Classify(err).String() })
func NewCalls(name string, classify func(error) string) *Calls {
	d := metrics.Calls
	opts := prometheus.HistogramOpts{
		Name: d.PrometheusName(), Help: d.Help, ConstLabels: labels(name), Buckets: metrics.CallBounds(),
	}
	return &Calls{HistogramVec: prometheus.NewHistogramVec(opts, []string{d.Label}),
		classify: classify}
}

// OnCall measures a call.
func (c *Calls) OnCall(took time.Duration, err error) {
	c.WithLabelValues(c.results.Value(metrics.Result(err, c.classify))).Observe(took.Seconds())
}
