package report

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/weirgo/weir/cmd/weir/internal/endpoint"
	"github.com/weirgo/weir/cmd/weir/internal/replay"
)

// Style is the format of the text.
type Style struct {
	Color bool // use ANSI colors
	Width int  // of a line, in characters
}

const (
	bold  = "\x1b[1m"
	red   = "\x1b[31m"
	green = "\x1b[32m"
	plain = "\x1b[0m"
)

func (s Style) paint(code, text string) string {
	if !s.Color {
		return text
	}
	return code + text + plain
}

// Text writes the report for a reader at a terminal. Times are UTC.
func Text(w io.Writer, r *replay.Result, style Style) {
	fmt.Fprintf(w, "%s\n", style.paint(bold, headline(r)))
	fmt.Fprintf(w, "%s to %s UTC (%s), callers keyed by %s\n", stamp(r.First), stamp(r.Last),
		span(r.Last.Sub(r.First)), r.By)
	fmt.Fprintf(w, "from %s\n", fileList(r, style.Width-5))
	if text := apartText(r.Apart); text != "" {
		fmt.Fprintf(w, "of these requests, %s\n", text)
	}
	if len(r.Rules) > 1 {
		comparison(w, r)
	}
	Compared(w, r, style)
	for i := range r.Rules {
		if shown(r, i) {
			section(w, r, i, style)
		}
	}
	if len(r.Rules) > 0 {
		fmt.Fprintf(w, "\n%s\n", strings.Join(wrap(Assumption(r), style.Width), "\n"))
	}
	suggestions(w, r, style)
	endpoints(w, r, style)
	remarks(w, r, style)
	next(w, r, style)
}

func headline(r *replay.Result) string {
	return plural(r.Requests, "request") + " by " + plural(uint64(r.Callers), "caller")
}

func fileList(r *replay.Result, width int) string {
	var names []string
	for _, f := range r.Files {
		names = append(names, fileName(f))
	}
	return short(strings.Join(names, ", "), width)
}

func comparison(w io.Writer, r *replay.Result) {
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "limit\tstrategy\tadmitted\tdenied\tshare\tcallers denied\t")
	for i := range r.Rules {
		rr := &r.Rules[i]
		if rr.Matched > 0 {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t\n", heading(rr.Rule), title(rr), count(admitted(rr)),
				count(rr.Denied), percent(rr.Denied, rr.Matched), count(rr.Met))
		}
	}
	t.Flush()
}

func section(w io.Writer, r *replay.Result, i int, style Style) {
	rr := &r.Rules[i]
	fmt.Fprintf(w, "\n%s\n", style.paint(bold, full(rr)))
	fmt.Fprintf(w, "  denied   %s of %s requests (%s)\n", count(rr.Denied), count(rr.Matched),
		percent(rr.Denied, rr.Matched))
	if text := apartText(rr.Apart); text != "" {
		fmt.Fprintf(w, "           of the denied, %s\n", text)
	}
	fmt.Fprintf(w, "  callers  %s of %s met a denial (%s)\n", count(rr.Met), count(r.Callers),
		percent(uint64(rr.Met), uint64(r.Callers)))
	if len(rr.Worst) > 0 {
		fmt.Fprintln(w)
		worst(w, rr, style)
	}
	if r.Timeline.Bins() > 1 {
		fmt.Fprintln(w)
		chart(w, r.Timeline, 1+i, style)
	}
}

func worst(w io.Writer, rr *replay.RuleResult, style Style) {
	room := max(40, style.Width-53) // an IPv6 address has up to 39 characters
	widest := len("caller")
	names := make([]string, len(rr.Worst))
	for i, c := range rr.Worst {
		names[i] = short(Printable(c.Name), room)
		widest = max(widest, len([]rune(names[i])))
	}
	fmt.Fprintf(w, "  %-*s %9s %9s %8s  %s\n", widest, "caller", "requests", "denied", "share",
		"first denial (UTC)")
	for i, c := range rr.Worst {
		pad := strings.Repeat(" ", widest-len([]rune(names[i])))
		fmt.Fprintf(w, "  %s%s %9s %9s %8s  %s\n", names[i], pad, count(c.Requests), count(c.Denied),
			percent(c.Denied, c.Requests), stamp(c.FirstDenied))
	}
}

// suggestions writes the suggested limits of each strategy.
func suggestions(w io.Writer, r *replay.Result, style Style) {
	for i, s := range r.Suggestions {
		if i == 0 || s.Strategy != r.Suggestions[i-1].Strategy {
			fmt.Fprintf(w, "\n%s\n", style.paint(bold, "suggested limits, "+
				strategyTitle(s.Strategy, s.Burst)))
			fmt.Fprintf(w, "  the least that deny a request to at most %s of %s\n\n",
				shareText(r.Suggest.Share), plural(uint64(r.Callers), "caller"))
			fmt.Fprintf(w, suggestionLine, "limit", "callers denied", "p50", "p90", "p99", "p99.9", "max")
		}
		p := s.Peaks
		fmt.Fprintf(w, suggestionLine, suggested(s), count(s.Denied), peak(p.P50), peak(p.P90), peak(p.P99),
			peak(p.P999), peak(p.Max))
	}
	if len(r.Suggestions) > 0 {
		fmt.Fprintf(w, "\n  %s\n", strings.Join(wrap(Method, style.Width-4), "\n  "))
	}
}

