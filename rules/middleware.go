package rules

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"net/http"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/clientkeys"
	"github.com/weirgo/weir/internal/throttle"
	"github.com/weirgo/weir/internal/urlpath"
)

// Guard limits HTTP requests by rules. Engine and Domain are required; the zero values of the other
// fields are their defaults.
type Guard struct {
	Engine *Engine
	Domain string

	// Describers say how to describe a request. Nil means the domain's rate_limits in the Engine's
	// current rules, so that a Swap replaces them too.
	Describers []Describer

	// ClientIP finds the client's address. The zero value uses the address of the TCP peer and
	// reads no header.
	ClientIP httplimit.IP

	// MaxKeysPerClient bounds the counters that one client address (an IPv4 address or an IPv6 /64,
	// found by ClientIP) may use in two of the longest period; under each rule its further values
	// share one counter. Without it one client that varies a value, such as a path, a header or its
	// IPv6 address, fills the table, and new callers get ErrFull. Clients behind a proxy count as one
	// unless ClientIP trusts the proxy. Requests whose peer has no IP address, as on a Unix socket,
	// are not bounded. 0 means 10,000; negative means no bound.
	MaxKeysPerClient int

	// DeniedStatus is the status of a denial. 0 means 429.
	DeniedStatus int

	// FailOpen admits requests on which the engine cannot decide. By default they get 503. It does
	// not cover [weir.ErrFull], since filling the table must not lift the limits, or a request
	// whose client has disconnected.
	FailOpen bool

	// OnDecision, if not nil, is called for each request before it is answered. resp is nil if the
	// request has no descriptors or if err is not nil. OnDecision must not keep resp.
	OnDecision func(r *http.Request, resp *Response, err error)

	// Logger gets a record at level Error when a decision fails, and at level Warn when a client's
	// further values share a counter and when descriptors are dropped because a client's address is
	// unknown; each at most once a second. Nil means slog.Default().
	Logger *slog.Logger
}

// Middleware returns a middleware that limits requests by the rules of the engine's only domain.
// Without describers it uses the domain's rate_limits. It panics if the rules have several
// domains; use a [Guard] then.
func Middleware(e *Engine, describers ...Describer) func(http.Handler) http.Handler {
	domains := e.Set().Domains()
	if len(domains) != 1 {
		panic("rules: Middleware needs rules of one domain; use a Guard for several")
	}
	return (&Guard{Engine: e, Domain: domains[0], Describers: describers}).Wrap
}

// Wrap returns a handler that calls next for admitted requests. A denied request gets the response
// of package httplimit: status 429, the fields RateLimit, RateLimit-Policy and Retry-After, and a
// problem (RFC 9457) that names the rules that denied it. An admitted request has the RateLimit
// fields too, unless the engine is in shadow mode. Wrap panics without an Engine, a Domain or a
// handler.
//
// A request holds its places of rules for requests in flight until next has returned or panicked,
// and has closed the connection if it has hijacked that.
//
// A request without descriptors is admitted. As in Envoy, an action without a value drops its whole
// descriptor. A request whose client's address is unknown, since its peer is a Unix socket or a
// trusted proxy sent an invalid X-Forwarded-For, gets no descriptor with a remote_address; if all
// have one, no limit holds for it. Logger gets a record of it. Descriptors without an address limit
// such requests too.
func (g *Guard) Wrap(next http.Handler) http.Handler {
	if g.Engine == nil || g.Domain == "" || next == nil {
		panic("rules: a Guard needs an Engine, a Domain and a handler")
	}
	guarded := &guarded{Guard: *g, next: next}
	if guarded.DeniedStatus == 0 {
		guarded.DeniedStatus = http.StatusTooManyRequests
	}
	if guarded.Logger == nil {
		guarded.Logger = slog.Default()
	}
	if g.MaxKeysPerClient >= 0 {
		guarded.keys = clientkeys.New(cmp.Or(g.MaxKeysPerClient, clientkeys.DefaultMost))
		guarded.keys.Lives(time.Minute)
	}
	return guarded
}

// guarded is a handler behind a Guard.
type guarded struct {
	Guard
	next http.Handler
	keys *clientkeys.Keys // nil: no bound

	failures, sharings, unknowns, releases throttle.Throttle
}

