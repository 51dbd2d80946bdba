package report

import (
	"fmt"
	"io"
	"math"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/replay"
	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
)

// OpenLoop says what the figures of a Load assume.
const OpenLoop = "A log is an open loop: each request came when it did and took as long as it " +
	"did, also " +
	"where others are refused. In truth those that are admitted get quicker, as fewer wait for each " +
	"other, so fewer are refused; and clients that are refused may try again."

// loadOf writes what was in flight, and what would have been refused of it.
func loadOf(w io.Writer, r *replay.Result, on screen.Terminal) {
	l := r.Load
	if l == nil {
		return
	}
	section := func(title string, lines [][2]string) {
		fmt.Fprintf(w, "\n%s\n", on.Paint(screen.Bold, title))
		for _, line := range lines {
			fmt.Fprintf(w, "  %-8s %s\n", line[0], line[1])
		}
	}
	list := func(t *table) {
		if len(t.Rows) > 0 {
			fmt.Fprintln(w)
			t.write(w, on.Width)
		}
	}
	curve := l.Curve.Coarser(columns(on))
	section("in flight", flightLines(l))
	list(busiestCallers(l))
	if curve.Bins() > 1 {
		fmt.Fprintln(w)
		chart(w, flights(curve), on)
	}
	section(guardTitle(r), guardLines(r))
	list(refusedCallers(l))
	if l.Guard.Refused() > 0 && curve.Bins() > 1 {
		fmt.Fprintln(w)
		chart(w, refusals(curve), on)
	}
	section("a fixed number in flight", nil)
	list(fixedNumbers(r))
	fmt.Fprintf(w, "\n%s\n", wrap(OpenLoop, "", on))
}

// flightLines are the figures of what was in flight, and their names.
func flightLines(l *replay.Load) [][2]string {
	t := l.Took
	return [][2]string{
		{"average", some(l.Average)},
		{"peak", fmt.Sprintf("%s at %s", count(l.Peak), stamp(l.PeakAt))},
		{"took", fmt.Sprintf("%s for half of them, p90 %s, p99 %s, at most %s", brieflyOf(t.P50),
			brieflyOf(t.P90), brieflyOf(t.P99), brieflyOf(t.Max))},
	}
}

// guardTitle is the heading of what a guard would have done.
func guardTitle(r *replay.Result) string {
	if goal := r.Overload.Goal; goal > 0 {
		return "a guard with the goal " + goal.String()
	}
	return "a guard that learns its goal"
}

// guardLines are the figures of a guard, and their names.
func guardLines(r *replay.Result) (lines [][2]string) {
	g := &r.Load.Guard
	if g.Goal > 0 {
		lines = append(lines, [2]string{"goal", brieflyOf(g.Goal)})
	}
	lines = append(lines,
		[2]string{"limit", fmt.Sprintf("%s at the end (%s), %s at least", count(g.Last), g.State,
			count(g.Lowest))},
		[2]string{"refused", fmt.Sprintf("%s of %s requests (%s)", count(g.Refused()), count(r.Requests),
			percent(g.Refused(), r.Requests))})
	if g.Refused() > 0 {
		lines = append(lines, [2]string{"", fmt.Sprintf(
			"%s when it was full, %s of callers that held their share", count(g.Full), count(g.ShareUsed))})
	}
	return append(lines, [2]string{"callers", fmt.Sprintf("%s of %s met a refusal (%s)",
		count(g.Met), count(r.Callers), percent(g.Met, r.Callers))})
}

// busiestCallers has the callers that took most of the time in flight.
func busiestCallers(l *replay.Load) *table {
	t := newTable("The callers that took most of the service's time", "caller", "requests", "time",
		"share", "peak")
	for _, c := range l.Busiest {
		t.add(screen.Printable(c.Name), count(c.Requests), brieflyOf(c.Time), shareText(c.Share),
			count(c.Most))
	}
	return t
}

// refusedCallers has the callers that a guard refuses most.
func refusedCallers(l *replay.Load) *table {
	t := newTable("The callers that the guard refuses most", "caller", "requests", "refused", "share",
		"when full", "share used")
	for _, c := range l.Refused {
		t.add(screen.Printable(c.Name), count(c.Requests), count(c.Refused()),
			percent(c.Refused(), c.Requests), count(c.Full), count(c.ShareUsed))
	}
	return t
}

// fixedNumbers has the numbers that would have fit.
func fixedNumbers(r *replay.Result) *table {
	l := r.Load
	t := newTable("Fixed numbers that would have fit", "at most", "refused", "share", "why")
	t.Columns[3].Text = true
	add := func(f *replay.Fixed, why string) {
		t.add(count(f.Most), count(f.Refused), percent(f.Refused, r.Requests), why)
	}
	if l.Fits != nil {
		add(l.Fits, fmt.Sprintf("%s requests a second were served at best, each for %s",
			some(l.Throughput),
			brieflyOf(l.Guard.Goal)))
	}
	add(l.Least, fmt.Sprintf("the least that at most %s meet", exactPercent(r.Overload.RefuseAtMost)))
	return t
}

// shareText formats a part of 1 as a percentage.
func shareText(part float64) string {
	const parts = 1e9
	return percent(uint64(math.Round(part*parts)), parts)
}

// brieflyOf formats a duration with three digits.
func brieflyOf(s replay.Seconds) string {
	d := time.Duration(s)
	if d >= time.Minute {
		return span(d)
	}
	return time.Duration(roundTo(float64(d), 3)).String()
}

// loadNotes are the notes on a Load.
func loadNotes(l *replay.Load, coarse bool) (notes []string) {
	if n := l.Untimed; n > 0 {
		notes = append(notes, plural(n, "request")+" had no duration and "+were(n)+" left out")
	}
	if n := l.Upgraded; n > 0 {
		notes = append(notes, plural(n, "request")+" became another protocol (status 101) and "+were(n)+
			" left out: such a connection holds no place")
	}
	if l.LongShare > .1 {
		notes = append(notes, fmt.Sprintf("%s over a minute took %s of the time in flight: if they are "+
			"streams, they hold no place in front of a server, and --path selects others",
			plural(l.Long, "request"), shareText(l.LongShare)))
	}
	if l.Whole {
		notes = append(notes, "all durations are whole seconds, so that what is quicker counts as none: "+
			"log parts of a second, such as Apache's %D")
	}
	if coarse {
		notes = append(notes, "the log has whole seconds, over which requests were spread evenly: "+
			"what was "+
			"in flight is right on average, and peaks within a second are not seen")
	}
	if l.Guard.Goal == 0 {
		notes = append(notes, "too few requests ended to learn a goal")
	}
	return notes
}

// loadSteps are the commands that go on from a Load.
func loadSteps(r *replay.Result) []Step {
	words, guard := []string{"weir", "proxy", "--upstream", "http://127.0.0.1:9000"}, "--overload"
	if goal := goalOf(r); goal > 0 {
		guard += "=" + goal.String()
	}
	steps := []Step{{"learn the limit in front of a server", shell(words, []string{guard},
		keyFlags(r))}}
	if f := r.Load.Fits; f != nil {
		steps = append(steps, Step{"or set a fixed number",
			shell(words, []string{"--max-in-flight", fmt.Sprint(f.Most)})})
	}
	return steps
}

// goalOf returns the goal to set: the given one, or that which was learnt, with two digits.
func goalOf(r *replay.Result) time.Duration {
	if r.Overload.Goal > 0 {
		return r.Overload.Goal
	}
	return time.Duration(roundTo(float64(r.Load.Guard.Goal), 2))
}
