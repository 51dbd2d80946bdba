package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/endpoint"
	"github.com/weirgo/weir/cmd/weir/internal/analyse/replay"
	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
)

// Text writes the report for a reader at a terminal, or for a file if that is the zero one:
// then the names of limits are not cut to fit a line. Times are UTC.
func Text(w io.Writer, r *replay.Result, on screen.Terminal) {
	names := math.MaxInt32
	if on.Width == 0 {
		on.Width = 80
	} else {
		on.Width = min(max(on.Width, 60), 140)
		names = on.Width
	}
	fmt.Fprintf(w, "%s\n", on.Paint(screen.Bold, headline(r)))
	fmt.Fprintf(w, "%s to %s UTC (%s), callers keyed by %s\n", stamp(r.First), stamp(r.Last),
		span(r.Last.Sub(r.First)), r.By)
	fmt.Fprintf(w, "from %s\n", fileList(r, on.Width-5))
	if text := apartText(r.Apart); text != "" {
		fmt.Fprintf(w, "of these requests, %s\n", text)
	}
	minuteOf(w, r, on)
	if len(r.Rules) > 1 {
		fmt.Fprintln(w)
		rulesTable(r).write(w, names)
	}
	compared(w, r, on)
	for i := range r.Rules {
		if shown(r, i) {
			section(w, r, i, on)
		}
	}
	if len(r.Rules) > 0 {
		fmt.Fprintf(w, "\n%s\n", wrap(Assumption(r), "", on))
	}
	loadOf(w, r, on)
	suggestions(w, r, on)
	endpoints(w, r, on)
	remarks(w, r, on)
	next(w, r, on)
}

func headline(r *replay.Result) string {
	return plural(r.Requests, "request") + " by " + met(r.Callers)
}

func fileList(r *replay.Result, width int) string {
	var names []string
	for _, f := range filesRead(r) {
		names = append(names, fileName(f))
	}
	return short(strings.Join(names, ", "), width)
}

// filesRead returns the files of which some lines are in the result, and the empty ones.
func filesRead(r *replay.Result) []string {
	return slices.DeleteFunc(slices.Clone(r.Files), func(name string) bool {
		return slices.ContainsFunc(r.Failed, func(f replay.Failure) bool {
			return f.Name == name && !f.Part
		})
	})
}

func section(w io.Writer, r *replay.Result, i int, on screen.Terminal) {
	rr := &r.Rules[i]
	fmt.Fprintf(w, "\n%s\n", on.Paint(screen.Bold, full(rr)))
	fmt.Fprintf(w, "  denied   %s of %s requests (%s)\n", count(rr.Denied), count(rr.Matched),
		percent(rr.Denied, rr.Matched))
	if text := apartText(rr.Apart); text != "" {
		fmt.Fprintf(w, "           of the denied, %s\n", text)
	}
	fmt.Fprintf(w, "  callers  %s of %s met a denial (%s)\n", count(rr.Met), count(r.Callers),
		percent(rr.Met, r.Callers))
	if len(rr.Worst) > 0 {
		fmt.Fprintln(w)
		worstTable(i, rr).write(w, on.Width)
	}
	if r.Timeline.Bins() > 1 {
		fmt.Fprintln(w)
		chart(w, denials(r.Timeline.Coarser(columns(on)), i), on)
	}
}

func suggestions(w io.Writer, r *replay.Result, on screen.Terminal) {
	for _, all := range byStrategy(r) {
		fmt.Fprintf(w, "\n%s\n", on.Paint(screen.Bold,
			"suggested limits, "+strategyTitle(all[0].Strategy, all[0].Burst)))
		fmt.Fprintf(w, "  the least that deny a request to at most %s of %s\n\n",
			exactPercent(r.Suggest.DenyAtMost), met(r.Callers))
		suggestionsTable(all).write(w, on.Width)
	}
	if len(r.Suggestions) > 0 {
		fmt.Fprintf(w, "\n%s\n", wrap(Method, "  ", on))
	}
}

