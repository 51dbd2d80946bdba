package report

import (
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/weirgo/weir/cmd/weir/internal/replay"
	"github.com/weirgo/weir/cmd/weir/internal/screen"
)

const (
	chartHeight = 8 // lines; every second line has a label, so each quarter has one
	gutter      = 2 // columns to the left of the labels
)

// eighths are the bars that fill zero to seven eighths of a line.
var eighths = []rune(" ▁▂▃▄▅▆▇")

// chart draws a bar for each bin of the timeline: the denied requests on top of the admitted ones.
func chart(w io.Writer, full *replay.Timeline, row int, on screen.Terminal) {
	columns := on.Width - 14
	t := full.Coarser(columns)
	top := niceTop(tallest(t))
	margin := gutter + len(count(top))
	each := max(1, columns/t.Bins()) // columns per bin
	bars := make([][]rune, t.Bins())
	for i, denied := range t.Rows[row] {
		bars[i] = bar(t.Rows[0][i]-denied, denied, top)
	}
	fmt.Fprintf(w, "  requests per %s:  %s admitted", span(t.Width), on.Paint(screen.Green, "█"))
	if slices.Max(t.Rows[row]) > 0 {
		fmt.Fprintf(w, "  %s denied", on.Paint(screen.Red, "░"))
	}
	fmt.Fprintln(w)
	for line := chartHeight; line >= 0; line-- {
		label, tick := "", "│"
		if line%2 == 0 {
			label, tick = count(top*uint64(line)/chartHeight), "┤"
		}
		fmt.Fprintf(w, "%*s %s", margin, label, tick)
		if line < chartHeight { // the label of the top is in the line above the bars
			fmt.Fprint(w, chartLine(bars, line, each, on))
		}
		fmt.Fprintln(w)
	}
	// The first and the last time are below the ends of the bars.
	from, to := stamp(t.Start), stamp(t.At(t.Bins()))
	fmt.Fprintf(w, "%*s%*s\n", margin+2+len(from), from, max(each*t.Bins()-len(from), 2+len(to)), to)
}

// bar returns the lines of one bin's bar, from the bottom. Denied requests take whole lines, at
// least one.
func bar(admitted, denied, top uint64) []rune {
	height := func(n uint64) float64 { return float64(n) / float64(top) * chartHeight }
	all := make([]rune, chartHeight)
	ok, total := height(admitted), height(admitted+denied)
	from := chartHeight
	if denied > 0 {
		from = min(int(math.Round(ok)), chartHeight-1)
		total = max(math.Round(total), float64(from+1))
	}
	for i := range all {
		switch {
		case i >= from && float64(i) < total:
			all[i] = '░'
		case i >= from:
			all[i] = ' '
		case denied > 0 || float64(i+1) <= ok:
			all[i] = '█'
		default:
			part := int(math.Ceil((ok - float64(i)) * 8))
			all[i] = eighths[min(max(part, 0), 7)]
		}
	}
	return all
}

// chartLine returns one line of the bars, without trailing spaces.
func chartLine(bars [][]rune, line, each int, on screen.Terminal) string {
	var b strings.Builder
	for _, bar := range bars {
		b.WriteString(strings.Repeat(string(bar[line]), each))
	}
	return oneKind.ReplaceAllStringFunc(strings.TrimRight(b.String(), " "), func(part string) string {
		if strings.HasPrefix(part, "░") {
			return on.Paint(screen.Red, part)
		}
		return on.Paint(screen.Green, part)
	})
}

// oneKind matches a part of a line of bars that has one color.
var oneKind = regexp.MustCompile(`░+|[^░]+`)
