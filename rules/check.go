package rules

import (
	"maps"
	"slices"
	"strings"
)

// check reports rules that Envoy's service accepts but that are almost certainly mistakes.
func (b *builder) check(d *domain, rules []*Rule) {
	b.unreachable(&d.root)
	for n := range d.root.all() {
		b.unreachable(&n.level)
	}
	b.unknownReplaces(d.name, rules)
	if d.limits != nil && !b.fatal() {
		b.unreached(d)
	}
	if b.loader.Envoy {
		b.unportable(d)
	}
}

// silent warns of domains without a rate_limit if nothing else was reported that may be why.
func (b *builder) silent() {
	if len(b.list) > 0 {
		return
	}
	ruled := make(map[string]bool)
	for _, r := range b.set.rules {
		ruled[r.Domain] = true
	}
	for _, d := range b.set.order {
		if !ruled[d.name] && !d.emptied {
			b.warnf(d.at, "domain '%s' has no rate_limit, and limits nothing; %s", d.name, toHaveNone)
		}
	}
}

// unreachable warns of nodes of a level that no request reaches because an earlier wildcard matches
// all their values. A request whose value is the text of the pattern itself still reaches the
// pattern, but patterns are not meant for that.
func (b *builder) unreachable(l *level) {
	for _, n := range l.nodes {
		n.hiddenBy = l.keys[n.key].hides(n)
		switch by := n.hiddenBy; {
		case by == nil:
		case n.value == "":
			b.warnf(n.position, "unreachable: %s=%s at line %d matches every value of %s", n.key, by.value,
				by.line, n.key)
		default:
			b.warnf(n.position,
				"unreachable: %s=%s at line %d comes first and matches everything that %s=%s matches",
				n.key, by.value, by.line, n.key, n.value)
		}
	}
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

// unknownReplaces warns of names in replaces that none of the domain's rules has.
func (b *builder) unknownReplaces(domain string, rules []*Rule) {
	names := make(map[string]bool)
	for _, r := range rules {
		names[r.Limit.Name] = true
	}
	delete(names, "")
	known := slices.Sorted(maps.Keys(names))
	for _, r := range rules {
		for i, name := range r.Replaces {
			if !names[name] {
				b.warnf(r.replacesAt[i], "replaces '%s', but no rule of domain '%s' has this name%s",
					name, domain, suggest(name, known))
			}
		}
	}
}

// unportable warns of rules that Envoy's service interprets differently because it joins keys and
// values by underscores.
func (b *builder) unportable(d *domain) {
	b.collisions(&d.root, d.name)
	for n := range d.root.all() {
		if strings.Contains(n.key, "*") {
			b.warnf(n.position,
				"not portable: Envoy's service treats the asterisk in key '%s' as a wildcard", n.key)
		}
		b.collisions(&n.level, d.name+"."+FormatEntries(n.path()))
	}
}

func (b *builder) collisions(l *level, path string) {
	joined := make(map[string]*node, len(l.nodes))
	for _, n := range l.nodes {
		text := compositeKey(n.key, n.value)
		if first := joined[text]; first != nil {
			b.warnf(n.position,
				"not portable: Envoy's service confuses '%s' below %s with the descriptor at line %d",
				text, path, first.line)
			continue
		}
		joined[text] = n
	}
}
