package proxy

import (
	"fmt"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
	"github.com/weirgo/weir/cmd/weir/internal/serve/onredis"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/near"
)

// stores are where limits count: in this process, and on Redis.
type stores struct {
	limiter        *weir.Limiter
	redis          *onredis.Store // nil: limits are local
	denials, lease int            // see Config
}

// policy returns the middleware's policy for l.
func (s stores) policy(l rule.Rule) (httplimit.Policy, error) {
	strategy, err := s.strategy(l)
	if err != nil {
		return httplimit.Policy{}, fmt.Errorf("limit %s: %w", l.Name, err)
	}
	return policyOf(l, strategy), nil
}

// strategy returns the strategy of l: a local one, or a hybrid of it and its counterpart on Redis.
func (s stores) strategy(l rule.Rule) (weir.Strategy, error) {
	if s.redis != nil {
		return s.hybrid(l)
	}
	return rule.On(l, s.limiter)
}

// hybrid returns the strategy of l on Redis, with its local one for when Redis is down. The denial
// cache and the lease save round trips.
func (s stores) hybrid(l rule.Rule) (weir.Strategy, error) {
	primary, err := rule.On(l, s.redis)
	if err != nil {
		return nil, err
	}
	local, err := rule.On(share(s.redis, l), s.limiter)
	if err != nil {
		return nil, err
	}
	if s.denials > 0 {
		primary = near.NewDenials(primary, near.DenialsConfig{Size: s.denials})
	}
	if s.lease > 0 { // of a log and of tiers near passes on each request
		primary = near.NewLeases(primary, near.LeaseConfig{Block: s.lease})
	}
	return s.redis.Hybrid(l.Name, l.String(), primary, local)
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

// places is the limit on requests of one caller in flight, whose places all routes share.
const places = "in flight"

// setConcurrency sets the middleware's policy for requests of one caller in flight.
func setConcurrency(p *Proxy) (err error) {
	n := p.cfg.MaxInFlightPerClient
	if n == 0 {
		return nil
	}
	of := &p.concurrency
	*of = httplimit.Policy{Name: places, Limit: uint64(n), Strategy: p.limiter.InFlight()}
	if p.redis != nil {
		of.Strategy, err = p.redis.Hybrid(places, "", p.redis.InFlight(), of.Strategy)
	}
	title := limitTitle{places, fmt.Sprintf("%d at a time", n), places, uint64(n)}
	p.held.holdAll(&p.before().held, title, *of)
	return err
}
