package replay

import "github.com/weirgo/weir/cmd/weir/internal/rule"

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
			return &windowJudge{limit, length, filled(callers, window{number: noWindow})}, nil
		case rule.Sliding:
			return &slideJudge{limit, length, filled(callers, slide{window: window{number: noWindow}})}, nil
		case rule.Token, rule.Leaky:
			buckets := filled(callers, bucket{noBucket})
			return &bucketJudge{bucketSize(r), interval(limit, length), buckets}, nil
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

func filled[T any](n int, v T) []T {
	all := make([]T, n)
	for i := range all {
		all[i] = v
	}
	return all
}

type windowJudge struct {
	limit  uint64
	length int64
	state  []window
}

func (j *windowJudge) close() {}

func (j *windowJudge) decide(q question, denied []bool) error {
	w := &j.state[q.caller]
	w.at(q.ns, j.length)
	if denied[0] = w.n >= j.limit; !denied[0] && q.counted {
		w.n++
	}
	return nil
}

type slideJudge struct {
	limit  uint64
	length int64
	state  []slide
}

func (j *slideJudge) close() {}

func (j *slideJudge) decide(q question, denied []bool) error {
	s := &j.state[q.caller]
	if denied[0] = s.at(q.ns, j.length) >= j.limit; !denied[0] && q.counted {
		s.n++
	}
	return nil
}

type bucketJudge struct {
	size     uint64
	interval int64
	state    []bucket
}

func (j *bucketJudge) close() {}

func (j *bucketJudge) decide(q question, denied []bool) error {
	b := &j.state[q.caller]
	if denied[0] = b.used(q.ns, j.interval) >= j.size; !denied[0] && q.counted {
		b.take(q.ns, j.interval)
	}
	return nil
}
