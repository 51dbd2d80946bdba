package report

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/endpoint"
	"github.com/weirgo/weir/cmd/weir/internal/analyse/replay"
	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
)

//go:embed page.html
var pageText string

// script sorts the tables of the page, copies its commands and moves its sliders. Without it the
// page shows the same.
// The page allows its browser no other script.
//
//go:embed page.js
var script string

// page escapes all text but the drawings, which consist only of numbers and times.
var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"headline": headline, "fileList": fileList, "stamp": stamp, "span": span, "notes": Notes,
	"next": Next, "assumption": Assumption, "apart": apartText, "shown": shown, "heading": heading,
	"title": title, "count": count[uint64], "plural": plural, "percent": percent[uint64], "met": met,
	"printable": screen.Printable, "short": short, "rulesTable": rulesTable, "worstTable": worstTable,
	"over": over, "busiestTable": busiestTable, "routesTable": routesTable, "callerChart": callerChart,
	"timelineChart": timelineChart, "onlyTables": onlyTables, "byStrategy": byStrategy,
	"strategyTitle": strategyTitle, "exactPercent": exactPercent, "suggested": suggested,
	"suggestionsTable": suggestionsTable, "peakChart": peakChart, "curveChart": curveChart,
	"durationText":   durationText,
	"endpointsTable": endpointsTable, "examplesTable": examplesTable,
	"percentOf": percent[int],
	"script":    func() template.JS { return template.JS(script) },
	"scriptHash": func() string {
		sum := sha256.Sum256([]byte(script))
		return base64.StdEncoding.EncodeToString(sum[:])
	},
	"flightLines": flightLines, "guardTitle": guardTitle, "guardLines": guardLines,
	"busiestCallers": busiestCallers, "refusedCallers": refusedCallers, "fixedNumbers": fixedNumbers,
	"flightsChart": func(l *replay.Load) drawing {
		return barChart(flights(l.Curve.Coarser(htmlBins)),
			"All")
	},
	"refusalsChart": func(l *replay.Load) drawing {
		return barChart(refusals(l.Curve.Coarser(htmlBins)), "The guard")
	},
	"method": func() string { return Method },
	"how":    func() string { return endpoint.How },
	"width": func(percent string) string {
		return strings.Trim(strings.TrimSuffix(percent, " %"), "<>") + "%"
	},
}).Parse(pageText))

// htmlPage is the data of the page.
type htmlPage struct {
	*replay.Result
	Heading string
	Bins    *replay.Timeline
	Tiles   [][2]string // values and their names
}

// HTML writes the report as one page without other files. Times are UTC.
func HTML(w io.Writer, r *replay.Result) error {
	p := htmlPage{Result: r, Heading: "What would the limit have done?",
		Bins: r.Timeline.Coarser(htmlBins)}
	switch {
	case r.Load != nil:
		p.Heading = "How full was the service?"
	case r.RuleSets != nil:
		p.Heading = "What would the rules have done?"
	case len(r.Rules) == 0:
		p.Heading = "Which limit fits?"
	}
	width := span(p.Bins.Width)
	p.Tiles = [][2]string{{count(r.Requests), "requests"}, {count(r.Callers), "callers"},
		{span(r.Last.Sub(r.First)), "span"},
		{perSecond(tallest(p.Bins), p.Bins.Width), "in the busiest " + width}}
	if r.Load != nil {
		p.Tiles[3] = [2]string{count(r.Load.Peak), "in flight at most"}
	}
	return page.Execute(w, p)
}

// perSecond formats a rate.
func perSecond(n uint64, in time.Duration) string {
	rate := float64(n) / in.Seconds()
	if rate >= 100 || rate == math.Trunc(rate) {
		return count(uint64(math.Round(rate))) + "/s"
	}
	return strconv.FormatFloat(rate, 'g', 2, 64) + "/s"
}

func tallest(t *replay.Timeline) uint64 { return slices.Max(t.Rows[0]) }
