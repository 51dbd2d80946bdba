package report

import (
	"fmt"
	"html/template"
	"math"
	"strings"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/replay"
	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
)

// A drawing fills the width of the page and has a fixed height: its bars stretch, but its labels,
// which are text of the page, do not. Horizontal lengths are in thousandths of the width, vertical
// ones in pixels.
const (
	htmlBins   = 240
	plotWidth  = 1000
	plotHeight = 200
	// least height of denied requests: even one shows more than a stripe of the pattern
	leastBar = 4.0
)

// plot builds a drawing.
type plot struct {
	ok, no, grid strings.Builder // paths
	marks, hover strings.Builder
	yAxis, xAxis strings.Builder // labels
	numbers      *table
}

// drawing is a drawing and the table behind it.
type drawing struct {
	Drawing template.HTML
	Numbers *table
}

// bar adds a bar at x of the given width: denied requests, from height cut to height top, above
// admitted ones.
func (p *plot) bar(x, width, cut, top float64) {
	if cut > 0 {
		fmt.Fprintf(&p.ok, "M%.2f %dV%.2fH%.2fV%dZ", x, plotHeight, plotHeight-cut, x+width, plotHeight)
	}
	if top > cut {
		fmt.Fprintf(&p.no, "M%.2f %.2fV%.2fH%.2fV%.2fZ", x, plotHeight-cut, plotHeight-top, x+width,
			plotHeight-cut)
	}
}

// note adds a row of the table, which consists of numbers and times. It is also shown while the
// mouse is over x to x+width.
func (p *plot) note(x, width float64, name, all, denied string) {
	p.numbers.add(name, all, denied)
	fmt.Fprintf(&p.hover,
		`<rect x="%.2f" y="0" width="%.2f" height="%d"><title>%s: %s %s, %s %s</title></rect>`, x,
		width, plotHeight, name, all, p.numbers.Columns[1].Name, denied, p.numbers.Columns[2].Name)
}

// y adds a horizontal line at a height, with its label.
func (p *plot) y(height float64, label string) {
	fmt.Fprintf(&p.grid, "M0 %.1fH%d", plotHeight-height, plotWidth)
	fmt.Fprintf(&p.yAxis, `<span style="bottom:%.1fpx">%s</span>`, height, label)
}

// x adds a label under x. A narrow page hides the minor labels.
func (p *plot) x(x float64, label string, minor bool) {
	class := ""
	if minor {
		class = ` class="minor"`
	}
	fmt.Fprintf(&p.xAxis, `<span%s style="left:%.2f%%">%s</span>`, class, x*100/plotWidth, label)
}

// html returns the drawing. aria describes it.
func (p *plot) html(aria string) drawing {
	return drawing{template.HTML(fmt.Sprintf(`<div class="plot"><div class="y">%s</div>`+
		`<svg viewBox="0 0 %d %d" preserveAspectRatio="none" `+
		`role="img" aria-label="%s"><path class="grid" d="%s"/><path class="ok" d="%s"/>`+
		`<path class="no" d="%s"/>%s<g class="hover">%s</g></svg>`+
		`<div class="x">%s</div></div>`, &p.yAxis, plotWidth, plotHeight, aria, &p.grid, &p.ok, &p.no,
		&p.marks, &p.hover, &p.xAxis)), p.numbers}
}

// callerChart is timelineChart of the requests of one caller.
func callerChart(c replay.Caller, rr *replay.RuleResult) drawing {
	d := timelineChart(c.Timeline, 0, rr)
	d.Numbers.Caption = screen.Printable(c.Name) + ", " + d.Numbers.Caption
	return d
}

// timelineChart draws the requests that rule number i admits and denies.
func timelineChart(t *replay.Timeline, i int, rr *replay.RuleResult) drawing {
	return barChart(denials(t, i), full(rr))
}

