// Package windows says which fixed window holds an instant: one of a length, aligned to the Unix
// epoch, or one of a series.
package windows

import (
	"math/bits"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/internal/core/algorithm"
	"github.com/weirgo/weir/internal/core/bounds"
	"github.com/weirgo/weir/internal/core/clock"
	"github.com/weirgo/weir/internal/core/slots"
)

// Kind is that of the buckets of windows.
const Kind = 0

// Window is one window of one scale: window n begins n scales after the Unix epoch. That of a
// series has the Unix millisecond at which it ends as its number.
type Window struct {
	Scale      int64 // ms
	Number     int64
	Start, End int64        // instants: the window is [Start, End)
	shift      uint         // of a stamp; see StampShift
	TouchEvery int64        // in stamps: a use that much after the last one stored is stored, at 5 ns
	Fixed      slots.Period // of its buckets
	Expires    time.Time    // End
}

// NoWindow holds no instant. It fills the empty places among the windows, and stands for a window
// that was not searched.
var NoWindow = new(Window)

// At returns the window of a scale that holds now, without its Expires.
func At(now, scaleMs int64) *Window {
	number, start, end := algorithm.Window(scaleMs, now)
	return newWindow(scaleMs, number, start, end)
}

func newWindow(scaleMs, number, start, end int64) *Window {
	return &Window{
		Scale:      scaleMs,
		Number:     number,
		Start:      start,
		End:        end,
		shift:      StampShift(scaleMs),
		TouchEvery: min((end-start)>>16, 1<<24) >> StampShift(scaleMs),
		Fixed:      slots.PeriodOf(Kind, scaleMs, number),
	}
}

// Holds reports whether now falls in the window.
func (w *Window) Holds(now int64) bool { return w.Start <= now && now < w.End }

// Stamp returns now as a slot holds it, relative to the start of the window: in nanoseconds or, in
// windows longer than three days, in units of up to 128.
func (w *Window) Stamp(now int64) uint64 { return uint64(now-w.Start) >> (w.shift & 63) }

// StampShift returns by how many bits a stamp is shorter than nanoseconds.
func StampShift(scaleMs int64) uint {
	return uint(max(0, bits.Len64(uint64(scaleMs*int64(time.Millisecond)))-slots.CountBits))
}

// Windows are those of a limiter, of every scale and series. They are safe for concurrent use.
//
// The running window of each scale in use is kept, so that a decision costs neither a division nor
// the making of a time.Time. What keeps them grows with the number of scales, up to maxWindows.
type Windows struct {
	registry
	table atomic.Pointer[windowTable]
}

type windowTable []atomic.Pointer[Window] // a power of two long

const (
	minWindows = 64
	maxWindows = 4096
	probes     = 4
)

// Init makes the windows of a limiter with this clock.
func (ws *Windows) Init(c *clock.Clock) {
	ws.clock = c
	ws.all.Store(&[]*Series{nil})
	ws.table.Store(newWindowTable(minWindows))
}

func newWindowTable(n int) *windowTable {
	t := make(windowTable, n)
	for i := range t {
		t[i].Store(NoWindow)
	}
	return &t
}

// place returns one of the probes places for windows of scale.
func (t windowTable) place(scaleMs int64, way int) *atomic.Pointer[Window] {
	return &t[(int(uint64(scaleMs)*0x9e3779b97f4a7c15>>40)^way)&(len(t)-1)]
}

// store keeps w, which holds now, in the place of an earlier window of its scale or of one that has
// ended. If there is none it doubles the table, which look-ups then fill again.
func (ws *Windows) store(w *Window, now int64) {
	t := ws.table.Load()
	for way := range probes {
		at := t.place(w.Scale, way)
		if old := at.Load(); old.Scale == w.Scale || !old.Holds(now) {
			at.Store(w)
			return
		}
	}
	if n := len(*t); n < maxWindows {
		ws.table.CompareAndSwap(t, newWindowTable(2*n))
	}
}

// Latest returns the window of scale that was current last, or that of another scale. It is short
// enough to be inlined.
func (ws *Windows) Latest(scaleMs int64) *Window {
	return ws.table.Load().place(scaleMs, 0).Load()
}

// Running returns the window of scale that holds now. A scale over the longest one stands for a
// series.
func (ws *Windows) Running(now, scaleMs int64) *Window {
	if scaleMs > bounds.MaxScale {
		return ws.Of(scaleMs).Window(now)
	}
	t := ws.table.Load()
	for way := range probes {
		if w := t.place(scaleMs, way).Load(); w.Scale == scaleMs && w.Holds(now) {
			return w
		}
	}
	w := At(now, scaleMs)
	w.Expires = ws.clock.Time(w.End)
	ws.store(w, now)
	return w
}
