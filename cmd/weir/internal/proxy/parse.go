package proxy

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/rule"
	"github.com/weirgo/weir/httplimit"
)

// This file parses values of the command line.

// Limit is one policy: a rule with a name.
type Limit struct {
	Name string // in the client's fields; by default the limit as given
	rule.Rule
}

// ParseLimit parses a limit as rule.Parse does. The default name is the limit as given, without the
// strategy.
func ParseLimit(text string, d rule.Defaults) (Limit, error) {
	r, err := rule.Parse(text, d)
	if err != nil {
		return Limit{}, err
	}
	l := Limit{Name: cmp.Or(r.Name, r.Limit), Rule: r}
	l.Rule.Name = ""
	return l, nil
}

// Route is a part of the traffic with its own cost or limits.
type Route struct {
	Pattern string // of http.ServeMux
	Cost    uint64 // 0: 1
	Limits  []Limit
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
			if r.Cost, err = strconv.ParseUint(cost, 10, 63); err != nil || r.Cost == 0 {
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

// ParsePrefix parses an address or a prefix. IPv4-mapped ones become IPv4.
func ParsePrefix(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		addr = addr.Unmap().WithZone("")
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	p, err := netip.ParsePrefix(text)
	if err != nil {
		if addr, ok := spelledAddr(text); ok {
			return p, fmt.Errorf("want an address without a port or brackets, such as %s, "+
				"or a prefix, such as 10.0.0.0/8, not %q", addr, text)
		}
		return p, fmt.Errorf("%q is neither an address nor a prefix such as 10.0.0.0/8", text)
	}
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Masked(), nil
}

// spelledAddr returns the address in text that has a port, brackets or an invalid prefix length as
// well: 192.0.2.1:80, [2001:db8::1]:80, [2001:db8::1] or 192.0.2.1/33.
func spelledAddr(text string) (netip.Addr, bool) {
	text, _, _ = strings.Cut(text, "/")
	if a, err := netip.ParseAddrPort(text); err == nil {
		return a.Addr(), true
	}
	a, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	return a, err == nil
}

// ParseEntry parses an entry of the deny list: an address, a prefix, or else a key. An address with
// a port is an error: as a key it would match no client.
func ParseEntry(text string) (httplimit.Entry, error) {
	text = strings.TrimSpace(text)
	p, err := ParsePrefix(text)
	if err == nil {
		return httplimit.Entry{Prefix: p}, nil
	}
	if _, ok := spelledAddr(text); ok {
		return httplimit.Entry{}, err
	}
	return httplimit.Entry{Key: text}, nil
}

// ParsePenalty parses DENIALS/WITHIN=FOR.
func ParsePenalty(text string) (Penalty, error) {
	often, long, ok := strings.Cut(text, "=")
	if !ok {
		return Penalty{}, fmt.Errorf("penalty box %q: want DENIALS/WITHIN=FOR, such as 20/1m=10m", text)
	}
	tiers, err := rule.ParseLimit(often)
	if err != nil {
		return Penalty{}, fmt.Errorf("penalty box: %w", err)
	}
	stay, err := ParseDuration(long)
	if err != nil || stay <= 0 || len(tiers) != 1 || tiers[0].Limit == 0 {
		return Penalty{}, fmt.Errorf("penalty box %q: want DENIALS/WITHIN=FOR, such as 20/1m=10m", text)
	}
	return Penalty{Denials: tiers[0].Limit, Within: tiers[0].Duration, For: stay}, nil
}

// ParseDuration parses a duration as in limits: 500ms, 1h30m, or 7d.
func ParseDuration(text string) (time.Duration, error) {
	tiers, err := rule.ParseLimit("1/" + text)
	if err != nil || len(tiers) != 1 {
		return 0, fmt.Errorf("%q is not a duration such as 30s, 1h30m or 7d", text)
	}
	return tiers[0].Duration, nil
}

// ParsePrefixes parses addresses and prefixes.
func ParsePrefixes(flag string, texts []string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, text := range texts {
		p, err := ParsePrefix(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
		all = append(all, p)
	}
	return all, nil
}

// FullPolicies are the values of --on-full.
var FullPolicies = map[string]httplimit.FullPolicy{
	"refuse": httplimit.FullRefuse,
	"admit":  httplimit.FullAdmit,
}

// HeaderStyles are the values of --headers.
var HeaderStyles = map[string]httplimit.HeaderStyle{
	"draft":    httplimit.HeadersDraft,
	"legacy":   httplimit.HeadersLegacy,
	"original": httplimit.HeadersOriginal,
	"none":     httplimit.HeadersNone,
}

// ParseStatuses parses statuses such as 401 and classes such as 4xx, and returns a function that
// reports whether a status is one of them.
func ParseStatuses(texts []string) (func(status int) bool, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	var statuses, classes []int
	for _, text := range texts {
		class, isClass := strings.CutSuffix(text, "xx")
		n, err := strconv.Atoi(class)
		switch {
		case err == nil && isClass && 1 <= n && n <= 5:
			classes = append(classes, n)
		case err == nil && !isClass && 100 <= n && n <= 599:
			statuses = append(statuses, n)
		default:
			return nil, fmt.Errorf("%q is neither a status such as 401 nor a class such as 4xx", text)
		}
	}
	return func(status int) bool {
		return slices.Contains(statuses, status) || slices.Contains(classes, status/100)
	}, nil
}

// attempt calls f and returns its panic as an error: f panics on mistakes in its arguments, which
// are the user's here.
func attempt(f func()) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	f()
	return nil
}

// checkPattern registers pattern and returns the error of http.ServeMux.
func checkPattern(mux *http.ServeMux, pattern string, h http.Handler) error {
	return attempt(func() { mux.Handle(pattern, h) })
}
