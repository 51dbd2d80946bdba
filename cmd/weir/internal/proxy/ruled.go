package proxy

import (
	"cmp"
	"fmt"
	"net/http"

	"github.com/weirgo/weir/cmd/weir/internal/live"
	"github.com/weirgo/weir/cmd/weir/internal/screen"
	"github.com/weirgo/weir/httplimit"
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
}

// newRuled loads the rules.
func (p *Proxy) newRuled() (err error) {
	cfg := p.cfg.Rules
	strategies := rules.StrategiesOf(p.limiter)
	if p.redis != nil {
		strategies = p.redis.Strategies(strategies)
	}
	r := new(ruled)
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

// maxRulesShown bounds the rules on the page.
const maxRulesShown = 200

// ruleShown is a rule on the page.
type ruleShown struct {
	Rule     string `json:"rule"`
	Limit    string `json:"limit"`
	Counting string `json:"counting"`
	AtOnce   uint64 `json:"at_once"` // the most that passes within a moment
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
		Domain: screen.Printable(r.domain), Version: live.Short(s.Version), Loaded: s.Loaded.UnixMilli(),
	}
	if s.Err != nil {
		out.Error, out.Failed = screen.Printable(s.Err.Error()), s.Failed.UnixMilli()
	}
	top, others := r.Figures.Top(maxRulesShown, r.domain)
	out.Count = len(top) + others
	for _, t := range top {
		out.Top = append(out.Top, ruleShown{
			screen.Printable(t.Path), t.Limit.String(), t.Limit.Algorithm.String(), t.Limit.AtOnce(), t.Hits, t.Within, t.Over, t.Shadowed,
		})
	}
	return out
}
