// Package report shows what a replay found: as text for a terminal, as JSON, as CSV, and as a page
// of HTML.
//
// Callers, file names and unreadable lines come from whoever sent the requests. Each form makes
// them harmless in its own way.
package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weirgo/weir/cmd/weir/internal/replay"
	"github.com/weirgo/weir/cmd/weir/internal/rule"
)

// Notes says in sentences what a reader of the figures must know: what was left out, and what is
// less than exact. They are safe for a terminal.
func Notes(r *replay.Result) []string {
	var notes []string
	add := func(n uint64, noun, format string, args ...any) {
		if n > 0 {
			notes = append(notes, plural(n, noun)+" "+fmt.Sprintf(format, args...))
		}
	}
	add(r.Unreadable.Count, "line", "could not be read and %s left out", were(r.Unreadable.Count))
	add(r.Unkeyed, "request", "had no %s and %s left out", missing(r.By), were(r.Unkeyed))
	add(r.Filtered, "request", "%s not asked for and left out", were(r.Filtered))
	add(r.Uncounted, "request",
		"had a status that does not count: decided on, they took nothing from any limit")
	for _, name := range r.Empty {
		notes = append(notes, fileName(name)+" is empty")
	}
	if idle := idleRules(r); len(idle) > 0 {
		notes = append(notes, idleNote(idle))
	}
	if r.Coarse && dependsOnFractions(r) {
		notes = append(notes,
			"the log has whole seconds, over which each caller's requests were spread evenly: what limits "+
				"on a second or less would do is an estimate, except for fixed windows of 1s")
	}
	return notes
}

// idleRules returns the names of the rules that no request matched.
func idleRules(r *replay.Result) []string {
	var names []string
	for i := range r.Rules {
		if r.RuleSet != nil && r.Rules[i].Matched == 0 {
			names = append(names, Printable(r.Rules[i].Rule.Name))
		}
	}
	return names
}

// maxNamed bounds the rules that a note names.
const maxNamed = 5

func idleNote(names []string) string {
	n := uint64(len(names))
	more := ""
	if n > maxNamed {
		names, more = names[:maxNamed], ", …"
	}
	return "no request matched " + plural(n, "rule") + ": " + strings.Join(names, ", ") + more +
		"; a log has no headers but the referer and the user agent, and no values of an application but the user"
}

func missing(by replay.By) string {
	if by == replay.ByIPPath {
		return "path"
	}
	return string(by)
}

// dependsOnFractions reports whether a figure depends on where in its second a request came, by
// more than a little.
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

// fileName returns a file's name for people.
func fileName(name string) string {
	if name == replay.Stdin {
		return "the standard input"
	}
	return Printable(name)
}

// title names the strategy of a rule in full. Rules of a set that are not counted have none, nor
// have all together.
func title(rr *replay.RuleResult) string {
	name := strategyTitle(rr.Rule.Strategy, rr.Rule.Burst)
	if rr.Shadow {
		name += ", shadow mode"
	}
	return name
}

// full names a rule and its strategy.
func full(rr *replay.RuleResult) string {
	return strings.TrimSuffix(heading(rr.Rule)+", "+title(rr), ", ")
}

func strategyTitle(strategy string, burst uint64) string {
	name := map[string]string{
		rule.Fixed: "fixed window", rule.Sliding: "sliding window", rule.Log: "sliding log",
		rule.Token: "token bucket", rule.Leaky: "leaky bucket", rule.Tiers: "tiers",
	}[strategy]
	if burst > 0 {
		name += ", burst " + count(burst)
	}
	return name
}

// heading names a rule.
func heading(r rule.Rule) string {
	return strings.TrimSpace(Printable(r.Name) + " " + r.Limit)
}

// admitted returns how many requests the rule would have let through.
func admitted(rr *replay.RuleResult) uint64 { return rr.Matched - rr.Denied }

// shown reports whether a rule has a part of the report to itself: of a set, one that denied
// something has, and all rules together.
func shown(r *replay.Result, i int) bool { return r.RuleSet == nil || i == 0 || r.Rules[i].Denied > 0 }

// share returns part of whole as a number from 0 to 1; of nothing, 0.
func share(part, whole uint64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// percent shows a share so that what is not 0 or 100 % does not look like it.
func percent(part, whole uint64) string {
	switch s := 100 * share(part, whole); {
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

// count shows n with commas.
func count[T uint64 | int](n T) string {
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

func were(n uint64) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

// span shows a duration by its two largest units.
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
		if i+1 < len(units) {
			if rest := d % u.of / units[i+1].of; rest > 0 {
				s += " " + count(int(rest)) + units[i+1].name
			}
		}
		return s
	}
	return ""
}

const stampLayout = "2006-01-02 15:04:05"

func stamp(t time.Time) string { return t.Format(stampLayout) }

// Printable replaces what a terminal would obey rather than show, or not show at all: control
// characters, those that turn the direction of writing, broken UTF-8. A backslash stays: the result
// is for people.
func Printable(s string) string {
	clean := func(r rune) bool { return r != utf8.RuneError && unicode.IsPrint(r) }
	if strings.IndexFunc(s, func(r rune) bool { return !clean(r) }) < 0 {
		return s
	}
	var b strings.Builder
	var w int
	for ; len(s) > 0; s = s[w:] {
		var r rune
		r, w = utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && w == 1, r < 0x80 && !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case clean(r) || r == utf8.RuneError:
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// short cuts the middle out of s, which is Printable, to leave at most n runes.
func short(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	runes := []rune(s)
	tail := n / 3
	return string(runes[:n-1-tail]) + "…" + string(runes[len(runes)-tail:])
}
