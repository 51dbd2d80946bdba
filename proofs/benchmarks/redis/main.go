// Command redis compares redislimit's strategies with go-redis/redis_rate on a redis-server that it
// starts, and writes RESULTS.md.
//
//	go run ./proofs/benchmarks/redis                  # in the repository's root; about a minute
//	go run ./proofs/benchmarks/redis -rounds 50 -o '' # only prints the report
//
// It needs redis-server in the PATH. It exits with status 1 if a contestant gives a wrong verdict.
package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/weirgo/weir/proofs/benchmarks/internal/bench"
	"github.com/weirgo/weir/redislimit"
)

var (
	rounds    = flag.Int("rounds", 25, "measurements of each contestant; the report shows medians")
	benchtime = flag.Duration("benchtime", 100*time.Millisecond, "minimum duration of one measurement")
	callers   = flag.Int("callers", 32, "number of calling goroutines, each with its own connection")
	keys      = flag.Int("keys", 10_000, "number of keys, used in turn")
	out       = flag.String("o", "proofs/benchmarks/redis/RESULTS.md",
		"write the report to this file; none if empty")
)

func main() {
	flag.Parse()
	bench.Main("redis", func() error { return run(context.Background()) })
}

func run(ctx context.Context) error {
	addr, stop, err := startServer(ctx)
	if err != nil {
		return err
	}
	defer stop()
	client := redis.NewClient(options(addr))
	defer client.Close()
	m := &meter{client: client}
	defer m.close()
	for i := range contestants {
		if err := m.enter(ctx, &contestants[i]); err != nil {
			return fmt.Errorf("%s, %s: %w", contestants[i].name, contestants[i].load, err)
		}
	}
	for i := range *rounds {
		for j := range m.entrants {
			// Each round starts with another contestant, so that other load affects all alike.
			e := m.entrants[(i+j)%len(m.entrants)]
			if err := m.measure(ctx, e); err != nil {
				return fmt.Errorf("%s, %s: %w", e.name, e.load, err)
			}
		}
	}
	for _, e := range m.entrants {
		if err := e.check(ctx); err != nil {
			return fmt.Errorf("%s, %s: %w", e.name, e.load, err)
		}
	}
	text, err := m.report(ctx)
	if err != nil {
		return err
	}
	return bench.Publish(text, *out)
}

// options returns redislimit's options with a connection for each caller and long timeouts: a slow
// reply on a busy machine must not fail the measurement.
func options(addr string) *redis.Options {
	o := redislimit.Options(addr)
	o.PoolSize = max(*callers, crowds[len(crowds)-1])
	o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = generous, generous, generous
	return o
}

const generous = 5 * time.Second
