package live

import "github.com/prometheus/client_golang/prometheus"

// Metrics is a prometheus.Collector of metrics that are not known beforehand.
type Metrics func(ch chan<- prometheus.Metric)

// Describe implements prometheus.Collector.
func (Metrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m Metrics) Collect(ch chan<- prometheus.Metric) { m(ch) }

// Gauge returns a gauge that is read when it is collected.
func Gauge(name, help string, read func() float64) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read)
}

// Counter returns a counter that is read when it is collected.
func Counter(name, help string, read func() float64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, read)
}

// OneIf returns 1 for true and 0 for false.
func OneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
