package report

import (
	"fmt"
	"io"
	"math"
	"regexp"
	"strings"

	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
)

const (
	chartHeight = 8 // lines; every second line has a label, so each quarter has one
	gutter      = 2 // columns to the left of the labels
)

// eighths are the bars that fill zero to seven eighths of a line.
var eighths = []rune(" ▁▂▃▄▅▆▇")

// columns returns how many columns a chart has, and so how many bins at most.
func columns(on screen.Terminal) int { return on.Width - 14 }

// chart draws the bars.
func chart(w io.Writer, t bars, on screen.Terminal) {
	top := niceTop(t.tallest())
	margin := gutter + len(count(top))
	each := max(1, columns(on)/t.Bins()) // columns per bin
	drawn, second := make([][]rune, t.Bins()), false
	for i, low := range t.at[0] {
		drawn[i] = bar(low, t.at[1][i]-low, top)
		second = second || t.at[1][i] > low
	}
	fmt.Fprintf(w, "  %s per %s:  %s %s", t.what, span(t.Width), on.Paint(screen.Green, "█"), t.low)
	if second {
		fmt.Fprintf(w, "  %s %s", on.Paint(t.color, "░"), t.high)
	}
	fmt.Fprintln(w)
	for line := chartHeight; line >= 0; line-- {
		label, tick := "", "│"
		if line%2 == 0 {
			label, tick = count(top*uint64(line)/chartHeight), "┤"
		}
		fmt.Fprintf(w, "%*s %s", margin, label, tick)
		if line < chartHeight { // the label of the top is in the line above the bars
			fmt.Fprint(w, chartLine(drawn, line, each, t.color, on))
		}
		fmt.Fprintln(w)
	}
	// The first and the last time are below the ends of the bars.
	from, to := stamp(t.Start), stamp(t.At(t.Bins()))
	fmt.Fprintf(w, "%*s%*s\n", margin+2+len(from), from, max(each*t.Bins()-len(from), 2+len(to)), to)
}

// bar returns the lines of one bin's bar, from the bottom. What is on top takes whole lines, at
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
func chartLine(bars [][]rune, line, each int, color string, on screen.Terminal) string {
	var b strings.Builder
	for _, bar := range bars {
		b.WriteString(strings.Repeat(string(bar[line]), each))
	}
	return oneKind.ReplaceAllStringFunc(strings.TrimRight(b.String(), " "), func(part string) string {
		if strings.HasPrefix(part, "░") {
			return on.Paint(color, part)
		}
		return on.Paint(screen.Green, part)
	})
}

// oneKind matches a part of a line of bars that has one color.
var oneKind = regexp.MustCompile(`░+|[^░]+`)
