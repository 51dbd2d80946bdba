package weir

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/internal/algorithm"
	"github.com/weirgo/weir/internal/bounds"
	"github.com/weirgo/weir/internal/slots"
)

const (
	msec       = int64(time.Millisecond)
	maxScale   = bounds.MaxScale // ms: a larger scale stands for a series of windows
	maxInstant = algorithm.End
	noInstant  = algorithm.Never
)

// window is one window of one scale: window n begins n scales after the Unix epoch. That of a
// series has the Unix millisecond at which it ends as its number.
type window struct {
	scale      int64 // ms
	number     int64
	start, end int64        // instants: the window is [start, end)
	shift      uint         // stampShift(scale)
	touchEvery int64        // in stamps: a later use than that after the last one stored is stored, at 5 ns
	fixed      slots.Period // keys a fixed window
	expires    time.Time
}

// noWindow holds no instant. It fills the empty places among the windows, and accompanies errors
// and requests that can never pass.
var noWindow = new(window)

// windowAt returns the window of a scale that holds now, without its expires.
func windowAt(now, scaleMs int64) *window {
	number, start, end := algorithm.Window(scaleMs, now)
	return newWindow(scaleMs, number, start, end)
}

func newWindow(scaleMs, number, start, end int64) *window {
	return &window{
		scale:      scaleMs,
		number:     number,
		start:      start,
		end:        end,
		shift:      stampShift(scaleMs),
		touchEvery: min((end-start)>>16, 1<<24) >> stampShift(scaleMs),
		fixed:      slots.PeriodOf(fixedKind, scaleMs, number),
	}
}

// holds reports whether now falls in the window.
func (w *window) holds(now int64) bool { return w.start <= now && now < w.end }

// stamp returns now as a slot holds it, relative to the start of the window: in nanoseconds or, in
// windows longer than three days, in units of up to 128.
func (w *window) stamp(now int64) uint64 { return uint64(now-w.start) >> (w.shift & 63) }

func stampShift(scaleMs int64) uint {
	return uint(max(0, bits.Len64(uint64(scaleMs*msec))-slots.CountBits))
}

// windows caches the running window of each scale in use, so that a decision costs neither a
// division nor the making of a time.Time. It grows with the number of scales, up to maxWindows.
type windows struct{ table atomic.Pointer[windowTable] }

type windowTable []atomic.Pointer[window] // a power of two long

const (
	minWindows = 64
	maxWindows = 4096
	probes     = 4
)

func newWindowTable(n int) *windowTable {
	t := make(windowTable, n)
	for i := range t {
		t[i].Store(noWindow)
	}
	return &t
}

// place returns one of the probes places for windows of scale.
func (t windowTable) place(scaleMs int64, way int) *atomic.Pointer[window] {
	return &t[(int(uint64(scaleMs)*0x9e3779b97f4a7c15>>40)^way)&(len(t)-1)]
}

// store keeps w, which holds now, in the place of an earlier window of its scale or of one that has
// ended. If there is none it doubles the table, which look-ups then fill again.
func (ws *windows) store(w *window, now int64) {
	t := ws.table.Load()
	for way := range probes {
		at := t.place(w.scale, way)
		if old := at.Load(); old.scale == w.scale || !old.holds(now) {
			at.Store(w)
			return
		}
	}
	if n := len(*t); n < maxWindows {
		ws.table.CompareAndSwap(t, newWindowTable(2*n))
	}
}

// window returns the window of scale that holds now.
func (l *Limiter) window(now, scaleMs int64) *window {
	if scaleMs > maxScale {
		return l.series.of(scaleMs).window(now)
	}
	t := l.windows.table.Load()
	for way := range probes {
		if w := t.place(scaleMs, way).Load(); w.scale == scaleMs && w.holds(now) {
			return w
		}
	}
	w := windowAt(now, scaleMs)
	w.expires = l.clock.Time(w.end)
	l.windows.store(w, now)
	return w
}
