package rules

// choice is the reason why a node was chosen for an entry.
type choice uint8

const (
	noChoice choice = iota
	byValue
	byPattern
	byKey
)

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

// Match returns the rule that limits a descriptor, or nil if there is none. It is the rule of the
// node chosen for the last entry; a rule above or below that node does not apply, and the order of
// entries matters. Match does not allocate.
//
// Keys and values are compared separately. Envoy's own service joins them by underscores, so that
// there a rule for key a_b and value c also matches key a and value b_c.
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
		n, _ = l.find(e)
		if n == nil {
			return nil
		}
		l = &n.level
	}
	if n == nil {
		return nil
	}
	return n.rule
}
