package overload

import "time"

// Stats says how much a [Guard] admits, and how often it has refused.
type Stats struct {
	Limit    int // of requests in flight
	InFlight int // now

	// Of the last window that was measured: how long a request took, on average, how long it may
	// take while the service is full, and how many ended in a second. 0 before the first has ended.
	Latency, Goal time.Duration
	Throughput    float64

	// State is "learning", "room", "full, quick enough", "full, too slow: fewer", "less did not
	// help" or "full from the start: trying few", as of that window.
	State string

	Refused  map[Class]map[Reason]uint64 // with every class and reason
	Unshared uint64                      // callers not counted, as MaxBuckets were in use
}

func seconds(d float64) time.Duration { return time.Duration(d * float64(time.Second)) }
