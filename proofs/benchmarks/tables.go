package main

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weirgo/weir/proofs/benchmarks/internal/bench"
)

// group is a set of stores that do the same, and the workloads that compare them.
type group struct {
	name      string // of the benchmark
	title     string
	stores    []store
	workloads []*workload
}

var groups = []group{
	{
		name: "Calls", title: "As programs write it",
		stores: slices.Concat(calls, []store{goLimiterStore, ululeStore, throttledStore, httprateStore,
			xtimeStore, slidingwStore}),
		workloads: []*workload{&hot, &tenThousand, &denied},
	},
	{
		name: "CheckRate", title: "One limit per id",
		stores: []store{weirStore, goLimiterStore, ululeStore, throttledStore, httprateStore,
			xtimeStore},
		workloads: []*workload{&hot, &denied, &tenThousand, &fresh, &zipf, &uniform},
	},
	{
		name: "TokenBucket", title: "Token bucket",
		stores:    []store{weirTokens, throttledStore, xtimeStore},
		workloads: []*workload{&hot, &tenThousand, &denied},
	},
	{
		name: "SlidingWindow", title: "Sliding window counter",
		stores:    []store{weirSliding, slidingwStore, httprateStore},
		workloads: []*workload{&hot, &tenThousand, &denied},
	},
	{
		name: "Middleware", title: "HTTP middleware",
		stores:    middlewares,
		workloads: []*workload{&hotPeer, &manyPeers, &deniedPeer},
	},
	{
		name: "Strategies", title: "weir's strategies",
		stores:    strategies,
		workloads: []*workload{&hot, &tenThousand},
	},
	{
		name: "Hold", title: "Work in flight",
		stores:    []store{weirHolds, semaphoreStore},
		workloads: []*workload{&hot, &tenThousand},
	},
}

// cell identifies a figure.
type cell struct{ group, workload, mode, store string }

// prints are the stores whose memory is measured with a million ids.
var prints = slices.Concat(groups[1].stores, []store{slidingwStore})

// figures holds the samples of each cell, one per turn.
type figures map[cell][]sample

// compare measures a workload on all stores of a group in turn, so that other load on the machine
// affects all alike. The caller goes through all workloads before it starts the next round, since
// the machine changes its speed for seconds or minutes.
//
// A store that is filled quickly has several short turns per round instead of a long one, so that
// the compared measurements lie within a second.
func (f figures) compare(g *group, w *workload, round int, benchtime time.Duration) {
	turns := 1
	if w.known <= 10_000 && !w.once {
		turns = 5
	}
	for turn := range turns {
		for i := range g.stores {
			s := g.stores[(i+round*turns+turn)%len(g.stores)]
			f.turn(g, s, w, benchtime/time.Duration(turns))
		}
	}
}

// turn measures a store in each mode. All modes share one open store, unless the workload needs new
// ids.
func (f figures) turn(g *group, s store, w *workload, benchtime time.Duration) {
	in := prepare(s, w)
	for i, m := range modes {
		if i > 0 && w.once {
			in.close()
			in = prepare(s, w)
		}
		c := cell{g.name, w.name, m.name, s.name}
		f[c] = append(f[c], measure(in, w, m, benchtime))
	}
	in.close()
}

// ns returns the median of a cell.
func (f figures) ns(c cell) float64 {
	return bench.MedianOf(f[c], func(s sample) float64 { return s.ns })
}

// ratio returns a's time divided by b's: the median of the ratios of all turns.
func (f figures) ratio(a, b cell) float64 {
	ratios := make([]float64, len(f[a]))
	for i := range ratios {
		ratios[i] = f[a][i].ns / f[b][i].ns
	}
	return bench.Median(ratios)
}

func (f figures) extremes(c cell) (least, most float64) {
	least, most = f[c][0].ns, f[c][0].ns
	for _, s := range f[c] {
		least, most = min(least, s.ns), max(most, s.ns)
	}
	return least, most
}

func (f figures) allocs(c cell) float64 {
	return bench.MedianOf(f[c], func(s sample) float64 { return s.allocs })
}

// print writes the figures as lines of text.
func (f figures) print() {
	cells := slices.SortedFunc(maps.Keys(f), func(a, b cell) int {
		return slices.Compare(
			[]string{a.group, a.workload, a.mode, fmt.Sprintf("%12.1f", f.ns(a))},
			[]string{b.group, b.workload, b.mode, fmt.Sprintf("%12.1f", f.ns(b))})
	})
	for _, c := range cells {
		ours := c
		ours.store = "weir"
		ratio := ""
		if f[ours] != nil {
			ratio = fmt.Sprintf("%6.2fx", f.ratio(ours, c))
		}
		fmt.Printf("%-14s %-20s %-20s %-14s %8.1f ns %6.2f allocs %s\n",
			c.group, c.workload, c.mode, c.store, f.ns(c), f.allocs(c), ratio)
	}
}

// spread returns the difference between the slowest and the fastest turn of a figure, divided by
// its median; it is the median of all figures.
func (f figures) spread() float64 {
	var spreads []float64
	for c := range f {
		least, most := f.extremes(c)
		spreads = append(spreads, (most-least)/f.ns(c))
	}
	return bench.Median(spreads)
}