// Compared writes what only one of two limits, or of two sets of rules, denies.
func Compared(w io.Writer, r *replay.Result, style Style) {
	if r.Compared == nil {
		return
	}
	fmt.Fprintf(w, "\n%s\n  both deny %s\n", style.paint(bold, "compared"), plural(r.Compared.Both, "request"))
	for i, one := range r.Compared.Only {
		fmt.Fprintf(w, "  only %s denies %s of %s\n", Printable(r.Compared.Names[i]), plural(one.Denied, "request"),
			plural(uint64(one.Met), "caller"))
		for k, all := range [][]replay.Tally{one.Callers, one.Paths} {
			for n, t := range all {
				by := ""
				if n == 0 {
					by = []string{"caller", "path"}[k]
				}
				fmt.Fprintf(w, "    %-6s %9s  %s\n", by, count(t.Denied), short(Printable(t.Name), style.Width-22))
			}
		}
	}
}

// endpoints writes the suggested limits of each endpoint, and how endpoints are found.
func endpoints(w io.Writer, r *replay.Result, style Style) {
	if r.Endpoints == nil {
		return
	}
	for i, strategy := range r.Suggest.Strategies {
		fmt.Fprintf(w, "\n%s\n  the least that deny a request to at most %s of an endpoint's callers\n\n",
			style.paint(bold, "suggested limits by endpoint, "+strategyTitle(strategy, r.Suggest.BurstOf(strategy))),
			shareText(r.Suggest.Share))
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprint(t, "  requests\tcallers\t")
		for _, d := range r.Suggest.Durations {
			fmt.Fprintf(t, "in %s\t", durationText(d))
		}
		fmt.Fprintln(t, "  endpoint")
		for _, e := range r.Endpoints {
			fmt.Fprintf(t, "%s\t%s\t", count(e.Requests), count(e.Callers))
			for k := range r.Suggest.Durations {
				fmt.Fprintf(t, "%s\t", limitOf(e, i*len(r.Suggest.Durations)+k))
			}
			fmt.Fprintf(t, "  %s\n", short(Printable(e.Name), max(20, style.Width-24-6*len(r.Suggest.Durations))))
		}
		t.Flush()
	}
	fmt.Fprintf(w, "\n  %s\n", strings.Join(wrap(endpoint.How, style.Width-4), "\n  "))
}

// limitOf formats suggestion i of an endpoint.
func limitOf(e replay.Endpoint, i int) string {
	if e.Suggestions == nil {
		return "–"
	}
	return peak(e.Suggestions[i].Limit)
}

const suggestionLine = "  %14s  %14s  %8s %8s %8s %8s %8s\n"

// Method explains a suggestion.
const Method = "A caller's peak is the least limit that denies none of the caller's requests, " +
	"worked out exactly from all of them. The percentiles and the maximum are those of the callers' peaks."

func suggested(s replay.Suggestion) string {
	if s.Limit == replay.NoLimit {
		return "none/" + durationText(s.Duration)
	}
	return count(s.Limit) + "/" + durationText(s.Duration)
}

func peak(n uint64) string {
	if n == replay.NoLimit {
		return "none"
	}
	return count(n)
}

// shareText formats a share as a percentage with as many digits as needed.
func shareText(share float64) string {
	return strconv.FormatFloat(math.Round(share*1e8)/1e6, 'f', -1, 64) + " %"
}

// wrap breaks text into lines of at most width characters.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}

// next writes the suggested next steps.
func next(w io.Writer, r *replay.Result, style Style) {
	steps := Next(r)
	if len(steps) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n", style.paint(bold, "next"))
	for _, s := range steps {
		if s.Command == "" {
			fmt.Fprintf(w, "  %s\n", strings.Join(wrap(s.What, style.Width-4), "\n  "))
			continue
		}
		fmt.Fprintf(w, "  %s:\n    %s\n", s.What, s.Command)
	}
}

func remarks(w io.Writer, r *replay.Result, style Style) {
	notes := Notes(r)
	if len(notes) > 0 {
		fmt.Fprintln(w)
	}
	for _, note := range notes {
		fmt.Fprintf(w, "%s %s\n", style.paint(red, "note:"), note)
	}
	for _, e := range r.Unreadable.Examples {
		fmt.Fprintf(w, "  %s:%d: %s: \"%s\"\n", Printable(e.File), e.Line, e.Reason,
			short(Printable(e.Text), style.Width))
	}
	if more := r.Unreadable.Count - uint64(len(r.Unreadable.Examples)); more > 0 && r.Unreadable.Count > 0 {
		fmt.Fprintf(w, "  and %s more\n", count(more))
	}
}
