package rules

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/weirgo/weir/internal/doors/clientaddr"
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
// most text for the following parts. of are the addresses that value names, if it names any.
func (p *pattern) match(value string, of netip.Prefix) bool {
	if p.cidr.IsValid() {
		return of.Bits() >= p.cidr.Bits() && p.cidr.Contains(of.Addr())
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
	byPrefix parts[string]
	bySuffix parts[string]
	byRange  parts[netip.Prefix]
	rest     []*node // in file order
}

// parts finds nodes by a part of the values that they match: a literal prefix or suffix, or the
// first bits of an address.
type parts[T comparable] struct {
	nodes   map[T][]*node // each in file order
	lengths []int         // of the keys of nodes, ascending
}

func (p *parts[T]) add(part T, length int, n *node) {
	if p.nodes == nil {
		p.nodes = make(map[T][]*node)
	}
	p.nodes[part] = append(p.nodes[part], n)
	if i, found := slices.BinarySearch(p.lengths, length); !found {
		p.lengths = slices.Insert(p.lengths, i, length)
	}
}

// find returns the first node that matches a value of this length, by one of its parts, or best if
// that comes before.
func (p *parts[T]) find(
	best *node, value string, of netip.Prefix, length int, part func(n int) T,
) *node {
	for _, n := range p.lengths {
		if n > length {
			break
		}
		best = earliest(best, p.nodes[part(n)], value, of)
	}
	return best
}

// few is the number of patterns up to which trying one by one is as fast as the maps.
const few = 8

func (w *wildcards) add(n *node) {
	w.all = append(w.all, n)
	switch {
	case n.form == inRange:
		w.byRange.add(n.pattern.cidr, n.pattern.cidr.Bits(), n)
	case n.pattern.prefix != "":
		w.byPrefix.add(n.pattern.prefix, len(n.pattern.prefix), n)
	case n.pattern.suffix != "":
		w.bySuffix.add(n.pattern.suffix, len(n.pattern.suffix), n)
	default:
		w.rest = append(w.rest, n)
	}
}

// find returns the first node in file order whose pattern matches value, or nil.
func (w *wildcards) find(value string) *node {
	var of netip.Prefix
	if len(w.byRange.nodes) > 0 {
		of, _ = clientaddr.ParsePrefix(value)
	}
	if len(w.all) <= few {
		return earliest(nil, w.all, value, of)
	}
	size := len(value)
	best := earliest(nil, w.rest, value, of)
	best = w.byRange.find(best, value, of, of.Bits(), around(of))
	best = w.byPrefix.find(best, value, of, size, func(n int) string { return value[:n] })
	return w.bySuffix.find(best, value, of, size, func(n int) string { return value[size-n:] })
}

// around returns the range of so many bits that p is in.
func around(p netip.Prefix) func(bits int) netip.Prefix {
	return func(bits int) netip.Prefix { return netip.PrefixFrom(p.Addr(), bits).Masked() }
}

// covers returns the first node in file order that matches all values that n matches. A wildcard
// does if and only if it matches the text of n's pattern.
func (w *wildcards) covers(n *node) *node {
	switch n.form {
	case inRange:
		cidr := n.pattern.cidr
		return w.byRange.find(w.find("*"), "", cidr, cidr.Bits(), around(cidr))
	case prefixed:
		return w.find(n.pattern.prefix + "*")
	}
	return w.find(n.value)
}

// earliest returns the first of nodes that matches value if it precedes best, and otherwise best.
func earliest(best *node, nodes []*node, value string, of netip.Prefix) *node {
	for _, n := range nodes {
		if best != nil && best.order < n.order {
			return best
		}
		if n.pattern.match(value, of) {
			return n
		}
	}
	return best
}
