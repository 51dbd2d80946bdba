// Package clock is the only reader of time in a decision. An instant is an int64: nanoseconds since
// the Unix epoch.
package clock

import (
	"math"
	"time"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/arith"
)

// Clock is a clock. Unless it is set by hand it advances by the monotonic clock from the wall time
// at which it was made, so a step of the wall clock changes nothing.
//
// It is not moved to the wall time later, as after a suspend or where a machine boots without a
// clock. Such a step looks like any other, by which all limits would begin anew; the leases of work
// in flight would lapse at once; and a refund names its window by an instant of before the step.
type Clock struct {
	now   func() time.Time // nil for the real clock
	start time.Time        // when the clock was made, with its monotonic reading; 1970 with now
	unix  int64            // start, as an instant
}

// New returns the clock that now reads, or the real one if it is nil.
func New(now func() time.Time) Clock {
	t := time.Now()
	if now != nil {
		t = time.Unix(0, 0).In(now().Location())
	}
	return Clock{now: now, start: t, unix: instant(t)}
}

// Read returns the present. On the real clock it costs one monotonic clock read: time.Since takes
// 60 % of the time of time.Now.
func (c *Clock) Read() int64 {
	if c.now != nil {
		return instant(c.now())
	}
	return c.unix + int64(time.Since(c.start))
}

// ByHand reports whether the clock is not the real one.
func (c *Clock) ByHand() bool { return c.now != nil }

// Time is the inverse of Read. On the real clock the result carries a monotonic reading, so that
// its distance to time.Now stays right when the wall clock is stepped.
func (c *Clock) Time(ns int64) time.Time {
	return c.start.Add(time.Duration(ns - c.unix))
}

// Instant is Read for a time that Time has handed out.
func (c *Clock) Instant(t time.Time) int64 {
	if c.now != nil {
		return instant(t)
	}
	return arith.Add(c.unix, int64(t.Sub(c.start)))
}

// AsOf returns t as the instant of a decision: no later than the present, and no more than late
// before it.
func (c *Clock) AsOf(t time.Time, late time.Duration) int64 {
	now := c.Read()
	return max(min(c.Instant(t), now), arith.Sub(now, int64(late)))
}

// instant converts t, saturating outside the years 1678 to 2262, which int64 nanoseconds cannot
// count. No reading is algorithm.End, which is after every one of them.
func instant(t time.Time) int64 {
	switch s := t.Unix(); {
	case s >= math.MaxInt64/int64(time.Second):
		return algorithm.End - 1
	case s <= math.MinInt64/int64(time.Second):
		return math.MinInt64
	}
	return t.UnixNano()
}
