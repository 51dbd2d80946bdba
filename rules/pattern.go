package rules

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/weirgo/weir/internal/ipaddr"
)

// form says how a descriptor's value is compared with that of a request.
type form uint8

const (
	exact    form = iota // the same text; without a value, any
	wildcard             // text with asterisks
	prefixed             // {prefix: TEXT}
	inRange              // {cidr: RANGE}
)

var formNames = [...]string{"value", "wildcard", "prefix", "CIDR"}

// pattern matches values. With a range it matches the IP addresses and prefixes in it. Otherwise it
// is a text with asterisks, each of which matches any text, including none.
type pattern struct {
	prefix, suffix string
	middle         []string // between the first and the last asterisk; none is empty
	cidr           netip.Prefix
}

// isPattern reports whether the text of a rule's value is a pattern.
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
	if p.cidr.IsValid() {
		of, err := ipaddr.ParsePrefix(value)
		return err == nil && of.Bits() >= p.cidr.Bits() && p.cidr.Contains(of.Addr())
	}
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
// are looked up by it, and others by their literal suffix, and ranges by the prefixes of an
// address; patterns with none of them are tried one by one.
type wildcards struct {
	all      []*node // in file order
	byPrefix affixes
	bySuffix affixes
	byRange  ranges
	rest     []*node // in file order
}

// ranges finds nodes by the range of addresses that their values are.
type ranges struct {
	nodes   map[netip.Prefix]*node
	lengths []int // of the keys of nodes, ascending
}

func (r *ranges) add(n *node) {
	if r.nodes == nil {
		r.nodes = make(map[netip.Prefix]*node)
	}
	r.nodes[n.pattern.cidr] = n
	r.lengths = insert(r.lengths, n.pattern.cidr.Bits())
}

// find returns the first node in file order whose range contains all of of, or best if that comes
// before.
func (r *ranges) find(best *node, of netip.Prefix) *node {
	for _, bits := range r.lengths {
		if bits > of.Bits() {
			break
		}
		around, _ := of.Addr().Prefix(bits)
		if n := r.nodes[around]; n != nil && (best == nil || n.order < best.order) {
			best = n
		}
	}
	return best
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
	a.lengths = insert(a.lengths, len(affix))
}

// insert adds a number to those in ascending order, once.
func insert(sorted []int, n int) []int {
	if i, found := slices.BinarySearch(sorted, n); !found {
		return slices.Insert(sorted, i, n)
	}
	return sorted
}

// find returns the first node that matches value and has the affix of one of its lengths, or best
// if that comes before.
func (a *affixes) find(best *node, value string, affix func(n int) string) *node {
	for _, n := range a.lengths {
		if n > len(value) {
			break
		}
		best = earliest(best, a.nodes[affix(n)], value)
	}
	return best
}

// few is the number of patterns up to which trying one by one is as fast as the maps.
const few = 8

func (w *wildcards) add(n *node) {
	w.all = append(w.all, n)
	switch {
	case n.form == inRange:
		w.byRange.add(n)
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
	if len(w.byRange.nodes) > 0 {
		if of, err := ipaddr.ParsePrefix(value); err == nil {
			best = w.byRange.find(best, of)
		}
	}
	best = w.byPrefix.find(best, value, func(n int) string { return value[:n] })
	return w.bySuffix.find(best, value, func(n int) string { return value[len(value)-n:] })
}

// covers returns the first node in file order that matches all values that n matches. A wildcard
// does if and only if it matches the text of n's pattern.
func (w *wildcards) covers(n *node) *node {
	switch n.form {
	case inRange:
		return w.byRange.find(w.find("*"), n.pattern.cidr)
	case prefixed:
		return w.find(n.pattern.prefix + "*")
	}
	return w.find(n.value)
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
