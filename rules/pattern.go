package rules

import (
	"slices"
	"strings"
)

// pattern is a value with asterisks. Each of them matches any text, including none.
type pattern struct {
	prefix, suffix string
	middle         []string // between the first and the last asterisk; none is empty
}

// isPattern reports whether a rule's value is a pattern.
func isPattern(value string) bool { return strings.Contains(value, "*") }

func compilePattern(value string) pattern {
	parts := strings.Split(value, "*")
	p := pattern{prefix: parts[0], suffix: parts[len(parts)-1]}
	for _, part := range parts[1 : len(parts)-1] {
		if part != "" {
			p.middle = append(p.middle, part)
		}
	}
	return p
}

// match reports whether value consists of the prefix, the middle parts in order and the suffix,
// without overlap. Taking the leftmost match of each middle part is enough, since it leaves the
// most text for the following parts.
func (p *pattern) match(value string) bool {
	if len(value) < len(p.prefix)+len(p.suffix) ||
		!strings.HasPrefix(value, p.prefix) || !strings.HasSuffix(value, p.suffix) {
		return false
	}
	rest := value[len(p.prefix) : len(value)-len(p.suffix)]
	for _, part := range p.middle {
		i := strings.Index(rest, part)
		if i < 0 {
			return false
		}
		rest = rest[i+len(part):]
	}
	return true
}

// wildcards are the nodes of one key whose values are patterns.
//
// The first match in file order wins. To find it among many patterns, those with a literal prefix
// are looked up by it, and others by their literal suffix; patterns with neither are tried one by
// one.
type wildcards struct {
	all      []*node // in file order
	byPrefix affixes
	bySuffix affixes
	rest     []*node // in file order
}

// affixes finds nodes by the literal prefix or suffix of a value.
type affixes struct {
	nodes   map[string][]*node // each in file order
	lengths []int              // of the keys of nodes, ascending
}

func (a *affixes) add(affix string, n *node) {
	if a.nodes == nil {
		a.nodes = make(map[string][]*node)
	}
	a.nodes[affix] = append(a.nodes[affix], n)
	if i, found := slices.BinarySearch(a.lengths, len(affix)); !found {
		a.lengths = slices.Insert(a.lengths, i, len(affix))
	}
}

// few is the number of patterns up to which trying one by one is as fast as the maps.
const few = 8

func (w *wildcards) add(n *node) {
	w.all = append(w.all, n)
	switch {
	case n.pattern.prefix != "":
		w.byPrefix.add(n.pattern.prefix, n)
	case n.pattern.suffix != "":
		w.bySuffix.add(n.pattern.suffix, n)
	default:
		w.rest = append(w.rest, n)
	}
}

// find returns the first node in file order whose pattern matches value, or nil.
func (w *wildcards) find(value string) *node {
	if len(w.all) <= few {
		return earliest(nil, w.all, value)
	}
	best := earliest(nil, w.rest, value)
	for _, n := range w.byPrefix.lengths {
		if n > len(value) {
			break
		}
		best = earliest(best, w.byPrefix.nodes[value[:n]], value)
	}
	for _, n := range w.bySuffix.lengths {
		if n > len(value) {
			break
		}
		best = earliest(best, w.bySuffix.nodes[value[len(value)-n:]], value)
	}
	return best
}

// earliest returns the first of nodes that matches value if it precedes best, and otherwise best.
func earliest(best *node, nodes []*node, value string) *node {
	for _, n := range nodes {
		if best != nil && best.order < n.order {
			return best
		}
		if n.pattern.match(value) {
			return n
		}
	}
	return best
}
