package replay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/rule"
)

// clock is the log's own. It is atomic because the limiter's janitor, which lives on real time, reads it too.
type clock struct{ ns atomic.Int64 }

func (c *clock) set(ns int64)   { c.ns.Store(ns) }
func (c *clock) now() time.Time { return time.Unix(0, c.ns.Load()) }

// judge decides by one rule, on a limiter of its own.
type judge struct {
	limiter *weir.Limiter
	decide  func(name string) (weir.Result, error)
	sweepAt int // decisions until the next sweep
	denied  uint64
	met     uint64       // callers who met a denial
	callers []encounters // by caller number
}

// encounters are a caller's denials.
type encounters struct {
	denied uint64
	first  int64 // the instant of the first, in nanoseconds
}

// sweepEvery is the least number of decisions between two sweeps.
const sweepEvery = 1 << 14

func newJudge(r rule.Rule, clock *clock, maxBuckets int) (*judge, error) {
	limiter, err := weir.New(weir.Config{
		MaxBuckets: maxBuckets,
		Timeout:    time.Millisecond, // of log time: nobody looks back
		SweepEvery: time.Hour,        // of real time, which means nothing here
		Now:        clock.now,
	})
	if err != nil {
		return nil, err
	}
	decide, err := decider(r, limiter)
	if err != nil {
		limiter.Close()
		return nil, err
	}
	return &judge{limiter: limiter, decide: decide, sweepAt: sweepEvery}, nil
}

// decider returns how r decides on l.
func decider(r rule.Rule, l *weir.Limiter) (func(name string) (weir.Result, error), error) {
	if d := r.Tiers[0]; r.Strategy == rule.Fixed { // the same counter as FixedWindow's, and nothing to allocate
		return func(name string) (weir.Result, error) {
			return l.CheckRate(name, d.Duration.Milliseconds(), int64(d.Limit))
		}, nil
	}
	strategy, ask, err := r.On(l)
	if err != nil {
		return nil, err
	}
	run := strategy.Run
	if r.Strategy == rule.Leaky {
		run = (&standing{strategy.(queue), uint64(r.Queue())}).run
	}
	return func(name string) (weir.Result, error) {
		ask.Key = name
		res, err := run(context.Background(), &ask)
		if err != nil {
			return weir.Result{}, err
		}
		return *res, nil
	}, nil
}

// standing is a leaky bucket that does not wait. The log's clock stands still for one request, so none can wait for its
// turn: standing looks at what is in the bucket, decides as Run would, and charges for the turn that Run would wait for.
//
// What is charged for leaves at the rate of those who wait. So the cost in the bucket, of which one unit is the request
// that left last, tells how many would be in line: that many, less one.
type standing struct {
	bucket queue
	depth  uint64
}

// queue is what a leaky bucket offers beside Run.
type queue interface {
	weir.Peeker
	weir.Charger
}

func (s *standing) run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	res, err := s.bucket.Peek(ctx, r)
	if err != nil || !res.Allowed() {
		return res, err
	}
	if inBucket := res.TotalRequests - 1; inBucket > s.depth { // TotalRequests has this request in it
		return &weir.Result{State: weir.Deny, TotalRequests: inBucket}, nil
	}
	return res, s.bucket.Charge(ctx, r)
}

// admit decides on a request that comes at ns, and keeps count.
func (j *judge) admit(caller uint32, name string, ns int64) (bool, error) {
	res, err := j.decide(name)
	if err != nil {
		return false, j.explain(err, ns)
	}
	if j.sweepAt--; j.sweepAt == 0 {
		j.sweep()
	}
	if res.Allowed() {
		return true, nil
	}
	for int(caller) >= len(j.callers) {
		j.callers = append(j.callers, encounters{})
	}
	c := &j.callers[caller]
	if c.denied == 0 {
		c.first = ns
		j.met++
	}
	c.denied++
	j.denied++
	return false, nil
}

// sweep drops the buckets that are over on the log's clock, of which the janitor, on real time, knows nothing. It looks
// at all of them, so it is done once per as many decisions as there are buckets: that bounds both its cost and, by the
// callers and not by the lines, the memory.
func (j *judge) sweep() {
	j.limiter.Sweep()
	live := j.limiter.Stats().Buckets
	j.sweepAt = int(max(sweepEvery, min(int64(live), math.MaxInt32)))
}

func (j *judge) explain(err error, ns int64) error {
	if errors.Is(err, weir.ErrFull) {
		return fmt.Errorf("at %s the limiter's table is full of callers: give it more room with --max-buckets: %w",
			time.Unix(0, ns).UTC().Format(time.RFC3339), err)
	}
	return err
}
