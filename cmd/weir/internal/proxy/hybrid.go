package proxy

import (
	"fmt"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/onredis"
	"github.com/weirgo/weir/cmd/weir/internal/rule"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/near"
)

// OnFailNames are the values of --on-redis-failure.
var OnFailNames = []string{
	fallback.FailLocal: "local", fallback.FailOpen: "open", fallback.FailClosed: "closed",
}

// openRedis connects the limits to Redis.
func (p *Proxy) openRedis() (err error) {
	cfg := p.cfg.Redis
	cfg.Fallback.OnCall = p.watch.calls.OnCall
	cfg.Fallback.OnError = func(err error) { // in an outage each probe fails
		if dropped, ok := p.redisFailed.Allow(time.Now(), logEvery); ok {
			p.cfg.Log.Warn("redis failed", "error", err.Error(), "not_logged", dropped)
		}
	}
	p.redis, err = onredis.Open(cfg, p.cfg.Log)
	return err
}

// hybrid returns the strategy of l on Redis, with its local one for when Redis is down. The denial
// cache and the lease save round trips.
func (p *Proxy) hybrid(l rule.Rule) (weir.Strategy, error) {
	primary, err := onRedis(p.redis, l)
	if err != nil {
		return nil, err
	}
	local, _, err := share(p.redis, l).On(p.limiter)
	if err != nil {
		return nil, err
	}
	if p.cfg.Denials > 0 {
		primary = near.Denials(primary, near.DenialsConfig{Size: p.cfg.Denials})
	}
	if p.cfg.Lease > 0 { // of a log and of tiers near passes on each request
		primary = near.Lease(primary, near.LeaseConfig{Block: p.cfg.Lease})
	}
	return p.redis.Hybrid(l.Name, l.String(), primary, local)
}

// onRedis returns l's strategy on s.
func onRedis(s *onredis.Store, l rule.Rule) (weir.Strategy, error) {
	switch l.Strategy {
	case rule.Fixed:
		return s.FixedWindow(), nil
	case rule.Sliding:
		return s.SlidingWindow(), nil
	case rule.Log:
		return s.SlidingLog(), nil
	case rule.Token:
		return s.TokenBucket(l.Burst), nil
	case rule.Tiers:
		return s.Tiers(l.Tiers...)
	case rule.Calendar:
		return s.Calendar(l.Unit, l.Zone), nil
	}
	return nil, fmt.Errorf("strategy %s makes requests wait in this process, which Redis cannot; "+
		"choose another with --redis", l.Strategy)
}

// share returns l with this instance's part of the limits that the Request does not carry: the
// tiers' limits and the burst.
func share(s *onredis.Store, l rule.Rule) rule.Rule {
	part := l
	part.Burst = s.Share(l.Burst)
	if l.Strategy == rule.Tiers {
		part.Tiers = make([]weir.Tier, len(l.Tiers))
		for i, t := range l.Tiers {
			part.Tiers[i] = weir.Tier{Limit: s.Share(t.Limit), Duration: t.Duration}
		}
	}
	return part
}
