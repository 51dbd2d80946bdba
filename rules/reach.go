package rules

import (
	"maps"
	"slices"

	"github.com/weirgo/weir/rules/describe"
)

// reach finds what a domain's rate_limits reach in its rules, whatever the requests are. A value
// that an action takes from a request may be any.
type reach struct {
	steps int // nodes and keys that may still be looked at; below 0 the result is not complete

	// by level: the entries that are looked up there, those of a request with the value "", and for
	// each constant one with that value too
	asked map[*level]map[Entry]bool
	seen  map[*node]bool // that are chosen for an entry
	ends  map[*node]bool // that are chosen for the last one

	depth int    // of the longest match of the current descriptor
	why   string // it limits nothing
}

// maxReach bounds steps for a domain, to two seconds of work. A domain with more has no warnings.
const maxReach = 4_000_000

// walk looks up the entries of actions in l, the level of those below n, to which above are the
// entries. It reports whether a descriptor ends at a rule, or at a node that lets it pass.
func (r *reach) walk(l *level, n *node, above []Entry, actions []describe.Action) (matched bool) {
	r.steps--
	if r.steps < 0 {
		return true
	}
	if len(actions) == 0 {
		if n == nil || n.rule == nil && len(n.level.nodes) > 0 {
			r.fails(above, func() string { return endsAbove })
			return false
		}
		r.ends[n] = true
		return true
	}
	e := actions[0].Entry()
	if actions[0].Optional() {
		matched = r.walk(l, n, above, actions[1:])
	}
	if r.asked[l] == nil {
		r.asked[l] = make(map[Entry]bool)
	}
	r.asked[l][e], r.asked[l][Entry{Key: e.Key}] = true, true
	entries, chosen := append(slices.Clip(above), e), r.chosen(l, e)
	if len(chosen) == 0 {
		r.steps -= len(l.keys)
		r.fails(entries, func() string { return l.absence(e) })
	}
	for _, n := range chosen {
		r.seen[n] = true
		matched = r.walk(&n.level, n, entries, actions[1:]) || matched
	}
	return matched
}

// chosen returns the nodes of l that some value of e chooses.
func (r *reach) chosen(l *level, e Entry) (nodes []*node) {
	if e.Value != "" {
		if n, _ := l.find(e); n != nil {
			nodes = append(nodes, n)
		}
		return nodes
	}
	r.steps -= len(l.nodes)
	for _, n := range l.nodes {
		if n.key == e.Key && n.hiddenBy == nil {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// fails notes why the current descriptor matches no rule, unless more of it has matched.
func (r *reach) fails(entries []Entry, why func() string) {
	if len(entries) > r.depth {
		r.depth, r.why = len(entries), FormatEntries(entries)+": "+why()
	}
}

// check warns of the rules below l, which is reached, that are not. It warns once of a key.
func (r *reach) check(to *problems, l *level) {
	asked, warned := r.asked[l], make(map[string]bool)
	for _, n := range l.nodes {
		switch {
		case r.seen[n]:
			if n.rule != nil && !r.ends[n] {
				to.warnf(n.limitAt, "unreachable: no descriptor of rate_limits ends here")
			}
			r.check(to, &n.level)
		case warned[n.key]:
		case !asked[Entry{Key: n.key}]:
			warned[n.key] = true
			to.warnf(n.position, "unreachable: no descriptor of rate_limits has the key '%s' here%s", n.key,
				r.suggest(n.key, asked, func(e Entry) (string, bool) { return e.Key, e.Value == "" }))
		case n.hiddenBy != nil: // as is reported
		default:
			to.warnf(n.position, "unreachable: no descriptor of rate_limits has a value of '%s' for it%s",
				n.key, r.suggest(n.value, asked, func(e Entry) (string, bool) {
					return e.Value, e.Key == n.key && e.Value != ""
				}))
		}
	}
}

// reached reports whether a descriptor ends at any rule.
func (r *reach) reached() bool {
	for n := range r.ends {
		if n.rule != nil {
			return true
		}
	}
	return false
}

// suggest is suggest for the words of entries.
func (r *reach) suggest(word string, asked map[Entry]bool, of func(Entry) (string, bool)) string {
	r.steps -= len(asked)
	var words []string
	for e := range maps.Keys(asked) {
		if w, ok := of(e); ok && w != word {
			words = append(words, w)
		}
	}
	slices.Sort(words)
	return suggest(word, words)
}
