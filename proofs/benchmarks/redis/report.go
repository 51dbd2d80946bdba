package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/weirgo/weir/proofs/benchmarks/internal/bench"
)

// report returns the text of RESULTS.md.
func (m *meter) report(ctx context.Context) ([]byte, error) {
	info, err := m.client.InfoMap(ctx, "server").Result()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Redis\n\nWritten by `go run ./proofs/benchmarks/redis`.\n\n"+
		"%d callers, each with its own connection, use %d keys in turn. The client has\n"+
		"`redislimit.Options`; the server runs on the same machine and persists nothing. Contestants\n"+
		"take turns of %v or longer, in %d rounds. Figures are medians; the ratio is the median of the\n"+
		"ratios within a round. An admitted decision counts one hit; a denied one finds its key's limit\n"+
		"spent. Script times come from `INFO commandstats`. CPU times are those of client and server;\n"+
		"other processes disturb them least. The program fails if a verdict differs from the table's\n"+
		"claim, or if Redis did not count exactly the admitted hits.\n\n"+
		"%s. redis-server %s, %s, go-redis %s.\n",
		*callers, *keys, *benchtime, *rounds,
		bench.Machine(), info["Server"]["redis_version"],
		rival+" "+bench.Version("github.com/go-redis/redis_rate/v10"),
		bench.Version("github.com/redis/go-redis/v9"))
	for _, load := range []string{admitted, denied, deniedByThird} {
		m.table(&b, load)
	}
	for _, callers := range crowds {
		m.table(&b, several(callers))
	}
	ratio := func(load string) float64 {
		return m.entrant(tiers, load).ratio(m.entrant(threeRivals, load))
	}
	fmt.Fprintf(&b,
		"\n%s checks its three limits in one round trip and charges all of them or none. %s\n"+
			"needs a round trip for each limit, up to the first that denies, and a request that the last "+
			"one\n"+
			"denies has already spent the others. %[1]s makes %.2[3]f times as many decisions where "+
			"requests "+
			"are\n"+
			"admitted, %.2[4]f where the first limit denies and %.2[5]f where the last one does.\n",
		tiers, rival, ratio(admitted), ratio(denied), ratio(deniedByThird))
	fmt.Fprintf(&b,
		"\nThe limits of one Decide may be of different keys and strategies. It takes one round trip, "+
			"as one call\n"+
			"of %s does, and makes", rival)
	for i, callers := range crowds {
		load := several(callers)
		fmt.Fprintf(&b, "%s %.2f", []string{"", ",", " and"}[i],
			m.entrant(oneDecide, load).ratio(m.entrant(threeCalls, load)))
	}
	b.WriteString(" times as many decisions as three calls.\n")
	return b.Bytes(), nil
}

// entrant returns the entrant with that name and load. It panics if there is none.
func (m *meter) entrant(name, load string) *entrant {
	for _, e := range m.entrants {
		if e.name == name && e.load == load {
			return e
		}
	}
	panic("no contestant " + name)
}

// ratio returns the median over all rounds of e's decisions per second divided by other's.
func (e *entrant) ratio(other *entrant) float64 {
	return e.median(func(i int, s sample) float64 { return s.perSecond / other.samples[i].perSecond })
}

func (m *meter) table(b *bytes.Buffer, load string) {
	fmt.Fprintf(b, "\n| %s | decisions/s | × %s | CPU, client + server, µs | script, µs | "+
		"scripts per decision |\n|---|--:|--:|--:|--:|--:|\n", load, rivals[load])
	base := m.entrant(rivals[load], load)
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

// median returns the median of a figure over all rounds.
func (e *entrant) median(of func(round int, s sample) float64) float64 {
	var all []float64
	for i, s := range e.samples {
		all = append(all, of(i, s))
	}
	slices.Sort(all)
	return (all[(len(all)-1)/2] + all[len(all)/2]) / 2
}
