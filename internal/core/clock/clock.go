// Package clock is the only reader of time in a decision. An instant is an int64: nanoseconds since
// the Unix epoch.
package clock

import (
	"math"
	"sync/atomic"
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
//
// With a resolution every reading is a value of coarse, which only rises. A ticker calls Advance
// every resolution while it runs; then a reading is one load. Else each reading raises coarse
// first. So readings never go back, not even between the two ways to read: a window that a reading
// has shown to have ended is current for no later one.
type Clock struct {
	now        func() time.Time // nil for the real clock
	start      time.Time        // when the clock was made, with its monotonic reading; 1970 with now
	unix       int64            // start, as an instant
	resolution time.Duration    // 0 with now

	// coarse is the latest reading while a ticker raises it, and its negative while readings do.
	coarse atomic.Int64
}

// New returns the clock that now reads, or the real one if it is nil. The resolution of a clock
// that is set by hand, or made before 1970, is 0.
func New(now func() time.Time, resolution time.Duration) Clock {
	t := time.Now()
	if now != nil {
		t = time.Unix(0, 0).In(now().Location()) // so resolution is ignored
	}
	if t.Unix() <= 0 {
		resolution = 0
	}
	return Clock{now: now, start: t, unix: instant(t), resolution: resolution}
}

// Read returns the present. On the exact clock it costs one monotonic clock read: time.Since takes
// 60 % of the time of time.Now. It is short enough to be inlined for a coarse clock.
func (c *Clock) Read() int64 {
	if now := c.coarse.Load(); now > 0 {
		return now
	}
	return c.readExact()
}

func (c *Clock) readExact() int64 {
	switch {
	case c.now != nil:
		return instant(c.now())
	case c.resolution > 0:
		return c.Advance()
	}
	return c.unix + int64(time.Since(c.start))
}

// Advance raises coarse to the present, if there is a resolution, and returns it.
func (c *Clock) Advance() int64 {
	if c.resolution == 0 {
		return 0
	}
	now := c.unix + int64(time.Since(c.start))
	for {
		was := c.coarse.Load()
		latest := max(now, was, -was)
		to := -latest
		if was > 0 {
			to = latest
		}
		if c.coarse.CompareAndSwap(was, to) {
			return latest
		}
	}
}

// IsCoarse reports whether a reading may be late, by up to Resolution.
func (c *Clock) IsCoarse() bool { return c.resolution > 0 }

// Resolution returns how far apart the ticks are to be; 0 for an exact clock.
func (c *Clock) Resolution() time.Duration { return c.resolution }

// ByHand reports whether the clock is not the real one.
func (c *Clock) ByHand() bool { return c.now != nil }

// SetTicking has readings rely on a ticker to raise coarse, or not.
func (c *Clock) SetTicking(on bool) {
	c.Advance()
	for c.resolution > 0 {
		if was := c.coarse.Load(); was > 0 == on || c.coarse.CompareAndSwap(was, -was) {
			return
		}
	}
}

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

// AsOf returns t as the instant of a decision: no later than the present, which a coarse clock
// advances to, and no more than late before it.
func (c *Clock) AsOf(t time.Time, late time.Duration) int64 {
	c.Advance()
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
