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
	start      time.Time        // when the limiter was made, with its monotonic reading
	unix       int64            // start, as an instant
	exact      bool             // on the real clock, without resolution
	resolution time.Duration    // Config.Resolution; 0 with Config.Now

	running atomic.Bool  // the janitor raises coarse
	coarse  atomic.Int64 // ns from start to the latest reading
}

func newClock(now func() time.Time, resolution time.Duration) clock {
	start := time.Now
	if now != nil {
		start, resolution = now, 0
	}
	t := start()
	return clock{
		now: now, start: t, unix: instant(t),
		exact: now == nil && resolution == 0, resolution: resolution,
	}
}

// read returns the present. On the exact clock it costs one monotonic clock read: time.Since takes
// 60 % of the time of time.Now.
func (c *clock) read() int64 {
	if c.exact {
		return c.unix + int64(time.Since(c.start))
	}
	return c.readOther()
}

func (c *clock) readOther() int64 {
	if c.now != nil {
		return instant(c.now())
	}
	if !c.running.Load() {
		c.advance()
	}
	return c.unix + c.coarse.Load()
}

// advance raises coarse to the present, if there is a resolution.
func (c *clock) advance() {
	if c.resolution == 0 {
		return
	}
	now := int64(time.Since(c.start))
	for at := c.coarse.Load(); at < now && !c.coarse.CompareAndSwap(at, now); {
		at = c.coarse.Load()
	}
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
