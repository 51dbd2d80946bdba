package httplimit

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/weirgo/weir/internal/doors/urlpath"
)

// call is the state of one request from its begin to its end. Calls are pooled: a Strategy does not
// keep its Request.
type call struct {
	answer
	uses     atomic.Uint64   // how often it was ended: see Ticket
	begun    bool            // Guard.begin has returned
	inFlight *inFlight       // nil: nothing is held
	response *responseWriter // nil: Writer has not returned one
}

func newCall(g *Guard) *call {
	c := &call{answer: answer{asks: newAsks(g)}}
	if g.cfg.Decider != nil {
		c.verdict = &Consultation{c: c}
	}
	return c
}

// releaseUnlessBegun releases the places of a request in which a Strategy or a hook panics.
func (c *call) releaseUnlessBegun(r *http.Request) {
	if c.begun {
		return
	}
	c.keep(r)
	if c.inFlight != nil {
		c.inFlight.end(false, 0)
	}
}

// decide finds the caller of r and consults the deny list, the bounds on requests in flight and the
// policies, in this order, as far as needed. It leaves the decision in c.
func (c *call) decide(r *http.Request) {
	g := c.guard
	if g.cfg.Skip != nil && g.cfg.Skip(r) {
		c.stop(Exempt, 0, nil)
		return
	}
	if g.unchecked.Load() > 0 {
		g.warnOfProxy(r)
	}
	// a CORS preflight request: Fetch standard, section 3.3.2
	preflight := !g.cfg.CountPreflights && r.Method == http.MethodOptions &&
		len(r.Header["Origin"]) > 0 && len(r.Header["Access-Control-Request-Method"]) > 0
	key, err := g.key.appendKey(c.key, r)
	if err == nil {
		err = g.checkKey(key)
	}
	switch {
	case err == nil:
		c.key = key
	case preflight || g.keyless: // it needs none
		err = nil
	}
	if err == nil && g.cfg.DenyList != nil && g.cfg.DenyList.Len() > 0 {
		err = c.checkListed(r)
	}
	if err != nil {
		c.stopUnasked(err)
		return
	}
	if c.inFlight != nil && !c.inFlight.enter(c) {
		return
	}
	if preflight {
		c.stop(Exempt, 0, nil)
		return
	}
	c.holdToLimits(r)
}

// holdToLimits holds the request to the policies and the limits of the Decider.
func (c *call) holdToLimits(r *http.Request) {
	applies, err := c.fill(r)
	switch {
	case err != nil:
		c.stopUnasked(err)
		return
	case !applies && c.verdict == nil:
		if len(c.limits) > 0 {
			c.stop(Exempt, 0, nil)
		}
		return
	}
	ctx := r.Context()
	allowed, err := c.limits.Take(ctx, c.guard.tolerates)
	if c.verdict != nil && allowed && err == nil {
		allowed, err = c.askDecider(r, applies)
	}
	if c.inFlight != nil || c.verdict != nil {
		c.keep(r)
	}
	if c.kind != Admitted { // the Decider has ended it
		return
	}
	failed := c.observe(ctx, allowed && err == nil)
	switch {
	case err != nil:
		c.stopUndecided(ctx, err)
	case !allowed:
		c.decider = c.binding()
		c.stop(Denied, c.guard.cfg.DeniedStatus, nil)
	case failed != none:
		c.decider = failed
		c.stop(Bypassed, 0, c.states[failed].ask.Op.Err)
	case c.guard.describes:
		c.decider = c.binding()
		return
	case len(c.states) > 0:
		c.decider = 0
		return
	default:
		return
	}
	c.logFailures(ctx)
}

// askDecider has the Decider decide, after the policies have admitted the request: one that it
// refuses is given back to them. askDecider reports whether the request is admitted, or ends it: as
// exempt only if no policy applies.
func (c *call) askDecider(r *http.Request, applies bool) (allowed bool, err error) {
	v := c.verdict
	*v = Consultation{Cost: v.Cost, State: v.State, c: c, r: r}
	c.guard.cfg.Decider.Decide(r, v)
	v.r = nil
	c.shadow = c.shadow || v.Shadow
	switch {
	case v.Invalid != nil:
		c.stop(NoKey, urlpath.Status(v.Invalid), v.Invalid)
	case v.Exempt && !applies:
		c.stop(Exempt, 0, nil)
	}
	allowed, err = !v.Denied && v.Invalid == nil, v.Err
	if refused := !allowed || err != nil; refused && !v.Shadow {
		_ = c.limits.Refund(r.Context()) // logFailures has the failures
	}
	return allowed, err
}

// keep has the request hold the places that its limits have admitted.
func (c *call) keep(r *http.Request) {
	var held holds
	if c.inFlight != nil {
		held = c.inFlight.held
	}
	held = takeHeld(held, c.limits)
	if c.verdict != nil {
		held = takeHeld(held, c.verdict.Attempts)
	}
	if held == nil {
		return
	}
	if c.inFlight == nil {
		c.inFlight = newInFlight(c.guard, r)
	}
	c.inFlight.held = held
}

// penalize counts a denial and lists the caller if it was the last one allowed.
func (c *call) penalize(r *http.Request) {
	g := c.guard
	if g.cfg.Penalty.Denials == 0 || c.decider == none {
		return
	}
	key, e, known := c.states[c.decider].penalized(c.key, c.client)
	if !known {
		return
	}
	ctx := context.WithoutCancel(r.Context()) // the denial counts even if the client hangs up
	counted, last, err := g.cfg.Penalty.count(ctx, key)
	if last {
		err = g.list(e, r, counted)
	}
	if err != nil {
		g.log(ctx, &g.throttles.penalty, slog.LevelError, "httplimit: the penalty box failed", c.caller(),
			slog.String("error", escape(err.Error())))
	}
}

// lasts reports whether something is left to do when the request ends.
func (c *call) lasts() bool { return c.inFlight != nil || c.counting() }

// writer returns the writer and the request of a handler: see Ticket.Writer.
func (c *call) writer(w http.ResponseWriter, r *http.Request) (http.ResponseWriter, *http.Request) {
	counting := c.counting()
	sends := c.guard.cfg.Headers != HeadersNone && !c.shadow && c.decider != none
	held := c.inFlight != nil && c.inFlight.holds()
	if c.kind == Bypassed {
		r = r.WithContext(bypassed(r.Context()))
	}
	if !counting && !sends && !held {
		return w, r
	}
	rw, wrapped := newResponseWriter(w)
	rw.more = &silent
	if sends {
		rw.more = &c.guard.sending
		f := fields{header: w.Header(), values: rw.values[:]}
		c.setFields(&f)
	}
	if held {
		rw.more = &writerState{style: rw.more.style, inFlight: c.inFlight}
		c.inFlight.place.writer = rw
	}
	if counting {
		c.response = rw
		r = rw.watch(r)
	}
	return wrapped, r
}

// end ends a request that was not aborted.
func (c *call) end(r *http.Request, status int) {
	if c.counting() && !counts(c.response, r, status, c.guard.cfg.CountIf) {
		if c.refund(r.Context()) != nil {
			c.logFailures(r.Context())
		}
	}
	if c.inFlight != nil {
		if !c.passes() {
			c.inFlight.place.drop() // a refusal takes no time
		}
		c.inFlight.end(true, status)
	}
	c.inFlight, c.response = nil, nil
	c.guard.calls.Put(c)
}
