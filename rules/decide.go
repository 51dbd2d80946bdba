package rules

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/weirgo/weir"
)

// Decide decides on a request. It returns [ErrNoDomain], [ErrNoDescriptors] or [ErrOverride] for an
// invalid request, and otherwise the error of a strategy that failed. After an error nothing is
// counted.
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
	_, err := e.decide(ctx, req, resp, bound{})
	return err
}

// decide is DecideInto with the counters of the rules held to b. It reports whether some of the
// client's values share a counter.
func (e *Engine) decide(ctx context.Context, req *Request, resp *Response, b bound) (shared bool, err error) {
	if err := req.check(); err != nil {
		return false, err
	}
	resp.Code, resp.Err = OK, nil
	resp.Statuses = slices.Grow(resp.Statuses[:0], len(req.Descriptors))[:len(req.Descriptors)]
	c := e.calls.Get().(*call)
	defer e.calls.Put(c)
	c.engine, c.state, c.bound, c.shared = e, e.state.Load(), b, false
	c.match(req, resp.Statuses)
	if err := c.run(ctx); err != nil {
		return c.shared, err
	}
	denied := c.denied()
	if denied {
		_ = c.takes.Refund(ctx) // Lost has what could not be
	}
	resp.Err = errors.Join(c.takes.Lost(), c.reports.Charge(ctx), c.giveBack(ctx))
	c.report(resp.Statuses)
	if resp.Shadowed = denied && e.cfg.Shadow; denied && !resp.Shadowed {
		resp.Code = OverLimit
	}
	return c.shared, nil
}

// call is the state of one decision. Calls are pooled.
type call struct {
	engine   *Engine
	state    *state
	asks     []ask
	replaced map[string]bool
	key      []byte
	bound    bound
	client   []byte // buffer: bound.client
	shared   bool   // a key was replaced by boundKey
	repeated bool   // two descriptors have one count

	takes   weir.Limits // all or nothing
	looks   weir.Limits // peeks
	reports weir.Limits // of costs that have arisen, which count in full
}

// ask is the request of one descriptor to its strategy.
type ask struct {
	strategy *strategy // nil if there is nothing to count
	limit    *Limit
	req      weir.Request
	held     *weir.Limit // in the list of its mode; nil if the limit is 0 or hits are given back
	place    int         // of held in the list
	mode     mode
	over     bool
	shadow   bool
	quota    bool
}

// mode is the operation of an ask.
type mode uint8

const (
	take   mode = iota // count the hits if all limits admit them
	look               // only read the count
	report             // count the hits
	refund
)

// match finds the limit of each descriptor.
func (c *call) match(req *Request, statuses []Status) {
	c.asks = slices.Grow(c.asks[:0], len(statuses))[:len(statuses)]
	clear(c.replaced)
	d := c.state.set.domains[req.Domain]
	for i := range statuses {
		s, a := &statuses[i], &c.asks[i]
		*s, *a = Status{Code: OK, Reason: NoDomain}, ask{quota: c.engine.cfg.Quota}
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
		a.mode = c.modeOf(from, req.hits(from), a.limit)
		c.key = appendKey(c.key[:0], req.Domain, from.Entries, s.Rule)
		if c.bound.keys != nil && s.Rule != nil && a.limit.Requests > 0 {
			c.boundKey(s.Rule)
		}
		a.req = weir.Request{
			Key:      string(c.key),
			Limit:    uint64(a.limit.Requests),
			Duration: a.limit.Period(),
			Cost:     max(1, req.hits(from)),
		}
	}
	c.replace(statuses)
	c.hold()
}

func (c *call) modeOf(d *Descriptor, hits uint64, l *Limit) mode {
	switch {
	case hits == 0:
		return look
	case d.GiveBack:
		return refund
	case l.Afterwards, c.engine.cfg.CountDenied:
		return report
	}
	return take
}

