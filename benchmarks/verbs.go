package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/offenders"
)

// What weir offers beside decisions is measured apart, by -verbs, and the report has what was
// measured last.

const verbsResults = "verbs/RESULTS.md"

var verbGroups = []group{
	{
		name: "Resolution", title: "A clock of a millisecond",
		stores:    []store{coarseStore, {"exact clock", modWeir, openWeir}, goLimiterStore},
		workloads: []*workload{&hot, &denied, &tenThousand, &zipf},
	},
	{
		name: "Offenders", title: "Top offenders",
		stores:    []store{{"weir", modWeir, openWatched}, {"unwatched", modWeir, openUnwatched}},
		workloads: []*workload{&hot, &denied, &zipfDenied},
	},
}

// zipfDenied is a flood of a million callers who are all denied.
var zipfDenied = workload{
	name: "ids=1M/mode=deny", is: "1M ids, Zipf, denied",
	quota: quota{1, day}, known: million, allow: false, ids: lazily(zipfian(1<<20, million), ""),
}

func openUnwatched(q quota) instance {
	return openStrategy(q, func(l *weir.Limiter) ask { return running(l.FixedWindow()) })
}

// openWatched counts denials. So many come before it is measured that it samples them.
func openWatched(q quota) instance {
	worst := offenders.New(offenders.Config{})
	for i := range 1 << 15 {
		worst.Denied(string(appendID(nil, i)))
	}
	return openStrategy(q, func(l *weir.Limiter) ask { return running(worst.Watch(l.FixedWindow())) })
}

// running asks a strategy by Run.
func running(s weir.Strategy) ask {
	return func(r *weir.Request) bool {
		res, err := s.Run(always, r)
		if err != nil {
			panic(err)
		}
		return res.Allowed()
	}
}

var coarseStore = store{"weir", modWeir, func(q quota) instance {
	return openCheckRate(q, weir.Config{Resolution: time.Millisecond})
}}

var verbBars = []bar{
	share("clock of 1 ms, hot id, to go-limiter", 0.28, "Resolution", &hot, "go-limiter"),
	share("clock of 1 ms, always denied, to go-limiter", 0.30, "Resolution", &denied, "go-limiter"),
	share("clock of 1 ms, 10k ids, to go-limiter", 0.42, "Resolution", &tenThousand, "go-limiter"),
	share("clock of 1 ms, 1M ids, Zipf, to go-limiter", 0.50, "Resolution", &zipf, "go-limiter"),
	{is: "CPU of a clock of 1 ms, of one core", most: 4, unit: " %", measured: func(*results) float64 { return 100 * tickCost() }},
	share("a decision with offenders, hot id, to one without", 1.05, "Offenders", &hot, "unwatched"),
	share("a decision with offenders, always denied, to one without", 1.05, "Offenders", &denied,
		"unwatched"),
	share("a decision with offenders, 1M ids denied, to one without", 1.05, "Offenders", &zipfDenied,
		"unwatched"),
	{is: "Save of a million buckets, CPU time", most: 250, unit: " ms",
		measured: func(*results) float64 { save, _ := snapshotCost(); return save }},
	{is: "Load of a million buckets, CPU time", most: 2000, unit: " ms",
		measured: func(*results) float64 { _, load := snapshotCost(); return load }},
}

// snapshotCost returns the CPU time of Save and Load, in ms: the best of three.
func snapshotCost() (save, load float64) {
	l := must(weir.New(weir.Config{}))
	defer l.Close()
	for i := range million {
		must(l.CheckRate(string(appendID(nil, i)), day.Milliseconds(), unlimited))
	}
	save, load = math.Inf(1), math.Inf(1)
	for range 3 {
		var file bytes.Buffer
		file.Grow(64 << 20)
		save = min(save, cpuOf(func() { must(0, l.Save(&file)) }))
		restored := must(weir.New(weir.Config{}))
		load = min(load, cpuOf(func() { must(0, restored.Load(&file)) }))
		if n := restored.Stats().Buckets; n != million {
			panic(fmt.Sprintf("%d buckets were loaded", n))
		}
		must(0, restored.Close())
	}
	return save, load
}

// cpuOf returns the CPU time of f, in ms, a garbage collection beside it included.
func cpuOf(f func()) float64 {
	settle()
	before := cpuTime()
	f()
	return units(cpuTime()-before, time.Millisecond)
}

const verbsMissed = `On a hot id the clock is about half of a decision; what is left is the hash, the index, the comparison of the key and
the compare-and-swap. A tick wakes a goroutine, which costs more where other processes run. What offenders add to a
denial is a random number, and a map access for one in 128: that shows where a decision is as short as on one hot id.
`

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
	if len(r.writeTable(&b, verbBars)) > 0 {
		b.WriteString("\n" + verbsMissed)
	}
	for i := range verbGroups {
		var section bytes.Buffer
		r.writeGroup(&section, &verbGroups[i])
		b.Write(bytes.Replace(section.Bytes(), []byte("\n## "), []byte("\n### "), 1))
	}
	fmt.Fprintf(&b, "\n%s. Load average when it began: %s. It took %v, with %d rounds.\n",
		r.begun.Format(time.DateOnly), r.load, time.Since(r.begun).Round(time.Second), r.rounds)
	return os.WriteFile(verbsResults, b.Bytes(), 0o644)
}
