package proxy

import (
	"fmt"
	"net/http"
	"time"

	"github.com/weirgo/weir/httplimit"
)

// routes finds the Route of a request by the rules of http.ServeMux, which does not serve here.
type routes struct {
	mux   *http.ServeMux // nil: there are none
	costs map[string]uint64
}

func newRoutes(all []Route) (*routes, error) {
	if len(all) == 0 {
		return &routes{}, nil
	}
	r := &routes{mux: http.NewServeMux(), costs: make(map[string]uint64)}
	for _, route := range all {
		if err := checkPattern(r.mux, route.Pattern, http.NotFoundHandler()); err != nil {
			return nil, fmt.Errorf("route %q: %w", route.Pattern, err)
		}
		if route.Cost > 0 {
			r.costs[route.Pattern] = route.Cost
		}
	}
	return r, nil
}

// elsewhere is the pattern of requests that no route matches.
const elsewhere = "(no route)"

// pattern returns the pattern of the route that r takes.
func (rs *routes) pattern(r *http.Request) string {
	if rs.mux == nil {
		return ""
	}
	if _, pattern := rs.mux.Handler(r); pattern != "" {
		return pattern
	}
	return elsewhere
}

// cost is httplimit's CostFunc; nil if all requests cost the same.
func (rs *routes) cost() func(*http.Request) uint64 {
	if len(rs.costs) == 0 {
		return nil
	}
	return func(r *http.Request) uint64 { return rs.costs[r.Pattern] }
}

// guard puts the middleware in front of next: one for the routes without a limit of their own and all that is on no
// route, and one for each of the other routes.
func (p *Proxy) guard(next http.Handler) (http.Handler, error) {
	general, err := p.middleware(p.cfg.Limits, next)
	if err != nil {
		return nil, err
	}
	own := make(map[string]http.Handler)
	for _, route := range p.cfg.Routes {
		if len(route.Limits) == 0 {
			continue
		}
		h, err := p.middleware(route.Limits, next)
		if err != nil {
			return nil, err
		}
		own[route.Pattern] = h
	}
	if len(own) == 0 {
		return general, nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := own[r.Pattern]; h != nil {
			h.ServeHTTP(w, r)
			return
		}
		general.ServeHTTP(w, r)
	}), nil
}

// middleware makes the middleware for these limits.
func (p *Proxy) middleware(limits []Limit, next http.Handler) (h http.Handler, err error) {
	cfg := p.cfg.Guard
	cfg.Extractor = p.cfg.By.extractor(p.ip)
	cfg.ClientIP = p.ip
	cfg.CostFunc = p.routes.cost()
	cfg.DenyList = p.denied
	cfg.Stats = &p.stats
	cfg.OnDecision = p.onDecision
	cfg.Logger = p.cfg.Log
	if p.cfg.Penalty != (Penalty{}) {
		in := p.cfg.Penalty
		cfg.Penalty = httplimit.Penalty{Strategy: p.limiter.FixedWindow(), Denials: in.Denials, Within: in.Within, For: in.For}
	}
	for _, l := range limits {
		policy, err := p.make.policy(l)
		if err != nil {
			return nil, err
		}
		cfg.Policies = append(cfg.Policies, policy)
	}
	err = attempt(func() { h = httplimit.New(cfg.Policies[0].Strategy, cfg)(next) })
	return h, err
}

// onDecision notes what the middleware decided.
func (p *Proxy) onDecision(r *http.Request, d httplimit.Decision) {
	if rec := recordOf(r.Context()); rec != nil {
		rec.decision, rec.decided = d, true
	}
	if d.Outcome == httplimit.Denied || d.Outcome == httplimit.Listed {
		p.worst.hit(d.Key, time.Now().UnixMilli())
	}
}
