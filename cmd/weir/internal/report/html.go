package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/replay"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// The page's data. Everything is a string that the template escapes, except the drawings, which are made of numbers and
// times alone.
type (
	htmlPage struct {
		Title    string
		Files    string
		From, To string
		Span     string
		By       string
		Tiles    []htmlTile
		Width    string // of a bin
		Rules    []htmlRule
		Notes    []string
		Examples []htmlExample
	}
	htmlTile struct{ Name, Value string }
	htmlRule struct {
		Limit, Strategy  string
		Admitted, Denied string
		Share            string
		Bar              string // the share as a CSS percentage
		Met, MetShare    string
		Chart            template.HTML
		Worst            []htmlCaller
	}
	htmlCaller struct {
		Name, Full            string
		Requests, Denied      string
		Share, Bar, FirstTime string
	}
	htmlExample struct {
		Where, Reason, Text string
	}
)

// HTML writes the report as one page that needs nothing else: no script, no network. Times are UTC.
func HTML(w io.Writer, r *replay.Result) error {
	t := r.Timeline.Coarser(htmlBins)
	p := htmlPage{
		Title: headline(r),
		Files: fileList(r, 200),
		From:  stamp(r.First), To: stamp(r.Last),
		Span:  span(r.Last.Sub(r.First)),
		By:    string(r.By),
		Width: span(t.Width),
		Notes: Notes(r),
		Tiles: []htmlTile{
			{"requests", count(r.Requests)}, {"callers", count(r.Callers)}, {"span", span(r.Last.Sub(r.First))},
			{"busiest " + span(t.Width), plural(tallest(t), "request")},
		},
	}
	for i := range r.Rules {
		p.Rules = append(p.Rules, htmlOf(r, t, i))
	}
	for _, e := range r.Unreadable.Examples {
		p.Examples = append(p.Examples, htmlExample{fmt.Sprintf("%s:%d", Printable(e.File), e.Line), e.Reason, Printable(e.Text)})
	}
	return page.Execute(w, p)
}

func htmlOf(r *replay.Result, t *replay.Timeline, i int) htmlRule {
	rr := &r.Rules[i]
	out := htmlRule{
		Limit: rr.Rule.Limit, Strategy: title(rr.Rule),
		Admitted: count(admitted(r, rr)), Denied: count(rr.Denied),
		Share: percent(rr.Denied, r.Requests), Bar: css(rr.Denied, r.Requests),
		Met: count(rr.Met), MetShare: percent(uint64(rr.Met), uint64(r.Callers)),
		Chart: drawing(t, 1+i),
	}
	for _, c := range rr.Worst {
		name := Printable(c.Name)
		out.Worst = append(out.Worst, htmlCaller{
			Name: short(name, 44), Full: name, Requests: count(c.Requests), Denied: count(c.Denied),
			Share: percent(c.Denied, c.Requests), Bar: css(c.Denied, c.Requests), FirstTime: stamp(c.FirstDenied),
		})
	}
	return out
}

func css(part, whole uint64) string { return fmt.Sprintf("%.2f%%", 100*share(part, whole)) }

func tallest(t *replay.Timeline) uint64 {
	var top uint64
	for _, n := range t.Rows[0] {
		top = max(top, n)
	}
	return top
}

// The drawing's measures, in pixels of its own.
const (
	htmlBins   = 240
	svgWidth   = 720
	svgHeight  = 250
	plotLeft   = 56
	plotRight  = svgWidth - 8
	plotTop    = 10
	plotBottom = svgHeight - 26
	labelRoom  = 76  // that a label of the time axis takes
	leastBar   = 2.0 // a denial must be seen, however many requests it is one of
)

// drawing draws a bar for each bin: what was denied on top of what was admitted.
func drawing(t *replay.Timeline, row int) template.HTML {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="requests admitted and denied over time">`, svgWidth, svgHeight)
	top := niceTop(tallest(t))
	axes(&b, t, top)
	step := float64(plotRight-plotLeft) / float64(t.Bins())
	gap := 0.0
	if step > 4 {
		gap = 1
	}
	height := func(n uint64) float64 { return float64(n) / float64(top) * (plotBottom - plotTop) }
	var ok, no, hover strings.Builder
	for i, requests := range t.Rows[0] {
		if requests == 0 {
			continue
		}
		denied := t.Rows[row][i]
		x, y := plotLeft+float64(i)*step, plotBottom-height(requests)
		cut := y
		if denied > 0 {
			cut = min(plotBottom, y+max(height(denied), leastBar))
			fmt.Fprintf(&no, "M%.2f %.2fH%.2fV%.2fH%.2fZ", x, cut, x+step-gap, y, x)
		}
		if denied < requests {
			fmt.Fprintf(&ok, "M%.2f %dH%.2fV%.2fH%.2fZ", x, plotBottom, x+step-gap, cut, x)
		}
		fmt.Fprintf(&hover, `<rect x="%.2f" y="%d" width="%.2f" height="%d"><title>%s: %s admitted, %s denied</title></rect>`,
			x, plotTop, step, plotBottom-plotTop, stamp(t.Start.Add(time.Duration(i)*t.Width)), count(requests-denied), count(denied))
	}
	fmt.Fprintf(&b, `<path class="ok" d="%s"/><path class="no" d="%s"/><g class="hover">%s</g></svg>`, &ok, &no, &hover)
	return template.HTML(b.String()) // numbers and times only
}

// axes draws the grid and its labels.
func axes(b *strings.Builder, t *replay.Timeline, top uint64) {
	const lines = 4
	for i := range uint64(lines + 1) {
		y := plotBottom - float64(i)*(plotBottom-plotTop)/lines
		fmt.Fprintf(b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`,
			plotLeft, plotRight, y, y, plotLeft-6, y+4, count(top*i/lines))
	}
	every, layout := ticks(t)
	end := t.Start.Add(time.Duration(t.Bins()) * t.Width)
	scale := float64(plotRight-plotLeft) / float64(end.Sub(t.Start))
	for at := t.Start.Truncate(every); !at.After(end); at = at.Add(every) {
		x := plotLeft + float64(at.Sub(t.Start))*scale
		if x < plotLeft+labelRoom/2 || x > plotRight-labelRoom/2 {
			continue
		}
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`,
			x, x, plotBottom, plotBottom+4, x, plotBottom+18, at.Format(layout))
	}
}

// ticks returns how far apart the labels of time are, and how they look.
func ticks(t *replay.Timeline) (every time.Duration, layout string) {
	const most = 7
	whole := time.Duration(t.Bins()) * t.Width
	every = 24 * time.Hour
	for _, d := range []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 15 * time.Second,
		30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 30 * time.Minute,
		time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour} {
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

// niceTop returns the least number of the form 4, 8, 12, 20, 40, 60, 80 × 10^n that is at least n: a quarter of it is
// a whole number that reads well.
func niceTop(n uint64) uint64 {
	for unit := uint64(1); ; unit *= 10 {
		for _, m := range []uint64{4, 8, 12, 16, 20, 24, 32} {
			if top := m * unit; top >= n || top/m != unit {
				return max(top, n)
			}
		}
	}
}
