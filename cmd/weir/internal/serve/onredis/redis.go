// Package onredis makes strategies that count on Redis, and in memory while Redis is down.
package onredis

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/internal/core/throttle"
	"github.com/weirgo/weir/metrics"
	"github.com/weirgo/weir/metrics/weirprom"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/rules"
)

// Config configures a Store.
type Config struct {
	URL      string // empty: none, limits are local
	Password string // replaces the one in URL, which other users of the machine can read
	Prefix   string // of the keys; empty: redislimit's default

	SentinelPassword string // the Sentinels' own, if they have one

	// Fallback configures decisions without Redis. IsDown and OnChange are set here.
	Fallback fallback.Config

	OnCall func(took time.Duration, err error) // redislimit's
}

// Check fails, with an error of the flag redis, if the URL is none of Redis. The error has no
// password.
func (cfg *Config) Check() error {
	_, err := cfg.address()
	return err
}

// address returns what the URL says, with the password.
func (cfg *Config) address() (*address, error) {
	a, err := parse(cfg.URL)
	if err == nil && cfg.Password != "" {
		a.options.Password = cfg.Password
	}
	return a, err
}

// Store makes strategies on Redis, and hybrids of them and of local ones, each with its own
// breaker. It is a prometheus.Collector of the hybrids' figures, and safe for concurrent use.
type Store struct {
	*redislimit.Store
	cfg    Config
	client redis.UniversalClient
	master string // the Sentinels' name of the master, if there are some
	log    *slog.Logger
	lost   throttle.Throttle // of the records of lost counts

	mu      sync.Mutex
	hybrids []Hybrid // guarded by mu: a reload of rules may add to them
}

// Hybrid is a Fallback and what it is for: the limit of this name and text.
type Hybrid struct {
	*fallback.Fallback
	Name, Limit string
}

// Open returns a Store, which connects when it is used. Changes of its breakers are logged.
func Open(cfg Config, log *slog.Logger) (*Store, error) {
	a, err := cfg.address()
	if err != nil {
		return nil, err
	}
	logging.Disable() // go-redis' own lines on the standard error: what they say is in errors, too
	cfg.Fallback.IsDown = func(err error) bool { return redislimit.Classify(err) != redislimit.Bug }
	s := &Store{cfg: cfg, client: a.client(cfg.SentinelPassword), master: a.master, log: log}
	if c, ok := s.client.(*redis.ClusterClient); ok {
		s.cfg.Fallback.Partition = redislimit.Shard(c)
	}
	s.Store, err = redislimit.New(s.client, redislimit.Config{
		Prefix: cfg.Prefix, Timeout: cfg.Fallback.Timeout, OnCall: cfg.OnCall,
	})
	if err != nil { // a mistake in the prefix, if the timeout is valid
		return nil, errors.Join(&cli.FlagError{Flags: []string{"redis-prefix"}, Err: err}, s.Close())
	}
	return s, nil
}

// Close closes the connections.
func (s *Store) Close() error { return s.client.Close() }

// Ping logs a warning if Redis, or a master of its Cluster, cannot be reached within a second. Call
// it at the start: a server starts nevertheless, since Redis may start later. Until then it decides
// as meanwhile says. It also logs one if Redis evicts keys, as far as the user may ask that.
func (s *Store) Ping(ctx context.Context, meanwhile string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var once sync.Once
	ping := func(ctx context.Context, c *redis.Client) error {
		if err := c.Ping(ctx).Err(); err != nil {
			return err
		}
		info, err := c.Info(ctx, "memory").Result()
		if policy := evicts(info); err == nil && policy != "" {
			once.Do(func() {
				s.log.Warn("redis evicts keys when its memory is full, and loses counts",
					"maxmemory_policy", policy, "want", "noeviction")
			})
		}
		return nil
	}
	var err error
	switch c := s.client.(type) {
	case *redis.Client:
		err = ping(ctx, c)
	case *redis.ClusterClient:
		err = c.ForEachMaster(ctx, ping)
	}
	if errors.Is(err, redis.Nil) {
		err = fmt.Errorf("no Sentinel has a master named %q", s.master)
	}
	if err != nil && ctx.Err() != context.Canceled {
		s.log.Warn("redis cannot be reached", "error", err.Error(), "until_then", meanwhile)
	}
}

