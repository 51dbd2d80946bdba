package redislimit

import (
	"math"
	"time"

	"github.com/weirgo/weir/internal/core/arith"
)

// instant is a point in time as the scripts have it: whole seconds since the Unix epoch and the
// nanoseconds of that second. One number of nanoseconds would not fit a Lua number.
type instant struct{ s, ns int64 }

const (
	msec   = int64(time.Millisecond)
	second = int64(time.Second)
	last   = math.MaxInt64 / second // the last second that int64 nanoseconds can count
)

// instantOf saturates outside the years 1678 to 2262, as the clock of package weir does.
func instantOf(t time.Time) instant {
	switch s := t.Unix(); {
	case s >= last:
		return instant{last, 0}
	case s < -last:
		return instant{-last, 0}
	default:
		return instant{s, int64(t.Nanosecond())}
	}
}

// ofMillis is the instant ms milliseconds after the epoch.
func ofMillis(ms int64) instant {
	s, ms := arith.FloorDiv(ms, 1000)
	return instant{s, ms * msec}
}

// startOf is when a window or slice with this number begins, and false if no clock of int64
// milliseconds has it.
func startOf(number, scaleMs int64) (at instant, ok bool) {
	ms := number * scaleMs
	return ofMillis(ms), ms/scaleMs == number
}

// ofDuration is d as a pair.
func ofDuration(d time.Duration) instant { return instant{int64(d) / second, int64(d) % second} }

// plus adds a duration, which may be less than 0.
func (i instant) plus(d time.Duration) instant {
	more, ns := arith.FloorDiv(i.ns+int64(d)%second, second)
	return instant{i.s + int64(d)/second + more, ns}
}

// minus returns i-j in nanoseconds, at least 0 and at most the largest int64.
func (i instant) minus(j instant) int64 {
	s, ns := i.s-j.s, i.ns-j.ns
	switch {
	case s < 0 || s == 0 && ns < 0:
		return 0
	case s >= math.MaxInt64/second-1:
		return math.MaxInt64
	}
	return s*second + ns
}

// valid reports whether a script can have written i.
func (i instant) valid() bool { return i.ns >= 0 && i.ns < second }

// unixNano returns i in ns since the Unix epoch, or the bound it passed.
func (i instant) unixNano() int64 {
	switch {
	case i.s >= last:
		return arith.Add(last*second, min(i.ns, math.MaxInt64%second))
	case i.s < -last:
		return math.MinInt64
	}
	return i.s*second + i.ns
}

func ofUnixNano(n int64) instant {
	s, ns := arith.FloorDiv(n, second)
	return instant{s, ns}
}
