package proxy

import (
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
	primary, err := rule.On(l, p.redis)
	if err != nil {
		return nil, err
	}
	local, err := rule.On(share(p.redis, l), p.limiter)
	if err != nil {
		return nil, err
	}
	if p.cfg.Denials > 0 {
		primary = near.NewDenials(primary, near.DenialsConfig{Size: p.cfg.Denials})
	}
	if p.cfg.Lease > 0 { // of a log and of tiers near passes on each request
		primary = near.NewLeases(primary, near.LeaseConfig{Block: p.cfg.Lease})
	}
	return p.redis.Hybrid(l.Name, l.String(), primary, local)
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