// compared writes what only one of two limits, or of two sets of rules, denies.
func compared(w io.Writer, r *replay.Result, on screen.Terminal) {
	if r.Compared == nil {
		return
	}
	fmt.Fprintf(w, "\n%s\n  both deny %s\n", on.Paint(screen.Bold, "compared"),
		plural(r.Compared.Both, "request"))
	for i, name := range r.Compared.Names {
		one := &r.Compared.Only[i]
		fmt.Fprintf(w, "  only %s denies %s of %s\n", screen.Printable(name), plural(one.Denied, "request"),
			met(one.Met))
		for _, t := range onlyTables(name, one) {
			fmt.Fprintln(w)
			t.write(w, on.Width)
		}
	}
}

// endpoints writes the suggested limits of each endpoint, and how endpoints are found.
func endpoints(w io.Writer, r *replay.Result, on screen.Terminal) {
	if r.Endpoints == nil {
		return
	}
	for i, strategy := range r.Suggest.Strategies {
		title := "suggested limits by endpoint, " + strategyTitle(strategy, r.Suggest.BurstOf(strategy))
		fmt.Fprintf(w, "\n%s\n  the least that deny a request to at most %s of an endpoint's callers\n\n",
			on.Paint(screen.Bold, title), exactPercent(r.Suggest.DenyAtMost))
		endpointsTable(r, i).write(w, on.Width)
	}
	fmt.Fprintf(w, "\n%s\n", wrap(endpoint.How, "  ", on))
}

// Method explains a suggestion.
const Method = "A caller's peak is the least limit that denies none of the caller's requests, " +
	"worked out exactly from all of them. The percentiles and the maximum are those of the " +
	"callers' peaks."

// byStrategy returns the suggestions of each strategy.
func byStrategy(r *replay.Result) (groups [][]replay.Suggestion) {
	for i, s := range r.Suggestions {
		if i == 0 || s.Strategy != r.Suggestions[i-1].Strategy {
			groups = append(groups, nil)
		}
		last := &groups[len(groups)-1]
		*last = append(*last, s)
	}
	return groups
}

func suggested(s replay.Suggestion) string { return peak(s.Limit) + "/" + durationText(s.Duration) }

func peak(n replay.Peak) string {
	if n == replay.NoLimit {
		return "none"
	}
	return count(n)
}

// exactPercent formats a fraction as a percentage with as many digits as needed.
func exactPercent(fraction float64) string {
	return strconv.FormatFloat(math.Round(fraction*1e8)/1e6, 'f', -1, 64) + " %"
}

// wrap breaks text into lines that begin with an indent.
func wrap(text, indent string, on screen.Terminal) string {
	lines := []string{indent}
	for word := range strings.FieldsSeq(text) {
		switch last := &lines[len(lines)-1]; {
		case *last == indent:
			*last += word
		case len(*last)+1+len(word) <= on.Width:
			*last += " " + word
		default:
			lines = append(lines, indent+word)
		}
	}
	return strings.Join(lines, "\n")
}

func next(w io.Writer, r *replay.Result, on screen.Terminal) {
	for i, s := range Next(r) {
		if i == 0 {
			fmt.Fprintf(w, "\n%s\n", on.Paint(screen.Bold, "next"))
		}
		if s.Command == "" {
			fmt.Fprintln(w, wrap(s.What, "  ", on))
		} else {
			fmt.Fprintf(w, "  %s:\n    %s\n", s.What, s.Command)
		}
	}
}

func remarks(w io.Writer, r *replay.Result, on screen.Terminal) {
	for i, note := range Notes(r) {
		if i == 0 {
			fmt.Fprintln(w)
		}
		text := wrap("note: "+note, "", on)
		fmt.Fprintln(w, strings.Replace(text, "note:", on.Paint(screen.Red, "note:"), 1))
	}
	for _, e := range r.Unreadable.Examples {
		fmt.Fprintf(w, "  %s:%d: %s: \"%s\"\n", screen.Printable(e.File), e.Line, e.Reason,
			short(screen.Printable(e.Text), on.Width))
	}
	if more := r.Unreadable.Count - uint64(len(r.Unreadable.Examples)); more > 0 {
		fmt.Fprintf(w, "  and %s more\n", count(more))
	}
}
