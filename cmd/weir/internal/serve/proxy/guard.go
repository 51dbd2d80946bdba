package proxy

import (
	"math"
	"net/http"
	"net/url"
	"slices"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/serve/routes"
	"github.com/weirgo/weir/httplimit"
)

// guard makes the handlers that hold requests to the limits of a Proxy.
type guard struct{ p *Proxy }

// handler returns next behind the rules, or behind the limits: those of the request's route or, if
// it has none of its own, the general ones. A request with several targets is held to the limits of
// each. The deny list comes before the path is read.
func (g guard) handler(next http.Handler) (http.Handler, error) {
	p, paths := g.p, pathsOf(g.p)
	reads := p.routes.ReadsPaths() || p.cfg.NormalizePaths || p.ruled != nil || p.cfg.classes != nil
	if !reads {
		next = paths.rewrite(next)
	}
	limits := map[string][]httplimit.Policy{} // by route; the general ones by ""
	own := make(map[string]http.Handler)
	var order []string
	for _, route := range p.cfg.limited() {
		order = append(order, route.Pattern)
		for _, l := range route.Limits {
			policy, err := p.stores().policy(l)
			if err != nil {
				return nil, err
			}
			limits[route.Pattern] = append(limits[route.Pattern], policy)
		}
		p.held.hold(&p.before().held, route.Pattern, route.Limits, limits[route.Pattern])
		var err error
		own[route.Pattern], err = g.middleware(limits[route.Pattern], next)
		if err != nil {
			return nil, err
		}
	}
	if !reads {
		return try(g, own[""])
	}
	limited := own[""]
	if p.ruled == nil { // rules read the path themselves
		several, err := g.middleware(g.several(order, limits), next)
		if err != nil {
			return nil, err
		}
		limited = g.byTarget(own, several)
	}
	var err error
	limited, err = try(g, limited)
	if err != nil {
		return nil, err
	}
	if p.cfg.Guard.Shadow { // nobody is refused
		return paths.read(limited), nil
	}
	return g.behindLists(paths.read(limited), paths.rewrite(next))
}

// byTarget returns the handler of the route that owns a request's target, or several if it has
// several targets.
func (g guard) byTarget(own map[string]http.Handler, several http.Handler) http.Handler {
	p := g.p
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t := &recordOf(r.Context()).targets
		if len(t.List) > 1 {
			several.ServeHTTP(w, r)
			return
		}
		own[p.routes.Owner(t.List[0].Pattern)].ServeHTTP(w, r)
	})
}

// several returns policies that hold a request to the limits of all its targets, under the key of
// each.
func (g guard) several(
	order []string, limits map[string][]httplimit.Policy,
) (all []httplimit.Policy) {
	p := g.p
	extractors := make([]httplimit.Extractor, routes.MaxTargets)
	for i := range extractors {
		extractors[i] = p.cfg.By.extractor(p.ip, i)
	}
	for _, owner := range order {
		keys := func(r *http.Request) (keys []string, err error) {
			for i, t := range recordOf(r.Context()).targets.List {
				if p.routes.Owner(t.Pattern) != owner {
					continue
				}
				key, err := extractors[i].Extract(r)
				if err != nil {
					return nil, err
				}
				if !slices.Contains(keys, key) {
					keys = append(keys, key)
				}
			}
			return keys, nil
		}
		for _, policy := range limits[owner] {
			policy.Keys = keys
			all = append(all, policy)
		}
	}
	return all
}

// middleware returns next behind a middleware for these limits.
func (g guard) middleware(policies []httplimit.Policy, next http.Handler) (http.Handler, error) {
	p := g.p
	cfg := p.cfg.Guard
	cfg.CostFunc = g.costs()
	cfg.DenyList, cfg.Stats = p.denied.DenyList, &p.tally.stats
	cfg.OnDecision, cfg.Logger = journal{p}.onDecision, p.cfg.Log
	if cfg.Penalty != (httplimit.Penalty{}) {
		cfg.Penalty.Strategy = p.limiter.FixedWindow()
	}
	cfg.Policies, cfg.Concurrency = policies, p.concurrency
	cfg.Overload, cfg.Class = p.full, classOf(p)
	if p.ruled != nil {
		cfg.Decider = p.ruled.decider()
	} else if len(policies) == 0 { // all limits are those of routes: only the lists apply
		cfg.MaxInFlight = math.MaxInt
	}
	return g.wrap(cfg, p.cfg.By.extractor(p.ip, 0), next)
}