func (g *guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	st, specs := g.Engine.state.Load(), g.Describers // st describes and decides, whatever Swap does
	if specs == nil {
		specs = st.set.Describers(g.Domain)
	}
	x := exchange{Request: r, ip: g.ClientIP, lenient: g.Engine.cfg.Shadow}
	req := Request{Domain: g.Domain, Descriptors: st.set.describe(g.Domain, specs, &x)}
	if x.refused != nil && !x.lenient {
		g.decided(r, nil, x.refused)
		http.Error(w, "This request is refused: "+x.refused.Error()+".", urlpath.Status(x.refused))
		return
	}
	if x.unknown != nil {
		g.log(r.Context(), &g.unknowns, slog.LevelWarn,
			"rules: a request lacks descriptors, as its client's address is unknown", "error", x.unknown)
	}
	if len(req.Descriptors) == 0 {
		g.decided(r, nil, nil)
		g.next.ServeHTTP(w, r)
		return
	}
	resp := new(Response)
	d, err := g.Engine.decide(r.Context(), st, &req, resp, g.boundOf(r), true)
	if d.shared {
		g.log(r.Context(), &g.sharings, slog.LevelWarn,
			"rules: a client's further values share one counter; if it is a proxy, set ClientIP",
			"max_keys", g.keys.Most())
	}
	if len(d.held) > 0 { // before OnDecision, which may panic
		httplimit.ServeHeld(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			g.answer(w, r, resp, nil)
		}), w, r, func() { g.release(r, d.held) })
		return
	}
	g.answer(w, r, resp, err)
}

// answer answers a request on which the engine has decided, by the next handler if it may pass.
func (g *guarded) answer(w http.ResponseWriter, r *http.Request, resp *Response, err error) {
	if err != nil {
		resp = nil // undefined
	}
	g.decided(r, resp, err)
	switch {
	case err != nil:
		g.log(r.Context(), &g.failures, slog.LevelError, "rules: cannot decide", "error", err)
		open := g.FailOpen && !errors.Is(err, weir.ErrFull) && r.Context().Err() == nil
		if !open && !g.Engine.cfg.Shadow {
			httplimit.Undecided(w)
			return
		}
	case !resp.Allowed():
		resp.Quotas().Deny(w, g.DeniedStatus)
		return
	case !g.Engine.cfg.Shadow: // in shadow mode the fields must not make clients wait
		resp.Quotas().SetFields(w.Header())
	}
	g.next.ServeHTTP(w, r)
}

func (g *guarded) decided(r *http.Request, resp *Response, err error) {
	if g.OnDecision != nil {
		g.OnDecision(r, resp, err)
	}
}

// release releases the places of a request that has ended.
func (g *guarded) release(r *http.Request, held []*weir.Held) {
	for _, place := range held {
		if err := place.Release(r.Context()); err != nil {
			g.log(r.Context(), &g.releases, slog.LevelError,
				"rules: a place in flight was not released, and counts until its lease ends", "error", err)
		}
	}
}

// log writes a record if t allows it, with one attribute and how many records were dropped.
func (g *guarded) log(ctx context.Context, t *throttle.Throttle, level slog.Level, msg, name string,
	value any) {
	if dropped, ok := t.Allow(time.Now(), time.Second); ok {
		g.Logger.Log(ctx, level, msg, "domain", g.Domain, name, value, "not_logged", dropped)
	}
}

// Quotas returns the limits that the request counted against, for the fields of an HTTP response.
// It leaves out rules in shadow mode, which deny nothing.
func (r *Response) Quotas() httplimit.Quotas {
	quotas := make(httplimit.Quotas, 0, len(r.Statuses))
	for i := range r.Statuses {
		s := &r.Statuses[i]
		if s.Limit == nil || s.Rule != nil && s.Rule.Shadow {
			continue
		}
		name := "override"
		if s.Rule != nil {
			name = s.Rule.Name()
		}
		q := httplimit.Quota{
			Name: name, Limit: s.Limit.capacity(), Duration: s.Limit.Period(),
			Remaining: min(s.Remaining, math.MaxUint32), Reset: s.Reset,
			Denied: s.Code == OverLimit && !r.Allowed(),
		}
		if s.Limit.Algorithm == InFlight {
			q.SetPlaces(s.Limit.Requests == 0)
		}
		quotas = append(quotas, q)
	}
	return quotas
}
