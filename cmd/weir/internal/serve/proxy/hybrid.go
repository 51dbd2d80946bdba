package proxy

import (
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
	"github.com/weirgo/weir/cmd/weir/internal/serve/onredis"
	"github.com/weirgo/weir/fallback"
)

// OnFailNames are the values of --on-redis-failure.
var OnFailNames = []string{
	fallback.FailLocal: "local", fallback.FailOpen: "open", fallback.FailClosed: "closed",
}

// openRedis connects the limits to Redis.
func openRedis(p *Proxy) (*onredis.Store, error) {
	cfg := p.cfg.Redis
	cfg.Fallback.OnCall = p.watch.calls.OnCall
	cfg.Fallback.OnError = func(err error) { // in an outage each probe fails
		if dropped, ok := p.redisFailed.Allow(time.Now(), logEvery); ok {
			p.cfg.Log.Warn("redis failed", "error", err.Error(), "not_logged", dropped)
		}
	}
	return onredis.Open(cfg, p.cfg.Log)
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
