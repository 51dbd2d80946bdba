package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// report is the tables. No figure in it is typed by hand.
func (m *meter) report(ctx context.Context) (string, error) {
	info, err := m.client.InfoMap(ctx, "server").Result()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Redis\n\nWritten by `go run ./benchmarks/redis`.\n\n"+
		"%d callers, each with a connection, ask about %d keys in turn; the client has `redislimit.Options`, the server is on\n"+
		"the same machine and persists nothing. Contestants take turns, %v each or longer, in %d rounds; the figures are\n"+
		"medians, the ratio that of the two in one round. A decision admitted counts one hit; a decision denied finds its\n"+
		"key's limit spent. A script's time is that of `INFO commandstats`; the CPU time is that of the two processes, and the\n"+
		"figure that other processes disturb least. The program fails if a verdict is not the one its table claims, or if\n"+
		"Redis has not counted what was admitted.\n\n"+
		"%s, %s, %s/%s, %d × %s. redis-server %s, %s, go-redis %s.\n",
		*callers, *keys, *benchtime, *rounds, time.Now().Format(time.DateOnly), runtime.Version(),
		runtime.GOOS, runtime.GOARCH,
		runtime.NumCPU(), cpuModel(), info["Server"]["redis_version"], rival+" "+
			version("github.com/go-redis/redis_rate/v10"),
		version("github.com/redis/go-redis/v9"))
	for _, load := range []string{admitted, denied} {
		m.table(&b, load)
	}
	ours, theirs := m.entrant(tiers, admitted), m.entrant(threeRivals, admitted)
	fmt.Fprintf(&b, "\n%s holds its three limits in one round trip, all or nothing; %s takes one for each of them, and\n"+
		"a request that the last denies has spent the others. Where it admits, %[1]s makes %.2[3]f times as many decisions.\n",
		tiers, rival, ours.ratio(theirs))
	return b.String(), nil
}

// entrant returns the one of that name under a load.
func (m *meter) entrant(name, load string) *entrant {
	for _, e := range m.entrants {
		if e.name == name && e.load == load {
			return e
		}
	}
	panic("no contestant " + name)
}

// ratio is the median of the ratios to other of the decisions per second in one round.
func (e *entrant) ratio(other *entrant) float64 {
	return e.median(func(i int, s sample) float64 { return s.perSecond / other.samples[i].perSecond })
}

func (m *meter) table(b *strings.Builder, load string) {
	fmt.Fprintf(b, "\n| %s | decisions/s | × %s | CPU, client + server, µs | script, µs | scripts per decision |\n|---|--:|--:|--:|--:|--:|\n", load, rival)
	base := m.entrant(rival, load)
	for _, e := range m.entrants {
		if e.load != load {
			continue
		}
		fmt.Fprintf(b, "| %s | %.0f | %.2f | %.1f + %.1f | %.2f | %.3f |\n", e.name,
			e.median(func(_ int, s sample) float64 { return s.perSecond }), e.ratio(base),
			e.median(func(_ int, s sample) float64 { return s.client }),
			e.median(func(_ int, s sample) float64 { return s.server }),
			e.median(func(_ int, s sample) float64 { return s.script }),
			e.median(func(_ int, s sample) float64 { return s.trips }))
	}
}

// median is that of a figure of each round.
func (e *entrant) median(of func(round int, s sample) float64) float64 {
	var all []float64
	for i, s := range e.samples {
		all = append(all, of(i, s))
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}

// version returns the version of a module in this binary.
func version(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path == module {
				return d.Version
			}
		}
	}
	return "unknown"
}

func cpuModel() string {
	text, _ := os.ReadFile("/proc/cpuinfo") // empty where there is no such file
	for line := range strings.Lines(string(text)) {
		if name, model, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(model)
		}
	}
	return "CPU"
}
