package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/weirgo/weir"
)

// decide finds the caller of r and consults the deny list, the bound on requests in flight and the
// policies, in this order, as far as needed. It leaves the decision in c.
func (m *middleware) decide(c *call, r *http.Request) {
	c.reset()
	if m.Skip != nil && m.Skip(r) {
		c.end(Exempt, 0, nil)
		return
	}
	if m.unchecked.Load() > 0 {
		m.warnOfProxy(r)
	}
	preflight := !m.CountPreflights && isPreflight(r)
	var err error
	if c.key, err = m.extract(c.key, m.key, r); err != nil {
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
	if c.inFlight != nil && !c.inFlight.enter(c) {
		return
	}
	if preflight {
		c.end(Exempt, 0, nil)
		return
	}
	m.runPolicies(c, r)
}

// extract stores the key that a appends in buf.
func (m *middleware) extract(buf []byte, a appender, r *http.Request) ([]byte, error) {
	key, err := a.appendKey(buf[:0], r)
	switch {
	case err != nil:
	case len(key) > m.maxExtracted:
		err = tooLong("the key", len(key))
	case len(key) >= len(sharedKey) && string(key[:len(sharedKey)]) == sharedKey:
		err = fmt.Errorf("%w: it begins as those that a client's further keys share", ErrKey)
	}
	return key, err
}

// runPolicies holds the request to the policies.
func (m *middleware) runPolicies(c *call, r *http.Request) {
	if len(c.states) == 0 || !m.fill(c, r) {
		return
	}
	ctx := r.Context()
	allowed, err := m.take(ctx, c)
	if c.decider = 0; !allowed || m.describes {
		c.decider = c.limits.Binding()
	}
	failed := c.failed()
	switch {
	case err != nil:
		m.endUndecided(ctx, c)
	case !allowed:
		c.jitter = jitterSeconds(m.Jitter)
		c.end(Denied, m.DeniedStatus, nil)
	case failed != none:
		c.decider = failed
		c.end(Bypassed, 0, c.limits[failed].Err)
	default:
		m.forecast(ctx, c)
		return
	}
	m.logFailures(ctx, c)
}

// take has the policies decide. The place is the request's even if one of them panics.
func (m *middleware) take(ctx context.Context, c *call) (allowed bool, err error) {
	if c.inFlight != nil {
		defer func() { c.inFlight.held = c.limits[0].TakeHeld() }()
	}
	return c.limits.Take(ctx, m.tolerates)
}

// fill makes the Requests of all policies. It reports whether they are to be decided; else it has
// ended the request.
func (m *middleware) fill(c *call, r *http.Request) bool {
	var cost uint64
	if m.CostFunc != nil {
		cost = m.CostFunc(r)
	}
	applies := false
	asked, shared := false, false // whether the keys of Config's Extractor exceed the client's
	for i := range c.states {
		s := &c.states[i]
		if !s.more.IsZero() { // see call.reset
			s.more = time.Time{}
		}
		if s.varies {
			if s.choose(r); s.ask.Exempt {
				continue
			}
			if m.keys != nil {
				m.keys.Lives(2 * s.Duration)
			}
		}
		if s.ask.Request.Cost = cost; s.holds {
			s.ask.Request.Cost = 1
		}
		applies = true
		switch {
		case s.Extractor != nil:
			if !m.fillOwnKey(c, s, r) {
				return false
			}
			continue
		case !asked && m.keys != nil:
			asked, shared = true, m.exceedsKeys(c, r, m.Extractor, c.key)
		}
		if shared {
			s.setSharedKey(c.client)
		} else {
			s.setKey(c.key)
		}
	}
	if !applies {
		c.end(Exempt, 0, nil)
	}
	return applies
}

// fillOwnKey sets the key of a policy with an Extractor of its own. It reports false if it has
// ended the request, which has no such key, or one that is listed.
func (m *middleware) fillOwnKey(c *call, s *policyState, r *http.Request) bool {
	var err error
	if s.own, err = m.extract(s.own, s.key, r); err != nil {
		c.end(NoKey, http.StatusBadRequest, fmt.Errorf("policy %q: %w", s.Name, err))
		return false
	}
	if m.DenyList != nil {
		if entry, listed := m.DenyList.lookup(s.listedAs, s.own, netip.Addr{}); listed {
			c.key = append(c.key[:0], s.own...) // of the Decision
			m.endListed(c, entry)
			return false
		}
	}
	s.setKey(s.own)
	key := s.own
	if s.listedAs != "" { // it is of another kind than those of Config's Extractor
		key = s.distinctKey()
	}
	if m.exceedsKeys(c, r, s.Extractor, key) {
		s.setSharedKey(c.client)
	}
	return true
}

// bypasses reports whether a request passes although a Strategy failed with err, if it did.
func (m *middleware) bypasses(err error) bool {
	switch {
	case err == nil:
		return true
	case errors.Is(err, weir.ErrFull):
		return m.OnFull == FullAdmit
	case errors.Is(err, weir.ErrID):
		return false // the key is the client's choice, and a bad one would be a way through
	case errors.Is(err, weir.ErrScale), errors.Is(err, weir.ErrLimit),
		errors.Is(err, errors.ErrUnsupported):
		return false // a mistake in the program does not end: it would mean no limit at all
	}
	return m.FailOpen
}

// endUndecided ends a request that a policy could not decide and that is refused for it.
func (m *middleware) endUndecided(ctx context.Context, c *call) {
	for c.decider = 0; ctx.Err() == nil && m.bypasses(c.limits[c.decider].Err); {
		c.decider++
	}
	err := c.limits[c.decider].Err
	switch {
	case ctx.Err() != nil:
		c.end(Canceled, http.StatusServiceUnavailable, err)
	case errors.Is(err, weir.ErrID):
		c.end(NoKey, http.StatusBadRequest, err)
	default:
		c.end(Failed, http.StatusServiceUnavailable, err)
	}
}

// isPreflight reports whether r is a CORS preflight request (Fetch standard, section 3.3.2).
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions &&
		len(r.Header["Origin"]) > 0 && len(r.Header["Access-Control-Request-Method"]) > 0
}
