package replay

import (
	"math"
	"slices"

	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/arith"
	"github.com/weirgo/weir/internal/core/calendar"
)

// decider decides on requests in order of time. It is used by one goroutine.
//
// A limit has one decider with one row in the report. A set of rules has one decider with a row for
// each rule, and decides for all callers, since they share counters.
type decider interface {
	// decide sets denied[i] if row i denies h. All of denied is false when it is called.
	decide(h hit, denied []bool) error
	close()
}

// hit is a request of a caller at an instant.
type hit struct {
	caller uint32 // numbered from 0 among this decider's callers
	code   uint32 // the number of its description; that of the caller if there are no descriptions
	ns     int64  // time in nanoseconds since the Unix epoch
	marks  marks  // if it is not counted, decide but count nothing
	route  uint32 // the rank of its route
}

// spec creates deciders.
type spec struct {
	rows int // in the report
	open func(names func(code uint32) string, callers int) (decider, error)
}

// limitSpec creates deciders for one rule. If they need limiters, all parts together keep at most
// maxBuckets buckets.
func limitSpec(r rule.Rule, maxBuckets, parts int) spec {
	return spec{rows: 1, open: func(_ func(uint32) string, callers int) (decider, error) {
		limit, length := r.Tiers[0].Limit, int64(r.Tiers[0].Duration)
		decide := decideFuncs[r.Strategy]
		if r.Strategy == rule.Calendar {
			decide = calendarDecide(r)
		}
		if decide == nil {
			return newLimiterDecider(r, (maxBuckets-1)/parts+1, parts*(callers+1))
		}
		params := windowParams(limit, length)
		if r.HasBurst() {
			params = bucketParams(limit, bucketSize(r), length)
		}
		return newStateDecider(decide, params, callers), nil
	}}
}

// bucketSize returns how many requests a bucket of r admits at one instant. A leaky bucket with a
// queue of n admits as many as a token bucket of n+1: the queue, and the one request that leaves at
// once.
func bucketSize(r rule.Rule) uint64 {
	switch limit := r.Tiers[0].Limit; {
	case limit == 0:
		return 0
	case r.Strategy == rule.Leaky:
		return uint64(r.Queue()) + 1
	case r.Burst == 0:
		return limit
	}
	return r.Burst
}

// stateDecider decides by the states of its callers, each of which is its caller's number in state.
// weir's own strategies keep the same in tables, and take ten times as long.
// TestDecidersEqualWeir compares each with weir's strategy.
type stateDecider struct {
	decides decideFunc
	params  algorithm.Params
	state   []algorithm.State
}

func newStateDecider(decides decideFunc, p algorithm.Params, callers int) *stateDecider {
	return &stateDecider{decides, p, slices.Repeat([]algorithm.State{algorithm.None}, callers)}
}

func (d *stateDecider) close() {}

func (d *stateDecider) decide(h hit, denied []bool) error {
	denied[0] = !d.verdict(h).Allowed
	return nil
}

func (d *stateDecider) verdict(h hit) algorithm.Verdict {
	for int(h.caller) >= len(d.state) {
		d.state = append(d.state, algorithm.None)
	}
	s := &d.state[h.caller]
	v, next := d.decides(*s, d.params, h.ns)
	if h.marks.counted() {
		*s = next
	}
	return v
}

// decideFunc returns the verdict on a state at an instant in nanoseconds, which is not before the
// last, and the state after it.
type decideFunc func(algorithm.State, algorithm.Params, int64) (algorithm.Verdict, algorithm.State)

// decideFuncs are those of the strategies whose state has a fixed size. The size of a bucket is the
// limit of its params.
var decideFuncs = map[string]decideFunc{
	rule.Fixed:   windowDecide(new(algorithm.FixedWindow)),
	rule.Sliding: new(algorithm.SlidingWindow).Decide,
	rule.Token:   new(algorithm.TokenBucket).Decide,
	rule.Leaky:   new(algorithm.TokenBucket).Decide,
}

// windowDecide returns the decideFunc by a's windows.
func windowDecide(a *algorithm.FixedWindow) decideFunc {
	return func(s algorithm.State, p algorithm.Params, ns int64) (algorithm.Verdict, algorithm.State) {
		if ns >= s.Still1 { // the end of the window
			s = algorithm.State{Still1: a.Ends(p.Scale, ns)}
		}
		return a.Decide(s, p, ns)
	}
}

// calendarDecide returns the decideFunc by r's calendar, for one decider.
func calendarDecide(r rule.Rule) decideFunc {
	of, err := calendar.New(calendar.Unit(r.Unit), r.Zone)
	if err != nil {
		panic(err) // rule.Parse has checked it
	}
	var start, end int64 // of the latest window
	return windowDecide(&algorithm.FixedWindow{End: func(_, ns int64) int64 {
		if ns < start || ns >= end {
			second, _ := arith.FloorDiv(ns, 1e9)
			start, end = of.Window(second)
			start, end = start*1e9, end*1e9
		}
		return end
	}})
}

// windowParams returns the numbers of a request in windows of a length in nanoseconds.
func windowParams(limit uint64, length int64) algorithm.Params {
	return algorithm.Params{Scale: length / 1e6, Limit: int64(min(limit, math.MaxInt64)), Cost: 1}
}

// bucketParams returns the numbers of a request of a token bucket of size tokens, of which limit
// flow in within length. A bucket that takes longer to fill than an int64 of nanoseconds counts is
// never empty, since the log is shorter.
func bucketParams(limit, size uint64, length int64) algorithm.Params {
	p := windowParams(limit, length)
	p.Each = algorithm.Spacing(p.Scale, p.Limit)
	p.Limit = int64(min(size, uint64(math.MaxInt64/p.Each)))
	return p
}
