// Command serve compares weir serve with a gRPC server that answers OK without work, the fastest
// that is possible. It builds and runs both, and writes RESULTS.md, which ../RESULTS.md includes.
//
//	go run ./proofs/benchmarks/serve            # from the root of the repository; three minutes
//	go run ./proofs/benchmarks/serve -o ''      # only prints the report
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/weirgo/weir/proofs/benchmarks/internal/bench"
)

var (
	rounds = flag.Int("rounds", 41,
		"measurements of each server at each concurrency; the report shows medians")
	benchtime = flag.Duration("benchtime", 500*time.Millisecond,
		"duration of one measurement, after a fifth of it for warming up")
	out = flag.String("o", "proofs/benchmarks/serve/RESULTS.md",
		"write the report to this file; none if empty")
	bare = flag.String("bare", "", "only run the server that answers OK, on this address")
)

// concurrencies are the numbers of concurrent requests, on one connection.
var concurrencies = []int{1, 8, 64}

func main() {
	flag.Parse()
	bench.Main("serve", func() error { return run(context.Background()) })
}

func run(ctx context.Context) error {
	if *bare != "" {
		return serveBare(ctx, *bare)
	}
	dir, err := os.MkdirTemp("", "weir-serve-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	servers, err := startServers(ctx, dir)
	defer stopServers(servers)
	if err != nil {
		return err
	}
	var figures []figure
	for round := range *rounds {
		for _, c := range concurrencies {
			f := figure{concurrency: c}
			for i := range servers { // each round starts with another server
				s := servers[(round+i)%len(servers)]
				f.loads[s.kind], err = measure(ctx, s, c)
				if err != nil {
					return err
				}
			}
			figures = append(figures, f)
		}
	}
	return bench.Publish(report(figures), *out)
}

// The servers.
const (
	ceiling = iota
	weir
	kinds
)

// server is a running server process.
type server struct {
	kind int
	addr string
	cmd  *exec.Cmd
}

const ruleFile = `
domain: bench
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 1000000000}
`

func startServers(ctx context.Context, dir string) ([]server, error) {
	rules, tool := filepath.Join(dir, "rules.yaml"), filepath.Join(dir, "weir-server")
	if err := os.WriteFile(rules, []byte(ruleFile), 0o644); err != nil {
		return nil, err
	}
	if text, err := exec.CommandContext(ctx, "go", "build", "-o", tool,
		"./cmd/weir/weir-server").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, text)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var servers []server
	for kind := range kinds {
		addr, err := freeAddr(ctx)
		if err != nil {
			return servers, err
		}
		cmd := exec.CommandContext(ctx, self, "-bare", addr)
		if kind == weir {
			cmd = exec.CommandContext(ctx, tool, "serve", "--rules", rules, "--grpc", addr, "--http", "off",
				"--admin", "off")
		}
		if err := cmd.Start(); err != nil {
			return servers, err
		}
		servers = append(servers, server{kind, addr, cmd})
	}
	return servers, nil
}

func stopServers(servers []server) {
	for _, s := range servers {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
}

// figure holds the results of one round at one concurrency.
type figure struct {
	concurrency int
	loads       [kinds]load
}

// over returns the median of f over all rounds at a concurrency.
func over(figures []figure, concurrency int, f func(figure) float64) float64 {
	var list []float64
	for _, x := range figures {
		if x.concurrency == concurrency {
			list = append(list, f(x))
		}
	}
	return bench.Median(list)
}

func report(figures []figure) []byte {
	var b bytes.Buffer
	b.WriteString("## Decision server\n\n")
	fmt.Fprintf(&b,
		"Written by `go run ./proofs/benchmarks/serve`, on %s with %s. One client sends requests\n"+
			"over one connection in a closed loop, for 10,000 values of one rule, in memory and below the\n"+
			"limit. Client and server share %d cores and connect over loopback. The ceiling is a gRPC "+
			"server\n"+
			"that answers OK without work. There are %d rounds of %v each; a ratio is the median of the\n"+
			"ratios within a round, which has the same load for both. CPU is the server's CPU time per\n"+
			"request. The bars at concurrency 8 and 64: at least 0.85 of the ceiling's throughput, and at\n"+
			"most 1.5 times its p99. The load average at the end was %s.\n\n",
		time.Now().Format(time.DateOnly), runtime.Version(), runtime.NumCPU(), *rounds, *benchtime,
		bench.Load())
	b.WriteString("| concurrency | ceiling, requests/s | weir serve | ratio | " +
		" | ceiling, p99 | weir serve | ratio | " +
		" | ceiling, CPU | weir serve | ratio |\n" +
		"|--:|--:|--:|--:|---|--:|--:|--:|---|--:|--:|--:|\n")
	for _, c := range concurrencies {
		rate := func(kind int) float64 {
			return over(figures, c, func(f figure) float64 { return f.loads[kind].rate })
		}
		p99 := func(kind int) float64 {
			return over(figures, c, func(f figure) float64 { return float64(f.loads[kind].p99) })
		}
		cpu := func(kind int) float64 {
			return over(figures, c, func(f figure) float64 { return float64(f.loads[kind].cpu) })
		}
		cpus := over(figures, c, func(f figure) float64 {
			return float64(f.loads[weir].cpu) / float64(max(1, f.loads[ceiling].cpu))
		})
		rates := over(figures, c, func(f figure) float64 {
			return f.loads[weir].rate / f.loads[ceiling].rate
		})
		tails := over(figures, c, func(f figure) float64 {
			return float64(f.loads[weir].p99) / float64(f.loads[ceiling].p99)
		})
		fmt.Fprintf(&b,
			"| %d | %.0f | %.0f | %.2f | %s | %v | %v | %.2f | %s | %.1fµs | %.1fµs | %.2f |\n",
			c, rate(ceiling), rate(weir), rates,
			verdict(c, rates >= 0.85), micros(p99(ceiling)), micros(p99(weir)), tails,
			verdict(c, tails <= 1.5), cpu(ceiling)/1e3, cpu(weir)/1e3, cpus)
	}
	return b.Bytes()
}

func verdict(concurrency int, met bool) string {
	if concurrency == 1 {
		return "" // it has no bar
	}
	return bench.Verdict(met)
}

func micros(ns float64) time.Duration { return time.Duration(ns).Round(10 * time.Microsecond) }
