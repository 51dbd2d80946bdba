// Command proxy compares the CPU time of weir proxy with that of a bare httputil.ReverseProxy. It
// builds and runs both before one upstream, and writes RESULTS.md, which ../RESULTS.md includes.
//
//	go run ./proofs/benchmarks/proxy                    # from the root of the repository
//	go run ./proofs/benchmarks/proxy -also OLD          # with another weir-server beside them
//	go run ./proofs/benchmarks/proxy -caddy CADDY       # and Caddy, as adapters/caddylimit/cmd/caddy
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/weirgo/weir/proofs/benchmarks/internal/bench"
)

var (
	rounds   = flag.Int("rounds", 11, "turns of each proxy; the report shows medians")
	requests = flag.Int("requests", 5000, "requests of a turn, after a fifth of them for warming up")
	tool     = flag.String("tool", "", "the weir-server to measure (default that of this tree)")
	also     = flag.String("also", "", "another weir-server to measure beside it, as an older one")
	caddy    = flag.String("caddy", "", "a Caddy with weir's module, to measure beside it")
	out      = flag.String("o", "proofs/benchmarks/proxy/RESULTS.md",
		"write the report to this file; none if empty")
	bare = flag.String("bare", "", "only run the bare proxy, on this address")
	pool = flag.Bool("pool", false, "the bare proxy has a BufferPool")
	to   = flag.String("to", "", "the upstream of the bare proxy")
)

func main() {
	flag.Parse()
	bench.Main("proxy", func() error { return run(context.Background()) })
}

func run(ctx context.Context) error {
	if *bare != "" {
		return serveBare(*bare, *to)
	}
	dir, err := os.MkdirTemp("", "weir-proxy-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	upstream, err := startUpstream()
	if err != nil {
		return err
	}
	defer upstream.Close()
	proxies, err := startProxies(ctx, dir, upstream.URL)
	defer stop(proxies)
	if err != nil {
		return err
	}
	for round := range *rounds {
		for i := range proxies { // each round starts with another proxy
			p := proxies[(round+i)%len(proxies)]
			cpu, err := p.measure(*requests)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			p.cpu = append(p.cpu, float64(cpu.Nanoseconds())/1e3)
		}
	}
	return bench.Publish(report(proxies), *out)
}

// startProxies starts those that are compared, the bare one first.
func startProxies(ctx context.Context, dir, upstream string) (proxies []*server, err error) {
	if *tool == "" {
		*tool = filepath.Join(dir, "weir-server")
		build := exec.CommandContext(ctx, "go", "build", "-o", *tool, "./cmd/weir/weir-server")
		if text, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%w\n%s", err, text)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	all := []*server{
		{name: bareName, args: []string{self, "-to", upstream, "-bare"}},
		{name: bareName + " with a BufferPool", args: []string{self, "-pool", "-to", upstream, "-bare"}},
		{name: "weir proxy without a log", most: 1.12,
			args: weirArgs(*tool, upstream, "off", "1000000000/1d")},
		{name: "weir proxy, text log to a file", most: 1.25,
			args: weirArgs(*tool, upstream, "text", "1000000000/1d")},
		{name: "weir proxy without a log, GOGC=100", env: []string{"GOGC=100"},
			args: weirArgs(*tool, upstream, "off", "1000000000/1d")},
		{name: "weir proxy without a log, each request denied", denied: true,
			args: weirArgs(*tool, upstream, "off", "none=0/1d")},
	}
	if *also != "" {
		all = append(all,
			&server{name: "the other one without a log",
				args: weirArgs(*also, upstream, "off", "1000000000/1d")},
			&server{name: "the other one, text log to a file",
				args: weirArgs(*also, upstream, "text", "1000000000/1d")})
	}
	if *caddy != "" {
		all = append(all, caddyServer(dir, "Caddy without a limit", "", upstream),
			caddyServer(dir, "Caddy with weir's module", "weir 1000000000/1d", upstream))
	}
	if nginx, err := exec.LookPath("nginx"); err == nil {
		all = append(all, &server{name: "nginx, one worker, without a log",
			config: nginxConfig(dir, upstream),
			args:   []string{nginx, "-c", filepath.Join(dir, "nginx.conf")}})
	}
	for _, s := range all {
		if err := s.start(ctx, dir); err != nil {
			return proxies, fmt.Errorf("%s: %w", s.name, err)
		}
		proxies = append(proxies, s)
	}
	return proxies, nil
}

func weirArgs(tool, upstream, log, limit string) []string {
	return []string{tool, "proxy", "--upstream", upstream, "--limit", limit, "--access-log", log,
		"--admin", "off", "--listen"}
}

func caddyServer(dir, name, lines, upstream string) *server {
	file := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
	return &server{name: name, config: caddyConfig(file, lines, upstream),
		args: []string{*caddy, "run", "--adapter", "caddyfile", "--config", file}}
}

func report(proxies []*server) []byte {
	var b bytes.Buffer
	b.WriteString("## Reverse proxy\n\n")
	fmt.Fprintf(&b, "Written by `go run ./proofs/benchmarks/proxy`: %s.\n"+
		"%d connections send %d requests a turn for an answer of 1 KiB, and each proxy has %d turns,\n"+
		"one after the other. CPU is that of the proxy's process alone, user and system, for a request.\n"+
		"A ratio is the median of those to the bare `httputil.ReverseProxy` within a round. weir has a\n"+
		"BufferPool, and without a GOGC in the environment its heap may grow by 16 MB before it is\n"+
		"collected: some 20 MB more of memory. The load average at the end was %s.\n\n",
		bench.Machine(), connections, *requests, *rounds, bench.Load())
	b.WriteString("| proxy | CPU, µs | of the bare one | at most |  |\n|---|--:|--:|--:|---|\n")
	for _, p := range proxies {
		ratio := bench.Ratio(p.cpu, proxies[0].cpu)
		bar, verdict := "", ""
		if p.most > 0 {
			bar, verdict = fmt.Sprintf("%.2f", p.most), bench.Verdict(ratio <= p.most)
		}
		fmt.Fprintf(&b, "| %s | %.0f | %.2f | %s | %s |\n", p.name, bench.Median(p.cpu), ratio, bar,
			verdict)
	}
	return b.Bytes()
}

// settle is how long a proxy may take for what it does after its last answer, such as its log.
const settle = 150 * time.Millisecond
