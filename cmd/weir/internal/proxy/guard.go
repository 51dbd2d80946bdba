package proxy

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/routes"
	"github.com/weirgo/weir/httplimit"
)

// guard returns next behind the limits: those of the request's route or, if it has none of its own,
// the general ones. A request with several targets is held to the limits of each.
func (p *Proxy) guard(next http.Handler) (http.Handler, error) {
	limits := map[string][]httplimit.Policy{} // by route; the general ones by ""
	own := make(map[string]http.Handler)
	var order []string
	for _, route := range p.cfg.limited() {
		order = append(order, route.Pattern)
		for _, l := range route.Limits {
			policy, err := p.policy(l)
			if err != nil {
				return nil, err
			}
			limits[route.Pattern] = append(limits[route.Pattern], policy)
		}
		var err error
		if own[route.Pattern], err = p.middleware(limits[route.Pattern], next); err != nil {
			return nil, err
		}
	}
	if len(p.cfg.Routes) == 0 && !p.cfg.By.keys.Path {
		return own[""], nil
	}
	several, err := p.middleware(p.several(order, limits), next)
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t := &recordOf(r.Context()).targets
		if len(t.List) > 1 {
			several.ServeHTTP(w, r)
			return
		}
		own[p.routes.Owner(t.List[0].Pattern)].ServeHTTP(w, r)
	}), nil
}

// several returns policies that hold a request to the limits of all its targets. Each limit has a
// policy for each number of a target with its key; the others do not apply.
func (p *Proxy) several(
	order []string, limits map[string][]httplimit.Policy,
) (all []httplimit.Policy) {
	copies := 1
	if p.cfg.By.keys.Path || p.cfg.By.keys.Pattern {
		copies = routes.MaxTargets
	}
	names := make(map[string]bool)
	for _, owner := range order {
		for _, l := range limits[owner] {
			for i := range copies {
				policy := l
				policy.Name = otherName(names, l.Name)
				policy.Strategy = &renamed{l.Strategy.(backend), weir.JoinKey(policy.Name),
					weir.JoinKey(l.Name)}
				if policy.Name == l.Name {
					policy.Strategy = l.Strategy
				}
				policy.Applies = func(r *http.Request) bool {
					return has(&recordOf(r.Context()).targets, owner, i, copies, p.routes)
				}
				policy.Extractor = p.cfg.By.extractor(p.ip, i)
				all = append(all, policy)
			}
		}
	}
	return all
}

// has reports whether the limits of a route apply to target i, or to any target if there is one
// copy of each limit.
func has(t *routes.Targets, owner string, i, copies int, rs *routes.Table) bool {
	if copies == 1 {
		return slices.ContainsFunc(t.List, func(t routes.Target) bool {
			return rs.Owner(t.Pattern) == owner
		})
	}
	return i < len(t.List) && rs.Owner(t.List[i].Pattern) == owner
}

// otherName returns name, or one that begins alike and that names does not have, and adds it to
// names.
func otherName(names map[string]bool, name string) string {
	const longest = 64 // of httplimit
	other := name
	for n := 2; names[other]; n++ {
		end := fmt.Sprintf(" (%d)", n)
		other = name[:min(len(name), longest-len(end))] + end
	}
	names[other] = true
	return other
}

// renamed is the strategy of a policy that counts under the name of another one.
type renamed struct {
	backend
	from, to string // of keys; each is a name as the first part of a joined key
}

func (s *renamed) rename(r *weir.Request) *weir.Request {
	other := *r
	other.Key = s.to + strings.TrimPrefix(r.Key, s.from)
	return &other
}

// Run implements weir.Strategy.
func (s *renamed) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return s.backend.Run(ctx, s.rename(r))
}

// Peek implements weir.Peeker.
func (s *renamed) Peek(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	return s.backend.Peek(ctx, s.rename(r))
}

// Refund implements weir.Refunder.
func (s *renamed) Refund(ctx context.Context, r *weir.Request, taken *weir.Result) error {
	return s.backend.Refund(ctx, s.rename(r), taken)
}

// middleware returns next behind a middleware for these limits.
func (p *Proxy) middleware(policies []httplimit.Policy, next http.Handler) (http.Handler, error) {
	cfg := p.cfg.Guard
	if p.routes.HaveCosts() {
		cfg.CostFunc = func(r *http.Request) uint64 { return recordOf(r.Context()).targets.Cost }
	}
	cfg.DenyList, cfg.Stats, cfg.OnDecision, cfg.Logger = p.denied, &p.stats, p.onDecision, p.cfg.Log
	if cfg.Penalty != (httplimit.Penalty{}) {
		cfg.Penalty.Strategy = p.limiter.FixedWindow()
	}
	cfg.Policies, cfg.Concurrency = policies, p.concurrency
	if len(policies) == 0 { // all limits are those of routes: only the lists apply
		cfg.MaxInFlight = math.MaxInt
	}
	return p.wrap(cfg, next)
}

// boundInFlight returns next behind the bound on requests in flight, over all routes and clients.
func (p *Proxy) boundInFlight(next http.Handler) (http.Handler, error) {
	if p.cfg.MaxInFlight == 0 {
		return next, nil
	}
	return p.wrap(httplimit.Config{
		MaxInFlight: p.cfg.MaxInFlight,
		Respond:     p.cfg.Guard.Respond,
		CORS:        p.cfg.Guard.CORS,
		Jitter:      p.cfg.Guard.Jitter,
		Shadow:      p.cfg.Guard.Shadow,
		Stats:       &p.flight,
		OnDecision: func(r *http.Request, d httplimit.Decision) {
			if d.Status != 0 && !d.Shadow { // no limit sees it
				p.onDecision(r, d)
			}
		},
	}, next)
}

// wrap returns next behind a middleware that tells clients apart as configured.
func (p *Proxy) wrap(cfg httplimit.Config, next http.Handler) (h http.Handler, err error) {
	cfg.Extractor, cfg.ClientIP, cfg.Skip = p.cfg.By.extractor(p.ip, 0), p.ip, p.allowed()
	err = routes.Attempt(func() { h = httplimit.New(p.limiter.FixedWindow(), cfg)(next) })
	return h, err
}

// allowed returns httplimit's Skip: whether the client is in Allow. nil: Allow is empty.
func (p *Proxy) allowed() func(*http.Request) bool {
	if len(p.cfg.Allow) == 0 {
		return nil
	}
	return func(r *http.Request) bool {
		addr, err := p.ip.Addr(r)
		return err == nil && contain(p.cfg.Allow, addr)
	}
}

// count returns the number of requests with this outcome, including refusals by the bound on
// requests in flight of all clients, which no limit sees.
func (p *Proxy) count(o httplimit.Outcome) uint64 {
	n := p.stats.Count(o)
	// or the limits see it, too
	if o == httplimit.Busy || o == httplimit.NoKey && !p.cfg.Guard.Shadow {
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
	if d.Key != "" {
		addr, _ := p.ip.Addr(r) // the zero Addr if it is unknown
		p.recent.see(d.Key, addr, time.Now())
	}
	if d.Outcome == httplimit.Denied || d.Outcome == httplimit.Listed {
		p.worst.Denied(d.Key)
	}
}
