package proxy

import (
	"fmt"
	"net/http"
	"reflect"

	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
	"github.com/weirgo/weir/cmd/weir/internal/serve/live"
	"github.com/weirgo/weir/cmd/weir/internal/serve/traffic"
	"github.com/weirgo/weir/httplimit"
)

// trial counts requests by limits that deny nobody, to see whom they would deny.
type trial struct {
	limits  []rule.Rule
	stats   httplimit.Stats
	denials *live.Denials
}

// try returns next behind the limits of Config.Try, which count in this process only.
func try(g guard, next http.Handler) (http.Handler, error) {
	p := g.p
	if len(p.cfg.Try) == 0 {
		return next, nil
	}
	t := &trial{limits: p.cfg.Try, denials: live.NewDenials()}
	if was := p.before().trial; was != nil && reflect.DeepEqual(was.limits, t.limits) {
		t = was
	}
	cfg := httplimit.Config{
		Shadow: true, Headers: httplimit.HeadersNone,
		DenyList: p.denied.DenyList, // who is on it is denied anyway
		CountIf:  p.cfg.Guard.CountIf, MaxKeysPerClient: p.cfg.Guard.MaxKeysPerClient,
		CountPreflights: p.cfg.Guard.CountPreflights,
		CostFunc:        g.costs(),
		Stats:           &t.stats, Logger: p.cfg.Log,
		OnDecision: func(r *http.Request, d httplimit.Decision) {
			if d.Kind == httplimit.Denied {
				t.denials.Add(d.Key, live.Request(r), d.Policy)
			}
		},
	}
	for _, l := range p.cfg.Try {
		strategy, err := rule.On(l, p.limiter)
		if err != nil {
			return nil, fmt.Errorf("try %s: %w", l.Name, err)
		}
		policy := policyOf(l, strategy)
		policy.Name = "try " + l.Name
		cfg.Policies = append(cfg.Policies, policy)
	}
	p.trial = t
	return g.wrap(cfg, p.cfg.By.extractor(p.ip, 0), next)
}

// tried is what the limits of a trial would have done.
type tried struct {
	Limits   []limitTitle  `json:"limits"`
	Requests uint64        `json:"requests"` // since the start
	Denied   uint64        `json:"denied"`
	Callers  int           `json:"callers"` // that were denied: at most live.Counted
	Worst    []live.Caller `json:"worst"`
}

// shown returns the part of the page about the trial; nil without one.
func (t *trial) shown(by By) *tried {
	if t == nil {
		return nil
	}
	s := &tried{Denied: t.stats.Count(httplimit.Denied)}
	for _, l := range t.limits {
		s.Limits = append(s.Limits, titleOf(l))
	}
	s.Requests = s.Denied + t.stats.Count(httplimit.Admitted)
	v := t.denials.View(traffic.Start)
	s.Callers = min(len(v.Callers), live.Counted)
	s.Worst = live.Callers(&v, by.shown)
	return s
}
