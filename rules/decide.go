package rules

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/core/arith"
	"github.com/weirgo/weir/internal/core/bounds"
	"github.com/weirgo/weir/limits"
)

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
	verdict   *httplimit.Consultation // of a Decider; nil: no client's keys are bounded
	tolerates func(error) bool        // nil: see limits.Attempts.Take
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
	a.held.Op.Request = weir.Request{Key: key, Limit: uint64(l.Requests), Duration: l.Period(),
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

// giveBack returns the hits of descriptors that give them back, and peeks at what is left.
func (c *call) giveBack(ctx context.Context) error {
	var errs []error
	defer func() { c.logs = nil }()
	for i := range c.asks {
		a := &c.asks[i]
		if !a.refunds || a.limit.Requests == 0 {
			continue
		}
		errs = append(errs, c.refund(ctx, a, c.engine.cfg.Now()))
		a.held.Exempt, a.held.Look, a.held.Advisory = false, true, true
		_, err := c.limits[i:i+1].Take(ctx, nil)
		errs = append(errs, err)
		a.held.Op.Result.State = weir.Allow // what gives back is never over
	}
	return errors.Join(errs...)
}

// refund returns a's hits to its count, but at most as many as are counted.
func (c *call) refund(ctx context.Context, a *ask, now time.Time) error {
	taken, err := a.lastTaken(ctx, now)
	if err != nil {
		return err
	}
	req := a.held.Op.Request
	if a.limit.Algorithm == TokenBucket {
		req.Cost = min(req.Cost, a.limit.capacity())
	} else {
		req.Limit = max(req.Limit, req.Cost) // a strategy refuses to refund more than the limit
	}
	switch {
	case a.strategy.can(weir.OpHits):
		return c.refundEntries(ctx, a, req)
	case a.limit.Algorithm == SlidingLog:
		return fmt.Errorf("rules: %s lists no entries to give back: %w", a.strategy.About(),
			errors.ErrUnsupported)
	}
	return a.strategy.do(ctx, &weir.Op{Verb: weir.OpReturn, Request: req, Result: *taken})
}

// refundEntries refunds a's hits to a log, the newest entries first. Of a log that a request gives
// back to more than once, the entries are listed once.
func (c *call) refundEntries(ctx context.Context, a *ask, req weir.Request) (err error) {
	of := listed{a.strategy, req.Key, req.Duration}
	hits, ok := c.logs[of]
	if !ok {
		op := &weir.Op{Verb: weir.OpHits, Request: req}
		err = a.strategy.do(ctx, op)
		hits = op.Hits
	}
	left := req.Cost
	for err == nil && len(hits) > 0 && left > 0 {
		last := &hits[len(hits)-1]
		req.Cost = min(left, last.Cost)
		left -= req.Cost
		err = a.strategy.do(ctx, &weir.Op{Verb: weir.OpReturn, Request: req, Result: weir.Result{
			State: weir.Allow, ExpiresAt: last.At.Add(req.Duration),
		}})
		last.Cost -= req.Cost
		if last.Cost == 0 {
			hits = hits[:len(hits)-1]
		}
	}
	if c.logs == nil {
		c.logs = make(map[listed][]weir.Hit)
	}
	c.logs[of] = hits
	return err
}

// checkInFlight returns ErrInFlight if a request would take a place, and holds is not set, or gives
// one back.
func (c *call) checkInFlight(statuses []Status, holds bool) error {
	for i := range c.asks {
		a := &c.asks[i]
		if a.strategy != nil && a.limit.Algorithm == InFlight && (a.refunds || !holds && !a.held.Look) {
			return fmt.Errorf("rules: %s: %w", statuses[i].Rule.Path, ErrInFlight)
		}
	}
	return nil
}

// places returns the places that the request has taken.
func (c *call) places() (held []*weir.Held) {
	for i := range c.limits {
		if place := c.limits[i].TakeHeld(); place != nil {
			held = append(held, place)
		}
	}
	return held
}

// reset returns the time until the limit is reset.
func (a *ask) reset(now time.Time) time.Duration {
	switch {
	case !a.held.Op.Result.ExpiresAt.IsZero():
		return max(0, a.held.Op.Result.ExpiresAt.Sub(now))
	case a.limit.Algorithm == InFlight:
		return 0
	}
	period := a.held.Op.Request.Duration
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

// lastTaken returns a Result of the current period, for Refund.
func (a *ask) lastTaken(ctx context.Context, now time.Time) (*weir.Result, error) {
	if a.limit.Algorithm == TokenBucket {
		return &weir.Result{State: weir.Allow, ExpiresAt: now.Add(bounds.MaxDuration)}, nil
	}
	req := a.held.Op.Request
	req.Cost, req.Limit = 1, ample
	op := &weir.Op{Verb: weir.OpPeek, Request: req}
	taken, err := &op.Result, a.strategy.do(ctx, op)
	if err != nil || taken.Allowed() {
		return taken, err
	}
	taken.State = weir.Allow // a fixed window ends at ExpiresAt of a denial, too
	if a.limit.Algorithm == SlidingWindow {
		_, into := arith.FloorDiv(now.UnixNano(), int64(req.Duration))
		taken.ExpiresAt = now.Add(2*req.Duration - time.Duration(into))
	}
	return taken, nil
}

// listed is a log whose entries a request has listed.
type listed struct {
	strategy *strategy
	key      string
	duration time.Duration
}

// ample is a limit that only a count reaches that is as high as its store can hold. A window does
// not store the limit with its count, so a request with this limit reads the same count.
const ample = math.MaxInt64
