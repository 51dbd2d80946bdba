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
		return c.shared, errors.Join(err, c.refund(ctx))
	}
	denied := c.denied()
	if denied {
		resp.Err = c.refund(ctx)
	}
	resp.Err = errors.Join(resp.Err, c.settle(ctx))
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
}

// ask is the request of one descriptor to its strategy.
type ask struct {
	strategy *strategy // nil if there is nothing to count
	limit    *Limit
	req      weir.Request
	res      weir.Result
	mode     mode
	over     bool
	charged  bool // Run counted the hits, and they were not refunded
	shadow   bool
	quota    bool
	used     uint64 // the count, including this ask's hits only if charged
}

// mode is the operation of an ask.
type mode uint8

const (
	take mode = iota // count the hits
	look             // only read the count
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
		a.mode = modeOf(from, req.hits(from))
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
}

func modeOf(d *Descriptor, hits uint64) mode {
	switch {
	case hits == 0:
		return look
	case d.GiveBack:
		return refund
	}
	return take
}

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

// run makes the requests in order. Once one denies, it only reads the counts of the others, since a
// denied request counts nowhere.
func (c *call) run(ctx context.Context) error {
	certain := false
	for i := range c.asks {
		a := &c.asks[i]
		if a.strategy == nil || a.mode == refund {
			continue
		}
		if err := a.run(ctx, certain); err != nil {
			return err
		}
		certain = certain || a.over && !a.shadow && !a.quota
	}
	return nil
}

func (a *ask) run(ctx context.Context, certain bool) error {
	switch {
	case a.limit.Requests == 0:
		a.over = true
		return nil
	case a.mode == look:
		return a.peek(ctx)
	case certain:
		res, err := a.strategy.peeker.Peek(ctx, &a.req)
		if err != nil {
			return err
		}
		a.res, a.over = *res, !res.Allowed()
		a.used = a.res.TotalRequests
		if res.Allowed() {
			a.used -= min(a.used, a.req.Cost)
		}
		return nil
	}
	if err := a.strategy.run(ctx, &a.req, &a.res); err != nil {
		return err
	}
	a.over = !a.res.Allowed()
	a.charged = !a.over
	a.used = a.res.TotalRequests
	return nil
}

var errNoResult = errors.New("rules: the strategy returned neither a result nor an error")

func (s *strategy) run(ctx context.Context, req *weir.Request, res *weir.Result) (err error) {
	if s.direct != nil {
		*res, err = s.direct.Decide(ctx, req)
		return err
	}
	answer, err := s.Run(ctx, req)
	switch {
	case err != nil:
		return err
	case answer == nil:
		return errNoResult
	}
	*res = *answer
	return nil
}

// peek reads the count. A strategy answers whether one more hit would pass; here only a count above
// the limit is over it.
func (a *ask) peek(ctx context.Context) error {
	res, err := a.strategy.peeker.Peek(ctx, &a.req)
	if err != nil {
		return err
	}
	a.res, a.used = *res, res.TotalRequests
	if res.Allowed() {
		a.used -= min(a.used, a.req.Cost)
	}
	a.over = a.used > a.limit.capacity()
	return nil
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

// refund refunds all hits that were counted, even if the context has ended.
func (c *call) refund(ctx context.Context) error {
	var errs []error
	for i := range c.asks {
		a := &c.asks[i]
		if !a.charged {
			continue
		}
		if err := a.strategy.refunder.Refund(context.WithoutCancel(ctx), &a.req, &a.res); err != nil {
			errs = append(errs, err)
			continue
		}
		a.charged = false
		a.used -= min(a.used, a.req.Cost)
	}
	return errors.Join(errs...)
}

// settle raises the counts of descriptors that are over their limits, and processes descriptors
// that give hits back.
func (c *call) settle(ctx context.Context) error {
	var errs []error
	for i := range c.asks {
		a := &c.asks[i]
		switch {
		case a.strategy == nil || a.limit.Requests == 0:
		case a.mode == refund:
			errs = append(errs, a.refund(ctx, c.engine.cfg.Now()))
		case a.over && a.raises():
			errs = append(errs, a.raise(context.WithoutCancel(ctx)))
		}
	}
	return errors.Join(errs...)
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
			s.Remaining = a.limit.capacity() - min(a.limit.capacity(), a.used)
		}
	}
}

// reset returns the time until the limit is reset.
func (a *ask) reset(now time.Time) time.Duration {
	if !a.res.ExpiresAt.IsZero() {
		return max(0, a.res.ExpiresAt.Sub(now))
	}
	period := a.req.Duration
	if a.limit.Algorithm != FixedWindow {
		return period
	}
	return period - time.Duration(mod(now.UnixNano(), int64(period)))
}

func mod(a, b int64) int64 { return (a%b + b) % b }
