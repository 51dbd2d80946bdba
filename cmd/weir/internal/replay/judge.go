package replay

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/rule"
)

// judge decides on requests, which come in the order of time. It is used by one goroutine.
//
// A limit is one judge with one row of the report. A set of rules that is decided on together is a judge with a row for
// each rule; it says by shared, in its spec, if a counter belongs to several callers.
type judge interface {
	// decide sets denied[i] if its i-th row denies q. All of denied is false when it is called.
	decide(q question, denied []bool) error
	close()
}

// question is a request.
type question struct {
	caller  uint32 // from 0, among those of this judge
	ns      int64  // when it came
	counted bool   // false: decide, but count nothing
}

// spec makes judges.
type spec struct {
	rows   int  // of the report
	shared bool // one judge must see all callers
	open   func(names func(caller uint32) string, callers int) (judge, error)
}

// limitSpec is the spec of a judge by one rule. If that needs limiters, they may keep maxBuckets in all parts together.
func limitSpec(r rule.Rule, maxBuckets, parts int) spec {
	return spec{rows: 1, open: func(_ func(uint32) string, callers int) (judge, error) {
		limit, length := r.Tiers[0].Limit, int64(r.Tiers[0].Duration)
		switch r.Strategy {
		case rule.Fixed:
			return &windowJudge{limit, length, filled(callers, window{number: noWindow})}, nil
		case rule.Sliding:
			return &slideJudge{limit, length, filled(callers, slide{window: window{number: noWindow}})}, nil
		case rule.Token, rule.Leaky:
			return &bucketJudge{bucketSize(r), interval(limit, length), filled(callers, bucket{noBucket})}, nil
		}
		return newLimitJudge(r, callers, (maxBuckets-1)/parts+1, parts*(callers+1))
	}}
}

// bucketSize returns how many requests a bucket of r admits at one instant. A leaky bucket with a queue of n admits as a
// token bucket of n+1 does: beside those in the queue there is the one that left last.
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

// clock is the log's own. It is atomic because the limiter's janitor, which lives on real time, reads it too.
type clock struct{ ns atomic.Int64 }

func (c *clock) set(ns int64)   { c.ns.Store(ns) }
func (c *clock) now() time.Time { return time.Unix(0, c.ns.Load()) }

// limitJudge decides by one rule on a limiter of weir's: a sliding log or tiers, whose state grows with the limit.
type limitJudge struct {
	rule    rule.Rule
	clock   clock
	limiter *weir.Limiter
	run     decision // counts
	peek    decision // does not
	keys    string   // of all callers, keyLen bytes each
	sweepAt int      // decisions until the next sweep
	enough  int      // a --max-buckets that is
}

type decision func(key string) (weir.Result, error)

// keyLen is how long a caller's key is for the limiter: shorter than any name, and never two of one.
const keyLen = 4

// sweepEvery is the least number of decisions between two sweeps.
const sweepEvery = 1 << 14

func newLimitJudge(r rule.Rule, callers, maxBuckets, enough int) (*limitJudge, error) {
	j := &limitJudge{rule: r, sweepAt: sweepEvery, enough: enough}
	keys := make([]byte, 0, callers*keyLen)
	for n := range callers {
		keys = binary.BigEndian.AppendUint32(keys, uint32(n))
	}
	j.keys = string(keys)
	var err error
	j.limiter, err = weir.New(weir.Config{
		MaxBuckets: maxBuckets,
		Timeout:    time.Millisecond, // of log time: nobody looks back
		SweepEvery: time.Hour,        // of real time, which means nothing here
		Now:        j.clock.now,
	})
	if err != nil {
		return nil, err
	}
	if j.run, j.peek, err = decisions(r, j.limiter); err != nil {
		j.limiter.Close()
		return nil, err
	}
	return j, nil
}

func (j *limitJudge) close() { j.limiter.Close() }

// decisions returns how r decides on l.
func decisions(r rule.Rule, l *weir.Limiter) (run, peek decision, err error) {
	strategy, request, err := r.On(l)
	if err != nil {
		return nil, nil, err
	}
	by := func(ask func(context.Context, *weir.Request) (*weir.Result, error)) decision {
		return func(key string) (weir.Result, error) {
			request.Key = key
			res, err := ask(context.Background(), &request)
			if err != nil {
				return weir.Result{}, err
			}
			return *res, nil
		}
	}
	run, peek = by(strategy.Run), by(strategy.(weir.Peeker).Peek)
	return run, peek, nil
}

func (j *limitJudge) decide(q question, denied []bool) error {
	j.clock.set(q.ns)
	ask := j.run
	if !q.counted {
		ask = j.peek
	}
	res, err := ask(j.keys[q.caller*keyLen : (q.caller+1)*keyLen])
	if err != nil {
		return j.explain(err, q.ns)
	}
	if j.sweepAt--; j.sweepAt == 0 {
		j.sweep()
	}
	denied[0] = !res.Allowed()
	return nil
}

// sweep drops the buckets that are over on the log's clock, of which the janitor, on real time, knows nothing. It looks
// at all of them, so it is done once per as many decisions as there are buckets: that bounds both its cost and, by the
// callers and not by the lines, the memory.
func (j *limitJudge) sweep() {
	j.limiter.Sweep()
	live := j.limiter.Stats().Buckets
	j.sweepAt = int(max(sweepEvery, min(int64(live), math.MaxInt32)))
}

func (j *limitJudge) explain(err error, ns int64) error {
	if errors.Is(err, weir.ErrFull) {
		err = fmt.Errorf("at %s the limiter's table is full: --max-buckets %d has room for all callers: %w",
			time.Unix(0, ns).UTC().Format(time.RFC3339), j.enough, err)
	}
	return fmt.Errorf("%s: %w", j.rule, err)
}
