package replay

import (
	"time"

	"github.com/weirgo/weir/internal/core/arith"
)

// maxBins bounds the bins of a timeline of any span.
const maxBins = 600

// widths are the possible widths of bins. Each divides the next, so that whole bins merge; after
// the last they double.
var widths = []time.Duration{
	time.Second, 2 * time.Second, 10 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
	time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
}

// wider returns the next larger width.
func wider(width time.Duration) time.Duration {
	for _, w := range widths {
		if w > width {
			return w
		}
	}
	return 2 * width
}

// Timeline counts requests over time, in bins of equal width, aligned to the Unix epoch.
type Timeline struct {
	Start time.Time // of the first bin
	Width time.Duration
	Rows  [][]uint64 // all of the same length: the requests, then the denials of each rule
}

// newTimeline returns a timeline with the bins from first to last, in nanoseconds since the Unix
// epoch: at most so many, and no narrower than width.
func newTimeline(first, last int64, rows, most int, width time.Duration) *Timeline {
	for {
		from, _ := arith.FloorDiv(first, int64(width))
		to, _ := arith.FloorDiv(last, int64(width))
		if to-from < int64(most) {
			t := &Timeline{Start: time.Unix(0, from*int64(width)).UTC(), Width: width}
			for range rows {
				t.Rows = append(t.Rows, make([]uint64, to-from+1))
			}
			return t
		}
		width = wider(width)
	}
}

// Bins returns the number of bins.
func (t *Timeline) Bins() int { return len(t.Rows[0]) }

// At returns when bin i begins.
func (t *Timeline) At(i int) time.Time { return t.Start.Add(time.Duration(i) * t.Width) }

// end returns when bin i ends, in nanoseconds since the Unix epoch.
func (t *Timeline) end(i int) int64 { return t.At(i + 1).UnixNano() }

// Coarser returns the same counts in at most n bins, which must be at least 2: no bin crosses the
// epoch.
func (t *Timeline) Coarser(n int) *Timeline {
	out := newTimeline(t.end(-1), t.end(t.Bins()-1)-1, len(t.Rows), max(n, 2), t.Width)
	for r, row := range t.Rows {
		to := 0
		for i, count := range row {
			for t.end(i) > out.end(to) {
				to++
			}
			out.Rows[r][to] += count
		}
	}
	return out
}

// add adds the counts of o, which has the same bins.
func (t *Timeline) add(o *Timeline) {
	for r, row := range o.Rows {
		for i, n := range row {
			t.Rows[r][i] += n
		}
	}
}
