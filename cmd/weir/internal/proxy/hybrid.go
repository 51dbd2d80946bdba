package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/onredis"
	"github.com/weirgo/weir/cmd/weir/internal/rule"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/throttle"
	"github.com/weirgo/weir/near"
	"github.com/weirgo/weir/redislimit"
)

// Redis configures the server on which several proxies share their limits.
type Redis struct {
	URL      string // empty: none, limits are local
	Password string // replaces the one in URL, which other users of the machine can read
	Prefix   string // of the keys; empty: redislimit's default

	// Fallback configures decisions without Redis. IsDown, OnChange and OnError are set here.
	Fallback fallback.Config

	// the block that windows and buckets take from Redis at once; 0: each decision is a round trip
	Lease   int
	Denials int // the size of the denial cache; 0: none
}

func (r *Redis) check() error {
	if r.URL == "" {
		return nil
	}
	if r.Lease < 0 || r.Denials < 0 {
		return errors.New("redis: the lease and the number of denials must not be negative")
	}
	_, err := onredis.Options(r.URL, r.Password)
	return err
}

// shared makes hybrids, each with its own breaker.
type shared struct {
	Redis
	cfg    fallback.Config
	client *redis.Client
	store  *redislimit.Store
	log    *slog.Logger

	mu      sync.Mutex
	hybrids []hybrid // guarded by mu: a reload of the rules may add to them
	noisy   throttle.Throttle
}

// hybrid is a Fallback and its limit.
type hybrid struct {
	*fallback.Fallback
	limit  Limit
	onFail fallback.OnFail
}

func newShared(r Redis, log *slog.Logger) (*shared, error) {
	o, err := onredis.Options(r.URL, r.Password)
	if err != nil {
		return nil, err
	}
	s := &shared{Redis: r, cfg: r.Fallback, client: redis.NewClient(o), log: log}
	s.store, err = redislimit.New(s.client,
		redislimit.Config{Prefix: r.Prefix, Timeout: s.cfg.Timeout})
	if err != nil {
		return nil, errors.Join(err, s.client.Close())
	}
	return s, nil
}

// strategy returns the hybrid for l with its local strategy on limiter.
func (s *shared) strategy(l Limit, limiter *weir.Limiter) (weir.Strategy, error) {
	primary, err := s.primary(l)
	if err != nil {
		return nil, err
	}
	local, _, err := s.share(l).On(limiter)
	if err != nil {
		return nil, err
	}
	return s.before(l, s.spare(primary), local)
}

// before returns the hybrid of primary and local for l.
func (s *shared) before(l Limit, primary, local weir.Strategy) (weir.Strategy, error) {
	cfg := s.cfg
	cfg.IsDown = func(err error) bool { return redislimit.Classify(err) != redislimit.Bug }
	cfg.OnChange = func(c fallback.Change) { s.changed(l, c) }
	cfg.OnError = s.failed
	f, err := fallback.New(primary, local, cfg)
	if err != nil {
		return nil, err
	}
	s.add(hybrid{f, l, cfg.OnFail})
	return f, nil
}

// add adds h. It replaces a hybrid for the same limit, which reloaded rules no longer use.
func (s *shared) add(h hybrid) {
	s.mu.Lock()
	defer s.mu.Unlock()
	same := func(other hybrid) bool {
		return other.limit.Name == h.limit.Name && other.limit.Rule.String() == h.limit.Rule.String()
	}
	s.hybrids = append(slices.DeleteFunc(slices.Clone(s.hybrids), same), h)
}

// all returns the current hybrids.
func (s *shared) all() []hybrid {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.hybrids)
}

// spare puts the denial cache and the lease, which save round trips, in front of primary.
func (s *shared) spare(primary weir.Strategy) weir.Strategy {
	if s.Denials > 0 {
		primary = near.Denials(primary, near.DenialsConfig{Size: s.Denials})
	}
	if s.Lease > 0 { // of a log and of tiers near passes on each request
		primary = near.Lease(primary, near.LeaseConfig{Block: s.Lease})
	}
	return primary
}

// primary returns l's counterpart on Redis.
func (s *shared) primary(l Limit) (weir.Strategy, error) {
	switch l.Strategy {
	case rule.Fixed:
		return s.store.FixedWindow(), nil
	case rule.Sliding:
		return s.store.SlidingWindow(), nil
	case rule.Log:
		return s.store.SlidingLog(), nil
	case rule.Token:
		return s.store.TokenBucket(l.Burst), nil
	case rule.Tiers:
		return s.store.Tiers(l.Tiers...)
	case rule.Calendar:
		return s.store.Calendar(l.Unit, l.Zone), nil
	}
	return nil, fmt.Errorf("strategy %s makes requests wait in this process, which Redis cannot; "+
		"choose another with --redis", l.Strategy)
}

// share returns l with this instance's part of the limits that the Request does not carry: the
// tiers' limits and the burst.
func (s *shared) share(l Limit) rule.Rule {
	n := uint64(max(1, s.cfg.Instances))
	part := l.Rule
	part.Burst = divide(l.Burst, n)
	if l.Strategy == rule.Tiers {
		part.Tiers = make([]weir.Tier, len(l.Tiers))
		for i, t := range l.Tiers {
			part.Tiers[i] = weir.Tier{Limit: divide(t.Limit, n), Duration: t.Duration}
		}
	}
	return part
}

// divide rounds up.
func divide(total, n uint64) uint64 {
	if total == 0 {
		return 0
	}
	return (total-1)/n + 1
}

func (s *shared) changed(l Limit, c fallback.Change) {
	level, cause := slog.LevelInfo, ""
	if c.To == fallback.Open {
		level = slog.LevelWarn
	}
	if c.Cause != nil {
		cause = c.Cause.Error()
	}
	s.log.Log(context.Background(), level, "redis breaker",
		"limit", l.Name, "from", c.From.String(), "to", c.To.String(), "cause", cause)
}

// failed logs an error of Redis, at most once in logEvery: in an outage each probe fails.
func (s *shared) failed(err error) {
	if dropped, ok := s.noisy.Allow(time.Now(), logEvery); ok {
		s.log.Warn("redis failed", "error", err.Error(), "not_logged", dropped)
	}
}

func (s *shared) close() error { return s.client.Close() }

// logEvery bounds the records of one kind in the log.
const logEvery = 10 * time.Second
