package rules

import (
	"context"
	"log/slog"
	"math"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/httplimit"
)

// Guard limits HTTP requests by rules. The zero value of every field but Engine and Domain is its
// documented default.
type Guard struct {
	Engine *Engine
	Domain string

	// Descriptors say how a request is described. nil: the domain's rate_limits in the rules that
	// the Engine goes by at the time, so that a Swap replaces these too.
	Descriptors []Descriptors

	// ClientIP finds the client's address. The zero value is that of the TCP peer, and reads no
	// header.
	ClientIP httplimit.IP

	// DeniedStatus is the status of a denial. 0: 429.
	DeniedStatus int

	// FailOpen admits requests that cannot be decided. false: 503.
	FailOpen bool

	// OnDecision is called for each request before it is answered; resp is nil if it has no
	// descriptors, or if err tells why it could not be decided. resp must not be kept. nil: none.
	OnDecision func(r *http.Request, resp *Response, err error)

	// Logger gets a record at level Error when a decision fails, at most one a second. nil:
	// slog.Default().
	Logger *slog.Logger
}

// Middleware returns a middleware that limits requests by the rules of the engine's only domain.
// Descriptors say how a request is described; without any, the domain's rate_limits do. It panics
// if the rules have several domains: see [Guard].
func Middleware(e *Engine, descriptors ...Descriptors) func(http.Handler) http.Handler {
	domains := e.Set().Domains()
	if len(domains) != 1 {
		panic("rules: Middleware needs rules of one domain; use a Guard for several")
	}
	return (&Guard{Engine: e, Domain: domains[0], Descriptors: descriptors}).Wrap
}

// Wrap returns next behind the limits. A denied request is answered as package httplimit does: with
// 429, RateLimit, RateLimit-Policy and Retry-After fields, and a problem (RFC 9457) that names the
// rules that denied. An admitted one has the fields too, unless the engine is in shadow mode. A
// request without descriptors passes. It panics if there is no Engine or no Domain.
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
	return guarded
}

// guarded is a handler behind a Guard.
type guarded struct {
	Guard
	next   http.Handler
	logged atomic.Int64 // when a failure was logged last, in Unix seconds
	missed atomic.Int64 // failures since
}

func (g *guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	specs := g.Descriptors
	if specs == nil {
		specs = g.Engine.Set().Descriptors(g.Domain)
	}
	req := Request{Domain: g.Domain, Descriptors: describe(nil, specs, r, g.ClientIP)}
	if len(req.Descriptors) == 0 {
		g.decided(r, nil, nil)
		g.next.ServeHTTP(w, r)
		return
	}
	resp, err := g.Engine.Decide(r.Context(), &req)
	g.decided(r, resp, err)
	switch {
	case err != nil:
		g.logFailure(r.Context(), err)
		if !g.FailOpen {
			httplimit.Undecided(w)
			return
		}
	case !resp.Allowed():
		resp.Quotas().Deny(w, g.DeniedStatus)
		return
	case !g.Engine.cfg.Shadow: // a client that reads fields heeds them
		resp.Quotas().SetFields(w.Header())
	}
	g.next.ServeHTTP(w, r)
}

func (g *guarded) decided(r *http.Request, resp *Response, err error) {
	if g.OnDecision != nil {
		g.OnDecision(r, resp, err)
	}
}

func (g *guarded) logFailure(ctx context.Context, err error) {
	now, last := time.Now().Unix(), g.logged.Load()
	if now <= last || !g.logged.CompareAndSwap(last, now) {
		g.missed.Add(1)
		return
	}
	g.Logger.ErrorContext(ctx, "rate limit rules could not decide", "domain", g.Domain, "error", err, "more",
		g.missed.Swap(0))
}

// Quotas returns the limits that were counted against, for the fields of an HTTP response. Rules in
// shadow mode are left out, as they deny nothing.
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
		quotas = append(quotas, httplimit.Quota{
			Name: name, Limit: s.Limit.capacity(), Duration: s.Limit.Period(),
			Remaining: min(s.Remaining, math.MaxUint32), Reset: s.Reset,
			Denied: s.Code == OverLimit && !r.Allowed(),
		})
	}
	return quotas
}
