package replay

import (
	"slices"

	"github.com/weirgo/weir/cmd/weir/internal/rule"
	"github.com/weirgo/weir/internal/algorithm"
)

// judge decides on requests in order of time. It is used by one goroutine.
//
// A limit has one judge with one row in the report. A set of rules has one judge with a row for
// each rule; its spec sets shared if callers share counters.
type judge interface {
	// decide sets denied[i] if row i denies q. All of denied is false when it is called.
	decide(q question, denied []bool) error
	close()
}

// question is a request.
type question struct {
	caller  uint32 // numbered from 0 among this judge's callers
	ns      int64  // time in nanoseconds since the Unix epoch
	counted bool   // if false, decide but count nothing
}

// spec creates judges.
type spec struct {
	rows   int  // in the report
	shared bool // one judge must decide for all callers
	open   func(names func(caller uint32) string, callers int) (judge, error)
}

// limitSpec creates judges for one rule. If they need limiters, all parts together keep at most
// maxBuckets buckets.
func limitSpec(r rule.Rule, maxBuckets, parts int) spec {
	return spec{rows: 1, open: func(_ func(uint32) string, callers int) (judge, error) {
		limit, length := r.Tiers[0].Limit, int64(r.Tiers[0].Duration)
		switch r.Strategy {
		case rule.Fixed:
			return &fixedJudge{windowParams(limit, length), filled(callers, noWindow)}, nil
		case rule.Sliding:
			return &slidingJudge{windowParams(limit, length), filled(callers, noSlide)}, nil
		case rule.Token, rule.Leaky:
			return &tokenJudge{bucketParams(limit, bucketSize(r), length), filled(callers, noBucket)}, nil
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

type fixedJudge struct {
	params algorithm.Params
	state  []window
}

func (j *fixedJudge) close() {}

func (j *fixedJudge) decide(q question, denied []bool) error {
	denied[0] = !j.state[q.caller].decide(j.params, q.ns, q.counted).Allowed
	return nil
}

type slidingJudge struct {
	params algorithm.Params
	state  []slide
}

func (j *slidingJudge) close() {}

func (j *slidingJudge) decide(q question, denied []bool) error {
	denied[0] = !j.state[q.caller].decide(j.params, q.ns, q.counted).Allowed
	return nil
}

type tokenJudge struct {
	params algorithm.Params
	state  []bucket
}

func (j *tokenJudge) close() {}

func (j *tokenJudge) decide(q question, denied []bool) error {
	denied[0] = !j.state[q.caller].decide(j.params, q.ns, q.counted).Allowed
	return nil
}
