package replay

import (
	"slices"

	"github.com/weirgo/weir/cmd/weir/internal/rule"
	"github.com/weirgo/weir/internal/algorithm"
)

// judge decides on requests in order of time. It is used by one goroutine.
//
// A limit has one judge with one row in the report. A set of rules has one judge with a row for
// each rule, and decides for all callers, since they share counters.
type judge interface {
	// decide sets denied[i] if row i denies q. All of denied is false when it is called.
	decide(q question, denied []bool) error
	close()
}

// question is a request.
type question struct {
	caller  uint32 // numbered from 0 among this judge's callers
	code    uint32 // the number of its description; that of the caller if there are no descriptions
	ns      int64  // time in nanoseconds since the Unix epoch
	marks   marks
	counted bool // if false, decide but count nothing
}

// spec creates judges.
type spec struct {
	rows int // in the report
	open func(names func(code uint32) string, callers int) (judge, error)
}

// limitSpec creates judges for one rule. If they need limiters, all parts together keep at most
// maxBuckets buckets.
func limitSpec(r rule.Rule, maxBuckets, parts int) spec {
	return spec{rows: 1, open: func(_ func(uint32) string, callers int) (judge, error) {
		limit, length := r.Tiers[0].Limit, int64(r.Tiers[0].Duration)
		switch r.Strategy {
		case rule.Fixed:
			return newStateJudge(windowParams(limit, length), callers, noWindow), nil
		case rule.Sliding:
			return newStateJudge(windowParams(limit, length), callers, noSlide), nil
		case rule.Token, rule.Leaky:
			return newStateJudge(bucketParams(limit, bucketSize(r), length), callers, noBucket), nil
		}
		return newLimitJudge(r, callers, (maxBuckets-1)/parts+1, parts*(callers+1))
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

func filled[T any](n int, v T) []T { return slices.Repeat([]T{v}, n) }

// callerState is the state of one caller: a window, a slide or a bucket.
type callerState[S any] interface {
	*S
	decide(p algorithm.Params, ns int64, count bool) algorithm.Verdict
}

// stateJudge decides by the states of its callers.
type stateJudge[S any, C callerState[S]] struct {
	params algorithm.Params
	state  []S
}

func newStateJudge[S any, C callerState[S]](p algorithm.Params, callers int, none S) *stateJudge[S, C] {
	return &stateJudge[S, C]{p, filled(callers, none)}
}

func (j *stateJudge[S, C]) close() {}

func (j *stateJudge[S, C]) decide(q question, denied []bool) error {
	denied[0] = !C(&j.state[q.caller]).decide(j.params, q.ns, q.counted).Allowed
	return nil
}