// barChart draws the bars. subject begins the caption of their table.
func barChart(t bars, subject string) drawing {
	p := plot{numbers: newTable(subject+": "+t.what+" per "+span(t.Width)+
		"; times without "+t.empty+" are left out", "from (UTC)", t.low, t.high)}
	top := niceTop(t.tallest())
	for i := range uint64(5) {
		p.y(float64(i)*plotHeight/4, count(top*i/4))
	}
	timeLabels(&p, t.Timeline)
	step := float64(plotWidth) / float64(t.Bins())
	width := step
	if t.Bins() <= 100 {
		width *= 0.9
	}
	height := func(n uint64) float64 { return float64(n) / float64(top) * plotHeight }
	for i, both := range t.at[1] {
		if both == 0 {
			continue
		}
		all, cut := height(both), height(t.at[0][i])
		if both > t.at[0][i] {
			all = max(all, leastBar)
			cut = min(cut, all-leastBar)
		}
		x := float64(i) * step
		p.bar(x, width, cut, all)
		low, high := t.row(i)
		p.note(x, step, stamp(t.At(i)), low, high)
	}
	return p.html(fmt.Sprintf("%s %s and %s over time; the table below has the numbers", t.what, t.low,
		t.high))
}

// timeLabels adds times under a timeline.
func timeLabels(p *plot, t *replay.Timeline) {
	every, layout := ticks(t)
	end := t.At(t.Bins())
	scale := plotWidth / float64(end.Sub(t.Start))
	const margin = 0.05 * plotWidth // a label is centered at x
	labels := 0
	for at := t.Start.Truncate(every); !at.After(end); at = at.Add(every) {
		if x := float64(at.Sub(t.Start)) * scale; margin <= x && x <= plotWidth-margin {
			p.x(x, at.Format(layout), labels%3 != 1)
			labels++
		}
	}
}

// peakChart draws the number of callers by peak, in powers of two, with a line at the suggested
// limit: the callers to its right would be denied requests. Heights are logarithmic, so that these
// few callers are visible.
func peakChart(s replay.Suggestion) drawing {
	p := plot{numbers: newTable("Callers by their peak in "+durationText(s.Duration), "peak",
		"callers", "denied by "+suggested(s))}
	bins := s.Histogram
	most := 1
	for _, b := range bins {
		most = max(most, b.Callers)
	}
	decades := int(math.Ceil(math.Log10(float64(most) + 0.5)))
	// The height of a decade. One caller has some height too.
	unit := plotHeight / (float64(max(decades, 1)) + 0.3)
	height := func(n int) float64 { return (math.Log10(float64(n)) + 0.3) * unit }
	for d, n := 0, 1; d <= decades; d, n = d+1, n*10 {
		p.y(height(n), count(n))
	}
	step := float64(plotWidth) / float64(max(len(bins), 1))
	for i, b := range bins {
		x, label := float64(i)*step, brief(b.To)
		p.x(x+step*0.45, label, len(bins) > 10 && i%2 > 0)
		if b.To == s.Limit {
			fmt.Fprintf(&p.marks, `<path class="mark" d="M%.2f 0V%d"/>`, x+0.95*step, plotHeight)
		}
		if b.Callers == 0 {
			continue
		}
		all, cut, denied := height(b.Callers), 0.0, b.Callers
		if b.To <= s.Limit {
			cut, denied = all, 0
		}
		p.bar(x, step*0.9, cut, all)
		if b.From < b.To {
			label = brief(b.From) + "–" + label
		}
		p.note(x, step, label, count(b.Callers), count(denied))
	}
	return p.html("callers by their peak, and the suggested limit; the table below has the numbers")
}

// curveOf is the curve of a suggestion: what its drawing and its slider need.
type curveOf struct {
	drawing
	Points  string // LIMIT:DENIED, separated by spaces
	Command string // that enforces the suggested limit; empty if there is none
}

