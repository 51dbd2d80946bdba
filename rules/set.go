package rules

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"slices"
)

// Set holds the rules of one or more domains. It is immutable and safe for concurrent use. [Load]
// makes one.
type Set struct {
	domains  map[string]*domain
	order    []*domain // in the order of loading
	warnings []*Problem
	methods  []Method // without duplicates; Rule.method is an index
	rules    []*Rule  // domain by domain in file order
	version  string
}

type domain struct {
	name         string
	root         level
	at           position
	limits       *rateLimits // nil if there are none
	requestsOnly bool        // so far no document has descriptors
	emptied      bool        // a document has an empty list of descriptors
}

// Rule is a descriptor of a rules file that has a rate_limit. It is read-only.
type Rule struct {
	Domain string
	Path   string // the entries down to the rule, formatted by FormatEntries
	Limit  Limit
	Shadow bool // shadow_mode: count and report, but deny nothing
	// quota_mode: denies only if every quota rule that the request matches is over its limit
	Quota bool

	// Replaces names the rules that do not apply to a request that also matches this rule.
	Replaces []string

	File         string
	Line, Column int // of the descriptor

	node       *node
	replacesAt []position // of Replaces
	method     int        // index in Set.methods
	// by level: the pattern that replaces the value in the key, or ""; nil if no level has one
	shared []string
}

// Name returns the rule's name, or its path if it has no name. Names need not be unique; paths are
// unique within a domain.
func (r *Rule) Name() string { return cmp.Or(r.Limit.Name, r.Path) }

// Metadata returns the descriptor's metadata without weir's own settings: a map with values of the
// types map, slice, string, int64, uint64, float64, bool and nil. It is nil if there is none. The
// caller must not change it.
func (r *Rule) Metadata() map[string]any { return r.node.metadata }

// Domains returns the names of the domains in the order of loading.
func (s *Set) Domains() []string {
	names := make([]string, len(s.order))
	for i, d := range s.order {
		names[i] = d.name
	}
	return names
}

// Has reports whether the set has a domain with that name.
func (s *Set) Has(domain string) bool { return s.domains[domain] != nil }

// Len returns the number of rules.
func (s *Set) Len() int { return len(s.rules) }

// Version returns a hash of the names and contents of the files that the rules were loaded from.
func (s *Set) Version() string { return s.version }

// All returns the rules, domain by domain in file order, parents before children.
func (s *Set) All() iter.Seq[*Rule] { return slices.Values(s.rules) }

// toHaveNone is the end of a message about a domain without a limit.
const toHaveNone = "to have none, write \"descriptors: []\" in that domain"

// Lost returns an error if next has no limit in a domain where s has some, as after a file was
// removed, or cut after its first line. A domain of next that means it has an empty list:
// descriptors: [].
func (s *Set) Lost(next *Set) error {
	before, after := s.Limits(), next.Limits()
	var errs []error
	for _, d := range s.order {
		now := next.domains[d.name]
		if before[d.name] > 0 && after[d.name] == 0 && (now == nil || !now.emptied) {
			errs = append(errs, fmt.Errorf("domain '%s' has no limit any more, of %d; %s",
				d.name, before[d.name], toHaveNone))
		}
	}
	return errors.Join(errs...)
}

// Limits returns the number of rules of each domain that are not unlimited.
func (s *Set) Limits() map[string]int {
	n := make(map[string]int, len(s.order))
	for _, r := range s.rules {
		if !r.Limit.Unlimited {
			n[r.Domain]++
		}
	}
	return n
}

// Warnings returns likely mistakes that do not keep the rules from being used, ordered by file and
// line.
func (s *Set) Warnings() []*Problem { return slices.Clone(s.warnings) }

// position is a place in a rules file.
type position struct {
	file         string
	line, column int
}

// from returns the position for a message about a file.
func (p position) from(file string) string {
	if p.file == file {
		return fmt.Sprintf("at line %d", p.line)
	}
	return fmt.Sprintf("in %s, line %d", p.file, p.line)
}

// node is a descriptor of a rules file. It is read-only after its Set is built.
type node struct {
	position
	key, value string // value "" matches any; {prefix:TEXT} and {cidr:RANGE} stand for those forms
	limitAt    position

	parent   *node // nil at the top
	order    int   // among its siblings
	form     form
	pattern  pattern // unless form is exact
	hiddenBy *node   // an earlier wildcard with all its values; nil if there is none
	rule     *Rule   // nil: a request that ends here is admitted
	level    level   // the descriptors below

	shadow, quota, share, detailedMetric, valueToMetric bool
	metadata                                            map[string]any // without weir's own settings
}

func (n *node) entry() Entry { return Entry{Key: n.key, Value: n.value} }

// path returns the entries from the top down to n.
func (n *node) path() []Entry {
	var entries []Entry
	for ; n != nil; n = n.parent {
		entries = append(entries, n.entry())
	}
	slices.Reverse(entries)
	return entries
}

// level is a list of descriptors, the alternatives for one entry.
type level struct {
	nodes []*node
	keys  map[string]*alternatives
}

// alternatives are the nodes of a level with the same key.
type alternatives struct {
	values    map[string]*node // by the value in the file, in every form
	wildcards *wildcards       // nil if there are none
	any       *node            // the node without a value, or nil
}

// add appends n. If a node already has the same key and value, add returns it instead.
func (l *level) add(n *node) (duplicate *node) {
	if l.keys == nil {
		l.keys = make(map[string]*alternatives)
	}
	a := l.keys[n.key]
	if a == nil {
		a = &alternatives{values: make(map[string]*node)}
		l.keys[n.key] = a
	}
	duplicate = a.same(n.value)
	if duplicate != nil {
		return duplicate
	}
	n.order = len(l.nodes)
	l.nodes = append(l.nodes, n)
	if n.value == "" {
		a.any = n
		return nil
	}
	a.values[n.value] = n
	if n.form != exact {
		if a.wildcards == nil {
			a.wildcards = &wildcards{}
		}
		a.wildcards.add(n)
	}
	return nil
}

func (a *alternatives) same(value string) *node {
	if value == "" {
		return a.any
	}
	return a.values[value]
}

// all yields the nodes below l, parents first.
func (l *level) all() iter.Seq[*node] {
	return func(yield func(*node) bool) { l.each(yield) }
}

// each calls f for each node below l, parents first, until f returns false.
func (l *level) each(f func(*node) bool) bool {
	for _, n := range l.nodes {
		if !f(n) || !n.level.each(f) {
			return false
		}
	}
	return true
}
