package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	"github.com/weirgo/weir"
)

// decide finds the caller of r and consults the deny list, the bounds on requests in flight and the
// policies, in this order, as far as needed. It leaves the decision in c.
func (c *call) decide(r *http.Request) {
	if c.Skip != nil && c.Skip(r) {
		c.stop(Exempt, 0, nil)
		return
	}
	if c.unchecked.Load() > 0 {
		c.warnOfProxy(r)
	}
	// a CORS preflight request: Fetch standard, section 3.3.2
	preflight := !c.CountPreflights && r.Method == http.MethodOptions &&
		len(r.Header["Origin"]) > 0 && len(r.Header["Access-Control-Request-Method"]) > 0
	var err error
	c.key, err = c.middleware.key.appendKey(c.key[:0], r)
	if err == nil {
		err = c.checkKey(c.key)
	}
	if err != nil {
		c.key = c.key[:0]
		if !preflight && !c.keyless {
			c.stop(NoKey, http.StatusBadRequest, err)
			return
		}
	}
	if c.DenyList != nil && c.DenyList.Len() > 0 {
		entry, listed, err := c.listed(c.key, r)
		switch {
		case err != nil:
			c.stop(NoKey, http.StatusBadRequest, err)
			return
		case listed:
			c.stopListed(entry)
			return
		}
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
	applies, ok := c.fill(r)
	if !ok {
		return
	}
	ctx := r.Context()
	allowed, err := c.limits.Take(ctx, c.tolerates)
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
		c.stop(Denied, c.DeniedStatus, nil)
	case failed != none:
		c.decider = failed
		c.stop(Bypassed, 0, c.states[failed].ask.Err)
	case c.describes:
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

// fill makes the Requests of all policies, and reports whether one of them applies. ok is false if
// it has ended the request.
func (c *call) fill(r *http.Request) (applies, ok bool) {
	var cost uint64
	if c.CostFunc != nil {
		cost = c.CostFunc(r)
	}
	asked, shared := false, false // whether the keys of Config's Extractor exceed the client's
	several := false
	for i := range c.limits {
		s := &c.states[i]
		if s.keys != nil { // see call.reset
			s.keys = nil
		}
		if s.varies {
			s.choose(r)
			if s.ask.Exempt {
				continue
			}
			if c.keys != nil {
				c.keys.Lives(2 * s.Duration)
			}
		} else if c.mayRepeat {
			s.ask.Exempt = false
		}
		s.ask.Request.Cost = cost
		if s.shown.inFlight {
			s.ask.Request.Cost = 1
		}
		if s.Keys != nil {
			if !c.fillKeys(s, r) {
				return false, false
			}
			applies, several = applies || !s.ask.Exempt, several || len(s.keys) > 0
			continue
		}
		applies = true
		switch {
		case s.Extractor != nil:
			var err error
			s.own, err = s.key.appendKey(s.own[:0], r)
			if !c.fillOwnKey(s, r, err) {
				return false, false
			}
			continue
		case !asked && c.keys != nil:
			asked, shared = true, c.exceedsKeys(r, c.Extractor, c.key)
		}
		if shared {
			s.setSharedKey(c.client)
		} else {
			s.setKey(c.key)
		}
	}
	if several && !c.addKeys(r) {
		return false, false
	}
	if c.mayRepeat {
		c.limits.CountOnce()
	}
	if c.verdict != nil {
		c.verdict.Cost = cost
	} else if !applies && len(c.limits) > 0 {
		c.stop(Exempt, 0, nil)
	}
	return applies, c.verdict != nil || applies
}

// fillKeys sets the first of the keys of a policy with Keys, and keeps the others. It reports false
// if it has ended the request. Without a key the policy is exempt.
func (c *call) fillKeys(s *state, r *http.Request) bool {
	keys, err := s.Keys(r)
	switch {
	case err != nil:
		return c.fillOwnKey(s, r, err)
	case len(keys) == 0:
		s.ask.Exempt = true
		return true
	}
	s.own, s.keys = append(s.own[:0], keys[0]...), keys[1:]
	return c.fillOwnKey(s, r, nil)
}

// addKeys adds a limit for each further key of policies with Keys. It reports false if it has ended
// the request.
func (c *call) addKeys(r *http.Request) bool {
	for i := range c.policies {
		for j, key := range c.states[i].keys {
			s := c.states[i]
			if key == string(s.own) || slices.Contains(s.keys[:j], key) {
				continue
			}
			s.own, s.keys, s.keyLen = []byte(key), nil, 0
			c.limits, c.states = append(c.limits, c.limits[i]), append(c.states, s)
		}
	}
	for i := range c.states { // the limits may have moved
		s := &c.states[i]
		s.ask = &c.limits[i]
		if i >= len(c.policies) && !c.fillOwnKey(s, r, nil) {
			return false
		}
	}
	return true
}

// fillOwnKey sets the key of a policy that has one of its own, in s.own unless err has kept it from
// that. It reports false if it has ended the request, which has no such key, or one that is listed.
func (c *call) fillOwnKey(s *state, r *http.Request, err error) bool {
	if err == nil {
		err = c.checkKey(s.own)
	}
	if err != nil {
		c.stop(NoKey, http.StatusBadRequest, fmt.Errorf("policy %q: %w", s.Name, err))
		return false
	}
	if c.DenyList != nil {
		if entry, listed := c.DenyList.lookup(s.listedAs, s.own, netip.Addr{}); listed {
			c.key = append(c.key[:0], s.own...) // of the Decision
			c.stopListed(entry)
			return false
		}
	}
	s.setKey(s.own)
	key := s.own
	if s.listedAs != "" { // it is of another kind than those of Config's Extractor
		key = s.distinctKey()
	}
	if c.exceedsKeys(r, s.Extractor, key) {
		s.setSharedKey(c.client)
	}
	return true
}

// stopUndecided ends a request that a limit could not decide, and that is refused for it.
func (c *call) stopUndecided(ctx context.Context, err error) {
	for i := 0; i < len(c.states) && c.decider == none; i++ {
		m := c.states[i].ask
		failed := m.Err != nil && !m.Taken() // else it could not give back
		if failed && (ctx.Err() != nil || !c.bypasses(m.Err)) {
			c.decider, err = i, m.Err
		}
	}
	switch {
	case ctx.Err() != nil:
		c.stop(Canceled, http.StatusServiceUnavailable, err)
	case errors.Is(err, weir.ErrID):
		c.stop(NoKey, http.StatusBadRequest, err)
	default:
		c.stop(Failed, http.StatusServiceUnavailable, err)
	}
}
