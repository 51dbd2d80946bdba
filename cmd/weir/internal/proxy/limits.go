package proxy

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/rule"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/core/arith"
	"github.com/weirgo/weir/internal/core/wrap"
)

// policy returns the middleware's policy for l.
func (p *Proxy) policy(l rule.Rule) (httplimit.Policy, error) {
	strategy, err := p.strategy(l)
	if err != nil {
		return httplimit.Policy{}, fmt.Errorf("limit %s: %w", l.Name, err)
	}
	return p.policyOf(l, strategy), nil
}

// policyOf returns the middleware's policy for l by a strategy.
func (p *Proxy) policyOf(l rule.Rule, strategy weir.Strategy) httplimit.Policy {
	most, longest := bounds(l.Tiers)
	if l.Strategy == rule.Tiers {
		strategy = p.tiered(&tiered{backend: strategy.(backend), tiers: l.Tiers, slice: sliceOf(l.Tiers),
			most: most})
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
	p.inAll = new(routed)
	p.held = append(p.held, &heldTo{route: p.inAll, limit: fmt.Sprintf("%d at a time", n),
		counting: places, atOnce: uint64(n), policy: *of})
	return err
}

// bounds returns the highest Limit and the longest Duration.
func bounds(tiers []weir.Tier) (most uint64, longest time.Duration) {
	for _, t := range tiers {
		most, longest = max(most, t.Limit), max(longest, t.Duration)
	}
	return most, longest
}

// backend is implemented by all strategies of weir, redislimit and fallback.
type backend interface {
	weir.Strategy
	weir.Peeker
	weir.Refunder
}

// tiered reports several tiers as one policy. A strategy of tiers returns the count of the binding
// tier; compared with the limit of another tier, it would report a wrong remainder.
type tiered struct {
	backend
	tiers []weir.Tier
	slice time.Duration
	most  uint64 // the policy's Limit
}

// tiered returns t with what tells which part has decided.
func (p *Proxy) tiered(t *tiered) weir.Strategy {
	if f, ok := t.backend.(*fallback.Fallback); ok {
		return &hybridTiers{t, f}
	}
	return &localTiers{t, p.limiter}
}

// localTiers are tiers in this process.
type localTiers struct {
	*tiered
	limiter *weir.Limiter
}

// Limiter returns the one that counts.
func (t *localTiers) Limiter() *weir.Limiter { return t.limiter }

// hybridTiers are tiers on Redis, with local ones behind them.
type hybridTiers struct {
	*tiered
	of *fallback.Fallback
}

// Store implements weir.Batcher. Its calls go alone.
func (t *hybridTiers) Store() (any, weir.Strategy) { return t, t }

// Batch implements weir.Batcher, which names the source of a decision.
func (t *hybridTiers) Batch(ctx context.Context, op weir.Op, limits []*weir.Attempt) {
	for _, l := range limits {
		var res *weir.Result
		var by fallback.Source
		switch op {
		case weir.OpRun:
			res, by, l.Err = t.of.RunSource(ctx, &l.Request)
			l.Source, l.Undecided = by.String(), by == fallback.FromOnFail
			res = t.adjust(res, time.Now())
		case weir.OpPeek:
			res, l.Err = t.Peek(ctx, &l.Request)
		default:
			_, l.Err = wrap.Do(ctx, op, t.of, &l.Request, &l.Result)
		}
		if res != nil {
			l.Result = *res
		}
	}
}

// Run implements weir.Strategy.
func (t *tiered) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	res, err := t.backend.Run(ctx, r)
	return t.adjust(res, time.Now()), err
}

// Algorithm implements weir.Named.
func (t *tiered) Algorithm() string { return weir.NameOf(t.backend) }

// Peek implements weir.Peeker.
func (t *tiered) Peek(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	res, err := t.backend.Peek(ctx, r)
	return t.adjust(res, time.Now()), err
}

// adjust returns res with a count that leaves as much of the policy's Limit as the binding tier has
// left. A denial leaves nothing.
func (t *tiered) adjust(res *weir.Result, now time.Time) *weir.Result {
	if res == nil {
		return nil
	}
	adjusted := *res
	if adjusted.TotalRequests = t.most; res.Allowed() {
		limit := t.tier(res.ExpiresAt, now).Limit
		adjusted.TotalRequests -= limit - min(limit, res.TotalRequests)
	}
	return &adjusted
}

// tier returns the tier that an admission's count belongs to. ExpiresAt is that tier's Duration
// after the start of the current slice, and Durations differ by whole slices, so only one of them
// leads to a slice that contains now. It takes the nearest one, since Redis has its own clock.
func (t *tiered) tier(expires, now time.Time) weir.Tier {
	best, nearest := t.tiers[0], time.Duration(math.MaxInt64)
	for _, tier := range t.tiers {
		middle := expires.Add(t.slice/2 - tier.Duration)
		if away := middle.Sub(now).Abs(); away < nearest {
			best, nearest = tier, away
		}
	}
	return best
}

// sliceOf returns the slices that tiers are counted in: the greatest common divisor of their
// Durations.
func sliceOf(tiers []weir.Tier) (slice time.Duration) {
	for _, t := range tiers {
		slice = time.Duration(arith.GCD(int64(slice), int64(t.Duration)))
	}
	return slice
}
