package replay

import (
	"time"

	"github.com/weirgo/weir/internal/arith"
)

// maxBins bounds the bins of a timeline of any span.
const maxBins = 600

// widths are the possible widths of bins. Each divides the next, so that whole bins merge; after
// the last they double.
var widths = []time.Duration{
	time.Second, 2 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute,
	10 * time.Minute,
	30 * time.Minute, time.Hour, 2 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
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

// Bins returns the number of bins.
func (t *Timeline) Bins() int { return len(t.Rows[0]) }

// Coarser returns the same counts in at most n bins, which must be at least 2: no bin crosses the
// epoch.
func (t *Timeline) Coarser(n int) *Timeline {
	g := growing{width: t.Width, rows: make([][]uint64, len(t.Rows)), max: t.Bins()}
	g.first, _ = arith.FloorDiv(t.Start.UnixNano(), int64(t.Width))
	for i, row := range t.Rows {
		g.rows[i] = append([]uint64(nil), row...)
	}
	for len(g.rows[0]) > max(n, 2) {
		g.widen()
	}
	return g.timeline()
}

// growing is a timeline to which counts are added.
type growing struct {
	width time.Duration
	first int64 // start of the first bin, in widths after the epoch
	end   int64 // end of the last bin, in nanoseconds
	rows  [][]uint64
	max   int
}

func newGrowing(rows int) *growing {
	return &growing{width: widths[0], rows: make([][]uint64, rows), max: maxBins}
}

// bin returns the index of the bin for ns, which must not decrease. An index is valid until the
// next call.
func (g *growing) bin(ns int64) int {
	if n := len(g.rows[0]); n > 0 && ns < g.end {
		return n - 1
	}
	i, _ := arith.FloorDiv(ns, int64(g.width))
	if len(g.rows[0]) == 0 {
		g.first = i
	}
	for i-g.first >= int64(g.max) {
		g.widen()
		i, _ = arith.FloorDiv(ns, int64(g.width))
	}
	for r, row := range g.rows {
		for int64(len(row)) <= i-g.first {
			row = append(row, 0)
		}
		g.rows[r] = row
	}
	g.end = (i + 1) * int64(g.width)
	return int(i - g.first)
}

// sum adds up timelines with the same rows. It modifies them.
func sum(all []*growing) *growing {
	out := newGrowing(len(all[0].rows))
	for _, g := range all {
		if len(g.rows[0]) > 0 {
			out.include(g)
		}
	}
	return out
}

// include adds the counts of o, which must have bins.
func (g *growing) include(o *growing) {
	if len(g.rows[0]) == 0 {
		*g = *o
		return
	}
	for o.width < g.width {
		o.widen()
	}
	for g.width < o.width {
		g.widen()
	}
	first, bins := g.joint(o)
	for ; bins > int64(g.max); first, bins = g.joint(o) {
		g.widen()
		o.widen()
	}
	for r := range g.rows {
		row := make([]uint64, bins)
		copy(row[g.first-first:], g.rows[r])
		for i, n := range o.rows[r] {
			row[o.first-first+int64(i)] += n
		}
		g.rows[r] = row
	}
	g.first = first
	g.end = (first + bins) * int64(g.width)
}

// joint returns the first bin of g and o together and the number of bins to the last.
func (g *growing) joint(o *growing) (first, bins int64) {
	first = min(g.first, o.first)
	return first, max(g.first+g.bins(), o.first+o.bins()) - first
}

func (g *growing) bins() int64 { return int64(len(g.rows[0])) }

// widen merges bins into bins of the next width.
func (g *growing) widen() {
	width := wider(g.width)
	ratio := int64(width / g.width)
	first, _ := arith.FloorDiv(g.first, ratio)
	for r, row := range g.rows {
		merged := row[:0]
		for i, n := range row {
			j, _ := arith.FloorDiv(g.first+int64(i), ratio)
			if j-first == int64(len(merged)) {
				merged = append(merged, 0)
			}
			merged[j-first] += n
		}
		g.rows[r] = merged
	}
	g.first, g.width = first, width
}

func (g *growing) timeline() *Timeline {
	return &Timeline{Start: time.Unix(0, g.first*int64(g.width)).UTC(), Width: g.width, Rows: g.rows}
}
