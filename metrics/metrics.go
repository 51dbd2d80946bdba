// Package metrics lists what the parts of weir count, in a form that fits any metrics system. The
// modules metrics/weirprom and metrics/weirotel export it:
//
//	import weirprom "github.com/weirgo/weir/metrics/weirprom"
//	…
//	prometheus.MustRegister(weirprom.New("api",
//		metrics.Limiter(limiter.Stats), metrics.HTTP(stats.Count)))
//
// The values of labels are listed here: no key of a client can become one.
package metrics

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/core/renewal"
	"github.com/weirgo/weir/near"
	"github.com/weirgo/weir/overload"
)

// Desc describes a metric.
type Desc struct {
	Name    string // as OpenTelemetry writes it, such as "weir.fallback.probes"
	Help    string
	Unit    string // of UCUM: "s" for seconds, or what is counted, such as "{bucket}"
	Counter bool   // it only grows; otherwise it is a gauge
	// the name of its label; several are joined by commas, as are their values; empty: none
	Label string
}

// PrometheusName returns the name that Prometheus' conventions give the metric, such as
// "weir_fallback_probes_total".
func (d Desc) PrometheusName() string {
	name := strings.ReplaceAll(d.Name, ".", "_")
	if d.Unit == "s" {
		name += "_seconds"
	}
	if d.Counter {
		name += "_total"
	}
	return name
}

// Group is a part of weir that counts. Make one with [Limiter], [HTTP], [Overload], [Fallback],
// [Leases] or [Holds], or of your own.
type Group struct {
	// Descs are the metrics; read-only.
	Descs []Desc

	// Read calls emit with the current value of each metric: i is its index in Descs, label the value
	// of its label. It must be safe for concurrent use.
	Read func(emit func(i int, label string, value float64))
}

// metric is a Desc and how it is read from a snapshot of type S.
type metric[S any] struct {
	Desc
	read func(s S) []point
}

// point is a value, and its label's.
type point struct {
	label string
	value float64
}

// groupOf returns the Group of metrics that are read from one snapshot.
func groupOf[S any](snapshot func() S, metrics []metric[S]) Group {
	descs := make([]Desc, len(metrics))
	for i, m := range metrics {
		descs[i] = m.Desc
	}
	return Group{descs, func(emit func(int, string, float64)) {
		s := snapshot()
		for i, m := range metrics {
			for _, p := range m.read(s) {
				emit(i, p.label, p.value)
			}
		}
	}}
}

// counter returns a counter without a label.
func counter[S any](name, help, unit string, of func(s S) uint64) metric[S] {
	return metric[S]{Desc{Name: name, Help: help, Unit: unit, Counter: true}, func(s S) []point {
		return []point{{value: float64(of(s))}}
	}}
}

// gauge returns a gauge without a label.
func gauge[S any](name, help, unit string, of func(s S) float64) metric[S] {
	return metric[S]{Desc{Name: name, Help: help, Unit: unit}, func(s S) []point {
		return []point{{value: of(s)}}
	}}
}

// Limiter returns the metrics of a Limiter, of which stats is the method Stats. That visits each
// bucket: about 10 ns each, for each time that the metrics are read. The table's saturation is
// weir_buckets / weir_max_buckets.
func Limiter(stats func() weir.Stats) Group {
	return groupOf(stats, []metric[weir.Stats]{
		{Desc{Name: "weir.checks", Help: "Decisions of the limiter, and errors.", Unit: "{check}",
			Counter: true, Label: "outcome"},
			func(s weir.Stats) []point {
				return []point{
					{"allowed", float64(s.Allowed)}, {"denied", float64(s.Denied)},
					{"invalid", float64(s.Invalid)}, {"full", float64(s.Full)}, {"closed", float64(s.Closed)},
				}
			}},
		gauge("weir.buckets", "Buckets in the table.", "{bucket}",
			func(s weir.Stats) float64 { return float64(s.Buckets) }),
		gauge("weir.max_buckets", "Buckets that the table can hold.", "{bucket}",
			func(s weir.Stats) float64 { return float64(s.MaxBuckets) }),
		gauge("weir.hold.places", "Cost of the places that are held in this process.", "{cost}",
			func(s weir.Stats) float64 { return float64(s.Held) }),
		counter("weir.sweeps", "Sweeps of the table.", "{sweep}",
			func(s weir.Stats) uint64 { return s.Sweeps }),
		counter("weir.swept_buckets", "Expired buckets that sweeps removed.", "{bucket}",
			func(s weir.Stats) uint64 { return s.Swept }),
		gauge("weir.last_sweep", "How long the last sweep took.", "s",
			func(s weir.Stats) float64 { return s.LastSweep.Seconds() }),
	})
}

