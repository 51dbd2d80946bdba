package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/weirgo/weir"
)

// call is the state of one request while it is decided. It is pooled: a Strategy does not keep its
// Request.
type call struct {
	outcome Outcome
	status  int // see Decision.Status
	err     error
	until   time.Time // when the caller's listing ends
	asked   []asked   // one for each policy
	decider int       // index in asked of the policy that the Decision describes, or none
	jitter  int64     // seconds
	taken   bool      // a policy admitted the request and has not been refunded
	slot    *slot     // nil: requests in flight are not bounded
	key     []byte    // buffer: the extracted key
	client  []byte    // buffer: the client's address or prefix
	shared  []byte    // buffer: the key that the client's keys beyond MaxKeysPerClient share, or empty
	line    []byte    // buffer: a field
	last    string    // the RateLimit field of the last request
}

const none = -1

// asked is one policy's request and answer.
type asked struct {
	*policy
	req      weir.Request
	probe    weir.Request // for forecast
	res      weir.Result
	source   Source    // set by run
	more     time.Time // when more of the limit is available; see middleware.forecast
	exempt   bool      // LimitFunc returned NoLimit
	answered bool      // res is the Strategy's; false: it did not run, or could not decide
	returned bool      // the cost was refunded
}

// remaining returns how much of the limit is left.
func (a *asked) remaining() uint64 {
	total := a.res.TotalRequests
	if a.returned {
		total -= min(total, a.cost())
	}
	return a.req.Limit - min(a.req.Limit, total)
}

func (a *asked) denied() bool { return a.answered && !a.res.Allowed() }

func (a *asked) cost() uint64 { return max(a.req.Cost, 1) }

// decide finds the caller of r and consults the deny list, the bounds on requests in flight and the
// policies, in this order, as far as needed. It leaves the decision in c.
func (m *middleware) decide(c *call, r *http.Request) {
	c.reset()
	preflight := !m.CountPreflights && isPreflight(r)
	var err error
	if c.key, err = appendKey(c.key[:0], m.Extractor, r); err == nil && len(c.key) > m.keyRoom {
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
	m.ask(c, r)
}

// ask runs the policies in turn. The first denial ends it, and the policies before it refund what
// they took.
func (m *middleware) ask(c *call, r *http.Request) {
	if len(c.asked) == 0 {
		return
	}
	if !m.fill(c, r) {
		c.end(Exempt, 0, nil)
		return
	}
	ctx := r.Context()
	bypassed := none
	for i := range c.asked {
		a := &c.asked[i]
		if a.exempt {
			continue
		}
		err := a.run(ctx)
		a.answered = err == nil
		switch {
		case err == nil && a.res.Allowed():
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
	for i := range c.asked {
		a := &c.asked[i]
		a.fill(r, c.key, c.shared, cost)
		applies = applies || !a.exempt
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

// isMistake reports whether err says that the program asks for something impossible. No outage
// passes by, so failing open would mean no limit at all.
func isMistake(err error) bool {
	return errors.Is(err, weir.ErrScale) || errors.Is(err, weir.ErrLimit) || errors.Is(err, errors.ErrUnsupported) ||
		errors.Is(err, errNoResult)
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
		a := &c.asked[i]
		if !a.answered || !a.res.Allowed() || a.returned {
			continue
		}
		// Refund even if the client disconnected.
		if err := a.refunder.Refund(context.WithoutCancel(ctx), &a.req, &a.res); err != nil {
			m.logFailure(ctx, c, i, fmt.Errorf("refund: %w", err))
			continue
		}
		a.returned = true
	}
	c.taken = false
}

// peekRest peeks at the policies from the n-th on, which did not run because of a denial: if one of
// them denies for longer, Retry-After should say so.
func (m *middleware) peekRest(ctx context.Context, c *call, n int) {
	for i := n; i < len(c.asked); i++ {
		a := &c.asked[i]
		if a.peeker == nil || a.exempt {
			continue
		}
		res, err := a.peeker.Peek(ctx, &a.req)
		if err != nil || res == nil {
			continue // it did not have to decide
		}
		a.res, a.answered, a.returned = *res, true, res.Allowed()
		a.source = SourceStrategy
	}
}

func (c *call) reset() {
	for i := range c.asked {
		a := &c.asked[i]
		a.answered, a.returned, a.exempt, a.more, a.source = false, false, false, time.Time{}, SourceNone
	}
	c.outcome, c.status, c.err = Admitted, 0, nil
	c.decider, c.jitter, c.taken = none, 0, false
	c.shared = c.shared[:0]
}

func (c *call) end(o Outcome, status int, err error) {
	c.outcome, c.status, c.err = o, status, err
}

// caller returns the extracted key. After a policy ran it is the last part of a joined key, a
// string that exists already.
func (c *call) caller() string {
	switch {
	case c.outcome == NoKey:
		return ""
	case c.decider == none || len(c.shared) > 0:
		return string(c.key)
	}
	joined := c.asked[c.decider].req.Key
	return joined[len(joined)-len(c.key):]
}

// tightest returns the policy with the least room left, the first of them if there are several. One
// applies.
func (c *call) tightest() int {
	best := none
	for i := range c.asked {
		a := &c.asked[i]
		if a.exempt {
			continue
		}
		if best == none || a.remaining() < c.asked[best].remaining() {
			best = i
		}
	}
	return best
}

// strictest returns the policy that denies for the longest. One denies.
func (c *call) strictest() int {
	best := none
	for i := range c.asked {
		if !c.asked[i].denied() {
			continue
		}
		end := c.asked[i].res.ExpiresAt
		if end.IsZero() {
			return i
		}
		if best == none || end.After(c.asked[best].res.ExpiresAt) {
			best = i
		}
	}
	return best
}

// violated returns the names of the policies that deny.
func (c *call) violated() []string {
	var names []string
	for i := range c.asked {
		if c.asked[i].denied() {
			names = append(names, c.asked[i].Name)
		}
	}
	return names
}

// isPreflight reports whether r is a CORS preflight request (Fetch standard, section 3.3.2).
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && len(r.Header["Origin"]) > 0 && len(r.Header["Access-Control-Request-Method"]) > 0
}
