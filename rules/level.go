package rules

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/weirgo/weir/overload"
)

// level is a list of descriptors, the alternatives for one entry.
type level struct {
	nodes []*node
	keys  map[string]*alternatives
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

// rules returns the number of rules below l.
func (l *level) rules() (n int) {
	for x := range l.all() {
		if x.rule != nil {
			n++
		}
	}
	return n
}

func (l *level) get(key, value string) *node {
	if a := l.keys[key]; a != nil {
		return a.same(value)
	}
	return nil
}

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

// find returns the node of l for an entry: the one with exactly its key and value, else the first
// in file order whose pattern matches, else the one with the key and without a value. The choice is
// final: if the chosen node has no limit or no matching descriptor below it, no other node is
// tried.
func (l *level) find(e Entry) (*node, choice) {
	a := l.keys[e.Key]
	if a == nil {
		return nil, noChoice
	}
	if e.Value != "" {
		if n := a.values[e.Value]; n != nil && n.form <= wildcard {
			return n, byValue
		}
	}
	if a.wildcards != nil {
		if n := a.wildcards.find(e.Value); n != nil {
			return n, byPattern
		}
	}
	if a.any != nil {
		return a.any, byKey
	}
	return nil, noChoice
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

func (l *level) yaml() []yamlDescriptor {
	var list []yamlDescriptor
	for _, n := range l.nodes {
		list = append(list, yamlDescriptor{
			Key: n.key, Value: n.yamlValue(), RateLimit: n.yamlLimit(),
			ShadowMode: n.shadow, QuotaMode: n.quota, ShareThreshold: n.share,
			DetailedMetric: n.detailedMetric, ValueToMetric: n.valueToMetric,
			Metadata: n.yamlMetadata(), Descriptors: n.level.yaml(),
		})
	}
	return list
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

// facts returns the properties of a descriptor: the name of each, and a text.
func (n *node) facts() [][2]string {
	var name string
	var replaces []string
	class := overload.Normal
	if n.rule != nil {
		name, class = n.rule.Limit.Name, n.rule.Class
		for _, other := range n.rule.Replaces {
			replaces = append(replaces, quote(other))
		}
	}
	return [][2]string{
		{"", by(n.rule)}, {"name ", cmp.Or(name, "none")},
		{"replaces ", cmp.Or(strings.Join(replaces, ","), "none")},
		{"shadow_mode ", fmt.Sprint(n.shadow)}, {"quota_mode ", fmt.Sprint(n.quota)},
		{"share_threshold ", fmt.Sprint(n.share)}, {"detailed_metric ", fmt.Sprint(n.detailedMetric)},
		{"value_to_metric ", fmt.Sprint(n.valueToMetric)}, {"class ", class.String()},
	}
}

// patterns returns, for each level down to n, the pattern whose values share a counter, or "". It
// returns nil if no level shares one.
func (n *node) patterns() []string {
	var patterns []string
	shared := false
	for ; n != nil; n = n.parent {
		p := ""
		if n.share {
			p, shared = n.value, true
		}
		patterns = append(patterns, p)
	}
	if !shared {
		return nil
	}
	slices.Reverse(patterns)
	return patterns
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

func (n *node) yamlValue() any {
	switch {
	case n.form == prefixed:
		return map[string]string{"prefix": n.pattern.prefix}
	case n.form == inRange:
		return map[string]string{"cidr": n.pattern.cidr.String()}
	case n.value == "":
		return nil
	}
	return n.value
}

func (n *node) yamlLimit() *yamlLimit {
	if n.rule == nil {
		return nil
	}
	l := &n.rule.Limit
	y := &yamlLimit{Name: l.Name, Unlimited: l.Unlimited}
	if !l.Unlimited {
		y.Requests, y.Unit = &l.Requests, l.Unit.String()
		if l.Multiplier > 1 {
			y.Multiplier = l.Multiplier
		}
		if l.Algorithm == InFlight {
			y.Unit, y.Lease = inFlightUnit, l.Lease.String()
		}
	}
	for _, name := range n.rule.Replaces {
		y.Replaces = append(y.Replaces, map[string]string{"name": name})
	}
	return y
}

func (n *node) yamlMetadata() map[string]any {
	m := n.metadata
	if n.rule == nil {
		return m
	}
	own := make(map[string]any)
	if a := n.rule.Limit.Algorithm; a != FixedWindow && a != InFlight {
		own["algorithm"] = a.String()
	}
	if burst := n.rule.Limit.Burst; burst > 0 {
		own["burst"] = burst
	}
	if c := n.rule.Limit.Calendar; c != (Calendar{}) {
		own["calendar"] = c.yaml()
	}
	if n.rule.Limit.Afterwards {
		own["costs"] = costsAfterwards
	}
	if c := n.rule.Class; c != overload.Normal {
		own["class"] = c.String()
	}
	if len(own) == 0 {
		return m
	}
	m = maps.Collect(maps.All(m)) // it may be nil
	m[ownKey] = own
	return m
}

// alternatives are the nodes of a level with the same key.
type alternatives struct {
	values    map[string]*node // by the value in the file, in every form
	wildcards *wildcards       // nil if there are none
	any       *node            // the node without a value, or nil
}

// hides returns the wildcard that matches all values of n before n does, or nil if there is none.
func (a *alternatives) hides(n *node) *node {
	switch {
	case a.wildcards == nil:
		return nil
	case n == a.any:
		return a.wildcards.find("*")
	case n.form == exact:
		return nil
	}
	if by := a.wildcards.covers(n); by != n {
		return by
	}
	return nil
}

func (a *alternatives) same(value string) *node {
	if value == "" {
		return a.any
	}
	return a.values[value]
}

// choice is the reason why a node was chosen for an entry.
type choice uint8

const (
	noChoice choice = iota
	byValue
	byPattern
	byKey
)

// endsAbove is why a descriptor that ends at a node without a rule has no limit.
const endsAbove = "the descriptor ends here, and only those below have a rate_limit"
