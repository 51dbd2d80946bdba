// Package report writes the result of a replay: as text for a terminal, as JSON, and as an
// HTML page.
//
// The senders of requests choose the names of callers and the text of unreadable lines. Each form
// makes them harmless in its own way.
package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/replay"
	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
)

// Notes returns sentences that explain the figures: which lines and requests were left out, and
// which figures are not exact. They are safe to print to a terminal.
func Notes(r *replay.Result) []string {
	var notes []string
	add := func(n uint64, noun, format string, args ...any) {
		if n > 0 {
			notes = append(notes, plural(n, noun)+" "+fmt.Sprintf(format, args...))
		}
	}
	for i, doubt := range r.Doubts {
		notes = append(notes, doubtful(r, i == 0 && r.Unread)+screen.Printable(doubt))
	}
	add(r.Unreadable.Count, "line", "could not be read and %s left out", were(r.Unreadable.Count))
	add(r.Unkeyed, "request", "had no %s and %s left out", strings.TrimPrefix(string(r.By), "ip+"),
		were(r.Unkeyed))
	if r.Load != nil {
		notes = append(notes, loadNotes(r.Load, r.Coarse)...)
	}
	add(r.Filtered, "request", "%s not asked for and left out", were(r.Filtered))
	add(r.Uncounted, "request",
		"had a status that does not count: decided on, they took nothing from any limit")
	if m := r.Moved; m != nil {
		add(m.Late, "request", "%s older than one before, by up to %s; each counts at the time of "+
			"that one, and without --follow they are sorted", were(m.Late), span(m.LateBy))
		add(m.Ahead, "request", "%s over an hour in the future; each counts at the time of the one "+
			"before", were(m.Ahead))
	}
	for _, f := range r.Failed {
		part := " was left out: "
		if f.Part {
			part = " could not be read to its end, and only the requests before that count: "
		}
		notes = append(notes, fileName(f.Name)+part+screen.Printable(f.Err.Error()))
	}
	for _, name := range r.Empty {
		notes = append(notes, fileName(name)+" is empty")
	}
	if idle := idleNote(r); idle != "" {
		notes = append(notes, idle)
	}
	if nobody := nobodyNote(r); nobody != "" {
		notes = append(notes, nobody)
	}
	if r.Coarse && dependsOnFractions(r) {
		counted := "over which each caller's requests were spread evenly"
		if r.Moved != nil {
			counted = "at whose beginning requests count"
		}
		notes = append(notes, "the log has whole seconds, "+counted+": what limits on a second or less "+
			"would do is an estimate, except for fixed windows of 1s")
	}
	return notes
}

// doubtful returns the beginning of the note on a doubt, of which the rest is the reason.
func doubtful(r *replay.Result, unread bool) string {
	so := ", so no command is printed: "
	if r.Suggest != nil {
		so = ", so nothing is suggested: "
	}
	switch {
	case unread && r.Doubtful:
		return "too much of the log is missing from this report" + so
	case unread:
		return "much of the log is missing from this report: "
	case r.Doubtful:
		return "these callers are probably not your clients" + so
	}
	return "the callers may not be your clients: "
}

// apartText says how many of some requests a limit is perhaps not for; it is empty if none is.
func apartText(of replay.Apart) string {
	if of.Answered == 0 {
		return ""
	}
	return count(of.Answered) + " that the server answered with 429 already"
}

// Assumption says what the counts of denials assume.
func Assumption(r *replay.Result) string {
	if r.Load != nil {
		return OpenLoop
	}
	counted := "Each limit was counted on its own, "
	if r.RuleSets != nil {
		counted = "The rules decided together, "
	}
	return counted + "as if the denied requests had been sent all the same, on the log's clock: " +
		"callers that wait as long as they are asked to would meet fewer denials."
}

// maxNamed bounds the number of rules that a note names.
const maxNamed = 5

// idleNote names the rules that match no request. It is empty if there are none.
func idleNote(r *replay.Result) string {
	var names []string
	for _, rr := range r.Rules {
		if r.RuleSets != nil && rr.Matched == 0 {
			names = append(names, screen.Printable(rr.Rule.Name))
		}
	}
	if len(names) == 0 {
		return ""
	}
	n := uint64(len(names))
	if n > maxNamed {
		names = append(names[:maxNamed], "…")
	}
	return "no request matched " + plural(n, "rule") + ": " + strings.Join(names, ", ") +
		"; a log has no headers but the referer and the user agent, and no values of an application " +
		"but the user"
}

// nobodyNote says that the suggested limits deny nobody if the share that they may deny is less
// than one of the callers. It is empty if that is what was asked for.
func nobodyNote(r *replay.Result) string {
	if len(r.Suggestions) == 0 || r.Suggest.DenyAtMost == 0 || r.Suggest.Denies(r.Callers) > 0 {
		return ""
	}
	n := 1 / float64(r.Callers)
	one := math.Ceil(100*n) / 100
	if r.Callers >= 100 {
		one = math.Ceil(1000*n) / 1000
	}
	return fmt.Sprintf("%s of %s is none, so the suggested limits deny nobody: "+
		"with --deny-at-most %s they may deny one", exactPercent(r.Suggest.DenyAtMost), met(r.Callers),
		strings.ReplaceAll(exactPercent(one), " ", ""))
}

