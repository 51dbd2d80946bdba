package rules

import (
	"iter"
	"slices"

	"go.yaml.in/yaml/v4"
)

// Set is the rules of one or more domains. It is immutable and safe for concurrent use. [Load]
// makes one.
type Set struct {
	domains  map[string]*domain
	order    []*domain // as loaded
	warnings []*Problem
	methods  []method // distinct, as Rule.method indexes them
	rules    int
}

// method is the part of a limit that decides which strategy counts for it.
type method struct {
	algorithm Algorithm
	burst     uint64
}

type domain struct {
	name  string
	root  level
	at    position
	specs []Descriptors // its rate_limits; nil if there are none

	specsAt      position
	specsNode    *yaml.Node // as they were written
	requestsOnly bool       // no document of it has descriptors
}

// Rule is a descriptor of a rules file that has a rate_limit. It is read-only.
type Rule struct {
	Domain string
	Path   string // the entries from the domain down to the rule, as FormatEntries writes them
	Limit  Limit
	Shadow bool // shadow_mode: count and report, but deny nothing
	Quota  bool // quota_mode: denies only if every quota rule that the request matches is over its limit

	// Replaces names the rules that do not apply to a request that this one matches.
	Replaces []string

	File         string
	Line, Column int // of the descriptor

	node       *node
	replacesAt []position // of Replaces
	method     int        // index in Set.methods
	// by level: the pattern that stands in for the value in the key, or ""; nil if none does
	shared []string
}

// Name returns the rule's name, or its path if the file names none. Names need not be unique; paths
// are, in a domain.
func (r *Rule) Name() string {
	if r.Limit.Name != "" {
		return r.Limit.Name
	}
	return r.Path
}

// Metadata returns the descriptor's metadata without weir's own settings: a map that holds maps,
// slices, strings, numbers (int64, uint64, float64), bools and nil. It is shared; do not change it.
// It is nil if there is none.
func (r *Rule) Metadata() map[string]any { return r.node.metadata }

// DetailedMetric and ValueToMetric return the settings of these names. ValueToMetric has one for
// each level.
func (r *Rule) DetailedMetric() bool { return r.node.detailedMetric }

// ValueToMetric returns, for each level from the domain down, whether value_to_metric is set there.
func (r *Rule) ValueToMetric() []bool {
	var set []bool
	for n := r.node; n != nil; n = n.parent {
		set = append(set, n.valueToMetric)
	}
	slices.Reverse(set)
	return set
}

// Domains returns the names of the domains in the order they were loaded in.
func (s *Set) Domains() []string {
	names := make([]string, len(s.order))
	for i, d := range s.order {
		names[i] = d.name
	}
	return names
}

// Has reports whether there is a domain of that name.
func (s *Set) Has(domain string) bool { return s.domains[domain] != nil }

// Len returns the number of rules.
func (s *Set) Len() int { return s.rules }

// All returns the rules, domain by domain in file order, parents before children.
func (s *Set) All() iter.Seq[*Rule] {
	return func(yield func(*Rule) bool) {
		for _, d := range s.order {
			if !d.root.each(func(n *node) bool { return n.rule == nil || yield(n.rule) }) {
				return
			}
		}
	}
}

// Warnings returns what is surely a mistake although the rules can be used, ordered by file and
// line.
func (s *Set) Warnings() []*Problem { return slices.Clone(s.warnings) }

// position is where something is in the files.
type position struct {
	file         string
	line, column int
}

// node is a descriptor of a rules file. It is read-only once its Set is made.
type node struct {
	position
	key, value string // value "" means any
	limitAt    position

	parent  *node // nil at the top
	order   int   // among its siblings
	pattern pattern
	rule    *Rule // nil: the request passes, if it ends here
	level   level // the descriptors below

	shadow, quota, share, detailedMetric, valueToMetric bool
	metadata                                            map[string]any // without weir's own settings
}

func (n *node) entry() Entry { return Entry{n.key, n.value} }

// path returns the entries of the rule at n.
func (n *node) path() []Entry {
	var entries []Entry
	for ; n != nil; n = n.parent {
		entries = append(entries, n.entry())
	}
	slices.Reverse(entries)
	return entries
}

// level is a list of descriptors: the alternatives for one entry.
type level struct {
	nodes []*node
	keys  map[string]*alternatives
}

// alternatives are the nodes of a level that have the same key.
type alternatives struct {
	values    map[string]*node // by the value in the file, patterns too
	wildcards *wildcards       // nil if there are none
	any       *node            // the one without a value, or nil
}

// add appends n, or returns the node that already has its key and value.
func (l *level) add(n *node) (duplicate *node) {
	if l.keys == nil {
		l.keys = make(map[string]*alternatives)
	}
	a := l.keys[n.key]
	if a == nil {
		a = &alternatives{}
		l.keys[n.key] = a
	}
	if duplicate = a.same(n.value); duplicate != nil {
		return duplicate
	}
	n.order = len(l.nodes)
	l.nodes = append(l.nodes, n)
	if n.value == "" {
		a.any = n
		return nil
	}
	if a.values == nil {
		a.values = make(map[string]*node)
	}
	a.values[n.value] = n
	if isPattern(n.value) {
		n.pattern = compilePattern(n.value)
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

// each calls f for each node below l, parents first, until f returns false.
func (l *level) each(f func(*node) bool) bool {
	for _, n := range l.nodes {
		if !f(n) || !n.level.each(f) {
			return false
		}
	}
	return true
}
