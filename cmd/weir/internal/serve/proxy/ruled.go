package proxy

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirgo/weir/cmd/weir/internal/serve/live"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/overload"
	"github.com/weirgo/weir/rules"
)

// ruled limits by rules.
type ruled struct {
	*live.Rules
	domain string
}

// newRuled loads the rules.
func newRuled(p *Proxy) (r *ruled, err error) {
	cfg := p.cfg.Rules
	strategies := rules.StrategiesOf(p.limiter)
	if p.redis != nil {
		strategies = p.redis.Strategies(strategies)
	}
	r = new(ruled)
	check := func(s *rules.Set) error {
		domain, err := cfg.Choose(s)
		if err == nil && cmp.Or(r.domain, domain) != domain {
			err = fmt.Errorf("the domain is %q now, and not %q; that takes a restart", domain, r.domain)
		}
		if err == nil && r.domain == "" {
			r.domain = domain
		}
		return err
	}
	r.Rules, err = live.New(live.Config{
		Paths: cfg.Paths, Loader: cfg.Loader, Check: check, Log: p.cfg.Log,
		Engine: rules.Config{Strategies: strategies, Shadow: p.cfg.Guard.Shadow},
	})
	return r, err
}

// class returns httplimit's Class by the rules.
func (r *ruled) class(ip httplimit.IP) func(*http.Request) overload.Class {
	return (&rules.Decider{Engine: r.Engine, Domain: r.domain}).Class(ip)
}

// decider returns the rules as a middleware asks them.
func (r *ruled) decider() httplimit.Decider {
	return &rules.Decider{Engine: r.Engine, Domain: r.domain,
		OnResponse: func(_ *http.Request, resp *rules.Response) {
			denied := resp.Shadowed || !resp.Allowed()
			for i := range resp.Statuses {
				r.Figures.Count(&resp.Statuses[i], 1, denied)
			}
		}}
}

// counting says how many of the rules are counted in which way.
func (r *ruled) counting() string {
	n := map[rules.Algorithm]int{}
	for rule := range r.Engine.Set().All() {
		n[rule.Limit.Algorithm]++
	}
	var all []string
	for _, a := range slices.Sorted(maps.Keys(n)) {
		all = append(all, fmt.Sprintf("%s %d", a, n[a]))
	}
	return strings.Join(all, ", ")
}

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
