package rules

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/core/arith"
	"github.com/weirgo/weir/limits"
)

// Decide decides on a request. It returns [ErrRequest] for an invalid request, [ErrInFlight] for
// one that [Engine.Hold] decides, and otherwise the error of a strategy that failed. After an error
// nothing is counted, but costs that are known afterwards.
func (e *Engine) Decide(ctx context.Context, req *Request) (*Response, error) {
	resp := new(Response)
	if err := e.DecideInto(ctx, req, resp); err != nil {
		return nil, err
	}
	return resp, nil
}

// DecideInto is like Decide, but stores the result in resp and reuses its memory. After an error
// the contents of resp are undefined.
func (e *Engine) DecideInto(ctx context.Context, req *Request, resp *Response) error {
	c := e.calls.Get().(*call)
	defer e.calls.Put(c)
	return c.decide(ctx, e.state.Load(), req, resp, false)
}

// decide is DecideInto by the rules of st, and if holds is set Hold.
func (c *call) decide(
	ctx context.Context, st *state, req *Request, resp *Response, holds bool,
) error {
	c.state, c.denied = st, false
	if err := req.check(); err != nil {
		return err
	}
	resp.Statuses = slices.Grow(resp.Statuses[:0], len(req.Descriptors))[:len(req.Descriptors)]
	c.match(req, resp.Statuses)
	if err := c.checkInFlight(resp.Statuses, holds); err != nil {
		return err
	}
	if _, err := c.limits.Take(ctx, c.tolerates); err != nil {
		return err
	}
	c.denied = c.denies()
	if c.denied {
		_ = c.limits.Refund(ctx) // Lost has what could not be
	}
	resp.Lost = errors.Join(c.limits.Lost(), c.giveBack(ctx))
	c.report(resp.Statuses)
	resp.Shadowed = c.denied && c.engine.cfg.Shadow
	resp.Denied = c.denied && !resp.Shadowed
	return nil
}

// call is the state of one decision. Calls are pooled.
type call struct {
	engine    *Engine
	state     *state
	asks      []ask
	replaced  map[string]bool
	key       []byte
	limits    limits.Attempts       // one for each ask
	logs      map[listed][]weir.Hit // of giveBack: what is left of their entries
	denied    bool
	verdict   *httplimit.Verdict // of a Decider; nil: no client's keys are bounded
	tolerates func(error) bool   // nil: see limits.Attempts.Take
}

func newCall(e *Engine) *call { return &call{engine: e, replaced: make(map[string]bool)} }

// ask is the request of one descriptor to its strategy.
type ask struct {
	strategy *strategy // nil if there is nothing to count
	limit    *Limit
	held     *limits.Attempt // in limits; zero if there is nothing to count
	refunds  bool
	shadow   bool
	quota    bool
}

// match finds the limit of each descriptor.
func (c *call) match(req *Request, statuses []Status) {
	c.asks = slices.Grow(c.asks[:0], len(statuses))[:len(statuses)]
	c.limits = slices.Grow(c.limits[:0], len(statuses))[:len(statuses)]
	clear(c.replaced)
	d := c.state.set.domains[req.Domain]
	for i := range statuses {
		s, a := &statuses[i], &c.asks[i]
		*s, *a = Status{Reason: NoDomain}, ask{quota: c.engine.cfg.Quota, held: &c.limits[i]}
		*a.held = limits.Attempt{}
		if d == nil {
			continue
		}
		from := &req.Descriptors[i]
		if from.Override != nil {
			l := from.Override.limit()
			s.Limit, a.strategy = &l, c.state.fixed
		} else {
			c.matchRule(d, from, s, a)
		}
		if a.strategy == nil {
			continue
		}
		a.limit = s.Limit
		c.key = appendKey(c.key[:0], req.Domain, from.Entries, s.Rule)
		if c.verdict != nil && s.Rule != nil && a.limit.Requests > 0 {
			c.boundKey(s.Rule)
		}
		a.hold(string(c.key), req.hits(from), from.GiveBack, c.engine.cfg.CountDenied)
	}
	c.replace(statuses)
}