// hold puts each ask that a strategy decides on into the list of its mode.
func (c *call) hold() {
	lists := [...]*weir.Limits{take: &c.takes, look: &c.looks, report: &c.reports}
	for _, list := range lists {
		*list = slices.Grow((*list)[:0], len(c.asks)) // so that held stays where it is
	}
	c.repeated = false
	for i := range c.asks {
		a := &c.asks[i]
		switch {
		case a.strategy == nil || a.mode == refund:
			continue
		case a.limit.Requests == 0:
			a.over = true
			continue
		}
		for j := range i {
			c.repeated = c.repeated || c.asks[j].strategy == a.strategy && c.asks[j].req.Key == a.req.Key
		}
		list := lists[a.mode]
		a.place = len(*list)
		*list = append(*list, a.strategy.limit)
		a.held = &(*list)[len(*list)-1]
		a.held.Request = a.req
		a.held.Advisory = a.mode == report || !a.binds()
	}
}

// binds reports whether the ask alone can deny the request.
func (a *ask) binds() bool { return !a.shadow && !a.quota }

// matchRule finds the rule of a descriptor.
func (c *call) matchRule(d *domain, from *Descriptor, s *Status, a *ask) {
	r := d.match(from.Entries)
	s.Rule, s.Reason = r, NoRule
	if r == nil {
		return
	}
	for _, name := range r.Replaces {
		if c.replaced == nil {
			c.replaced = make(map[string]bool)
		}
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
			*s = Status{Code: OK, Reason: Replaced, Rule: s.Rule}
			*a = ask{quota: c.engine.cfg.Quota}
		}
	}
}

// run has the strategies decide. After an error nothing is counted, but what is reported on one count
// in several descriptors.
func (c *call) run(ctx context.Context) error {
	if err := c.measure(ctx); err != nil {
		return err
	}
	c.judge()
	decide := func(ctx context.Context) error { _, err := c.takes.Take(ctx, nil); return err }
	if slices.ContainsFunc(c.asks, func(a ask) bool { return a.over && a.binds() }) {
		decide = c.takes.Peek // a denied request takes nothing
	}
	if err := decide(ctx); err != nil {
		return errors.Join(err, c.reports.Refund(ctx))
	}
	c.judge()
	return nil
}

// measure reads the counts of the looks, and counts the reports that are within their limits; the others
// are charged when the request is decided. Where descriptors have one count it does so in their order.
func (c *call) measure(ctx context.Context) error {
	if !c.repeated {
		if err := c.looks.Peek(ctx); err != nil {
			return err
		}
		_, err := c.reports.Take(ctx, nil)
		return err
	}
	for i := range c.asks {
		var err error
		switch a := &c.asks[i]; {
		case a.held == nil:
		case a.mode == look:
			err = c.looks[a.place : a.place+1].Peek(ctx)
		case a.mode == report:
			one := c.reports[a.place : a.place+1]
			if _, err = one.Take(ctx, nil); err == nil {
				err = one.Charge(ctx)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// judge finds out which asks are over their limits.
func (c *call) judge() {
	for i := range c.asks {
		a := &c.asks[i]
		switch {
		case a.held == nil || !a.held.Decided():
		case a.mode == look: // a strategy says whether one more hit would pass; here that one may be over
			a.over = a.used() > a.limit.capacity()
		default:
			a.over = a.held.Denies()
		}
	}
}

// used returns the count, with the hits of the ask if they are counted.
func (a *ask) used() uint64 {
	if a.held == nil {
		return 0
	}
	return a.held.Result.TotalRequests
}

// denied reports whether the request is denied: if a descriptor is over its limit and not in quota
// mode, or if all descriptors in quota mode are over.
func (c *call) denied() bool {
	quotas, over := 0, 0
	for i := range c.asks {
		a := &c.asks[i]
		counts := a.over && !a.shadow
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
		case a.over && a.shadow:
			s.Reason = Shadowed
		case a.over:
			s.Reason, s.Code = Over, OverLimit
		default:
			s.Reason = Within
			s.Remaining = a.limit.capacity() - min(a.limit.capacity(), a.used())
		}
	}
}

// reset returns the time until the limit is reset.
func (a *ask) reset(now time.Time) time.Duration {
	if a.held != nil && !a.held.Result.ExpiresAt.IsZero() {
		return max(0, a.held.Result.ExpiresAt.Sub(now))
	}
	period := a.req.Duration
	if a.limit.Algorithm != FixedWindow {
		return period
	}
	return period - time.Duration(mod(now.UnixNano(), int64(period)))
}

func mod(a, b int64) int64 { return (a%b + b) % b }
