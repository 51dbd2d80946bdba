package main

import (
	"math"
	"slices"
	"time"
)

// shareBar is the highest allowed ratio of a store's time in a workload to another's, in each mode.
type shareBar struct {
	is       string // what is compared, in the report
	group    string
	workload *workload
	store    string // one of weir's
	rival    string
	one, two float64 // oneCore, twoCores
}

// shareBars hold CheckRate to go-limiter.
var shareBars = []shareBar{
	{"hot id", "CheckRate", &hot, "weir", "go-limiter", 0.65, 0.60},
	{"always denied", "CheckRate", &denied, "weir", "go-limiter", 0.66, 0.65},
	{"10k ids", "CheckRate", &tenThousand, "weir", "go-limiter", 0.70, 0.57},
	{"new id each call", "CheckRate", &fresh, "weir", "go-limiter", 0.45, 0.45},
	{"1M ids, Zipf", "CheckRate", &zipf, "weir", "go-limiter", 0.65, 0.60},
	{"1M ids, uniform", "CheckRate", &uniform, "weir", "go-limiter", 0.55, 0.50},
}

// callBars hold the calls of a Limit to CheckRate and to the natural calls of rivals.
var callBars = []shareBar{
	{"Allow of the token bucket, hot id, vs x/time/rate in a sync.Map", "Calls", &hot,
		"Allow, token bucket", "x-time-rate", 0.50, 0.55},
	{"Allow of the token bucket, always denied, vs x/time/rate in a sync.Map", "Calls", &denied,
		"Allow, token bucket", "x-time-rate", 0.50, 0.25},
	{"Allow of the sliding window, hot id, vs slidingwindow in a sync.Map", "Calls", &hot, "Allow",
		"slidingwindow", 0.45, 0.30},
	{"Allow of the sliding window, always denied, vs slidingwindow in a sync.Map", "Calls", &denied,
		"Allow", "slidingwindow", 0.50, 0.20},
	{"Allow, hot id, vs CheckRate", "Calls", &hot, "Allow", "CheckRate", 1.05, 1.05},
	{"Allow, 10k ids, vs CheckRate", "Calls", &tenThousand, "Allow", "CheckRate", 1.05, 1.05},
	{"Take, hot id, vs Allow", "Calls", &hot, "Take", "Allow", 1.25, 1.25},
	{"All of two, hot id, vs Allow", "Calls", &hot, "All of two", "Allow", 2.3, 2.3},
}

// strategyBars hold the strategies to their rivals, and to FixedWindow.
var strategyBars = []shareBar{
	{"token bucket, hot id, vs x/time/rate in a sync.Map", "TokenBucket", &hot, "weir", "x-time-rate",
		0.75, 0.85},
	{"token bucket, always denied, vs x/time/rate in a sync.Map", "TokenBucket", &denied, "weir",
		"x-time-rate", 0.75, 0.55},
	{"token bucket, hot id, vs throttled", "TokenBucket", &hot, "weir", "throttled", 0.55, 0.45},
	{"token bucket, always denied, vs throttled", "TokenBucket", &denied, "weir", "throttled", 0.62,
		0.45},
	{"sliding window, hot id, vs slidingwindow in a sync.Map", "SlidingWindow", &hot, "weir",
		"slidingwindow", 0.60, 0.45},
	{"sliding window, always denied, vs slidingwindow in a sync.Map", "SlidingWindow", &denied, "weir",
		"slidingwindow", 0.65, 0.35},
	{"Calendar, hot id, vs FixedWindow", "Strategies", &hot, "Calendar", "FixedWindow", 1.15, 1.15},
	{"Hold and Release, hot id, vs a semaphore in a sync.Map", "Hold", &hot, "InFlight", "semaphore",
		1, 1},
	{"Hold and Release, 10k ids, vs semaphores in a sync.Map", "Hold", &tenThousand, "InFlight",
		"semaphore", 1, 1},
	{"Counter, hot id, vs FixedWindow", "Strategies", &hot, "Counter", "FixedWindow", 1.2, 1.2},
	{"middleware with SlidingWindow, hot id, vs FixedWindow", "Middleware", &hotPeer, "weir-sliding",
		"weir", 1.08, 1.08},
	{"middleware with SlidingWindow, always denied, vs FixedWindow", "Middleware", &deniedPeer,
		"weir-sliding", "weir", 1.08, 1.08},
}

