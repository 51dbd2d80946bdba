package onredis

import (
	"maps"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/metrics"
	weirprom "github.com/weirgo/weir/metrics/prometheus"
)

// Fallbacks collects the figures of the Fallbacks that the rules use, which may change with the
// rules. It is a prometheus.Collector. The zero value is ready to use; it is safe for concurrent
// use.
type Fallbacks struct {
	mu     sync.Mutex
	byName map[string]*fallback.Fallback // guarded by mu
}

// Add adds a Fallback; it replaces one with the same name.
func (a *Fallbacks) Add(name string, f *fallback.Fallback) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byName == nil {
		a.byName = make(map[string]*fallback.Fallback)
	}
	a.byName[name] = f
}

// Describe implements prometheus.Collector.
func (a *Fallbacks) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (a *Fallbacks) Collect(ch chan<- prometheus.Metric) {
	a.mu.Lock()
	all := maps.Clone(a.byName)
	a.mu.Unlock()
	for name, f := range all {
		weirprom.New(name, metrics.Fallback(f.Stats)).Collect(ch)
	}
}
