package rules

import (
	"strings"
)

// check warns of what Envoy's service accepts although it is surely a mistake.
func (b *builder) check(d *domain) {
	b.unreachable(&d.root)
	d.root.each(func(n *node) bool {
		b.unreachable(&n.level)
		return true
	})
	b.unknownReplaces(d)
	if b.loader.Envoy {
		b.unportable(d)
	}
}

// unreachable warns of the nodes of a level that no request can reach, as earlier wildcards take
// all of theirs. A request for the very text of a pattern still reaches it; that is not what a
// pattern is for.
func (b *builder) unreachable(l *level) {
	for key, a := range l.keys {
		if a.wildcards == nil {
			continue
		}
		// What covers a pattern matches its text, and what matches its text covers it.
		for _, n := range a.wildcards.all {
			if by := a.wildcards.find(n.value); by != n {
				b.warnf(n.position,
					"unreachable: %s=%s at line %d comes first and matches all that %s=%s does",
					key, by.value, by.line, key, n.value)
			}
		}
		if a.any == nil {
			continue
		}
		if by := a.wildcards.find("*"); by != nil {
			b.warnf(a.any.position, "unreachable: %s=%s at line %d matches every value of %s", key, by.value,
				by.line, key)
		}
	}
}

// unknownReplaces warns of names that no rule of the domain has.
func (b *builder) unknownReplaces(d *domain) {
	names := make(map[string]bool)
	var known []string
	d.root.each(func(n *node) bool {
		if n.rule != nil && n.rule.Limit.Name != "" && !names[n.rule.Limit.Name] {
			names[n.rule.Limit.Name] = true
			known = append(known, n.rule.Limit.Name)
		}
		return true
	})
	if len(known) > 1000 {
		known = nil // to compare each unknown name with all of them would take seconds
	}
	d.root.each(func(n *node) bool {
		if n.rule == nil {
			return true
		}
		for i, name := range n.rule.Replaces {
			if !names[name] {
				b.warnf(n.rule.replacesAt[i], "replaces '%s', but no rule of domain '%s' has this name%s",
					name, d.name, suggest(name, known))
			}
		}
		return true
	})
}

// unportable warns of what Envoy's service reads otherwise, as it compares keys and values joined
// by underscores.
func (b *builder) unportable(d *domain) {
	b.collisions(&d.root, d.name)
	d.root.each(func(n *node) bool {
		if strings.Contains(n.key, "*") {
			b.warnf(n.position, "not portable: Envoy's service takes the asterisk in key '%s' for a wildcard",
				n.key)
		}
		b.collisions(&n.level, d.name+"."+FormatEntries(n.path()))
		return true
	})
}

func (b *builder) collisions(l *level, path string) {
	joined := make(map[string]*node, len(l.nodes))
	for _, n := range l.nodes {
		text := compositeKey(n.key, n.value)
		if first := joined[text]; first != nil {
			b.warnf(n.position,
				"not portable: Envoy's service takes '%s' below %s for the descriptor at line %d",
				text, path, first.line)
			continue
		}
		joined[text] = n
	}
}
