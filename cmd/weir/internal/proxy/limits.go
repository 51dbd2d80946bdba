package proxy

import (
	"cmp"
	"fmt"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/rule"
	"github.com/weirgo/weir/httplimit"
)

// policy returns the middleware's policy for l.
func (p *Proxy) policy(l rule.Rule) (httplimit.Policy, error) {
	strategy, err := p.strategy(l)
	if err != nil {
		return httplimit.Policy{}, fmt.Errorf("limit %s: %w", l.Name, err)
	}
	return policyOf(l, strategy), nil
}

// policyOf returns the middleware's policy for l by a strategy.
func policyOf(l rule.Rule, strategy weir.Strategy) httplimit.Policy {
	var most uint64
	var longest time.Duration
	for _, t := range l.Tiers {
		most, longest = max(most, t.Limit), max(longest, t.Duration)
	}
	return httplimit.Policy{Name: l.Name, Limit: most, Duration: longest, DenyAll: most == 0,
		Strategy: strategy}
}

// strategy returns the strategy of l: a local one, or a hybrid of it and its counterpart on Redis.
func (p *Proxy) strategy(l rule.Rule) (weir.Strategy, error) {
	if p.redis != nil {
		return p.hybrid(l)
	}
	return rule.On(l, p.limiter)
}

// places is the limit on requests of one caller in flight, whose places all routes share.
const places = "in flight"

// setConcurrency sets the middleware's policy for requests of one caller in flight.
func (p *Proxy) setConcurrency() (err error) {
	n := p.cfg.MaxInFlightPerClient
	if n == 0 {
		return nil
	}
	of := &p.concurrency
	*of = httplimit.Policy{Name: places, Limit: uint64(n), Strategy: p.limiter.InFlight()}
	if p.redis != nil {
		of.Strategy, err = p.redis.Hybrid(places, "", p.redis.InFlight(), of.Strategy)
	}
	p.inAll = cmp.Or(p.before().inAll, new(routed))
	title := limitTitle{places, fmt.Sprintf("%d at a time", n), places, uint64(n)}
	p.holdTo(&heldTo{limitTitle: title, route: p.inAll, policy: *of})
	return err
}
