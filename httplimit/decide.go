package httplimit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/weirgo/weir"
)

// call is what one request needs while it is decided. It is pooled: a Strategy does not keep its Request.
type call struct {
	outcome Outcome
	status  int // see Decision.Status
	err     error
	until   time.Time // when the caller's listing ends
	asked   []asked   // one for each policy
	decider int       // index in asked of the policy that the Decision speaks of, or none
	jitter  int64     // seconds
	taken   bool      // a policy admitted the request and has not given back
	key     []byte    // buffer: the extracted key
	line    []byte    // buffer: a field
	last    string    // the RateLimit field of the last request
}

const none = -1

// asked is what one policy was asked and said.
type asked struct {
	*policy
	req      weir.Request
	res      weir.Result
	answered bool // res is the Strategy's; false: it was not asked, or could not decide
	returned bool // what it took was given back
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

// decide finds out who sent r and asks the deny list and the policies, in this order, as far as needed. It leaves what
// it found in c.
func (m *middleware) decide(c *call, r *http.Request) {
	c.reset()
	var err error
	if c.key, err = appendKey(c.key[:0], m.Extractor, r); err == nil && len(c.key) > m.keyRoom {
		err = tooLong("the key", len(c.key))
	}
	if err != nil {
		c.end(NoKey, http.StatusBadRequest, err)
		return
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
	m.ask(c, r)
}

// ask asks the policies in turn. The first that denies ends it, and those before it give back what they took.
func (m *middleware) ask(c *call, r *http.Request) {
	var cost uint64
	if m.CostFunc != nil {
		cost = m.CostFunc(r)
	}
	for i := range c.asked {
		a := &c.asked[i]
		a.fill(&a.req, r, c.key, cost)
	}
	ctx := r.Context()
	bypassed := -1
	for i := range c.asked {
		a := &c.asked[i]
		err := a.run(ctx, &a.req, &a.res)
		a.answered = err == nil
		switch {
		case err == nil && a.res.Allowed():
			c.taken = true
		case err == nil:
			m.endDenied(ctx, c, i)
			return
		case m.FailOpen && ctx.Err() == nil && !errors.Is(err, weir.ErrID):
			m.logFailure(ctx, a.Name, c.caller(), err)
			c.err = err
			bypassed = i
		default:
			m.giveBack(ctx, c, i)
			m.endUndecided(ctx, c, i, err)
			return
		}
	}
	if bypassed >= 0 {
		c.decider = bypassed
		c.end(Bypassed, 0, c.err)
		return
	}
	c.decider = c.tightest()
}

// endDenied ends a request that the i-th policy denied.
func (m *middleware) endDenied(ctx context.Context, c *call, i int) {
	m.giveBack(ctx, c, i)
	m.peekRest(ctx, c, i+1)
	c.jitter = jitterSeconds(m.Jitter)
	c.decider = c.strictest()
	c.end(Denied, m.DeniedStatus, nil)
}

// endUndecided ends a request that the i-th policy could not decide, and that does not pass for that.
func (m *middleware) endUndecided(ctx context.Context, c *call, i int, err error) {
	c.decider = i
	switch {
	case ctx.Err() != nil:
		c.end(Canceled, http.StatusServiceUnavailable, err)
	case errors.Is(err, weir.ErrID):
		// The key is of the client's making. To fail open here is to let him walk through by sending a bad one.
		c.end(NoKey, http.StatusBadRequest, err)
	default:
		m.logFailure(ctx, c.asked[i].Name, c.caller(), err)
		c.end(Failed, http.StatusServiceUnavailable, err)
	}
}

// giveBack refunds what the policies before the n-th took.
func (m *middleware) giveBack(ctx context.Context, c *call, n int) {
	for i := range n {
		a := &c.asked[i]
		if !a.answered || !a.res.Allowed() || a.returned {
			continue
		}
		// The client may have gone, which does not make what was taken his.
		if err := a.refunder.Refund(context.WithoutCancel(ctx), &a.req, &a.res); err != nil {
			m.logFailure(ctx, a.Name, c.caller(), fmt.Errorf("refund: %w", err))
			continue
		}
		a.returned = true
	}
	c.taken = false
}

// peekRest looks at the policies from the n-th on, which a denial keeps from being asked: if one of them denies too, and
// for longer, the client should hear that.
func (m *middleware) peekRest(ctx context.Context, c *call, n int) {
	for i := n; i < len(c.asked); i++ {
		a := &c.asked[i]
		if a.peeker == nil {
			continue
		}
		res, err := a.peeker.Peek(ctx, &a.req)
		if err != nil || res == nil {
			continue // it was not asked to decide
		}
		a.res, a.answered, a.returned = *res, true, res.Allowed()
	}
}

func (c *call) reset() {
	for i := range c.asked {
		c.asked[i].answered, c.asked[i].returned = false, false
	}
	c.outcome, c.status, c.err = Admitted, 0, nil
	c.decider, c.jitter, c.taken = none, 0, false
}

func (c *call) end(o Outcome, status int, err error) {
	c.outcome, c.status, c.err = o, status, err
}

// caller returns the extracted key. Once a policy was asked it is the last part of a joined one: of a string that is
// there already.
func (c *call) caller() string {
	switch c.outcome {
	case NoKey:
		return ""
	case Listed:
		return string(c.key)
	}
	joined := c.asked[0].req.Key
	return joined[len(joined)-len(c.key):]
}

// report makes the Decision, for those who want it: most requests need none.
func (m *middleware) report(c *call) Decision {
	d := Decision{Outcome: c.outcome, Key: c.caller(), Status: c.status, Shadow: m.Shadow, Err: c.err}
	if c.outcome == Listed {
		d.Result = weir.Result{State: weir.Deny, ExpiresAt: c.until}
	}
	if c.decider == none {
		return d
	}
	a := &c.asked[c.decider]
	d.Policy, d.Limit, d.Duration, d.Cost = a.Name, a.req.Limit, a.req.Duration, a.cost()
	if a.answered {
		d.Result = a.res
	}
	return d
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

// tightest returns the policy with the least room left, the first of them if there are several.
func (c *call) tightest() int {
	best := 0
	for i := 1; i < len(c.asked); i++ {
		if c.asked[i].remaining() < c.asked[best].remaining() {
			best = i
		}
	}
	return best
}

// strictest returns the policy that denies for the longest. One denies.
func (c *call) strictest() int {
	best := -1
	for i := range c.asked {
		if !c.asked[i].denied() {
			continue
		}
		end := c.asked[i].res.ExpiresAt
		if end.IsZero() {
			return i
		}
		if best < 0 || end.After(c.asked[best].res.ExpiresAt) {
			best = i
		}
	}
	return best
}
