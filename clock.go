package weir

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/internal/arith"
)

// clock is the only reader of time in this package. An instant inside the package is an int64:
// nanoseconds since the Unix epoch. Without Config.Now it advances by the monotonic clock from the
// wall time at which the limiter was made, so a step of the wall clock changes nothing.
//
// With Config.Resolution every reading is a value of coarse, which only rises. The janitor raises
// it every resolution while it runs; then a reading is one load. Else each reading raises it first.
// So readings never go back, not even between the two ways to read: a window that a reading has
// shown to have ended is current for no later one.
type clock struct {
	now        func() time.Time // Config.Now; nil for the real clock
	start      time.Time        // when the limiter was made, with its monotonic reading; 1970 with now
	unix       int64            // start, as an instant
	resolution time.Duration    // Config.Resolution; 0 with Config.Now

	// coarse is the latest reading while the janitor raises it, and its negative while readings do.
	// Resolution is ignored before 1970.
	coarse atomic.Int64
}

func newClock(now func() time.Time, resolution time.Duration) clock {
	t := time.Now()
	if now != nil {
		t = time.Unix(0, 0).In(now().Location()) // so resolution is ignored
	}
	if t.Unix() <= 0 {
		resolution = 0
	}
	return clock{now: now, start: t, unix: instant(t), resolution: resolution}
}

// read returns the present. On the exact clock it costs one monotonic clock read: time.Since takes
// 60 % of the time of time.Now. It is short enough to be inlined for a coarse clock.
func (c *clock) read() int64 {
	if now := c.coarse.Load(); now > 0 {
		return now
	}
	return c.readExact()
}

func (c *clock) readExact() int64 {
	switch {
	case c.now != nil:
		return instant(c.now())
	case c.resolution > 0:
		return c.advance()
	}
	return c.unix + int64(time.Since(c.start))
}

// advance raises coarse to the present, if there is a resolution, and returns it.
func (c *clock) advance() int64 {
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

// setTicking has readings rely on the janitor to raise coarse, or not.
func (c *clock) setTicking(on bool) {
	c.advance()
	for c.resolution > 0 {
		if was := c.coarse.Load(); was > 0 == on || c.coarse.CompareAndSwap(was, -was) {
			return
		}
	}
}

// time is the inverse of read. On the real clock the result carries a monotonic reading, so that
// its distance to time.Now stays right when the wall clock is stepped.
func (c *clock) time(ns int64) time.Time {
	return c.start.Add(time.Duration(ns - c.unix))
}

// instantOf is read for a time that was handed out by c.time.
func (c *clock) instantOf(t time.Time) int64 {
	if c.now != nil {
		return instant(t)
	}
	return arith.Add(c.unix, int64(t.Sub(c.start)))
}

// instant converts t, saturating outside the years 1678 to 2262, which int64 nanoseconds cannot
// count. No reading is maxInstant, which is after every one of them.
func instant(t time.Time) int64 {
	switch s := t.Unix(); {
	case s >= math.MaxInt64/int64(time.Second):
		return maxInstant - 1
	case s <= math.MinInt64/int64(time.Second):
		return math.MinInt64
	}
	return t.UnixNano()
}