// inEachMode returns the bars of each mode.
func inEachMode(shares []shareBar) (bars []bar) {
	for _, m := range modes {
		for _, s := range shares {
			bars = append(bars, s.in(m))
		}
	}
	return bars
}

func (s shareBar) in(m mode) bar {
	most := s.one
	if m == twoCores {
		most = s.two
	}
	b := ratio(s.is+", "+m.name, most, cell{s.group, s.workload.name, m.name, s.store}, s.rival)
	b.unit = "" // the table says what they are
	return b
}

// bar is an upper bound that a figure of weir must meet.
type bar struct {
	is       string // its name in the report
	most     float64
	unit     string
	measured func(*results) float64
	cells    []cell // of a ratio: the cells that it compares
}

var bars = []bar{
	share("sliding window, hot id, vs httprate", 0.5, "SlidingWindow", &hot, "httprate"),
	share("middleware, hot id, vs the fastest rival", 0.6, "Middleware", &hotPeer, "go-limiter",
		"ulule",
		"httprate"),
	{is: "allocations for a known id, CheckRate",
		measured: allocations("CheckRate", "weir", &hot, &denied, &tenThousand, &zipf, &uniform)},
	{is: "allocations for a known id, token bucket",
		measured: allocations("TokenBucket", "weir", &hot, &tenThousand, &denied)},
	{is: "allocations for a known id, sliding window",
		measured: allocations("SlidingWindow", "weir", &hot, &tenThousand, &denied)},
	{is: "allocations for a known id, sliding log, amortised",
		measured: allocations("Strategies", "SlidingLog", &hot)},
	{is: "5M ids: bytes per id", most: 85, measured: func(r *results) float64 {
		return r.growths[0].Bytes
	}},
	{is: "5M ids: full garbage collection, vs go-limiter", most: 4, unit: " %",
		measured: func(r *results) float64 {
			return 100 * units(r.growths[0].GC, 1) / units(r.growths[1].GC, 1)
		}},
	{is: "longest decision while growing to 5M ids", most: 2, unit: " ms",
		measured: func(r *results) float64 { return units(r.growths[0].Max, time.Millisecond) }},
	{is: "p99.9 of a decision while a million buckets are swept", most: 5, unit: " µs",
		measured: func(r *results) float64 { return units(r.sweeping.swept.P999, time.Microsecond) }},
	{is: "10M ids: peak resident memory of the process", most: 1.5, unit: " GB",
		measured: func(r *results) float64 { return r.peak / 1e9 }},
}

// share returns the bar for weir's time in a workload on one core, as a multiple of the fastest
// rival's.
func share(is string, most float64, group string, w *workload, rivals ...string) bar {
	return ratio(is, most, cell{group, w.name, oneCore.name, "weir"}, rivals...)
}

// ratio returns the bar for the time in a cell, as a multiple of that of the fastest rival there.
func ratio(is string, most float64, ours cell, rivals ...string) bar {
	b := bar{is: is, most: most, unit: "×", cells: []cell{ours}}
	for _, rival := range rivals {
		theirs := ours
		theirs.store = rival
		b.cells = append(b.cells, theirs)
	}
	b.measured = func(r *results) (largest float64) {
		for _, theirs := range b.cells[1:] {
			largest = max(largest, r.ratio(ours, theirs))
		}
		return largest
	}
	return b
}

// ratiosOf returns the bars whose cells were all measured.
func ratiosOf(f figures) []bar {
	all := slices.Concat(inEachMode(callBars), inEachMode(shareBars), inEachMode(strategyBars), bars,
		verbBars)
	return filter(all, func(b bar) bool {
		missing := func(c cell) bool { return f[c] == nil }
		return b.cells != nil && !slices.ContainsFunc(b.cells, missing)
	})
}

// allocations returns the most allocations per decision in any of the workloads.
func allocations(group, store string, workloads ...*workload) func(*results) float64 {
	return func(r *results) (most float64) {
		for _, w := range workloads {
			most = max(most, r.allocs(cell{group, w.name, oneCore.name, store}))
		}
		return most
	}
}

func units(d, unit time.Duration) float64 { return float64(d) / float64(unit) }

// within reports whether measured <= most, both rounded to the two decimals of the report.
func within(measured, most float64) bool { return math.Round(measured*100) <= math.Round(most*100) }
