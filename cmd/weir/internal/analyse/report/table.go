package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/replay"
	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
)

// table is a table of the text and of the page. The first column has names; the others have
// figures, unless they are of text. All cells are Printable.
type table struct {
	Caption string
	Columns []column
	Rows    [][]string
	links   map[int]string          // in the page, the ids to which the names of rows lead
	short   func(row, n int) string // the name of a row in n runes; nil if its middle may be cut
}

type column struct {
	Name string
	Text bool
}

func newTable(caption string, columns ...string) *table {
	t := &table{Caption: caption, links: make(map[int]string)}
	for _, name := range columns {
		t.Columns = append(t.Columns, column{Name: name})
	}
	return t
}

// Link returns the id to which the name of a row leads; it is empty if there is none.
func (t *table) Link(row int) string { return t.links[row] }

func (t *table) add(cells ...string) { t.Rows = append(t.Rows, cells) }

// write writes the table as text. It shortens names to fit the width.
func (t *table) write(w io.Writer, width int) {
	lines := [][]string{nil}
	for _, c := range t.Columns {
		lines[0] = append(lines[0], c.Name)
	}
	lines = append(lines, t.Rows...)
	widths, rest := make([]int, len(t.Columns)), 0
	for i := range widths {
		for _, cells := range lines {
			widths[i] = max(widths[i], utf8.RuneCountInString(cells[i]))
		}
		rest += 2 + widths[i]
	}
	// an IPv6 address has up to 39 characters
	widths[0] = min(widths[0], max(40, width-rest+widths[0]))
	for row, cells := range lines {
		line := ""
		for i, cell := range cells {
			if i == 0 && row > 0 && t.short != nil {
				cell = t.short(row-1, widths[i])
			}
			cell = short(cell, widths[i])
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i == 0 || t.Columns[i].Text {
				line += "  " + cell + pad
			} else {
				line += "  " + pad + cell
			}
		}
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
}

// rulesTable has what each rule denies, also the rules that match no request.
func rulesTable(r *replay.Result) *table {
	t := newTable("Limits, and the requests and callers that they deny", "limit", "strategy",
		"admitted", "denied", "share",
		"callers denied")
	t.Columns[1].Text = true
	t.short = func(i, n int) string { return shortHeading(r.Rules[i].Rule, n) }
	for i := range r.Rules {
		rr, share := &r.Rules[i], "–"
		if shown(r, i) {
			t.links[i] = fmt.Sprintf("limit-%d", i)
		}
		if rr.Matched > 0 {
			share = percent(rr.Denied, rr.Matched)
		}
		t.add(heading(rr.Rule), title(rr), count(rr.Admitted()), count(rr.Denied), share, count(rr.Met))
	}
	return t
}

// worstTable has the callers that rule i denied most.
func worstTable(i int, rr *replay.RuleResult) *table {
	t := newTable("The callers with the most denials", "caller", "requests", "denied", "share",
		"first denial (UTC)")
	for n, c := range rr.Worst {
		if c.Detail != nil {
			t.links[n] = fmt.Sprintf("limit-%d-caller-%d", i, n)
		}
		t.add(screen.Printable(c.Name), count(c.Requests), count(c.Denied), percent(c.Denied, c.Requests),
			stamp(c.FirstDenied))
	}
	return t
}

// over says how far a listed caller went over a limit, in the window with the most requests.
func over(c replay.Caller, rr *replay.RuleResult) string {
	length, limit := rr.Window()
	text := fmt.Sprintf("up to %s in %s", count(c.Busiest[0].Requests), durationText(length))
	if limit > 0 {
		text += fmt.Sprintf(", %.3g times the limit", fraction(c.Busiest[0].Requests, limit))
	}
	return text
}

// withDenials returns the elements with denials, or all if there are none.
func withDenials[T any](all []T, denied func(T) uint64) []T {
	some := slices.DeleteFunc(slices.Clone(all), func(e T) bool { return denied(e) == 0 })
	if len(some) == 0 {
		return all
	}
	return some
}

// busiestTable has the windows in which a listed caller made most requests, those with denials if
// there are some.
func busiestTable(c replay.Caller, rr *replay.RuleResult) *table {
	length, _ := rr.Window()
	windows := withDenials(c.Busiest, func(w replay.Window) uint64 { return w.Denied })
	caption := "The busiest windows of " + durationText(length)
	if len(windows) < len(c.Busiest) {
		caption += ", those with denials"
	}
	t := newTable(caption, "from (UTC)", "requests", "denied", "share")
	for _, w := range windows {
		t.add(stamp(w.From), count(w.Requests), count(w.Denied), percent(w.Denied, w.Requests))
	}
	return t
}

// routesTable has the routes with the most denials, and none without.
func routesTable(routes []replay.Route) *table {
	t := newTable("The routes with the most denials", "route", "requests", "denied", "share")
	for _, r := range withDenials(routes, func(r replay.Route) uint64 { return r.Denied }) {
		t.add(screen.Printable(r.Name), count(r.Requests), count(r.Denied), percent(r.Denied, r.Requests))
	}
	return t
}

// onlyTables have the callers and the routes of what only one of two limits denies.
func onlyTables(name string, only *replay.OnlyOne) (tables []*table) {
	for by, all := range [][]replay.Count{only.Callers, only.Routes} {
		key := []string{"caller", "route"}[by]
		t := newTable("By "+key+": denied only by "+screen.Printable(name), key, "denied")
		for _, c := range all {
			t.add(screen.Printable(c.Name), count(c.Denied))
		}
		if len(t.Rows) > 0 {
			tables = append(tables, t)
		}
	}
	return tables
}

// suggestionsTable has the suggestions of one strategy.
func suggestionsTable(all []replay.Suggestion) *table {
	t := newTable("Suggested limits and the peaks of the callers", "limit", "callers denied",
		"typical caller", "p90", "p99", "p99.9", "max")
	for _, s := range all {
		p := s.Peaks
		t.add(suggested(s), count(s.Denied), peak(p.P50), peak(p.P90), peak(p.P99), peak(p.P999),
			peak(p.Max))
	}
	return t
}

// endpointsTable has the suggestions of a strategy, given by its index, for each endpoint.
func endpointsTable(r *replay.Result, strategy int) *table {
	t := newTable("The least limits for each endpoint, by duration", "endpoint", "requests", "callers")
	n := len(r.Suggest.Durations)
	for _, d := range r.Suggest.Durations {
		t.Columns = append(t.Columns, column{Name: "in " + durationText(d)})
	}
	for _, e := range r.Endpoints {
		cells := []string{screen.Printable(e.Name), count(e.Requests), count(e.Callers)}
		for k := range n {
			limit := "–" // of endpoints apart
			if e.Suggestions != nil {
				limit = peak(e.Suggestions[strategy*n+k].Limit)
			}
			cells = append(cells, limit)
		}
		t.add(cells...)
	}
	return t
}

// examplesTable has the first lines that could not be read.
func examplesTable(r *replay.Result) *table {
	t := newTable("Lines that could not be read", "unreadable line", "why", "it begins")
	t.Columns[1].Text, t.Columns[2].Text = true, true
	for _, e := range r.Unreadable.Examples {
		t.add(fmt.Sprintf("%s:%d", screen.Printable(e.File), e.Line), e.Reason, screen.Printable(e.Text))
	}
	return t
}
