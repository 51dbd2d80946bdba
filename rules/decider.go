package rules

import (
	"net/http"

	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/overload"
	"github.com/weirgo/weir/rules/describe"
)

// Decider is the [httplimit.Decider] of an Engine: it holds HTTP requests to its rules. Engine is
// required; the zero values of the other fields are their defaults.
//
// A request without descriptors is exempt. As in Envoy, an action without a value drops its whole
// descriptor. A request whose client's address is unknown, since its peer is a Unix socket or a
// trusted proxy sent an invalid X-Forwarded-For, gets no descriptor with a remote_address; if all
// have one, no rule limits it. The Logger of the Config gets a record of it. Descriptors without an
// address limit such requests too. A request whose path servers read in too many ways is refused,
// if an action has the path.
type Decider struct {
	Engine *Engine

	// Domain is that of the rules. Empty means the only one that the Engine's rules have.
	Domain string

	// Describers say how to describe a request. Nil means the domain's rate_limits in the Engine's
	// current rules, so that a Swap replaces them too.
	Describers []describe.Describer

	// OnResponse, if not nil, is called with each decision of the Engine, and must not keep resp.
	OnResponse func(r *http.Request, resp *Response)
}

// NewGuard returns a guard of package httplimit that limits requests by the rules of d, and by what
// cfg has besides. The zero Config has it decide by the rules alone: a denied request gets status
// 429, the fields RateLimit, RateLimit-Policy and Retry-After, and a problem (RFC 9457) that names
// the rules that denied it. Rules in shadow mode are not shown, and if the Engine is in shadow
// mode, nothing is. A request holds its places of rules for requests in flight until it has ended.
// An Overload without a Class of its own goes by that of the rules.
//
// NewGuard panics if d has no Engine, or no Domain although the rules have several domains, and
// where [httplimit.NewGuard] does.
func NewGuard(d Decider, cfg httplimit.Config) *httplimit.Guard {
	if d.Engine == nil {
		panic("rules: a Decider needs an Engine")
	}
	if d.Domain == "" {
		domains := d.Engine.Set().Domains()
		if len(domains) != 1 {
			panic("rules: a Decider needs a Domain if the rules have several")
		}
		d.Domain = domains[0]
	}
	cfg.Decider = &d
	if cfg.Overload != nil && cfg.Class == nil {
		cfg.Class = d.Class(cfg.ClientIP)
	}
	return httplimit.NewGuard(nil, cfg)
}

// Middleware is the middleware of [NewGuard], by the Engine's only domain.
func Middleware(e *Engine, cfg httplimit.Config) func(http.Handler) http.Handler {
	return NewGuard(Decider{Engine: e}, cfg).Wrap
}

// Class returns the Class for [httplimit.Config]: that which the rules give a request, by
//
//	metadata: {weir: {class: sheddable}}
//
// in a descriptor with a rate_limit, which may be unlimited. Of several it is the least important
// one; it is Normal without any. ip finds the client's address. If no rule has a class, a request
// is not described for it.
func (d *Decider) Class(ip httplimit.IP) func(*http.Request) overload.Class {
	return func(r *http.Request) overload.Class {
		set, by := d.Engine.state.Load().set, d.Describers
		of := set.domains[d.Domain]
		if of == nil || !set.classed {
			return overload.Normal
		}
		if by == nil {
			by = set.Describers(d.Domain)
		}
		class := overload.Normal
		x := describe.Request{Request: r, IP: ip, Lenient: true}
		for _, descriptor := range set.describe(d.Domain, by, &x) {
			rule := of.match(descriptor.Entries)
			switch {
			case rule == nil:
			case rule.Class == overload.Sheddable:
				return overload.Sheddable
			default:
				class = max(class, rule.Class)
			}
		}
		return class
	}
}

// memory is what a Decider uses again for another request.
type memory struct {
	*call
	resp Response
}

// Decide implements [httplimit.Decider].
func (d *Decider) Decide(r *http.Request, v *httplimit.Consultation) {
	st, by := d.Engine.state.Load(), d.Describers // st describes and decides, whatever Swap does
	if by == nil {
		by = st.set.Describers(d.Domain)
	}
	v.Shadow = d.Engine.cfg.Shadow
	x := describe.Request{Request: r, IP: v.ClientIP(), Lenient: v.Shadow}
	req := Request{Domain: d.Domain, Descriptors: st.set.describe(d.Domain, by, &x), Hits: v.Cost}
	if x.NoPath != nil && !x.Lenient {
		v.Invalid = x.NoPath
		return
	}
	if x.NoAddress != nil {
		v.Warn("rules: a request lacks descriptors, as its client's address is unknown", x.NoAddress)
	}
	v.Exempt = len(req.Descriptors) == 0
	if v.Exempt {
		return
	}
	m, _ := v.State.(*memory)
	if m == nil {
		m = &memory{call: newCall(d.Engine)}
		m.verdict, m.tolerates, v.State = v, v.Tolerates, m
	}
	// Also if a strategy panics: that may be after a place was held.
	defer func() { v.Attempts = m.limits }()
	v.Err = m.decide(r.Context(), st, &req, &m.resp, true)
	v.Denied = m.denied
	m.show(v)
	if v.Err == nil && d.OnResponse != nil {
		d.OnResponse(r, &m.resp)
	}
}

// show reports the limits that the request counted against. It leaves out rules in shadow mode,
// which deny nothing.
func (m *memory) show(v *httplimit.Consultation) {
	for i := range m.asks {
		a, of := &m.asks[i], &m.resp.Statuses[i]
		if a.strategy == nil || a.shadow {
			continue
		}
		name := "override"
		if of.Rule != nil {
			name = of.Rule.Name()
		}
		d := httplimit.Decision{Policy: name, Strategy: a.strategy.name, Limit: a.limit.capacity(),
			Duration: a.limit.Period()}
		if m.denied && of.Reason == Over {
			d.Kind = httplimit.Denied
		}
		v.Report(d, a.held, of.Reset)
	}
}
