package main

import (
	"bytes"
	"fmt"
	"os"
	"time"

	"github.com/weirgo/weir"
)

// What weir offers beside decisions is measured apart, by -verbs, and the report has what was measured last.

const verbsResults = "verbs/RESULTS.md"

var verbGroups = []group{
	{
		name: "Resolution", title: "A clock of a millisecond",
		stores:    []store{coarseStore, {"exact clock", modWeir, openWeir}, goLimiterStore},
		workloads: []*workload{&hot, &denied, &tenThousand, &zipf},
	},
}

var coarseStore = store{"weir", modWeir, func(q quota) instance {
	return openCheckRate(q, weir.Config{Resolution: time.Millisecond})
}}

var verbBars = []bar{
	share("clock of 1 ms, hot id, to go-limiter", 0.28, "Resolution", &hot, "go-limiter"),
	share("clock of 1 ms, always denied, to go-limiter", 0.30, "Resolution", &denied, "go-limiter"),
	share("clock of 1 ms, 10k ids, to go-limiter", 0.42, "Resolution", &tenThousand, "go-limiter"),
	share("clock of 1 ms, 1M ids, Zipf, to go-limiter", 0.50, "Resolution", &zipf, "go-limiter"),
	{is: "CPU of a clock of 1 ms, of one core", most: 2, unit: " %", measured: func(*results) float64 { return 100 * tickCost() }},
}

// tickCost is the share of a core that a coarse clock takes beside an idle limiter with one bucket.
func tickCost() float64 {
	cost := func(resolution time.Duration) float64 {
		l := must(weir.New(weir.Config{Resolution: resolution}))
		defer l.Close()
		must(l.CheckRate("id", day.Milliseconds(), 1))
		const during = 2 * time.Second
		before := cpuTime()
		time.Sleep(during)
		return float64(cpuTime()-before) / float64(during)
	}
	return max(0, cost(time.Millisecond)-cost(0))
}

// writeVerbs writes verbsResults.
func (r *results) writeVerbs() error {
	var b bytes.Buffer
	b.WriteString("## Beside decisions\n\nBy `go run . -verbs`; see how the rest was measured.\n\n")
	_ = r.writeTable(&b, verbBars)
	for i := range verbGroups {
		g := verbGroups[i]
		b.WriteString("\n#")
		r.writeGroup(&b, &g)
	}
	fmt.Fprintf(&b, "\n%s. Load average when it began: %s. It took %v, with %d rounds.\n",
		r.begun.Format(time.DateOnly), r.load, time.Since(r.begun).Round(time.Second), r.rounds)
	return os.WriteFile(verbsResults, b.Bytes(), 0o644)
}
