package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/weirgo/weir"
)

// decide finds the caller of r and consults the deny list, the bounds on requests in flight and the
// policies, in this order, as far as needed. It leaves the decision in c.
func (m *middleware) decide(c *call, r *http.Request) {
	c.reset()
	preflight := !m.CountPreflights && isPreflight(r)
	var err error
	if c.key, err = appendKey(c.key[:0], m.Extractor, r); err == nil && len(c.key) > m.maxExtracted {
		err = tooLong("the key", len(c.key))
	}
	if err != nil {
		c.key = c.key[:0]
		if !preflight {
			c.end(NoKey, http.StatusBadRequest, err)
			return
		}
	}
	if m.DenyList != nil && m.DenyList.Len() > 0 {
		entry, listed, err := m.listed(c.key, r)
		switch {
		case err != nil:
			c.end(NoKey, http.StatusBadRequest, err)
			return
		case listed:
			m.endListed(c, entry)
			return
		}
	}
	if m.flight != nil && !m.flight.enter(c, m.DeniedStatus) {
		return
	}
	if preflight {
		c.end(Exempt, 0, nil)
		return
	}
	m.runPolicies(c, r)
}

// runPolicies runs the policies in turn. The first denial ends it, and the policies before it
// refund what they took.
func (m *middleware) runPolicies(c *call, r *http.Request) {
	if len(c.states) == 0 {
		return
	}
	if !m.fill(c, r) {
		c.end(Exempt, 0, nil)
		return
	}
	ctx := r.Context()
	bypassed := none
	for i := range c.states {
		s := &c.states[i]
		if s.exempt {
			continue
		}
		err := s.run(ctx)
		s.answered = err == nil
		switch {
		case err == nil && s.res.Allowed():
			c.taken = true
		case err == nil:
			m.endDenied(ctx, c, i)
			return
		case ctx.Err() == nil && m.bypasses(err):
			c.end(Bypassed, 0, err)
			m.logFailure(ctx, c, i, err)
			bypassed = i
		default:
			m.refund(ctx, c, i)
			m.endUndecided(ctx, c, i, err)
			return
		}
	}
	if bypassed != none {
		c.decider = bypassed
		return
	}
	c.decider = c.tightest()
	m.forecast(ctx, c)
}

// fill makes the Requests of all policies, and reports whether any policy applies.
func (m *middleware) fill(c *call, r *http.Request) bool {
	var cost uint64
	if m.CostFunc != nil {
		cost = m.CostFunc(r)
	}
	if m.keys != nil {
		m.shareKey(c, r)
	}
	applies := false
	for i := range c.states {
		s := &c.states[i]
		s.fill(r, c.key, c.shared, cost)
		if m.keys != nil && s.LimitFunc != nil && !s.exempt && validDuration(s.req.Duration) {
			m.keys.Lives(2 * s.req.Duration)
		}
		applies = applies || !s.exempt
	}
	return applies
}

// bypasses reports whether a request passes although its Strategy failed with err.
func (m *middleware) bypasses(err error) bool {
	switch {
	case errors.Is(err, weir.ErrFull):
		return m.OnFull == FullAdmit
	case errors.Is(err, weir.ErrID):
		return false // the key is the client's choice, and a bad one would be a way through
	case isMistake(err):
		return false
	}
	return m.FailOpen
}

// isMistake reports whether err is a mistake in the program. Unlike an outage it does not end, so
// failing open would mean no limit at all.
func isMistake(err error) bool {
	return errors.Is(err, weir.ErrScale) || errors.Is(err, weir.ErrLimit) ||
		errors.Is(err, errors.ErrUnsupported) || errors.Is(err, errNoResult)
}

// endDenied ends a request that the i-th policy denied.
func (m *middleware) endDenied(ctx context.Context, c *call, i int) {
	m.refund(ctx, c, i)
	m.peekRest(ctx, c, i+1)
	c.jitter = jitterSeconds(m.Jitter)
	c.decider = c.strictest()
	c.end(Denied, m.DeniedStatus, nil)
}

// endUndecided ends a request that the i-th policy could not decide and that is refused for it.
func (m *middleware) endUndecided(ctx context.Context, c *call, i int, err error) {
	c.decider = i
	switch {
	case ctx.Err() != nil:
		c.end(Canceled, http.StatusServiceUnavailable, err)
	case errors.Is(err, weir.ErrID):
		c.end(NoKey, http.StatusBadRequest, err)
	default:
		c.end(Failed, http.StatusServiceUnavailable, err)
		m.logFailure(ctx, c, i, err)
	}
}

// refund gives back the first n policies.
func (m *middleware) refund(ctx context.Context, c *call, n int) {
	for i := range n {
		s := &c.states[i]
		if !s.answered || !s.res.Allowed() || s.refunded {
			continue
		}
		// Refund even if the client disconnected.
		if err := s.refunder.Refund(context.WithoutCancel(ctx), &s.req, &s.res); err != nil {
			m.logFailure(ctx, c, i, fmt.Errorf("refund: %w", err))
			continue
		}
		s.refunded = true
	}
	c.taken = false
}

// peekRest peeks at the policies from the n-th on, which did not run because of a denial:
// Retry-After covers them if they deny for longer.
func (m *middleware) peekRest(ctx context.Context, c *call, n int) {
	for i := n; i < len(c.states); i++ {
		s := &c.states[i]
		if s.peeker == nil || s.exempt {
			continue
		}
		res, err := s.peeker.Peek(ctx, &s.req)
		if err != nil || res == nil {
			continue // the denial stands without it
		}
		s.res, s.answered, s.refunded = *res, true, res.Allowed()
		s.source = SourceStrategy
	}
}

// isPreflight reports whether r is a CORS preflight request (Fetch standard, section 3.3.2).
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions &&
		len(r.Header["Origin"]) > 0 && len(r.Header["Access-Control-Request-Method"]) > 0
}
