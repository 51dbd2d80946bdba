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
	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
)

// logLimiter is a weir limiter on the clock of the log.
type logLimiter struct {
	// ns is the time of the log. It is atomic because the limiter's janitor, which runs in real
	// time, reads it too.
	ns      atomic.Int64
	limiter *weir.Limiter
	sweepAt int // decisions until the next sweep
}

func (l *logLimiter) now() time.Time { return time.Unix(0, l.ns.Load()) }

func (l *logLimiter) open(maxBuckets int) (err error) {
	l.sweepAt = sweepEvery
	l.limiter, err = weir.New(weir.Config{
		MaxBuckets: maxBuckets,
		Timeout:    time.Millisecond, // of log time: no request comes late
		SweepEvery: time.Hour,        // in real time, which does not matter here
		Now:        l.now,
	})
	return err
}

func (l *logLimiter) close() { l.limiter.Close() }

// decided sweeps from time to time. It drops the buckets that have expired by the log's clock,
// which the janitor does not see. A sweep visits every bucket, so there is one per as many
// decisions as there are buckets: this bounds its cost, and bounds the memory by the number of
// callers rather than lines.
func (l *logLimiter) decided() {
	l.sweepAt--
	if l.sweepAt > 0 {
		return
	}
	l.limiter.Sweep()
	live := l.limiter.Stats().Buckets
	l.sweepAt = int(max(sweepEvery, min(int64(live), math.MaxInt32)))
}

// explain adds to an error that the table is full when that was, and what to do.
func (l *logLimiter) explain(err error, advice string) error {
	if errors.Is(err, weir.ErrFull) {
		at := l.now().UTC().Format(time.RFC3339)
		err = fmt.Errorf("at %s the limiter's table is full: %s: %w", at, advice, err)
	}
	return err
}

// limiterDecider decides by one rule with a weir limiter. It serves sliding logs and tiers, whose
// state grows with the limit.
type limiterDecider struct {
	logLimiter
	rule   rule.Rule
	counts weir.Counter
	op     weir.Op // of each hit
	ops    [1]*weir.Op
	enough int // a --max-buckets that has room for all callers
}

// sweepEvery is the minimum number of decisions between two sweeps.
const sweepEvery = 1 << 14

func newLimiterDecider(r rule.Rule, maxBuckets, enough int) (*limiterDecider, error) {
	d := &limiterDecider{rule: r, op: weir.Op{Request: r.Request()}, enough: enough}
	d.ops[0] = &d.op
	err := d.open(maxBuckets)
	if err != nil {
		return nil, err
	}
	counts, err := rule.On(r, d.limiter)
	if err != nil {
		d.limiter.Close()
		return nil, err
	}
	d.counts = weir.CounterOf(counts)
	return d, nil
}

func (d *limiterDecider) decide(h hit, denied []bool) error {
	d.ns.Store(h.ns)
	d.op.Verb = weir.OpTake
	if !h.marks.counted() {
		d.op.Verb = weir.OpPeek
	}
	// shorter than the caller's name
	d.op.Key = string(binary.BigEndian.AppendUint32(nil, h.caller))
	d.counts.Do(context.Background(), d.ops[:])
	if d.op.Err != nil {
		return fmt.Errorf("%s: %w", d.rule,
			d.explain(d.op.Err, fmt.Sprintf("--max-buckets %d has room for all callers", d.enough)))
	}
	d.decided()
	denied[0] = !d.op.Result.Allowed()
	return nil
}
