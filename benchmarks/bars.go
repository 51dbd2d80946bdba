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
}

var bars = []bar{
	{"hot id, to go-limiter", 0.65, "×", against("CheckRate", &hot, "go-limiter")},
	{"always denied, to go-limiter", 0.65, "×", against("CheckRate", &denied, "go-limiter")},
	{"10k ids, to go-limiter", 0.75, "×", against("CheckRate", &tenThousand, "go-limiter")},
	{"new id each call, to go-limiter", 0.9, "×", against("CheckRate", &fresh, "go-limiter")},
	{"1M ids, Zipf, to the best rival", 1, "×",
		against("CheckRate", &zipf, "go-limiter", "ulule", "throttled", "httprate", "x-time-rate")},
	{"token bucket, hot id, to throttled", 0.6, "×", against("TokenBucket", &hot, "throttled")},
	{"token bucket, hot id, to x/time/rate in a sync.Map", 0.65, "×", against("TokenBucket", &hot, "x-time-rate")},
	{"sliding window, hot id, to slidingwindow in a sync.Map", 0.5, "×", against("SlidingWindow", &hot, "slidingwindow")},
	{"sliding window, hot id, to httprate", 0.5, "×", against("SlidingWindow", &hot, "httprate")},
	{"middleware, hot id, to the best rival", 0.7, "×", against("Middleware", &hotPeer, "go-limiter", "ulule", "httprate")},
	{"allocations for a known id, CheckRate", 0, "", allocations("CheckRate", "weir", &hot, &tenThousand, &zipf, &denied)},
	{"allocations for a known id, token bucket", 0, "", allocations("TokenBucket", "weir", &hot, &tenThousand, &denied)},
	{"allocations for a known id, sliding window", 0, "", allocations("SlidingWindow", "weir", &hot, &tenThousand, &denied)},
	{"allocations for a known id, sliding log, amortised", 0, "", allocations("Strategies", "SlidingLog", &hot)},
	{"p99.9 of a decision while a million buckets are swept, to idle", 5, "×",
		func(r *results) float64 { return r.sweeping.ratio() }},
	{"p99.9 of a decision while a million buckets are swept", 10, " µs",
		func(r *results) float64 { return units(r.sweeping.swept.p999, time.Microsecond) }},
	{"slowest decision while new ids grow the table past 1M", 20, " ms",
		func(r *results) float64 { return units(r.growths[0].max, time.Millisecond) }},
}

// against returns weir's time in a workload as a share of that of the fastest of the rivals.
func against(group string, w *workload, rivals ...string) func(*results) float64 {
	return func(r *results) float64 {
		ours, most := cell{group, w.name, modes[0].name, "weir"}, 0.0
		for _, rival := range rivals {
			most = max(most, r.figures.ratio(ours, cell{group, w.name, modes[0].name, rival}))
		}
		return most
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