// HTTP returns the metrics of an HTTP middleware, of which count is the method Count of its
// httplimit.Stats.
func HTTP(count func(httplimit.Kind) uint64) Group {
	type counts = func(httplimit.Kind) uint64
	return groupOf(func() counts { return count }, []metric[counts]{
		{Desc{Name: "weir.requests", Help: "Requests, by what was decided.", Unit: "{request}",
			Counter: true, Label: "outcome"},
			func(count counts) (points []point) {
				for o := httplimit.Admitted; o <= httplimit.Exempt; o++ {
					points = append(points, point{o.String(), float64(count(o))})
				}
				return points
			}},
	})
}

// Overload returns the metrics of an overload.Guard, of which stats is the method Stats.
func Overload(stats func() overload.Stats) Group {
	return groupOf(stats, []metric[overload.Stats]{
		gauge("weir.overload.limit", "Requests in flight that fit, as was learnt.", "{request}",
			func(s overload.Stats) float64 { return float64(s.Limit) }),
		gauge("weir.overload.in_flight", "Requests in flight that the guard has admitted.", "{request}",
			func(s overload.Stats) float64 { return float64(s.InFlight) }),
		gauge("weir.overload.latency", "How long a request took on average, of late.", "s",
			func(s overload.Stats) float64 { return s.Latency.Seconds() }),
		gauge("weir.overload.goal", "How long a request may take while the service is full.", "s",
			func(s overload.Stats) float64 { return s.Goal.Seconds() }),
		{Desc{Name: "weir.overload.refused", Help: "Requests refused, by their class and why.",
			Unit: "{request}", Counter: true, Label: "class,reason"},
			func(s overload.Stats) (points []point) {
				for class, reasons := range s.Refused {
					for reason, n := range reasons {
						points = append(points, point{class.String() + "," + reason.String(), float64(n)})
					}
				}
				return points
			}},
	})
}

// Fallback returns the metrics of a Fallback, of which stats is the method Stats.
func Fallback(stats func() fallback.Stats) Group {
	type stat = fallback.Stats
	return groupOf(stats, []metric[stat]{
		{Desc{Name: "weir.fallback.decisions", Help: "Decisions, by who made them.", Unit: "{decision}",
			Counter: true, Label: "source"},
			func(s stat) []point {
				return []point{
					{weir.FromPrimary.String(), float64(s.Primary)},
					{weir.FromLease.String(), float64(s.Lease)},
					{weir.FromDenials.String(), float64(s.Denials)},
					{weir.FromLocal.String(), float64(s.Local)},
					{weir.FromOnFail.String(), float64(s.OnFail)},
				}
			}},
		{Desc{Name: "weir.fallback.breaker.state", Help: "1 for the state that the breaker is in.",
			Unit: "{state}", Label: "state"},
			func(s stat) (points []point) {
				for _, state := range []fallback.State{fallback.Closed, fallback.Open, fallback.HalfOpen} {
					p := point{label: state.String()}
					if state == s.State {
						p.value = 1
					}
					points = append(points, p)
				}
				return points
			}},
		gauge("weir.fallback.open_partitions", "Breakers that are not closed.", "{breaker}",
			func(s stat) float64 { return float64(s.OpenPartitions) }),
		counter("weir.fallback.breaker.opens", "How often a breaker opened.", "{opening}",
			func(s stat) uint64 { return s.Opens }),
		counter("weir.fallback.probes", "Probes of the primary.", "{probe}",
			func(s stat) uint64 { return s.Probes }),
		counter("weir.fallback.failures",
			"Calls and probes of the primary that failed or were late.", "{call}",
			func(s stat) uint64 { return s.Failures }),
		counter("weir.fallback.short_deadlines",
			"Calls of the primary for which the caller's deadline left too little time.", "{call}",
			func(s stat) uint64 { return s.ShortDeadlines }),
		counter("weir.fallback.reconciled",
			"Cost that local admitted and the primary was charged with.", "{cost}",
			func(s stat) uint64 { return s.Reconciled }),
		counter("weir.fallback.dropped",
			"Cost that local admitted and the primary is never charged with.", "{cost}",
			func(s stat) uint64 { return s.Dropped }),
		gauge("weir.fallback.callers", "Callers in the ledger.", "{caller}",
			func(s stat) float64 { return float64(s.Callers) }),
		counter("weir.fallback.panics", "Panics of the primary and of callbacks.", "{panic}",
			func(s stat) uint64 { return s.Panics }),
	})
}