// curveChart draws the part of the callers that each limit denies a request. The horizontal scale
// is logarithmic.
func curveChart(r *replay.Result, s replay.Suggestion) *curveOf {
	if len(s.Curve) < 2 {
		return nil
	}
	per, last := durationText(s.Duration), len(s.Curve)-1
	p := plot{numbers: newTable("Callers by the limit that denies them a request", "limit",
		"callers denied", "share of callers")}
	for i := range 5 {
		p.y(float64(i)*plotHeight/4, fmt.Sprintf("%d %%", 25*i))
	}
	scale := plotWidth / max(math.Log2(float64(s.Curve[last].Limit))*1.05, 1)
	at := func(limit replay.Peak) float64 { return math.Log2(float64(max(limit, 1))) * scale }
	step := max(1, int(math.Ceil(math.Log2(float64(s.Curve[last].Limit))/8)))
	for bits := 0; replay.Peak(1)<<bits <= s.Curve[last].Limit; bits += step {
		p.x(at(1<<bits), brief(1<<bits), bits/step%2 > 0)
	}
	var points []string
	for i, of := range s.Curve {
		end := float64(plotWidth)
		if i < last {
			end = at(s.Curve[i+1].Limit)
		}
		p.bar(at(of.Limit), end-at(of.Limit), 0, float64(of.Denied)/float64(r.Callers)*plotHeight)
		points = append(points, fmt.Sprintf("%d:%d", of.Limit, of.Denied))
	}
	for i, ten := 0, min(10, len(s.Curve)); i < ten; i++ {
		of, end := s.Curve[i*last/(ten-1)], float64(plotWidth)
		if i < ten-1 {
			end = at(s.Curve[(i+1)*last/(ten-1)].Limit)
		}
		p.note(at(of.Limit), end-at(of.Limit), fmt.Sprintf("%d/%s", of.Limit, per), count(of.Denied),
			percent(of.Denied, r.Callers))
	}
	fmt.Fprintf(&p.marks, `<path class="mark" d="M%.2f 0V%d"/>`, at(s.Limit), plotHeight)
	limit := rule.Rule{Limit: fmt.Sprintf("%d/%s", s.Limit, per), Strategy: s.Strategy, Burst: s.Burst}
	command, _ := Enforce(r, &replay.RuleResult{Rule: limit})
	return &curveOf{p.html("the part of the callers that each limit denies a request"),
		strings.Join(points, " "), command}
}

// brief formats a count in few characters, rounded: 1,048,576 is 1M.
func brief(n replay.Peak) string {
	for _, unit := range []struct {
		of   replay.Peak
		name string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if n >= unit.of {
			return count(n/unit.of) + unit.name
		}
	}
	return count(n)
}

// ticks returns the distance between the labels of time and their format.
func ticks(t *replay.Timeline) (every time.Duration, layout string) {
	const most = 7
	whole := time.Duration(t.Bins()) * t.Width
	every = 24 * time.Hour
	for _, d := range []time.Duration{time.Second, 2 * time.Second, 5 * time.Second,
		10 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute,
		5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute, time.Hour,
		2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour} {
		if whole/d <= most {
			every = d
			break
		}
	}
	for whole/every > most {
		every *= 2
	}
	switch {
	case every < time.Minute:
		return every, "15:04:05"
	case every < 24*time.Hour && whole <= 24*time.Hour:
		return every, "15:04"
	case every < 24*time.Hour:
		return every, "Jan 2 15:04"
	case whole < 2*365*24*time.Hour:
		return every, "Jan 2"
	}
	return every, "Jan 2006"
}

// niceTop returns the least number of the form 4, 8, 12, 20, 40, 60, 80 × 10^n that is at least n.
// A quarter of it is a round whole number.
func niceTop(n uint64) uint64 {
	for unit := uint64(1); ; unit *= 10 {
		for _, m := range []uint64{4, 8, 12, 16, 20, 24, 32} {
			if top := m * unit; top >= n || top/m != unit {
				return max(top, n)
			}
		}
	}
}
