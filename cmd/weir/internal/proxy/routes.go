package proxy

import (
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"slices"

	"github.com/weirgo/weir/httplimit"
)

// routes matches requests to Routes with an http.ServeMux that serves no request.
type routes struct {
	mux   *http.ServeMux    // nil: no routes
	exact bool              // match the request's own spelling
	given map[string]string // the patterns as given, by those in mux
	costs map[string]uint64 // by the pattern as given
}

func newRoutes(all []Route, exact bool) (*routes, error) {
	if len(all) == 0 {
		return &routes{}, nil
	}
	r := &routes{
		mux: http.NewServeMux(), exact: exact,
		given: make(map[string]string), costs: make(map[string]uint64),
	}
	for _, route := range all {
		pattern := route.Pattern
		if !exact {
			pattern = plainPattern(pattern)
		}
		if err := checkPattern(r.mux, pattern, http.NotFoundHandler()); err != nil {
			return nil, fmt.Errorf("route %q: %w", route.Pattern, err)
		}
		r.given[pattern] = route.Pattern
		if route.Cost > 0 {
			r.costs[route.Pattern] = route.Cost
		}
	}
	return r, nil
}

// elsewhere is the pattern of requests without a route.
const elsewhere = "(no route)"

// pattern returns the pattern, as given, of the route that matches r.
func (rs *routes) pattern(r *http.Request) string {
	if rs.mux == nil {
		return ""
	}
	if !rs.exact {
		r = plainRequest(r)
	}
	if _, pattern := rs.mux.Handler(r); pattern != "" {
		return rs.given[pattern]
	}
	return elsewhere
}

// Matcher returns a function that reports whether one of the patterns matches a request, as that of a
// Route would without ExactPaths.
func Matcher(patterns []string) (func(*http.Request) bool, error) {
	var all []Route
	for _, pattern := range patterns {
		all = append(all, Route{Pattern: pattern})
	}
	routes, err := newRoutes(all, false)
	if err != nil {
		return nil, err
	}
	return func(r *http.Request) bool { return routes.pattern(r) != elsewhere }, nil
}

// cost returns httplimit's CostFunc; nil if all requests cost the same.
func (rs *routes) cost() func(*http.Request) uint64 {
	if len(rs.costs) == 0 {
		return nil
	}
	return func(r *http.Request) uint64 { return rs.costs[r.Pattern] }
}

// guard returns next behind the middleware: one for each route with limits of its own, and one for
// all other requests.
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

// middleware returns next behind a middleware for these limits.
func (p *Proxy) middleware(limits []Limit, next http.Handler) (h http.Handler, err error) {
	cfg := p.cfg.Guard
	cfg.Extractor = p.cfg.By.extractor(p.ip, p.cfg.ExactPaths)
	cfg.ClientIP = p.ip
	cfg.Skip = p.allowed()
	cfg.CostFunc = p.routes.cost()
	cfg.DenyList = p.denied
	cfg.Stats = &p.stats
	cfg.OnDecision = p.onDecision
	cfg.Logger = p.cfg.Log
	if p.cfg.Penalty != (Penalty{}) {
		in := p.cfg.Penalty
		cfg.Penalty = httplimit.Penalty{
			Strategy: p.limiter.FixedWindow(), Denials: in.Denials, Within: in.Within, For: in.For,
		}
	}
	for _, l := range limits {
		policy, err := p.make.policy(l)
		if err != nil {
			return nil, err
		}
		cfg.Policies = append(cfg.Policies, policy)
	}
	if len(limits) == 0 { // all limits are those of routes: only the lists apply
		cfg.MaxInFlight = math.MaxInt
	}
	err = attempt(func() { h = httplimit.New(p.limiter.FixedWindow(), cfg)(next) })
	return h, err
}

// boundInFlight returns next behind the bounds on requests in flight, over all routes.
func (p *Proxy) boundInFlight(next http.Handler) (h http.Handler, err error) {
	if p.cfg.MaxInFlight == 0 && p.cfg.MaxInFlightPerClient == 0 {
		return next, nil
	}
	cfg := httplimit.Config{
		Extractor:            p.cfg.By.extractor(p.ip, p.cfg.ExactPaths),
		ClientIP:             p.ip,
		Skip:                 p.allowed(),
		MaxInFlight:          p.cfg.MaxInFlight,
		MaxInFlightPerClient: p.cfg.MaxInFlightPerClient,
		DeniedStatus:         p.cfg.Guard.DeniedStatus,
		Respond:              p.cfg.Guard.Respond,
		CORS:                 p.cfg.Guard.CORS,
		Jitter:               p.cfg.Guard.Jitter,
		Shadow:               p.cfg.Guard.Shadow,
		Stats:                &p.flight,
		OnDecision: func(r *http.Request, d httplimit.Decision) {
			if d.Status != 0 && !d.Shadow { // no limit sees it
				p.onDecision(r, d)
			}
		},
	}
	err = attempt(func() { h = httplimit.New(p.limiter.FixedWindow(), cfg)(next) })
	return h, err
}

// allowed returns httplimit's Skip: whether the client is in Allow. nil: Allow is empty.
func (p *Proxy) allowed() func(*http.Request) bool {
	if len(p.cfg.Allow) == 0 {
		return nil
	}
	return func(r *http.Request) bool {
		addr, err := p.ip.Addr(r)
		return err == nil && slices.ContainsFunc(p.cfg.Allow, func(a netip.Prefix) bool {
			return a.Contains(addr)
		})
	}
}

// count returns the number of requests with this outcome, including refusals by the bounds on
// requests in flight, which no limit sees.
func (p *Proxy) count(o httplimit.Outcome) uint64 {
	n := p.stats.Count(o)
	if o == httplimit.Busy || o == httplimit.NoKey && !p.cfg.Guard.Shadow { // or the limits see it, too
		n += p.flight.Count(o)
	}
	if p.ruled != nil {
		n += p.ruled.counts[o].Load()
	}
	return n
}

// onDecision records a decision of the middleware.
func (p *Proxy) onDecision(r *http.Request, d httplimit.Decision) {
	p.watch.decisions.OnDecision(r, d)
	if rec := recordOf(r.Context()); rec != nil {
		rec.decision, rec.decided = d, true
	}
	if d.Outcome == httplimit.Denied || d.Outcome == httplimit.Listed {
		p.worst.Denied(d.Key)
	}
}
