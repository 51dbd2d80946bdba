// Command rules measures package rules and writes RESULTS.md, which ../RESULTS.md includes. It
// compares matching with the look-up of Envoy's rate limit service, and loading with decoding the
// same YAML into structs, and measures a whole decision.
//
//	go run ./proofs/benchmarks/rules            # from the root of the repository; half a minute
//	go run ./proofs/benchmarks/rules -o ''      # only prints the report
package main

import (
	"bytes"
	"flag"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/weirgo/weir/proofs/benchmarks/internal/bench"
)

var (
	rounds    = flag.Int("rounds", 15, "measurements of each contestant; the report shows medians")
	benchtime = flag.Duration("benchtime", 50*time.Millisecond, "minimum duration of one measurement")
	out       = flag.String("o", "proofs/benchmarks/rules/RESULTS.md",
		"write the report to this file; none if empty")
)

// row is a line of the report: an operation of weir and the rival's.
type row struct {
	name        string
	weir, rival func()
	bar         time.Duration // upper bound for weir; 0 means none
}

// result holds a row's figures: nanoseconds of CPU time per round.
type result struct {
	row
	weirNs, rivalNs []float64
	allocs          float64
}

func main() {
	flag.Parse()
	bench.Main("rules", func() error { return bench.Publish(report(measure(rows())), *out) })
}

// measure goes through the rows in rounds, so that other load on the machine affects weir and the
// rival alike.
func measure(rows []row) []result {
	results := make([]result, len(rows))
	for i, r := range rows {
		results[i].row = r
	}
	for range *rounds {
		for i := range results {
			r := &results[i]
			r.weirNs = append(r.weirNs, cost(r.weir))
			if r.rival != nil {
				r.rivalNs = append(r.rivalNs, cost(r.rival))
			}
		}
	}
	for i := range results { // at the end, when caches and pools are filled
		results[i].allocs = testing.AllocsPerRun(100, results[i].weir)
	}
	return results
}

// cost returns the CPU time of one call of f in nanoseconds, including garbage collection.
func cost(f func()) float64 {
	runtime.GC()
	began, used := time.Now(), bench.CPUTime()
	n := 0
	for batch := 1; time.Since(began) < *benchtime; batch = min(2*batch, 4096) {
		for range batch {
			f()
		}
		n += batch
	}
	return float64(bench.CPUTime()-used) / float64(n)
}

func report(results []result) []byte {
	var b bytes.Buffer
	b.WriteString("## Rules\n\n")
	fmt.Fprintf(&b,
		"Written by `go run ./proofs/benchmarks/rules`, on %s with %s. The table shows the CPU time\n"+
			"of one call, the median of %d rounds. A round measures weir and the rival in turn; the "+
			"ratio is\n"+
			"the median of the ratios within a round. The rival of matching is a copy of the look-up in\n"+
			"Envoy's rate limit service: a map of keys and values joined by underscores, and wildcards "+
			"tried\n"+
			"one by one. The rival of loading decodes the same YAML into structs, strictly and with the "+
			"same\n"+
			"parser, and checks nothing.\n\n",
		time.Now().Format(time.DateOnly), runtime.Version(), *rounds)
	b.WriteString("|  | weir | at most |  | allocations | rival | weir / rival |\n" +
		"|---|--:|--:|---|--:|--:|--:|\n")
	for _, r := range results {
		us := bench.Median(r.weirNs)
		bar, met, rival, ratio := "", "", "", ""
		if r.bar > 0 {
			bar, met = r.bar.String(), bench.Verdict(us <= float64(r.bar))
		}
		if r.rival != nil {
			rival = show(bench.Median(r.rivalNs))
			ratio = fmt.Sprintf("%.2f", bench.Ratio(r.weirNs, r.rivalNs))
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %.0f | %s | %s |\n", r.name, show(us), bar, met, r.allocs,
			rival, ratio)
	}
	return b.Bytes()
}

func show(ns float64) string {
	if ns < 10_000 {
		return fmt.Sprintf("%.0f ns", ns)
	}
	return fmt.Sprintf("%.1f ms", ns/1e6)
}
