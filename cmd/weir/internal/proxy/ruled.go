package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/live"
	"github.com/weirgo/weir/cmd/weir/internal/report"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/urlpath"
	"github.com/weirgo/weir/rules"
)

// Rules are rules to limit by, in place of Limits.
type Rules struct {
	Paths  []string // files and directories; empty: no rules
	Loader rules.Loader

	// Domain returns the domain in a set that applies to requests. Sets that it refuses are not
	// loaded.
	Domain func(*rules.Set) (string, error)
}

// ruled limits by rules.
type ruled struct {
	*live.Rules
	domain string
	counts [16]atomic.Uint64 // by httplimit's Outcome
	keys   httplimit.Extractor
}

// newRuled loads the rules.
func (p *Proxy) newRuled() (err error) {
	cfg := p.cfg.Rules
	strategies := rules.StrategiesOf(p.limiter)
	if p.redis != nil {
		strategies = p.redis.Strategies(strategies)
	}
	r := &ruled{keys: p.cfg.By.extractor(p.ip, 0)}
	check := func(s *rules.Set) error {
		domain, err := cfg.Domain(s)
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
	p.ruled = r
	return err
}

// guardByRules returns next behind the rules, and the rules behind the deny and allow lists.
func (p *Proxy) guardByRules(next http.Handler) (http.Handler, error) {
	guard := rules.Guard{
		Engine: p.ruled.Engine, Domain: p.ruled.domain, ClientIP: p.ip,
		MaxKeysPerClient: p.cfg.Guard.MaxKeysPerClient, DeniedStatus: p.cfg.Guard.DeniedStatus,
		FailOpen: p.cfg.Guard.FailOpen, OnDecision: p.onRules, Logger: p.cfg.Log,
	}
	behind := guard.Wrap(next)
	cfg := httplimit.Config{
		MaxKeysPerClient: -1, // they have no bucket
		DenyList:         p.denied, DeniedStatus: p.cfg.Guard.DeniedStatus, Concurrency: p.concurrency,
		Shadow: p.cfg.Guard.Shadow, Stats: new(httplimit.Stats), Logger: p.cfg.Log,
		LimitFunc: func(*http.Request) *weir.Limit { return nil },
		OnDecision: func(r *http.Request, d httplimit.Decision) {
			if d.Status != 0 {
				p.decided(r, d)
			}
		},
	}
	if p.cfg.MaxInFlightPerClient > 0 {
		cfg.MaxKeysPerClient = p.cfg.Guard.MaxKeysPerClient
	}
	listed, err := p.wrap(cfg, behind)
	allowed := p.allowed()
	if err != nil || allowed == nil {
		return listed, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if allowed(r) {
			p.decided(r, httplimit.Decision{Outcome: httplimit.Exempt})
			next.ServeHTTP(w, r)
			return
		}
		listed.ServeHTTP(w, r)
	}), nil
}

// onRules records a decision of the rules.
func (p *Proxy) onRules(r *http.Request, resp *rules.Response, err error) {
	if rec := recordOf(r.Context()); rec != nil && rec.decided {
		return // in shadow mode: otherwise the lists would have refused it
	}
	d := httplimit.Decision{Shadow: p.cfg.Guard.Shadow, Err: err, Cost: 1}
	switch {
	case err != nil && r.Context().Err() != nil:
		d.Outcome = httplimit.Canceled
	case errors.Is(err, urlpath.ErrReadings):
		d.Outcome, d.Status = httplimit.NoKey, http.StatusBadRequest
	case err != nil && p.cfg.Guard.FailOpen && !errors.Is(err, weir.ErrFull):
		d.Outcome = httplimit.Bypassed
	case err != nil:
		d.Outcome, d.Status = httplimit.Failed, http.StatusServiceUnavailable
	case resp == nil:
		d.Outcome = httplimit.Exempt
	case resp.Allowed() && !resp.Shadowed:
		d.Outcome = httplimit.Admitted
	default:
		d.Outcome, d.Status = httplimit.Denied,
			cmp.Or(p.cfg.Guard.DeniedStatus, http.StatusTooManyRequests)
	}
	if resp != nil {
		for i := range resp.Statuses {
			p.ruled.Figures.Count(&resp.Statuses[i], 1, d.Outcome == httplimit.Denied)
		}
		describeRule(&d, resp)
	}
	if key, err := p.ruled.keys.Extract(r); err == nil {
		d.Key = key
	}
	p.decided(r, d)
}

// describeRule sets the fields of d that describe a rule: one that is over its limit or, if none
// is, the one with the least remaining.
func describeRule(d *httplimit.Decision, resp *rules.Response) {
	var of *rules.Status
	for i := range resp.Statuses {
		s := &resp.Statuses[i]
		if s.Limit == nil || s.Rule == nil {
			continue
		}
		if of == nil || s.Reason == rules.Over && of.Reason != rules.Over ||
			s.Reason == of.Reason && s.Remaining < of.Remaining {
			of = s
		}
	}
	if of == nil {
		return
	}
	d.Policy, d.Strategy = of.Rule.Name(), strings.ReplaceAll(of.Limit.Algorithm.String(), "_", " ")
	d.Limit, d.Duration, d.Remaining = uint64(of.Limit.Requests), of.Limit.Period(), of.Remaining
	d.Result.ExpiresAt = time.Now().Add(of.Reset)
	d.Result.TotalRequests = d.Limit - min(d.Limit, d.Remaining)
	if of.Reason == rules.Within {
		d.Result.State = weir.Allow
	}
}

// decided counts and records a decision.
func (p *Proxy) decided(r *http.Request, d httplimit.Decision) {
	p.ruled.counts[d.Outcome].Add(1)
	p.onDecision(r, d)
}

// maxRulesShown bounds the rules on the page.
const maxRulesShown = 200

// ruleShown is a rule on the page.
type ruleShown struct {
	Rule     string `json:"rule"`
	Limit    string `json:"limit"`
	Hits     uint64 `json:"hits"`
	Within   uint64 `json:"within"`
	Over     uint64 `json:"over"`
	Shadowed uint64 `json:"shadowed"`
}

// rulesShown is the part of the page about rules.
type rulesShown struct {
	Domain  string      `json:"domain"`
	Version string      `json:"version"`
	Loaded  int64       `json:"loaded"`
	Count   int         `json:"count"`
	Error   string      `json:"error,omitempty"` // of the last load
	Failed  int64       `json:"failed,omitempty"`
	Top     []ruleShown `json:"top"`
}

// shown returns the part of the page about rules.
func (r *ruled) shown() *rulesShown {
	s := r.Status()
	out := &rulesShown{
		Domain: report.Printable(r.domain), Version: live.Short(s.Version), Loaded: s.Loaded.UnixMilli(),
	}
	if s.Err != nil {
		out.Error, out.Failed = report.Printable(s.Err.Error()), s.Failed.UnixMilli()
	}
	top, others := r.Figures.Top(maxRulesShown, r.domain)
	out.Count = len(top) + others
	for _, t := range top {
		out.Top = append(out.Top, ruleShown{
			report.Printable(t.Path), t.Limit.String(), t.Hits, t.Within, t.Over, t.Shadowed,
		})
	}
	return out
}
