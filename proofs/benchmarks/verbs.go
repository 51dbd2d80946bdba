package main

import (
	"bytes"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/offenders"
	"github.com/weirgo/weir/proofs/benchmarks/internal/bench"
)

// Operations other than decisions are measured separately, by -verbs. RESULTS.md includes the
// last results.

const verbsResults = "verbs/RESULTS.md"

var verbGroups = []group{
	{
		name: "Ticking", title: "A clock that a ticker moves every millisecond",
		stores:    []store{coarseStore, {"exact clock", modWeir, openWeir}, goLimiterStore},
		workloads: []*workload{&hot, &denied, &tenThousand, &zipf},
	},
	{
		name: "Offenders", title: "Top offenders",
		stores:    []store{{"weir", modWeir, openWatched}, {"unwatched", modWeir, openUnwatched}},
		workloads: []*workload{&hot, &denied, &zipfDenied},
	},
}

// zipfDenied has requests of a million callers, all denied.
var zipfDenied = workload{
	name: "ids=1M/mode=deny", is: "1M ids, Zipf, denied",
	quota: quota{1, day}, known: million, allow: false, ids: lazily(zipfian(1<<20, million), ""),
}

func openUnwatched(q quota) instance {
	return openCall(func(l *weir.Limiter) decide { return running(l.FixedWindow(), q) })
}

// openWatched counts denials. It makes so many of them before the measurement that offenders
// samples the following ones.
func openWatched(q quota) instance {
	worst := offenders.New(offenders.Config{})
	for i := range 1 << 15 {
		worst.Denied(string(appendID(nil, i)))
	}
	return openCall(func(l *weir.Limiter) decide { return running(worst.Watch(l.FixedWindow()), q) })
}

// running calls a strategy's Run.
func running(s weir.Strategy, q quota) decide {
	return func(id string) bool {
		res, err := s.Run(always, &weir.Request{Key: id, Limit: uint64(q.limit), Duration: q.period})
		if err != nil {
			panic(err)
		}
		return res.Allowed()
	}
}

var coarseStore = store{"weir", modWeir, func(q quota) instance {
	now, _ := ticking(time.Millisecond)
	return openCheckRate(q, weir.Config{Now: now})
}}

// ticking returns a clock that moves every step, until it is stopped.
func ticking(step time.Duration) (now func() time.Time, stop func()) {
	var at atomic.Pointer[time.Time]
	start, ticks := time.Now(), time.NewTicker(step)
	at.Store(&start)
	go func() {
		for range ticks.C {
			t := start.Add(time.Since(start))
			at.Store(&t)
		}
	}()
	return func() time.Time { return *at.Load() }, ticks.Stop
}

var verbBars = []bar{
	share("1 ms clock, hot id, vs go-limiter", 0.28, "Ticking", &hot, "go-limiter"),
	share("1 ms clock, always denied, vs go-limiter", 0.30, "Ticking", &denied, "go-limiter"),
	share("1 ms clock, 10k ids, vs go-limiter", 0.42, "Ticking", &tenThousand, "go-limiter"),
	share("1 ms clock, 1M ids, Zipf, vs go-limiter", 0.50, "Ticking", &zipf, "go-limiter"),
	{is: "CPU time of a 1 ms clock, share of one core", most: 5, unit: " %",
		measured: func(*results) float64 { return 100 * tickCost() }},
	share("with offenders vs without, hot id", 1.05, "Offenders", &hot, "unwatched"),
	share("with offenders vs without, always denied", 1.05, "Offenders", &denied, "unwatched"),
	share("with offenders vs without, 1M ids denied", 1.05, "Offenders", &zipfDenied, "unwatched"),
	{is: "Save of a million buckets, CPU time", most: 250, unit: " ms",
		measured: func(*results) float64 { save, _ := snapshotCost(); return save }},
	{is: "Load of a million buckets, CPU time", most: 2000, unit: " ms",
		measured: func(*results) float64 { _, load := snapshotCost(); return load }},
}

// snapshotCost returns the CPU time of Save and of Load with a million buckets, in ms; each is the
// best of three.
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

// cpuOf returns the CPU time of f, in ms, including concurrent garbage collection.
func cpuOf(f func()) float64 {
	settle()
	before := bench.CPUTime()
	f()
	return units(bench.CPUTime()-before, time.Millisecond)
}

const verbsMissed = `On a hot id, reading the clock is about half of a decision; the rest is the hash,
the index, the key comparison and the compare-and-swap. A tick wakes a goroutine, which costs more
when other processes run. Package offenders adds a random number to each denial, and a map access to
one in 128. The random number takes 6 to 9 ns, and an atomic counter in its place 10 to 14: on one
id that is always denied, 5 percent of a decision are 5 to 10 ns.
`

// tickCost returns the share of one core that such a clock uses, beside an idle limiter with one
// bucket.
func tickCost() float64 {
	cost := func(now func() time.Time) float64 {
		l := must(weir.New(weir.Config{Now: now}))
		defer l.Close()
		must(l.CheckRate("id", day.Milliseconds(), 1))
		const during = 2 * time.Second
		before := bench.CPUTime()
		time.Sleep(during) // what the clock uses in this time is the result
		return float64(bench.CPUTime()-before) / float64(during)
	}
	without := cost(nil)
	now, stop := ticking(time.Millisecond)
	defer stop()
	return max(0, cost(now)-without)
}
