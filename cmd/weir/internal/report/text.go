package report

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/guptarohit/asciigraph"

	"github.com/weirgo/weir/cmd/weir/internal/replay"
)

// Style says what the text may look like.
type Style struct {
	Color bool // use ANSI colors
	Width int  // of a line, in characters
}

const (
	bold  = "\x1b[1m"
	red   = "\x1b[31m"
	plain = "\x1b[0m"
)

func (s Style) paint(code, text string) string {
	if !s.Color {
		return text
	}
	return code + text + plain
}

// Text writes the report for a person at a terminal. Times are UTC.
func Text(w io.Writer, r *replay.Result, style Style) {
	fmt.Fprintf(w, "%s\n", style.paint(bold, headline(r)))
	fmt.Fprintf(w, "%s to %s UTC (%s), callers told apart by %s\n", stamp(r.First), stamp(r.Last), span(r.Last.Sub(r.First)), r.By)
	fmt.Fprintf(w, "from %s\n", fileList(r, style.Width-5))
	if len(r.Rules) > 1 {
		comparison(w, r)
	}
	for i := range r.Rules {
		section(w, r, i, style)
	}
	remarks(w, r, style)
}

func headline(r *replay.Result) string {
	return plural(r.Requests, "request") + " by " + plural(uint64(r.Callers), "caller")
}

func fileList(r *replay.Result, width int) string {
	var names []string
	for _, f := range r.Files {
		if f == replay.Stdin {
			f = "the standard input"
		}
		names = append(names, Printable(f))
	}
	return short(strings.Join(names, ", "), width)
}

func comparison(w io.Writer, r *replay.Result) {
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "limit\tstrategy\tadmitted\tdenied\tshare\tcallers denied\t")
	for i := range r.Rules {
		rr := &r.Rules[i]
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t\n", rr.Rule.Limit, title(rr.Rule), count(admitted(r, rr)), count(rr.Denied),
			percent(rr.Denied, r.Requests), count(rr.Met))
	}
	t.Flush()
}

func section(w io.Writer, r *replay.Result, i int, style Style) {
	rr := &r.Rules[i]
	fmt.Fprintf(w, "\n%s\n", style.paint(bold, rr.Rule.Limit+", "+title(rr.Rule)))
	fmt.Fprintf(w, "  denied   %s of %s requests (%s)\n", count(rr.Denied), count(r.Requests), percent(rr.Denied, r.Requests))
	fmt.Fprintf(w, "  callers  %s of %s met a denial (%s)\n", count(rr.Met), count(r.Callers), percent(uint64(rr.Met), uint64(r.Callers)))
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
	room := max(40, style.Width-53) // an IPv6 address has 39
	widest := len("caller")
	names := make([]string, len(rr.Worst))
	for i, c := range rr.Worst {
		names[i] = short(Printable(c.Name), room)
		widest = max(widest, len([]rune(names[i])))
	}
	fmt.Fprintf(w, "  %-*s %9s %9s %8s  %s\n", widest, "caller", "requests", "denied", "share", "first denial (UTC)")
	for i, c := range rr.Worst {
		pad := strings.Repeat(" ", widest-len([]rune(names[i])))
		fmt.Fprintf(w, "  %s%s %9s %9s %8s  %s\n", names[i], pad, count(c.Requests), count(c.Denied),
			percent(c.Denied, c.Requests), stamp(c.FirstDenied))
	}
}

const chartHeight = 8

// chart draws what was admitted and what was denied over time. Without colors the two are told apart by their strokes.
func chart(w io.Writer, full *replay.Timeline, row int, style Style) {
	columns := style.Width - 14
	t := full.Coarser(columns)
	ok, no := make([]float64, columns), make([]float64, columns)
	top, any := 1.0, false
	for i := range columns {
		bin := i * t.Bins() / columns // a bin may take several columns
		denied := t.Rows[row][bin]
		ok[i], no[i] = float64(t.Rows[0][bin]-denied), float64(denied)
		top, any = max(top, ok[i], no[i]), any || denied > 0
		if denied == 0 {
			no[i] = math.NaN() // a gap: a line of zeros would hide the bottom of the other
		}
	}
	dots := asciigraph.CreateCharSet("•")
	options := []asciigraph.Option{
		asciigraph.Height(chartHeight), asciigraph.LowerBound(0), asciigraph.UpperBound(top), asciigraph.Precision(0),
		asciigraph.SeriesChars(asciigraph.DefaultCharSet, dots), asciigraph.Offset(3),
	}
	denied := "• denied"
	if style.Color {
		options = append(options, asciigraph.SeriesColors(asciigraph.Green, asciigraph.Red))
		denied = style.paint(red, denied)
	}
	series := [][]float64{ok}
	legend := "─ admitted"
	if style.Color {
		legend = style.paint("\x1b[32m", legend)
	}
	if any {
		series = append(series, no)
		legend += "  " + denied
	}
	fmt.Fprintf(w, "  requests per %s:  %s\n", span(t.Width), legend)
	plot := asciigraph.PlotMany(series, options...)
	for line := range strings.SplitSeq(plot, "\n") {
		fmt.Fprintln(w, strings.TrimRight(line, " "))
	}
	fmt.Fprintln(w, timeAxis(t, plot, columns))
}

// timeAxis writes the first and the last instant below a plot's ends.
func timeAxis(t *replay.Timeline, plot string, columns int) string {
	first, _, _ := strings.Cut(plot, "\n")
	margin := max(0, strings.IndexAny(first, "┤┼"))
	from, to := stamp(t.Start), stamp(t.Start.Add(time.Duration(t.Bins())*t.Width))
	gap := columns - len(from) - len(to) + 1
	return strings.Repeat(" ", margin) + from + strings.Repeat(" ", max(1, gap)) + to
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
		fmt.Fprintf(w, "  %s:%d: %s: \"%s\"\n", Printable(e.File), e.Line, e.Reason, short(Printable(e.Text), style.Width))
	}
	if more := r.Unreadable.Count - uint64(len(r.Unreadable.Examples)); more > 0 && r.Unreadable.Count > 0 {
		fmt.Fprintf(w, "  and %s more\n", count(more))
	}
}
