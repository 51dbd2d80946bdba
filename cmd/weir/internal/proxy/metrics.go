package proxy

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/weirgo/weir/cmd/weir/internal/live"
	"github.com/weirgo/weir/httplimit"
)

// serveMetrics writes the figures in the text format of Prometheus. No label holds anything that a client chooses, so the
// series are as many as the limits are.
func (p *Proxy) serveMetrics(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write([]byte(p.metrics())) // an error means that the client is gone
}

func (p *Proxy) metrics() string {
	var b exposition
	b.family("weir_requests_total", "counter", "Requests, by what was decided.")
	for _, o := range httplimit.Outcomes() {
		b.sample("weir_requests_total", float64(p.count(o)), "outcome", o.String())
	}
	b.single("weir_requests_in_flight", "gauge", "Requests that are served now.", float64(p.open.Load()))
	t := p.table.read(p.limiter, p.cfg.Table.MaxBuckets)
	b.single("weir_buckets", "gauge", "Buckets in the table.", float64(t.Buckets))
	b.single("weir_buckets_max", "gauge", "Buckets that the table can hold.", float64(t.MaxBuckets))
	b.single("weir_table_full_total", "counter", "Callers who found the table full.", float64(t.Full))
	b.single("weir_sweeps_total", "counter", "Sweeps of the table.", float64(t.Sweeps))
	b.single("weir_swept_buckets_total", "counter", "Buckets that sweeps removed.", float64(t.Swept))
	b.single("weir_last_sweep_seconds", "gauge", "How long the last sweep took.", t.LastSweepMs/1e3)
	b.single("weir_deny_list_entries", "gauge", "Entries on the deny list.", float64(p.denied.Len()))
	p.connMetrics(&b)
	p.hybridMetrics(&b)
	p.ruleMetrics(&b)
	b.single("weir_start_time_seconds", "gauge", "When the proxy started, since the epoch.", float64(p.started.UnixMilli())/1e3)
	b.single("weir_stopping", "gauge", "1 while the proxy drains.", map[bool]float64{true: 1}[p.stopping.Load()])
	return b.String()
}

func (p *Proxy) connMetrics(b *exposition) {
	c := p.conns.Load()
	if c == nil {
		return
	}
	c.mu.Lock()
	open, waiting := c.open, c.waiting.Len()
	c.mu.Unlock()
	b.single("weir_connections", "gauge", "Connections of clients.", float64(open))
	b.single("weir_connections_waiting", "gauge", "Connections without a request.", float64(waiting))
	b.single("weir_connections_refused_total", "counter", "Connections over a bound.", float64(c.refused.Load()))
	b.single("weir_connections_evicted_total", "counter", "Connections without a request, closed for new ones.",
		float64(c.evicted.Load()))
}

func (p *Proxy) hybridMetrics(b *exposition) {
	if p.make.shared == nil {
		return
	}
	all := p.make.shared.all()
	b.family("weir_redis_breaker_closed", "gauge", "1 while Redis decides on a limit.")
	for _, h := range all {
		s := h.deciding()
		b.sample("weir_redis_breaker_closed", map[bool]float64{true: 1}[s.Source == "redis"], "limit", h.limit.Name)
	}
	b.family("weir_redis_decisions_total", "counter", "Decisions and events of a limit that is held on Redis.")
	for _, h := range all {
		s := h.deciding()
		for _, kind := range slices.Sorted(maps.Keys(s.Counts)) {
			b.sample("weir_redis_decisions_total", float64(s.Counts[kind]), "limit", h.limit.Name, "kind", kind)
		}
	}
}

func (p *Proxy) ruleMetrics(b *exposition) {
	if p.ruled == nil {
		return
	}
	s := p.ruled.Status()
	b.single("weir_rules", "gauge", "Rules in force.", float64(s.Rules))
	b.single("weir_rules_loaded_timestamp_seconds", "gauge", "When the rules in force were loaded.", float64(s.Loaded.UnixMilli())/1e3)
	b.single("weir_rules_load_success_total", "counter", "Rules loaded.", float64(s.Successes))
	b.single("weir_rules_load_error_total", "counter", "Rules refused.", float64(s.Failures))
	b.single("weir_rules_refused", "gauge", "1 if the last rules were refused and older ones are in force.",
		map[bool]float64{true: 1}[s.Err != nil])
	all := maps.Collect(p.ruled.Figures.All())
	for _, m := range []struct {
		name, help string
		of         func(live.Figure) uint64
	}{
		{"weir_rule_hits_total", "Requests that a rule was about.", func(f live.Figure) uint64 { return f.Hits }},
		{"weir_rule_over_limit_total", "Those over its limit, shadowed ones included.", func(f live.Figure) uint64 { return f.Over }},
		{"weir_rule_shadow_mode_total", "Those over the limit of a rule in shadow mode.", func(f live.Figure) uint64 { return f.Shadowed }},
	} {
		b.family(m.name, "counter", m.help)
		for r, f := range all {
			b.sample(m.name, float64(m.of(f)), "domain", strings.ToValidUTF8(r.Domain, "\uFFFD"), "rule", strings.ToValidUTF8(r.Path, "\uFFFD"))
		}
	}
}

// exposition is a text in Prometheus' format, version 0.0.4.
type exposition struct{ strings.Builder }

func (b *exposition) family(name, kind, help string) {
	fmt.Fprintf(b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// sample writes one sample; labels are pairs.
func (b *exposition) sample(name string, value float64, labels ...string) {
	b.WriteString(name)
	for i := 0; i < len(labels); i += 2 {
		b.WriteString(map[bool]string{true: "{", false: ","}[i == 0])
		b.WriteString(labels[i] + `="` + labelEscaper.Replace(labels[i+1]) + `"`)
	}
	if len(labels) > 0 {
		b.WriteByte('}')
	}
	b.WriteString(" " + strconv.FormatFloat(value, 'g', -1, 64) + "\n")
}

func (b *exposition) single(name, kind, help string, value float64) {
	b.family(name, kind, help)
	b.sample(name, value)
}

var labelEscaper = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
