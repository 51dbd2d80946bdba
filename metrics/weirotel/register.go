// Package weirotel exports the metrics of weir by OpenTelemetry's metric API:
//
//	meter := otel.Meter("github.com/weirgo/weir")
//	_, err := weirotel.Register(meter, "api",
//		metrics.Limiter(limiter.Stats), metrics.HTTP(stats.Count))
//
// The attributes are the name given to Register, and outcome, policy, source, state and result,
// whose values are few whatever clients send. OpenTelemetry has no conventions for rate limiting;
// the names are weir's own, listed in package [metrics]. Its Prometheus exporter gives them the
// names that module metrics/weirprom does, so that the dashboard and the alerting rules there
// serve both.
package weirotel

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/metrics"
)

// nameOf returns the attribute of what is called name.
func nameOf(name string) []attribute.KeyValue {
	if name == "" {
		return nil
	}
	return []attribute.KeyValue{attribute.String("name", name)}
}

// Register makes the instruments of groups on m and has their values read whenever m's provider
// collects, with the attribute name, which distinguishes several groups of one kind; without it if
// name is empty. It ends with the registration's Unregister. The error is m's.
func Register(m metric.Meter, name string, groups ...metrics.Group) (metric.Registration, error) {
	instruments := make([][]metric.Float64Observable, len(groups))
	var all []metric.Observable
	for i, s := range groups {
		for _, d := range s.Descs {
			in, err := instrument(m, d)
			if err != nil {
				return nil, err
			}
			instruments[i] = append(instruments[i], in)
			all = append(all, in)
		}
	}
	return m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for i, s := range groups {
			s.Read(func(j int, label string, value float64) {
				attrs := nameOf(name)
				values := strings.Split(label, ",")
				for k, key := range strings.Split(s.Descs[j].Label, ",") {
					if key != "" {
						attrs = append(attrs, attribute.String(key, values[k]))
					}
				}
				o.ObserveFloat64(instruments[i][j], value, metric.WithAttributes(attrs...))
			})
		}
		return nil
	}, all...)
}

// instrument makes the instrument of d.
func instrument(m metric.Meter, d metrics.Desc) (metric.Float64Observable, error) {
	if d.Counter {
		return m.Float64ObservableCounter(d.Name, metric.WithDescription(d.Help), metric.WithUnit(d.Unit))
	}
	return m.Float64ObservableGauge(d.Name, metric.WithDescription(d.Help), metric.WithUnit(d.Unit))
}

// Decisions counts the decisions of HTTP middleware by policy, outcome and source. Make one with
// [NewDecisions] and set its OnDecision in the middleware's Config; several middlewares may share
// it. It is safe for concurrent use.
type Decisions struct {
	counter  metric.Int64Counter
	name     []attribute.KeyValue
	policies metrics.Label
}

// NewDecisions returns a counter of decisions on m, with the attribute name as that of [Register].
// The error is m's.
func NewDecisions(m metric.Meter, name string) (*Decisions, error) {
	d := metrics.Decisions
	c, err := m.Int64Counter(d.Name, metric.WithDescription(d.Help), metric.WithUnit(d.Unit))
	return &Decisions{counter: c, name: nameOf(name)}, err
}

// OnDecision counts d. It is made for httplimit.Config.OnDecision. Of more than metrics.MaxValues
// policies the last ones are counted as "other".
func (d *Decisions) OnDecision(r *http.Request, of httplimit.Decision) {
	d.counter.Add(r.Context(), 1, metric.WithAttributes(d.name...), metric.WithAttributes(
		attribute.String("policy", d.policies.Value(of.Policy)),
		attribute.String("outcome", of.Kind.String()),
		attribute.String("source", cmp.Or(of.Source, "none"))))
}

// Calls measures the calls of a remote strategy by result. Make one with [NewCalls] and set its
// OnCall in redislimit.Config or, to see late calls too, in fallback.Config. It is safe for
// concurrent use.
type Calls struct {
	histogram metric.Float64Histogram
	name      []attribute.KeyValue
	classify  func(error) string
	results   metrics.Label
}

// NewCalls returns a histogram of the duration of calls on m, with the attribute name as that of
// [Register]. The attribute result is "ok", or what classify returns of an error; nil: "error". The
// error is m's. With redislimit:
//
//	weirotel.NewCalls(meter, "redis", func(err error) string {
//		return redislimit.Classify(err).String()
//	})
func NewCalls(m metric.Meter, name string, classify func(error) string) (*Calls, error) {
	d := metrics.Calls
	h, err := m.Float64Histogram(d.Name, metric.WithDescription(d.Help), metric.WithUnit(d.Unit),
		metric.WithExplicitBucketBoundaries(metrics.CallBounds()...))
	return &Calls{histogram: h, name: nameOf(name), classify: classify}, err
}

// OnCall measures a call.
func (c *Calls) OnCall(took time.Duration, err error) {
	result := c.results.Value(metrics.Result(err, c.classify))
	c.histogram.Record(context.Background(), took.Seconds(), metric.WithAttributes(c.name...),
		metric.WithAttributes(attribute.String(metrics.Calls.Label, result)))
}
