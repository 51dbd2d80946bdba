package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Explain matches entries like [Set.Match] and says why each descriptor was chosen: in a line for
// each entry, up to the first without a match, and a last one with the rule that limits the
// descriptor, or why there is none.
func (s *Set) Explain(domain string, entries []Entry) string {
	var b strings.Builder
	fmt.Fprintf(&b, "domain %s\n", domain)
	verdict := s.explain(&b, domain, entries)
	return b.String() + verdict + "\n"
}

// explain writes the lines of the entries and returns the verdict.
func (s *Set) explain(b *strings.Builder, domain string, entries []Entry) (verdict string) {
	d := s.domains[domain]
	switch {
	case d == nil:
		return fmt.Sprintf("no limit: the rules do not know domain '%s'%s", domain,
			suggest(domain, s.Domains()))
	case len(entries) == 0:
		return "no limit: the descriptor has no entries"
	}
	var n *node
	l := &d.root
	for i, e := range entries {
		fmt.Fprintf(b, "%*s%s", 2*i+2, "", FormatEntries([]Entry{e}))
		var why choice
		n, why = l.find(e)
		if n == nil {
			fmt.Fprintf(b, ": %s\n", l.absence(e))
			if i > 0 {
				return "no limit: no descriptor matches; the choices above are final, so no other branch " +
					"is tried"
			}
			return "no limit: no descriptor matches"
		}
		fmt.Fprintf(b, " -> %s (%s:%d): %s\n", FormatEntries([]Entry{n.entry()}), n.file, n.line,
			l.reason(n, why))
		l = &n.level
	}
	switch {
	case n.rule != nil:
		return n.rule.String()
	case len(n.level.nodes) > 0:
		return "no limit: " + endsAbove
	}
	return "no limit: the descriptor has no rate_limit, so it always passes"
}

// endsAbove is why a descriptor that ends at a node without a rule has no limit.
const endsAbove = "the descriptor ends here, and only those below have a rate_limit"

// reason returns why n was chosen.
func (l *level) reason(n *node, why choice) string {
	a := l.keys[n.key]
	switch {
	case why == byValue:
		return "exact value"
	case why == byPattern && len(a.wildcards.all) > 1:
		return "first " + formNames[n.form] + " in the file that matches"
	case why == byPattern:
		return formNames[n.form]
	case len(a.values) > 0:
		return "key only: no value or wildcard matches"
	}
	return "key only"
}

// absence returns why no node was found.
func (l *level) absence(e Entry) string {
	if len(l.nodes) == 0 {
		return "no descriptors below: the rule is not as deep as the request"
	}
	a := l.keys[e.Key]
	if a == nil {
		return "no descriptor with this key" + suggest(e.Key, slices.Sorted(maps.Keys(l.keys)))
	}
	return fmt.Sprintf("no match among the %s of this key", plural(len(a.values), "value"))
}

// String describes the rule: its path, limit and flags, and its place in the file.
func (r *Rule) String() string {
	s := r.Path + ": " + r.Limit.String()
	if r.shared != nil {
		s += ", values of the wildcard share a counter"
	}
	if r.Shadow {
		s += ", shadow_mode"
	}
	if r.Quota {
		s += ", quota_mode"
	}
	if len(r.Replaces) > 0 {
		s += ", replaces " + strings.Join(r.Replaces, ", ")
	}
	if r.Limit.Name != "" {
		s += fmt.Sprintf(" (named %s)", r.Limit.Name)
	}
	return fmt.Sprintf("%s at %s:%d", s, r.File, r.Line)
}

// String describes the decision on one descriptor: the rule, the limit and the remaining hits.
func (s *Status) String() string {
	switch s.Reason {
	case NoDomain, NoRule:
		return fmt.Sprintf("%s: no limit, %v", s.Code(), s.Reason)
	case Unlimited, Replaced:
		return fmt.Sprintf("%s: %v, rule %s", s.Code(), s.Reason, s.Rule.Path)
	}
	by := "limit override"
	if s.Rule != nil {
		by = "rule " + s.Rule.Path
	}
	left := fmt.Sprintf("%s: %v limit, %s, %s, %d left",
		s.Code(), s.Reason, by, s.Limit.String(), s.Remaining)
	if s.Reset == 0 { // nobody knows when work in flight ends
		return left
	}
	return fmt.Sprintf("%s, reset in %ds", left, s.ResetSeconds())
}

// String describes the decision: the overall verdict and one line for each descriptor.
func (r *Response) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", r.Code())
	for i := range r.Statuses {
		fmt.Fprintf(&b, "  %d: %s\n", i, r.Statuses[i].String())
	}
	return b.String()
}