// dependsOnFractions reports whether a figure depends noticeably on when in its second a request
// came.
func dependsOnFractions(r *replay.Result) bool {
	short := func(strategy string, d time.Duration) bool {
		return d < time.Second || d == time.Second && strategy != rule.Fixed && strategy != rule.Tiers
	}
	for _, rr := range r.Rules {
		for _, t := range rr.Rule.Tiers {
			if short(rr.Rule.Strategy, t.Duration) {
				return true
			}
		}
	}
	return slices.ContainsFunc(r.Suggestions, func(s replay.Suggestion) bool {
		return short(s.Strategy, s.Duration)
	})
}

// fileName returns the name of a file for the reader.
func fileName(name string) string {
	if name == replay.Stdin {
		return "the standard input"
	}
	return screen.Printable(name)
}

// title returns the full name of a rule's strategy. A whole set of rules, and rules of a set that
// are not counted, have none.
func title(rr *replay.RuleResult) string {
	name := strategyTitle(rr.Rule.Strategy, rr.Rule.Burst)
	if rr.Shadow {
		name += ", shadow mode"
	}
	if rr.Replicas > 0 {
		name = strings.TrimPrefix(name+", "+plural(uint64(rr.Replicas), "instance")+
			" without a shared store", ", ")
	}
	return name
}

// full returns the name of a rule and its strategy.
func full(rr *replay.RuleResult) string {
	return strings.TrimSuffix(heading(rr.Rule)+", "+title(rr), ", ")
}

func strategyTitle(strategy string, burst uint64) string {
	name := rule.Titles[strategy]
	if burst > 0 {
		name += ", burst " + count(burst)
	}
	return name
}

// heading returns the name of a rule.
func heading(r rule.Rule) string {
	return strings.TrimSpace(screen.Printable(r.Name) + " " + r.Limit)
}

// shown reports whether a rule has its own section of the report. In a set, the whole set and each
// rule with denials have one.
func shown(r *replay.Result, i int) bool {
	rr := &r.Rules[i]
	return rr.Set == nil || rr.Rule.Limit == "" || rr.Denied > 0
}

// fraction returns part divided by whole, or 0 if whole is 0.
func fraction(part, whole uint64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// percent formats a part of a whole as a percentage. It rounds no other part to 0 or 100 %.
func percent[T ~uint64 | int](part, whole T) string {
	switch s := 100 * fraction(uint64(part), uint64(whole)); {
	case part == 0:
		return "0 %"
	case part == whole:
		return "100 %"
	case s < 0.01:
		return "<0.01 %"
	case s > 99.99:
		return ">99.99 %"
	case s < 10 || s > 99:
		return strconv.FormatFloat(s, 'f', 2, 64) + " %"
	default:
		return strconv.FormatFloat(s, 'f', 1, 64) + " %"
	}
}

// count formats n with commas.
func count[T ~uint64 | int](n T) string {
	s := strconv.FormatUint(uint64(n), 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func plural(n uint64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return count(n) + " " + noun + "s"
}

// met counts callers, such as those that met a denial.
func met(callers int) string { return plural(uint64(callers), "caller") }

func were(n uint64) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

// span formats a duration in its two largest units.
func span(d time.Duration) string {
	if d < time.Second {
		return d.String()
	}
	units := []struct {
		of   time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}}
	for i, u := range units {
		if d < u.of {
			continue
		}
		s := count(int(d/u.of)) + u.name
		if i+1 < len(units) && d%u.of >= units[i+1].of {
			s += " " + count(int(d%u.of/units[i+1].of)) + units[i+1].name
		}
		return s
	}
	return ""
}

func stamp(t time.Time) string { return t.Format(time.DateTime) }

// short removes the middle of s, which is printable, to leave at most n runes.
func short(s string, n int) string { return shortTo(s, n, n/3) }

// shortTo is short, and leaves so many runes of the end.
func shortTo(s string, n, tail int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	runes := []rune(s)
	return string(runes[:n-1-tail]) + "…" + string(runes[len(runes)-tail:])
}

// shortHeading is heading with at most n runes, or a few more. It leaves the limit, and cuts the
// value in the first part of a name such as endpoint="GET /path",remote_address, of which the end
// tells most, before the other parts.
func shortHeading(r rule.Rule, n int) string {
	const least = 16 // runes of the value, among them the method
	if all := heading(r); utf8.RuneCountInString(all) <= n {
		return all
	}
	name := screen.Printable(r.Name)
	room := max(n-len(r.Limit)-1, least)
	if parts := strings.SplitN(name, `"`, 3); len(parts) == 3 {
		over, value := utf8.RuneCountInString(name)-room, utf8.RuneCountInString(parts[1])
		left := max(least, value-over)
		parts[1] = shortTo(parts[1], left, left*2/3)
		name = strings.Join(parts, `"`)
	}
	return strings.TrimSpace(shortTo(name, room, 0) + " " + r.Limit)
}
