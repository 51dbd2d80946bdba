package pages

import (
	"log"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/metrics"
	"github.com/weirgo/weir/metrics/weirprom"
	"github.com/weirgo/weir/near"
	"github.com/weirgo/weir/redislimit"
)

// Heartbeat is in docs/machines.md.
func Heartbeat(store *redislimit.Store, limiter *weir.Limiter) (*fallback.Fallback, error) {
	beat, err := store.Heartbeat(redislimit.HeartbeatConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer beat.Close()
	hybrid, err := fallback.New(store.SlidingWindow(), limiter.SlidingWindow(),
		fallback.Config{Instances: 3, InstancesFunc: beat.Instances})
	return hybrid, err
}

// Near is in docs/machines.md.
func Near(store *redislimit.Store, limiter *weir.Limiter) (*fallback.Fallback, error) {
	primary := near.NewLeases(near.NewDenials(store.SlidingWindow(), near.DenialsConfig{}),
		near.LeaseConfig{Block: 50})
	hybrid, err := fallback.New(primary, limiter.SlidingWindow(), fallback.Config{Instances: 3})
	return hybrid, err
}

// Partition is in docs/machines.md.
func Partition(cluster *redis.ClusterClient) fallback.Config {
	cfg := fallback.Config{Instances: 3, Partition: redislimit.Shard(cluster)}
	return cfg
}

// AutoPipeline has docs/machines.md in Go.
func AutoPipeline() (*redislimit.Store, error) {
	client := redis.NewClient(redislimit.Options("127.0.0.1:6379"))
	pipe, err := client.AutoPipeline()
	if err != nil {
		log.Fatal(err)
	}
	defer pipe.Close()
	store, err := redislimit.New(pipe, redislimit.Config{AllowUnsafeClient: true})
	return store, err
}

// Metrics is in docs/production.md.
func Metrics(
	shared *fallback.Fallback, limiter *weir.Limiter, perClient *weir.Limit,
) (fallback.Config, func(http.Handler) http.Handler) {
	calls := weirprom.NewCalls("", func(err error) string { return redislimit.Classify(err).String() })
	decisions, stats := weirprom.NewDecisions(""), new(httplimit.Stats)
	cfg := fallback.Config{Instances: 2, OnCall: calls.OnCall} // for shared: fallback.New
	guard := httplimit.New(perClient, httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Stats: stats, OnDecision: decisions.OnDecision,
	})
	prometheus.MustRegister(calls, decisions, weirprom.New("",
		metrics.Limiter(limiter.Stats), metrics.HTTP(stats.Count), metrics.Fallback(shared.Stats)))
	http.Handle("/metrics", promhttp.Handler())
	return cfg, guard
}
