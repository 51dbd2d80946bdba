package caddylimit

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/doors/weblimit"
	"github.com/weirgo/weir/metrics"
	"github.com/weirgo/weir/metrics/weirprom"
	"github.com/weirgo/weir/redislimit"
)

// backends are what handlers count on. A new configuration is provisioned before the old one is
// cleaned up, so a backend that both use is never without a user.
var backends = caddy.NewUsagePool()

// backendKey is what a backend is made of; handlers that agree on it share one.
type backendKey struct {
	strategy   string
	burst      uint64
	maxBuckets int
	redis      Redis // zero: none; its URL has no placeholders
}

// newBackendKey returns the key of h with the placeholders of the URL replaced, so that a reload
// with another password makes another backend. Its errors do not contain the URL, which may have a
// password.
func newBackendKey(h *Handler) (backendKey, error) {
	key := backendKey{strategy: cmp.Or(h.Strategy, strategies[0]), burst: h.Burst,
		maxBuckets: h.MaxBuckets}
	if h.Redis == nil {
		return key, nil
	}
	key.redis = *h.Redis
	url, err := caddy.NewReplacer().ReplaceOrErr(h.Redis.URL, true, true)
	if err != nil {
		return key, errors.New("weir: redis: a placeholder of the URL is empty or unknown")
	}
	key.redis.URL = url
	return key, nil
}

// predecessors returns the backends whose counts are those of a backend of this key: they differ in
// their size alone.
func predecessors(key backendKey) (all []*backend) {
	backends.Range(func(other, value any) bool {
		k := other.(backendKey)
		if k.strategy == key.strategy && k.redis == key.redis && k != key {
			all = append(all, value.(*backend))
		}
		return true
	})
	return all
}

// backend is a strategy and what it runs on.
type backend struct {
	strategy  weir.Strategy
	places    weir.Strategy // of requests in flight
	limiter   *weir.Limiter
	client    *redis.Client // nil: none
	collector *weirprom.Collector
}

// Destruct implements caddy.Destructor.
func (b *backend) Destruct() error {
	err := b.limiter.Close()
	if b.client != nil {
		err = errors.Join(err, b.client.Close())
	}
	return err
}

func newBackend(key backendKey, previous []*backend) (*backend, error) {
	limiter, err := weir.New(weir.Config{MaxBuckets: key.maxBuckets, Now: now})
	if err != nil {
		return nil, err
	}
	b := &backend{limiter: limiter}
	if err := b.on(key); err != nil {
		return nil, errors.Join(err, b.Destruct())
	}
	for _, p := range previous {
		var counts bytes.Buffer
		if err := errors.Join(p.limiter.Save(&counts), limiter.Load(&counts)); err != nil {
			caddy.Log().Named("http.handlers.weir").Warn("counts were lost in the reload", zap.Error(err))
		}
	}
	sources := []metrics.Group{metrics.Limiter(limiter.Stats)}
	if f, ok := b.strategy.(*fallback.Fallback); ok {
		sources = append(sources, metrics.Fallback(f.Stats))
	}
	b.collector = weirprom.New(key.String(), sources...)
	return b, nil
}

// String names the backend in metrics: by what was configured, without the URL of Redis, which may
// have a password.
func (k backendKey) String() string {
	name := k.strategy
	if k.burst > 0 {
		name += fmt.Sprintf(", burst %d", k.burst)
	}
	if k.maxBuckets > 0 {
		name += fmt.Sprintf(", max_buckets %d", k.maxBuckets)
	}
	if k.redis != (Redis{}) {
		name += ", redis " + cmp.Or(k.redis.Prefix, "weir:")
	}
	return name
}

// decisions counts those of all handlers, over all reloads. Each configuration has a registry of
// its own.
var decisions = weirprom.NewDecisions("")

// holds has what is held elsewhere, of the process.
var holds = weirprom.New("", metrics.Holds())

// register registers what other handlers may have registered already. Of backends of one name,
// which differ in Redis, the first is shown.
func register(registry *prometheus.Registry, collectors ...prometheus.Collector) error {
	for _, c := range collectors {
		var already prometheus.AlreadyRegisteredError
		if err := registry.Register(c); err != nil && !errors.As(err, &already) {
			return fmt.Errorf("weir: metrics: %w", err)
		}
	}
	return nil
}

// strategyOf returns the strategy of a name of s, a weir.Limiter or a redislimit.Store.
func strategyOf[F, L, T, S weir.Strategy](name string, burst uint64, s interface {
	FixedWindow() F
	SlidingLog() L
	TokenBucket(burst uint64) T
	SlidingWindow() S
}) weir.Strategy {
	switch name {
	case "fixed":
		return s.FixedWindow()
	case "log":
		return s.SlidingLog()
	case "token":
		return s.TokenBucket(burst)
	}
	return s.SlidingWindow()
}

// on sets the strategies: in this process, or on Redis with one in this process behind each.
func (b *backend) on(key backendKey) error {
	b.strategy, b.places = strategyOf(key.strategy, key.burst, b.limiter), b.limiter.InFlight()
	if key.redis == (Redis{}) {
		return nil
	}
	options, err := redislimit.ParseURL(key.redis.URL)
	if err != nil {
		return err
	}
	onFail, err := choose("on_failure", key.redis.OnFailure, onFailures)
	if err != nil {
		return err
	}
	b.client = redis.NewClient(options)
	timeout := time.Duration(key.redis.Timeout)
	store, err := redislimit.New(b.client,
		redislimit.Config{Prefix: key.redis.Prefix, Timeout: timeout})
	if err != nil {
		return err
	}
	cfg := fallback.Config{
		OnFail:    []fallback.OnFail{fallback.FailLocal, fallback.FailOpen, fallback.FailClosed}[onFail],
		Instances: key.redis.Instances,
		Timeout:   timeout,
		IsDown:    func(err error) bool { return redislimit.Classify(err) != redislimit.Bug },
		OnChange: func(c fallback.Change) {
			logger := caddy.Log().Named("http.handlers.weir") // a reload may have replaced it
			logger.Warn("redis breaker", zap.String("from", c.From.String()),
				zap.String("to", c.To.String()), zap.NamedError("cause", c.Cause))
		},
		Now: now,
	}
	b.strategy, err = fallback.New(strategyOf(key.strategy, key.burst, store),
		strategyOf(key.strategy, share(key), b.limiter), cfg)
	if err != nil {
		return err
	}
	b.places, err = fallback.New(store.InFlight(), b.places, cfg)
	return err
}

// share returns this process's part of the burst, which is not in a request: fallback divides only
// what is.
func share(key backendKey) uint64 {
	if key.burst == 0 {
		return 0
	}
	return (key.burst-1)/uint64(max(1, key.redis.Instances)) + 1
}

// guard returns the guard. What httplimit panics on comes from the configuration here.
func guard(s weir.Strategy, cfg httplimit.Config) (g *weblimit.Guard[*http.Request], err error) {
	defer func() {
		if mistake := recover(); mistake != nil {
			err = fmt.Errorf("weir: %v", mistake)
		}
	}()
	made := weblimit.New[*http.Request]("weir", httplimit.NewGuard(s, cfg))
	return &made, nil
}
