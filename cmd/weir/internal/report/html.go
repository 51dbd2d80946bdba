package report

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"

	"github.com/weirgo/weir/cmd/weir/internal/endpoint"
	"github.com/weirgo/weir/cmd/weir/internal/replay"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// The data of the page. Everything is a string that the template escapes, except the drawings,
// which consist only of numbers and times.
type (
	htmlPage struct {
		Title       string
		Heading     string
		Files       string
		From, To    string
		By          string
		Assumption  string
		Tiles       []htmlTile
		Width       string     // of a bin
		Compared    []htmlRule // one line per rule; nil if there is only one rule
		Rules       []htmlRule
		Suggestions []htmlSuggestion
		Method      string
		Steps       []Step
		Doubtful    bool
		Apart       string
		Both        string // requests that both of two limits deny
		Only        []htmlOnly
		Durations   []string
		Endpoints   []htmlEndpoints
		How         string // endpoints are found
		Notes       []string
		Examples    []htmlExample
	}
	htmlTile struct{ Name, Value string }
	htmlOnly struct {
		Name, Denied, Callers string
		Most                  []htmlMost
	}
	htmlMost struct {
		By   string
		Rows []htmlTile
	}
	htmlEndpoints struct {
		Strategy string
		Rows     []htmlEndpoint
	}
	htmlEndpoint struct {
		Name, Requests, Callers string
		Limits                  []htmlTile
	}
	htmlRule struct {
		Limit, Strategy  string
		Admitted, Denied string
		Apart            string
		Share            string
		Bar              string // the share as a CSS percentage
		Met, MetShare    string
		Chart            htmlChart
		Worst            []htmlCaller
	}
	htmlCaller struct {
		Name, Full            string
		Requests, Denied      string
		Share, Bar, FirstTime string
	}
	htmlSuggestion struct {
		Strategy string
		Share    string
		Callers  string
		Rows     []htmlPeaks
	}
	htmlPeaks struct {
		Limit, Denied            string
		P50, P90, P99, P999, Max string
		Duration                 string
		Open                     bool
		Chart                    htmlChart
	}
	htmlChart struct {
		Rows    []htmlBin
		Drawing template.HTML
	}
	htmlExample struct {
		Where, Reason, Text string
	}
)

// HTML writes the report as one page without scripts or other files. Times are UTC.
func HTML(w io.Writer, r *replay.Result) error {
	t := r.Timeline.Coarser(htmlBins)
	p := htmlPage{
		Title:   headline(r),
		Heading: "What would the limit have done?",
		Files:   fileList(r, 200),
		From:    stamp(r.First), To: stamp(r.Last),
		By:         string(r.By),
		Assumption: Assumption(r),
		Width:      span(t.Width),
		Notes:      Notes(r), Doubtful: len(r.Doubts) > 0,
		Steps: Next(r), Apart: apartText(r.Apart), How: endpoint.How,
		Tiles: []htmlTile{
			{"requests", count(r.Requests)}, {"callers", count(r.Callers)},
			{"span", span(r.Last.Sub(r.First))},
			{"busiest " + span(t.Width), plural(tallest(t), "request")},
		},
		Method: Method,
	}
	if len(r.Rules) == 0 {
		p.Heading = "Which limit fits?"
	}
	for i := range r.Rules {
		rule := htmlOf(r, t, i)
		if shown(r, i) {
			p.Rules = append(p.Rules, rule)
		}
		if len(r.Rules) > 1 && r.Rules[i].Matched > 0 {
			p.Compared = append(p.Compared, rule)
		}
	}
	if r.RuleSets != nil {
		p.Heading = "What would the rules have done?"
	}
	for i, s := range r.Suggestions {
		if i == 0 || s.Strategy != r.Suggestions[i-1].Strategy {
			p.Suggestions = append(p.Suggestions, htmlSuggestion{Strategy: strategyTitle(s.Strategy, s.Burst),
				Share: shareText(r.Suggest.Share), Callers: plural(uint64(r.Callers), "caller")})
		}
		last := &p.Suggestions[len(p.Suggestions)-1]
		last.Rows = append(last.Rows, htmlPeaksOf(s, i == 0))
	}
	p.compared(r)
	p.endpoints(r)
	for _, e := range r.Unreadable.Examples {
		p.Examples = append(p.Examples,
			htmlExample{fmt.Sprintf("%s:%d", Printable(e.File), e.Line), e.Reason, Printable(e.Text)})
	}
	return page.Execute(w, p)
}

