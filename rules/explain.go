package rules

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Explanation describes how a descriptor is matched.
type Explanation struct {
	Domain  string
	Entries []Entry
	Steps   []Step // one per entry, up to the first without a match
	Rule    *Rule  // nil if no rule limits the descriptor
	Verdict string // the rule, or why there is none
}

// Step is the choice of a descriptor in the file for one entry.
type Step struct {
	Entry  Entry
	Match  string // the file's descriptor, as FormatEntries writes it; "" if none matches
	Reason string
	File   string // of the match
	Line   int
}

// Explain matches entries like [Set.Match] and says why each descriptor was chosen.
func (s *Set) Explain(domain string, entries []Entry) *Explanation {
	x := &Explanation{Domain: domain, Entries: entries}
	d := s.domains[domain]
	switch {
	case d == nil:
		x.Verdict = fmt.Sprintf("no limit: the rules do not know domain '%s'%s", domain,
			suggest(domain, s.Domains()))
		return x
	case len(entries) == 0:
		x.Verdict = "no limit: the descriptor has no entries"
		return x
	}
	var n *node
	l := &d.root
	for i, e := range entries {
		var why choice
		if n, why = l.find(e); n == nil {
			x.Steps = append(x.Steps, Step{Entry: e, Reason: l.absence(e)})
			x.Verdict = "no limit: no descriptor matches"
			if i > 0 {
				x.Verdict += "; the choices above are final, so no other branch is tried"
			}
			return x
		}
		x.Steps = append(x.Steps,
			Step{e, FormatEntries([]Entry{n.entry()}), l.reason(n, why), n.file, n.line})
		l = &n.level
	}
	switch x.Rule = n.rule; {
	case n.rule != nil:
		x.Verdict = n.rule.String()
	case len(n.level.nodes) > 0:
		x.Verdict = "no limit: " + endsAbove
	default:
		x.Verdict = "no limit: the descriptor has no rate_limit, so it always passes"
	}
	return x
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
	s := fmt.Sprintf("%s: %s", r.Path, r.Limit.String())
	for _, more := range r.flags() {
		s += ", " + more
	}
	if r.Limit.Name != "" {
		s += fmt.Sprintf(" (named %s)", r.Limit.Name)
	}
	return fmt.Sprintf("%s at %s:%d", s, r.File, r.Line)
}

func (r *Rule) flags() []string {
	var flags []string
	if r.shared != nil {
		flags = append(flags, "values of the wildcard share a counter")
	}
	if r.Shadow {
		flags = append(flags, "shadow_mode")
	}
	if r.Quota {
		flags = append(flags, "quota_mode")
	}
	if len(r.Replaces) > 0 {
		flags = append(flags, "replaces "+strings.Join(r.Replaces, ", "))
	}
	return flags
}

// String returns one line for each step and then the verdict.
func (x *Explanation) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "domain %s\n", x.Domain)
	for i, s := range x.Steps {
		fmt.Fprintf(&b, "%*s%s", 2*i+2, "", FormatEntries([]Entry{s.Entry}))
		if s.Match != "" {
			fmt.Fprintf(&b, " -> %s (%s:%d)", s.Match, s.File, s.Line)
		}
		fmt.Fprintf(&b, ": %s\n", s.Reason)
	}
	b.WriteString(x.Verdict)
	b.WriteByte('\n')
	return b.String()
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
	return fmt.Sprintf("%s: %v limit, %s, %s, %d left, reset in %ds",
		s.Code(), s.Reason, by, s.Limit.String(), s.Remaining, s.ResetSeconds())
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