// costs returns httplimit's CostFunc, if routes have costs.
func (g guard) costs() func(*http.Request) uint64 {
	p := g.p
	if !p.routes.HaveCosts() {
		return nil
	}
	return func(r *http.Request) uint64 { return recordOf(r.Context()).targets.Cost }
}

// boundInFlight returns next behind the bound on requests in flight, over all routes and clients,
// and configurations: those that came before a change are in it, too.
func (g guard) boundInFlight(next http.Handler) (http.Handler, error) {
	p := g.p
	most, full := int64(math.MaxInt64), next
	if p.cfg.MaxInFlight > 0 {
		most = int64(p.cfg.MaxInFlight)
		var err error
		full, err = g.busy(next)
		if err != nil {
			return nil, err
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.places.Add(1) > most {
			p.places.Add(-1)
			full.ServeHTTP(w, r)
			return
		}
		defer p.places.Add(-1)
		next.ServeHTTP(w, r)
	}), nil
}

// busy answers that too many requests are in flight. It is the middleware of such a bound, whose
// only place is taken for good: so a refusal looks as any other, is counted as such, and passes in
// shadow mode.
func (g guard) busy(next http.Handler) (h http.Handler, err error) {
	p := g.p
	taken, early := &http.Request{Header: http.Header{}, URL: new(url.URL)}, p.cfg.By.early(p.ip)
	cfg := httplimit.Config{
		MaxInFlight: 1,
		Respond:     p.cfg.Guard.Respond,
		CORS:        p.cfg.Guard.CORS,
		Jitter:      p.cfg.Guard.Jitter,
		Shadow:      p.cfg.Guard.Shadow,
		Stats:       &p.tally.flight,
		OnDecision: func(r *http.Request, d httplimit.Decision) {
			if d.Status == 0 || d.Shadow {
				return // the limits see it
			}
			if d.Kind == httplimit.NoKey {
				p.tally.others[d.Kind].Add(1) // now, since the limits see it too after a change of the mode
			}
			journal{p}.onDecision(r, d)
		},
		Extractor: httplimit.ExtractorFunc(func(r *http.Request) (string, error) {
			if r == taken {
				return "taken", nil
			}
			return early.Extract(r)
		}),
		ClientIP: p.ip, Skip: g.allowed(),
	}
	err = routes.Attempt(func() {
		guard := httplimit.NewGuard(p.limiter.FixedWindow(), cfg)
		guard.Begin(taken)
		h = guard.Wrap(next)
	})
	return h, err
}

// behindLists returns next behind the deny list. A client in Allow passes to upstream instead.
func (g guard) behindLists(next, upstream http.Handler) (http.Handler, error) {
	p := g.p
	listed, err := g.wrap(httplimit.Config{
		Name: "lists", MaxKeysPerClient: -1, // they have no bucket
		DenyList: p.denied.DenyList, DeniedStatus: p.cfg.Guard.DeniedStatus,
		Respond: p.cfg.Guard.Respond, CORS: p.cfg.Guard.CORS, Jitter: p.cfg.Guard.Jitter,
		Stats: new(httplimit.Stats), Logger: p.cfg.Log,
		LimitFunc: func(*http.Request) *weir.Limit { return nil },
		OnDecision: func(r *http.Request, d httplimit.Decision) {
			if d.Status != 0 {
				journal{p}.decided(r, d)
			}
		},
	}, p.cfg.By.early(p.ip), next)
	allowed := g.allowed()
	if err != nil || allowed == nil {
		return listed, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if allowed(r) {
			journal{p}.decided(r, httplimit.Decision{Kind: httplimit.Exempt})
			upstream.ServeHTTP(w, r)
			return
		}
		listed.ServeHTTP(w, r)
	}), nil
}

// wrap returns next behind a middleware with these keys.
func (g guard) wrap(
	cfg httplimit.Config, keys httplimit.Extractor, next http.Handler,
) (h http.Handler, err error) {
	p := g.p
	cfg.Extractor, cfg.ClientIP, cfg.Skip = keys, p.ip, g.allowed()
	err = routes.Attempt(func() { h = httplimit.New(p.limiter.FixedWindow(), cfg)(next) })
	return h, err
}

// allowed returns httplimit's Skip: whether the client is in Allow. nil: Allow is empty.
func (g guard) allowed() func(*http.Request) bool {
	p := g.p
	if len(p.cfg.Allow) == 0 {
		return nil
	}
	return func(r *http.Request) bool {
		addr, err := p.ip.Addr(r)
		return err == nil && contain(p.cfg.Allow, addr)
	}
}