// compared adds what only one of two limits denies.
func (p *htmlPage) compared(r *replay.Result) {
	if r.Compared == nil {
		return
	}
	p.Both = plural(r.Compared.Both, "request")
	for i, one := range r.Compared.Only {
		only := htmlOnly{Printable(r.Compared.Names[i]), plural(one.Denied, "request"),
			plural(uint64(one.Met), "caller"), []htmlMost{{By: "caller"}, {By: "path"}}}
		for k, all := range [][]replay.Tally{one.Callers, one.Paths} {
			for _, t := range all {
				only.Most[k].Rows = append(only.Most[k].Rows, htmlTile{Printable(t.Name), count(t.Denied)})
			}
		}
		p.Only = append(p.Only, only)
	}
}

// endpoints adds the limits of each endpoint.
func (p *htmlPage) endpoints(r *replay.Result) {
	if r.Endpoints == nil {
		return
	}
	for _, d := range r.Suggest.Durations {
		p.Durations = append(p.Durations, durationText(d))
	}
	for i, strategy := range r.Suggest.Strategies {
		table := htmlEndpoints{Strategy: strategyTitle(strategy, r.Suggest.BurstOf(strategy))}
		for _, e := range r.Endpoints {
			row := htmlEndpoint{Name: Printable(e.Name), Requests: count(e.Requests), Callers: count(e.Callers)}
			for k, d := range p.Durations {
				row.Limits = append(row.Limits, htmlTile{d, limitOf(e, i*len(p.Durations)+k)})
			}
			table.Rows = append(table.Rows, row)
		}
		p.Endpoints = append(p.Endpoints, table)
	}
}

func htmlOf(r *replay.Result, t *replay.Timeline, i int) htmlRule {
	rr := &r.Rules[i]
	out := htmlRule{
		Limit: heading(rr.Rule), Strategy: title(rr),
		Admitted: count(admitted(rr)), Denied: count(rr.Denied),
		Apart: apartText(rr.Apart), Share: percent(rr.Denied, rr.Matched), Bar: css(rr.Denied, rr.Matched),
		Met: count(rr.Met), MetShare: percent(uint64(rr.Met), uint64(r.Callers)),
		Chart: timelineChart(t, 1+i),
	}
	for _, c := range rr.Worst {
		name := Printable(c.Name)
		out.Worst = append(out.Worst, htmlCaller{
			Name: short(name, 44), Full: name, Requests: count(c.Requests), Denied: count(c.Denied),
			Share: percent(c.Denied, c.Requests), Bar: css(c.Denied, c.Requests),
			FirstTime: stamp(c.FirstDenied),
		})
	}
	return out
}

func htmlPeaksOf(s replay.Suggestion, open bool) htmlPeaks {
	p := s.Peaks
	return htmlPeaks{
		Limit: suggested(s), Denied: count(s.Denied), P50: peak(p.P50), P90: peak(p.P90), P99: peak(p.P99),
		P999: peak(p.P999), Max: peak(p.Max), Chart: peakChart(s), Duration: durationText(s.Duration), Open: open,
	}
}

func css(part, whole uint64) string { return fmt.Sprintf("%.2f%%", 100*share(part, whole)) }

func tallest(t *replay.Timeline) uint64 {
	var top uint64
	for _, n := range t.Rows[0] {
		top = max(top, n)
	}
	return top
}