// evicts returns the policy by which a server of this INFO evicts keys, or nothing.
func evicts(info string) string {
	fields := map[string]string{}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields[name] = value
	}
	policy := fields["maxmemory_policy"]
	if policy == "noeviction" || fields["maxmemory"] == "0" {
		return ""
	}
	return policy
}

// Strategies returns Strategies that count on the Store, and on local while Redis is down. Each of
// the processes then has an equal part of every limit.
func (s *Store) Strategies(local rules.Strategies) rules.Strategies {
	remote := rules.StrategiesOf(s)
	return func(m rules.Method) (weir.Strategy, error) {
		primary, err := remote(m)
		if err != nil {
			return nil, err
		}
		part := m
		part.Burst = s.Share(m.Burst)
		behind, err := local(part)
		if err != nil {
			return nil, err
		}
		h := Hybrid{Name: m.String()}
		if m.Algorithm == rules.InFlight {
			h.Name += ", by rules" // the proxy has places of its own, by that name
		}
		return s.hybrid(h, primary, behind, "strategy", m.String())
	}
}

// Share returns a process's part of a burst, or of another limit that is not in the request:
// fallback divides only those that are.
func (s *Store) Share(total uint64) uint64 {
	if total == 0 {
		return 0
	}
	return (total-1)/uint64(max(1, s.cfg.Fallback.Instances)) + 1
}

// Hybrid returns a strategy that counts on primary, and on local while Redis is down. It is for the
// limit of this name and text: if there is one for the same already, that goes on.
func (s *Store) Hybrid(name, limit string, primary, local weir.Strategy) (weir.Strategy, error) {
	for _, h := range s.Hybrids() {
		if h.Name == name && h.Limit == limit {
			return h.Fallback, nil
		}
	}
	return s.hybrid(Hybrid{Name: name, Limit: limit}, primary, local, "limit", name)
}

// hybrid makes h, whose attribute in the log is of this key and name.
func (s *Store) hybrid(
	h Hybrid, primary, local weir.Strategy, key, name string,
) (weir.Strategy, error) {
	cfg := s.cfg.Fallback
	cfg.OnChange = func(c fallback.Change) {
		level, cause := slog.LevelInfo, ""
		if c.To == fallback.Open {
			level = slog.LevelWarn
		}
		if c.Cause != nil {
			cause = c.Cause.Error()
		}
		s.log.Log(context.Background(), level, "redis breaker",
			key, name, "from", c.From.String(), "to", c.To.String(), "cause", cause)
	}
	if cfg.OnError == nil {
		cfg.OnError = func(err error) {
			if !errors.Is(err, fallback.ErrLost) {
				return
			}
			if dropped, ok := s.lost.Allow(time.Now(), time.Second); ok {
				s.log.Warn("redis lost counts", key, name, "error", err.Error(), "not_logged", dropped)
			}
		}
	}
	var err error
	h.Fallback, err = fallback.New(primary, local, cfg)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	same := func(o Hybrid) bool { return o.Name == h.Name && o.Limit == h.Limit }
	s.hybrids = append(slices.DeleteFunc(slices.Clone(s.hybrids), same), h)
	return h.Fallback, nil
}

// Retain forgets the hybrids for which keep reports false: they are in use no more.
func (s *Store) Retain(keep func(Hybrid) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hybrids = slices.DeleteFunc(slices.Clone(s.hybrids), func(h Hybrid) bool { return !keep(h) })
}

// Hybrids returns the current hybrids, which the caller must not change.
func (s *Store) Hybrids() []Hybrid {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hybrids
}

// Describe implements prometheus.Collector.
func (s *Store) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector. Hybrids of one name are numbered.
func (s *Store) Collect(ch chan<- prometheus.Metric) {
	known := make(map[string]bool)
	for _, h := range s.Hybrids() {
		first := strings.ToValidUTF8(h.Name, "\uFFFD")
		name := first
		for n := 2; known[name]; n++ {
			name = fmt.Sprintf("%s (%d)", first, n)
		}
		known[name] = true
		weirprom.New(name, metrics.Fallback(h.Stats)).Collect(ch)
	}
}