// boundKey replaces c.key, the key of a counter of r, by one that the further values of the client
// share in r, if the client uses too many.
func (c *call) boundKey(r *Rule) {
	client, shared := c.verdict.SharedKey(c.key, r.Limit.Period())
	if !shared {
		return
	}
	c.key = appendPart(c.key[:0], ':', r.Domain)
	c.key = appendPart(c.key, '+', r.Path) // the entry after a domain has another mark
	c.key = shorten(appendPart(c.key, '+', string(client)))
}

// hold holds the hits on key to the limit, which are counted even if they are denied where
// afterwards; what gives back is held to none. A limit of 0 denies peeks, too, and counts nothing.
func (a *ask) hold(key string, hits uint64, giveBack, afterwards bool) {
	l := a.limit
	*a.held = a.strategy.limit
	a.held.Request = weir.Request{Key: key, Limit: uint64(l.Requests), Duration: l.Period(),
		Cost: max(1, hits)}
	a.refunds = giveBack && hits > 0
	a.held.Advisory, a.held.Exempt = a.shadow || a.quota, a.refunds
	a.held.Look = hits == 0 && l.Requests > 0
	a.held.Afterwards = hits > 0 && !giveBack && l.Requests > 0 && (l.Afterwards || afterwards)
}

// matchRule finds the rule of a descriptor.
func (c *call) matchRule(d *domain, from *Descriptor, s *Status, a *ask) {
	r := d.match(from.Entries)
	s.Rule, s.Reason = r, NoRule
	if r == nil {
		return
	}
	for _, name := range r.Replaces {
		c.replaced[name] = true
	}
	if r.Limit.Unlimited {
		s.Reason, s.Remaining = Unlimited, math.MaxUint32
		return
	}
	s.Limit, a.strategy = &r.Limit, c.state.strategies[r.method]
	a.shadow, a.quota = r.Shadow, a.quota || r.Quota
}

// replace drops the rules that other rules of the request replace.
func (c *call) replace(statuses []Status) {
	if len(c.replaced) == 0 {
		return
	}
	for i := range statuses {
		s, a := &statuses[i], &c.asks[i]
		if a.strategy != nil && s.Rule != nil && c.replaced[s.Rule.Limit.Name] {
			*s = Status{Reason: Replaced, Rule: s.Rule}
			*a.held = limits.Attempt{}
			*a = ask{quota: c.engine.cfg.Quota, held: a.held}
		}
	}
}

// denies reports whether the request is denied: if a descriptor is over its limit and not in quota
// mode, or if all descriptors in quota mode are over.
func (c *call) denies() bool {
	quotas, over := 0, 0
	for i := range c.asks {
		a := &c.asks[i]
		counts := a.held.Denies() && !a.shadow
		if counts && !a.quota {
			return true
		}
		if a.quota {
			quotas++
			if counts {
				over++
			}
		}
	}
	return quotas > 0 && over == quotas
}

// report fills in the statuses.
func (c *call) report(statuses []Status) {
	var now time.Time
	for i := range c.asks {
		s, a := &statuses[i], &c.asks[i]
		if a.strategy == nil {
			continue
		}
		if now.IsZero() {
			now = c.engine.cfg.Now()
		}
		s.Reset = a.reset(now)
		switch {
		case a.held.Denies() && a.shadow:
			s.Reason = Shadowed
		case a.held.Denies():
			s.Reason = Over
		default:
			s.Reason = Within
			s.Remaining = a.held.Remaining()
		}
	}
}

// reset returns the time until the limit is reset.
func (a *ask) reset(now time.Time) time.Duration {
	switch {
	case !a.held.Result.ExpiresAt.IsZero():
		return max(0, a.held.Result.ExpiresAt.Sub(now))
	case a.limit.Algorithm == InFlight:
		return 0
	}
	period := a.held.Request.Duration
	if of := a.strategy.windows; of != nil {
		_, end := of.Window(now.Unix())
		return time.Unix(end, 0).Sub(now)
	}
	if a.limit.Algorithm != FixedWindow {
		return period
	}
	_, into := arith.FloorDiv(now.UnixNano(), int64(period))
	return period - time.Duration(into)
}
