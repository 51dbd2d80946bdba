// Command waits measures callers that wait and writes RESULTS.md, which ../RESULTS.md includes: the
// part of a rate that a line of them reaches, beside x/time/rate in the same process, and a wait
// where nobody waits.
//
//	go run ./proofs/benchmarks/waits            # from the root of the repository; four minutes
//	go run ./proofs/benchmarks/waits -o ''      # only prints the report
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"runtime"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/proofs/benchmarks/internal/bench"
)

var (
	rounds  = flag.Int("rounds", 5, "measurements of each contestant; the report shows medians")
	waiters = flag.Int("waiters", 100, "callers in a loop of waits")
	during  = flag.Duration("for", 2*time.Second, "duration of one measurement of a rate")
	out     = flag.String("o", "proofs/benchmarks/waits/RESULTS.md",
		"write the report to this file; none if empty")
)

// bars are the least parts of x/time/rate's share, by rate.
var bars = []struct {
	rate  int
	share float64
}{{300, 0.95}, {1000, 0.95}, {5000, 0.9}}

func main() {
	flag.Parse()
	bench.Main("waits", func() error {
		var b bytes.Buffer
		load, begun := bench.Load(), time.Now()
		writeLines(&b)
		writeCalls(&b)
		fmt.Fprintf(&b, "\n%s. Load average at the start: %s. The run took %v.\n", bench.Machine(), load,
			time.Since(begun).Round(time.Second))
		return bench.Publish(b.Bytes(), *out)
	})
}

// writeLines goes through the contestants in rounds, so that other load on the machine affects all
// alike.
func writeLines(b *bytes.Buffer) {
	fmt.Fprintf(b, "## Waits\n\n"+
		"Written by `go run ./proofs/benchmarks/waits`. %d callers wait in a loop for %v. The table shows\n"+
		"how much of a rate passes, in percent, the median of %d rounds; in parentheses, the median of\n"+
		"the ratios to x/time/rate within a round. It should be at least .95, and .9 at 5,000 a second.\n\n"+
		"|  |", *waiters, *during, *rounds)
	for _, bar := range bars {
		fmt.Fprintf(b, " %d/s |", bar.rate)
	}
	b.WriteString("\n|---|--:|--:|--:|\n")
	shares := map[string][][]float64{}
	for range *rounds {
		for i, bar := range bars {
			for _, c := range contestants {
				if shares[c.name] == nil {
					shares[c.name] = make([][]float64, len(bars))
				}
				shares[c.name][i] = append(shares[c.name][i], share(c, bar.rate))
			}
		}
	}
	for _, c := range contestants {
		fmt.Fprintf(b, "| %s |", c.name)
		for i, bar := range bars {
			fmt.Fprintf(b, " %.1f", 100*bench.Median(shares[c.name][i]))
			if ratio := bench.Ratio(shares[c.name][i], shares[rival.name][i]); c.name != rival.name {
				fmt.Fprintf(b, " (%.2f)%s", ratio, missed(ratio >= bar.share))
			}
			b.WriteString(" |")
		}
		b.WriteString("\n")
	}
}

func missed(met bool) string {
	if met {
		return ""
	}
	return ", " + bench.Verdict(met)
}

func writeCalls(b *bytes.Buffer) {
	ns, allocs := map[string][]float64{}, map[string]float64{}
	for range 3 * *rounds {
		for _, c := range calls {
			cost, allocated := call(c)
			ns[c.name] = append(ns[c.name], cost)
			allocs[c.name] = allocated
		}
	}
	b.WriteString("\nA call that need not wait, on one core:\n\n" +
		"|  | ns | of x/time/rate's | allocations |\n|---|--:|--:|--:|\n")
	for _, c := range calls {
		fmt.Fprintf(b, "| %s | %.0f | %.2f | %.0f |\n", c.name, bench.Median(ns[c.name]),
			bench.Ratio(ns[c.name], ns[rival.name]), allocs[c.name])
	}
}

// call returns the CPU time of one call in nanoseconds, and its allocations.
func call(c contestant) (ns, allocs float64) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const n = 200_000
	l := limiter()
	defer closeLimiter(l)
	ctx, cancel := context.WithCancel(always)
	defer cancel()
	wait := c.open(ctx, l, 1_000_000_000)
	must(wait())
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	used := bench.CPUTime()
	for range n {
		must(wait())
	}
	ns = float64(bench.CPUTime()-used) / n
	runtime.ReadMemStats(&after)
	return ns, float64((after.Mallocs - before.Mallocs) / n)
}

func limiter() *weir.Limiter {
	l, err := weir.New(weir.Config{})
	must(err)
	return l
}

func closeLimiter(l *weir.Limiter) { must(l.Close()) }

func must(err error) {
	if err != nil {
		panic(err)
	}
}
