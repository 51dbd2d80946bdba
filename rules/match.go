package rules

// choice is why a node was chosen for an entry.
type choice uint8

const (
	noChoice choice = iota
	byValue
	byPattern
	byKey
)

// find returns the node of l for an entry: the one with exactly its key and value, else the first
// in file order whose pattern matches, else the one with the key and no value. The choice is final:
// a request does not come back to try another node if the chosen one has no limit or no fitting
// descriptor below it.
func (l *level) find(e Entry) (*node, choice) {
	a := l.keys[e.Key]
	if a == nil {
		return nil, noChoice
	}
	if e.Value != "" {
		if n := a.values[e.Value]; n != nil {
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

// Match returns the rule that limits a descriptor, or nil if none does. It is that of the node
// chosen for the last entry; a rule above or below it does not apply, and the order of entries
// matters. It allocates nothing.
//
// Keys and values are compared as they are. Envoy's own service compares them joined by
// underscores, so that there a rule for key a_b and value c also serves key a and value b_c; here
// it does not.
func (s *Set) Match(domain string, entries []Entry) *Rule {
	d := s.domains[domain]
	if d == nil {
		return nil
	}
	return d.match(entries)
}

func (d *domain) match(entries []Entry) *Rule {
	var n *node
	l := &d.root
	for _, e := range entries {
		if n, _ = l.find(e); n == nil {
			return nil
		}
		l = &n.level
	}
	if n == nil {
		return nil
	}
	return n.rule
}