// Leases returns the metrics of a near.Leases, of which stats is the method Stats.
func Leases(stats func() near.LeaseStats) Group {
	return groupOf(stats, []metric[near.LeaseStats]{
		counter("weir.lease.decisions", "Decisions without a round trip.", "{decision}",
			func(s near.LeaseStats) uint64 { return s.Leased }),
		counter("weir.lease.fetches", "Blocks asked for, granted or not.", "{call}",
			func(s near.LeaseStats) uint64 { return s.Fetched }),
		gauge("weir.leases", "Leases held.", "{lease}",
			func(s near.LeaseStats) float64 { return float64(s.Keys) }),
	})
}

// Holds returns the metrics of weir.Hold and weir.HoldWait that are those of the process, whatever
// the Strategy: register them once. The places that a Limiter holds are in its own.
func Holds() Group {
	return groupOf(renewal.Read, []metric[renewal.Stats]{
		gauge("weir.hold.leases", "Places elsewhere that this process holds and renews.", "{place}",
			func(s renewal.Stats) float64 { return float64(s.Held) }),
		counter("weir.hold.waits", "Calls of HoldWait that had to wait.", "{call}",
			func(s renewal.Stats) uint64 { return s.Waits }),
		counter("weir.hold.lapsed",
			"Places elsewhere that were lost, since their lease ended.", "{place}",
			func(s renewal.Stats) uint64 { return s.Lapsed }),
	})
}

// The metrics of single decisions and calls, which metrics/weirprom and metrics/weirotel record as
// they happen.
var (
	// Decisions has the labels policy, outcome and source.
	Decisions = Desc{
		Name: "weir.decisions", Help: "Decisions of the HTTP middleware.", Unit: "{decision}",
		Counter: true,
	}

	// Calls is a histogram with the label result.
	Calls = Desc{
		Name: "weir.primary.call.duration", Help: "How long calls of the primary took.",
		Unit: "s", Label: "result",
	}
)

// CallBounds returns the bounds of the buckets of Calls, in seconds.
func CallBounds() []float64 {
	return []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1}
}

// MaxValues is how many values a [Label] has, and one more.
const MaxValues = 100

// Label bounds the values of a label that is not listed here, such as the names of policies. The
// zero value is ready to use; it is safe for concurrent use.
type Label struct {
	values sync.Map // of struct{}, by value
	n      atomic.Int64
}

// Value returns value as valid UTF-8, or "other" if there have been MaxValues others.
func (l *Label) Value(value string) string {
	value = strings.ToValidUTF8(value, "\uFFFD")
	if _, ok := l.values.Load(value); ok {
		return value
	}
	if l.n.Load() >= MaxValues || l.n.Add(1) > MaxValues {
		return "other"
	}
	if _, ok := l.values.LoadOrStore(value, struct{}{}); ok {
		l.n.Add(-1) // another call added it
	}
	return value
}

// Result returns the value of the label result for a call that failed with err, or did not: "ok",
// or what classify returns; without classify, "error".
func Result(err error, classify func(error) string) string {
	switch {
	case err == nil:
		return "ok"
	case classify == nil:
		return "error"
	}
	return classify(err)
}
