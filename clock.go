package weir

import (
	"math"
	"time"
)

// clock is the only reader of time in this package. An instant inside the package is an int64:
// nanoseconds since the Unix epoch. Without Config.Now it advances by the monotonic clock from the
// wall time at which the limiter was made, so a step of the wall clock changes nothing.
type clock struct {
	now   func() time.Time // Config.Now; nil for the real clock
	start time.Time        // when the limiter was made, with its monotonic reading
	unix  int64            // start, as an instant
}

func newClock(now func() time.Time) clock {
	start := time.Now
	if now != nil {
		start = now
	}
	t := start()
	return clock{now: now, start: t, unix: instant(t)}
}

// read costs one monotonic clock read: time.Since is 60 % of a time.Now.
func (c *clock) read() int64 {
	if c.now != nil {
		return instant(c.now())
	}
	return c.unix + int64(time.Since(c.start))
}

// time is the inverse of read. On the real clock the result carries a monotonic reading, so that
// its distance to time.Now stays right when the wall clock is stepped.
func (c *clock) time(ns int64) time.Time {
	if c.now != nil {
		return time.Unix(0, ns).In(c.start.Location())
	}
	return c.start.Add(time.Duration(ns - c.unix))
}

// instantOf is read for a time that was handed out by c.time.
func (c *clock) instantOf(t time.Time) int64 {
	if c.now != nil {
		return instant(t)
	}
	return addSat(c.unix, int64(t.Sub(c.start)))
}

// instant converts t, saturating outside the years 1678 to 2262, which int64 nanoseconds cannot
// count.
func instant(t time.Time) int64 {
	switch s := t.Unix(); {
	case s >= math.MaxInt64/int64(time.Second):
		return math.MaxInt64
	case s <= math.MinInt64/int64(time.Second):
		return math.MinInt64
	}
	return t.UnixNano()
}
