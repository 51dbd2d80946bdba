package main

import (
	"math"
	"time"
)

// shareBar is the highest allowed ratio of weir's time to go-limiter's in a workload.
type shareBar struct {
	workload *workload
	one, two float64 // oneCore, twoCores
}

var shareBars = []shareBar{
	{&hot, 0.65, 0.60},
	{&denied, 0.66, 0.65},
	{&tenThousand, 0.70, 0.57},
	{&fresh, 0.45, 0.45},
	{&zipf, 0.65, 0.60},
	{&uniform, 0.55, 0.50},
}

func (b shareBar) most(m mode) float64 {
	if m == oneCore {
		return b.one
	}
	return b.two
}

// bar is an upper bound that a figure of weir must meet.
type bar struct {
	is       string // its name in the report
	most     float64
	unit     string
	measured func(*results) float64
}

var bars = []bar{
	share("token bucket, hot id, vs throttled", 0.6, "TokenBucket", &hot, "throttled"),
	share("token bucket, hot id, vs x/time/rate in a sync.Map", 0.65, "TokenBucket", &hot, "x-time-rate"),
	share("sliding window, hot id, vs slidingwindow in a sync.Map", 0.5, "SlidingWindow", &hot,
		"slidingwindow"),
	share("sliding window, hot id, vs httprate", 0.5, "SlidingWindow", &hot, "httprate"),
	share("middleware, hot id, vs the fastest rival", 0.6, "Middleware", &hotPeer, "go-limiter", "ulule",
		"httprate"),
	{is: "allocations for a known id, CheckRate",
		measured: allocations("CheckRate", "weir", &hot, &denied, &tenThousand, &zipf, &uniform)},
	{is: "allocations for a known id, token bucket",
		measured: allocations("TokenBucket", "weir", &hot, &tenThousand, &denied)},
	{is: "allocations for a known id, sliding window",
		measured: allocations("SlidingWindow", "weir", &hot, &tenThousand, &denied)},
	{is: "allocations for a known id, sliding log, amortised",
		measured: allocations("Strategies", "SlidingLog", &hot)},
	{is: "5M ids: bytes per id", most: 85, measured: func(r *results) float64 { return r.growths[0].Bytes }},
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
	return bar{is, most, "×", func(r *results) (largest float64) {
		for _, rival := range rivals {
			ratio := r.ratio(cell{group, w.name, oneCore.name, "weir"},
				cell{group, w.name, oneCore.name, rival})
			largest = max(largest, ratio)
		}
		return largest
	}}
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
