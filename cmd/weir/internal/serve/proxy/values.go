package proxy

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
	"github.com/weirgo/weir/httplimit"
)

// ParseLimit parses a limit as rule.Parse does. Its default name, in the client's fields, is the
// limit as given, without the strategy.
func ParseLimit(text string, d rule.Defaults) (rule.Rule, error) {
	r, err := rule.Parse(text, d)
	r.Name = cmp.Or(r.Name, r.Limit)
	return r, err
}

// Route is a part of the traffic with its own cost or limits.
type Route struct {
	Pattern string // of http.ServeMux
	Cost    uint64 // 0: 1
	Limits  []rule.Rule
}

// ParseRoute parses PATTERN [cost=N] [limit=LIMIT]..., LIMIT as in ParseLimit. The name of a limit
// without one includes the pattern, so that routes with equal limits have separate budgets.
func ParseRoute(text string, d rule.Defaults) (Route, error) {
	fields := strings.Fields(text)
	n := len(fields)
	for n > 0 && (strings.HasPrefix(fields[n-1], "cost=") ||
		strings.HasPrefix(fields[n-1], "limit=")) {
		n--
	}
	r := Route{Pattern: strings.Join(fields[:n], " ")}
	if r.Pattern == "" {
		return r, fmt.Errorf("route %q: want a pattern, such as \"POST /login limit=5/1m\"", text)
	}
	for _, f := range fields[n:] {
		if cost, ok := strings.CutPrefix(f, "cost="); ok {
			var err error
			r.Cost, err = strconv.ParseUint(cost, 10, 63)
			if err != nil || r.Cost == 0 {
				return r, fmt.Errorf("route %q: %q is not a cost from 1", text, cost)
			}
			continue
		}
		l, err := ParseLimit(strings.TrimPrefix(f, "limit="), d)
		if err != nil {
			return r, fmt.Errorf("route %q: %w", text, err)
		}
		if l.Name == l.Limit {
			l.Name += " " + r.Pattern
		}
		r.Limits = append(r.Limits, l)
	}
	return r, nil
}

// ParsePenalty parses DENIALS/WITHIN=FOR. The Penalty has no Strategy.
func ParsePenalty(text string) (p httplimit.Penalty, err error) {
	invalid := fmt.Errorf("penalty box %q: want DENIALS/WITHIN=FOR, such as 20/1m=10m", text)
	often, long, ok := strings.Cut(text, "=")
	if !ok {
		return p, invalid
	}
	tiers, err := rule.ParseLimit(often)
	if err != nil {
		return p, fmt.Errorf("penalty box: %w", err)
	}
	stay, err := rule.ParseDuration(long)
	if err != nil || stay <= 0 || len(tiers) != 1 || tiers[0].Limit == 0 {
		return p, invalid
	}
	return httplimit.Penalty{Denials: tiers[0].Limit, Within: tiers[0].Duration, For: stay}, nil
}

// FullPolicies are the values of --on-full.
var FullPolicies = []string{"refuse", "admit"}

// HeaderStyles are the values of --headers, by httplimit's.
var HeaderStyles = []string{
	httplimit.HeadersDraft: "draft", httplimit.HeadersLegacy: "legacy",
	httplimit.HeadersOriginal: "original", httplimit.HeadersNone: "none",
}
