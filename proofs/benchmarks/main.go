// Command benchmarks compares weir with other limiters, interleaved in one process, and writes
// RESULTS.md.
//
//	go run .                                                         # everything; some minutes
//	go run . -print -group CheckRate -workload ids=1/mode=allow -store weir,go-limiter
//	go run . -print -group 'TokenBucket|SlidingWindow' -workload ids=1/ # a minute
package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir/proofs/benchmarks/internal/bench"
)

var (
	rounds    = flag.Int("rounds", 6, "number of rounds through all workloads")
	budget    = flag.Duration("for", 4*time.Minute, "start no new round after this time")
	benchtime = flag.Duration("benchtime", 150*time.Millisecond, "duration of one measurement")
	verbs     = flag.Bool("verbs", false, "measure operations other than decisions, and write "+
		verbsResults)
	only = flag.Bool("print", false,
		"print figures and the bars for them instead of writing the report")
	out     = flag.String("o", "RESULTS.md", "write the report to this file")
	groupRE = flag.String("group", ".", "with -print: these groups (regular expression)")
	workRE  = flag.String("workload", ".", "with -print: these workloads (regular expression)")
	growing = flag.String("grow", "",
		"only grow this store to five million ids and print its figures")
	holding = flag.Int("hold", 0,
		"only fill a limiter with this many ids and print the peak resident bytes")
	storeList = flag.String("store", "", "with -print: these stores (comma-separated); all if empty")
)

func main() {
	flag.Parse()
	switch {
	case *growing != "":
		grow(*growing)
		return
	case *holding > 0:
		hold(*holding)
		return
	}
	r := results{figures: figures{}, begun: time.Now(), load: bench.Load()}
	chosen := groups
	if *verbs {
		chosen = verbGroups
	}
	if *only {
		chosen = selected(chosen)
	}
	for round := range *rounds {
		if round > 0 && time.Since(r.begun) > *budget {
			break
		}
		r.rounds++
		progress(fmt.Sprintf("round %d", r.rounds))
		for _, g := range chosen {
			for _, w := range g.workloads {
				r.figures.compare(&g, w, round, *benchtime)
			}
		}
	}
	if *only {
		r.figures.print()
		r.printBars()
		return
	}
	if *verbs {
		must(0, r.writeVerbs())
		return
	}
	progress("memory")
	r.rivals, r.ours = footprints(prints), footprints(strategies)
	progress("latency")
	r.sweeping = bestSweeping(3)
	progress("millions of ids")
	for _, s := range grows {
		r.growths = append(r.growths, bestGrowth(s, attempts))
	}
	r.stall = longestStall(r.growths[0].Lasted, attempts)
	r.peak = alone[float64]("-hold", strconv.Itoa(huge))
	progress("done")
	bench.Main("benchmarks", func() error {
		return os.WriteFile(*out, append(r.report(), sections()...), 0o644)
	})
}

// progress prints the name of the next measurement.
func progress(what string) { fmt.Fprintln(os.Stderr, time.Now().Format(time.TimeOnly), what) }

// selected returns the groups, stores and workloads that the flags select.
func selected(groups []group) []group {
	var picked []group
	for _, g := range groups {
		g.stores = filter(g.stores, func(s store) bool {
			return *storeList == "" || slices.Contains(strings.Split(*storeList, ","), s.name)
		})
		g.workloads = filter(g.workloads, func(w *workload) bool { return match(*workRE, w.name) })
		if match(*groupRE, g.name) {
			picked = append(picked, g)
		}
	}
	return picked
}

func match(re, s string) bool { return regexp.MustCompile(re).MatchString(s) }

func filter[T any](in []T, keep func(T) bool) []T {
	return slices.DeleteFunc(slices.Clone(in), func(v T) bool { return !keep(v) })
}

// sections returns the last results of the programs beside this one, and of -verbs.
func sections() string {
	var b strings.Builder
	for _, file := range []string{
		"waits/RESULTS.md", "rules/RESULTS.md", "serve/RESULTS.md", "proxy/RESULTS.md",
		"replay/RESULTS.md", verbsResults,
	} {
		text, _ := os.ReadFile(file) // empty if it was not measured
		fmt.Fprintf(&b, "\n%s", text)
	}
	return b.String()
}
