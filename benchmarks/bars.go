package main

import (
	"math"
	"time"
)

// bar is a figure that weir is held to.
type bar struct {
	is       string
	most     float64
	unit     string
	measured func(*results) float64
	fastest  func(*results) float64 // the same of the fastest turns; nil for what is not a time
}

var bars = []bar{
	share("hot id, to go-limiter", 0.65, "CheckRate", &hot, "go-limiter"),
	share("always denied, to go-limiter", 0.65, "CheckRate", &denied, "go-limiter"),
	share("10k ids, to go-limiter", 0.75, "CheckRate", &tenThousand, "go-limiter"),
	share("new id each call, to go-limiter", 0.9, "CheckRate", &fresh, "go-limiter"),
	share("1M ids, Zipf, to the best rival", 1, "CheckRate", &zipf, "go-limiter", "ulule", "throttled", "httprate", "x-time-rate"),
	share("token bucket, hot id, to throttled", 0.6, "TokenBucket", &hot, "throttled"),
	share("token bucket, hot id, to x/time/rate in a sync.Map", 0.65, "TokenBucket", &hot, "x-time-rate"),
	share("sliding window, hot id, to slidingwindow in a sync.Map", 0.5, "SlidingWindow", &hot, "slidingwindow"),
	share("sliding window, hot id, to httprate", 0.5, "SlidingWindow", &hot, "httprate"),
	share("middleware, hot id, to the best rival", 0.7, "Middleware", &hotPeer, "go-limiter", "ulule", "httprate"),
	{is: "allocations for a known id, CheckRate", measured: allocations("CheckRate", "weir", &hot, &tenThousand, &zipf, &denied)},
	{is: "allocations for a known id, token bucket", measured: allocations("TokenBucket", "weir", &hot, &tenThousand, &denied)},
	{is: "allocations for a known id, sliding window", measured: allocations("SlidingWindow", "weir", &hot, &tenThousand, &denied)},
	{is: "allocations for a known id, sliding log, amortised", measured: allocations("Strategies", "SlidingLog", &hot)},
	{is: "p99.9 of a decision while a million buckets are swept, to idle", most: 5, unit: "×",
		measured: func(r *results) float64 { return r.sweeping.ratio() }},
	{is: "p99.9 of a decision while a million buckets are swept", most: 10, unit: " µs",
		measured: func(r *results) float64 { return units(r.sweeping.swept.p999, time.Microsecond) }},
	{is: "slowest decision while new ids grow the table past 1M", most: 20, unit: " ms",
		measured: func(r *results) float64 { return units(r.growths[0].max, time.Millisecond) }},
}

// share is weir's time in a workload as a share of that of the fastest of the rivals.
func share(is string, most float64, group string, w *workload, rivals ...string) bar {
	against := func(ratio func(a, b cell) float64) (largest float64) {
		for _, rival := range rivals {
			largest = max(largest, ratio(cell{group, w.name, modes[0].name, "weir"}, cell{group, w.name, modes[0].name, rival}))
		}
		return largest
	}
	return bar{is, most, "×",
		func(r *results) float64 { return against(r.ratio) },
		func(r *results) float64 { return against(r.fastest) },
	}
}

// allocations returns how many a decision makes, in the workload where it makes the most.
func allocations(group, store string, workloads ...*workload) func(*results) float64 {
	return func(r *results) (most float64) {
		for _, w := range workloads {
			most = max(most, r.figures.allocs(cell{group, w.name, modes[0].name, store}))
		}
		return most
	}
}

func units(d, unit time.Duration) float64 { return float64(d) / float64(unit) }

// met compares at the two decimals that the report shows.
func (b bar) met(measured float64) bool { return math.Round(measured*100) <= math.Round(b.most*100) }
