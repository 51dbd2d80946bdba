package overload

import (
	"math"
	"slices"
)

// envoy is written after the documentation of Envoy's adaptive concurrency filter, with its
// defaults: each minute the limit is 3 until 50 requests have ended, whose median is the least
// latency; each .1 s the limit is scaled by that and a quarter, over the median, and gets room for
// a queue.
type envoy struct {
	limit, inFlight float64
	least           float64 // latency
	measured        float64 // when least is measured again
	measuring       bool
	begin           float64 // of the latencies
	latencies       []float64
}

func newEnvoy() Limiter { return &envoy{limit: 100, measuring: true} }

// Enter implements Limiter.
func (e *envoy) Enter(now float64, _ *Request) bool {
	if !e.measuring && now >= e.measured {
		e.measuring, e.latencies = true, e.latencies[:0]
	}
	limit := e.limit
	if e.measuring {
		limit = 3
	}
	if e.inFlight+1 > math.Floor(limit) {
		return false
	}
	e.inFlight++
	return true
}

// Leave implements Limiter.
func (e *envoy) Leave(now float64, _ *Request, took float64) {
	e.inFlight--
	e.latencies = append(e.latencies, took)
	switch {
	case e.measuring && len(e.latencies) < 50, now < e.begin+.1:
		return
	case e.measuring:
		e.measuring, e.least, e.measured = false, median(e.latencies), now+60
	default:
		limit := min(max(.5, 1.25*e.least/median(e.latencies)), 2) * e.limit
		e.limit = min(max(3, limit+math.Sqrt(limit)), 1000)
	}
	e.begin, e.latencies = now, e.latencies[:0]
}

func median(of []float64) float64 {
	slices.Sort(of)
	return of[len(of)/2]
}
