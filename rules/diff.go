package rules

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Change is a difference between two Sets.
type Change struct {
	Domain string
	Path   string // of the descriptor, as FormatEntries writes it; "" for the domain as a whole
	What   string // "added", "removed", or the properties that changed
	Effect string // the consequence for requests or counters; "" if none
}

// String returns the change in one line.
func (c Change) String() string {
	at := c.Domain
	if c.Path != "" {
		at += ": " + c.Path
	}
	s := at + ": " + c.What
	if c.Effect != "" {
		s += "; " + c.Effect
	}
	return s
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

type differ struct {
	old, new *Set
	domain   string
	changes  []Change
}

func (d *differ) add(n *node, what, effect string) {
	d.changes = append(d.changes, Change{d.domain, FormatEntries(n.path()), what, effect})
}

func (d *differ) level(a, b *level) {
	for _, x := range a.nodes {
		if y := b.get(x.key, x.value); y != nil {
			d.node(x, y)
			continue
		}
		d.add(x, "removed", d.effect(x))
	}
	for _, y := range b.nodes {
		if a.get(y.key, y.value) == nil {
			d.add(y, "added", d.effect(y))
		}
	}
	d.order(a, b)
}

// order reports pairs of wildcards in both sets that changed their order and can match the same
// value.
func (d *differ) order(a, b *level) {
	for _, x := range a.nodes {
		ys := b.keys[x.key]
		if x.form == exact || ys == nil || ys.values[x.value] == nil {
			continue
		}
		for _, other := range a.keys[x.key].wildcards.all {
			y, z := ys.values[x.value], ys.values[other.value]
			if z == nil || other.order <= x.order || y.order < z.order ||
				!overlap(&x.pattern, &other.pattern) {
				continue
			}
			d.add(x, "now comes after "+FormatEntries([]Entry{other.entry()}),
				"which now limits the values that both match")
		}
	}
}

// overlap reports whether some text may match both patterns. Only their prefixes and suffixes, or
// two ranges, can exclude that.
func overlap(p, q *pattern) bool {
	if p.cidr.IsValid() && q.cidr.IsValid() {
		return p.cidr.Overlaps(q.cidr)
	}
	return (strings.HasPrefix(p.prefix, q.prefix) || strings.HasPrefix(q.prefix, p.prefix)) &&
		(strings.HasSuffix(p.suffix, q.suffix) || strings.HasSuffix(q.suffix, p.suffix))
}

// node compares two descriptors with the same path.
func (d *differ) node(x, y *node) {
	was, is := x.facts(), y.facts()
	var what []string
	for i := range was {
		if was[i] != is[i] {
			what = append(what, was[i][0]+was[i][1]+" -> "+is[i][1])
		}
	}
	if !reflect.DeepEqual(x.metadata, y.metadata) {
		what = append(what, "metadata changes")
	}
	if len(what) > 0 {
		d.add(y, strings.Join(what, ", "), counters(x, y))
	}
	d.level(&x.level, &y.level)
}

// counters returns the effect on the counters when x becomes y.
func counters(x, y *node) string {
	switch {
	case x.rule == nil || y.rule == nil || x.rule.Limit.Unlimited || y.rule.Limit.Unlimited:
		return ""
	case x.rule.Limit.Period() != y.rule.Limit.Period() ||
		x.rule.Limit.Algorithm != y.rule.Limit.Algorithm ||
		x.rule.Limit.Calendar != y.rule.Limit.Calendar ||
		!slices.Equal(x.patterns(), y.patterns()):
		return "counters start at zero"
	case x.rule.Limit.Requests != y.rule.Limit.Requests || x.rule.Limit.Burst != y.rule.Limit.Burst:
		return "counters are kept"
	}
	return ""
}

// effect returns the consequence of adding or removing n for the requests that match it.
func (d *differ) effect(n *node) string {
	if n.rule == nil && len(n.level.nodes) > 0 {
		return fmt.Sprintf("with %s below it", plural(n.level.rules(), "rule"))
	}
	sample := sampleOf(n)
	was, is := d.old.Match(d.domain, sample), d.new.Match(d.domain, sample)
	if n.rule != nil && was != n.rule && is != n.rule {
		return "an earlier wildcard matches all its requests"
	}
	return fmt.Sprintf("requests such as %s: %s -> %s", FormatEntries(sample), by(was), by(is))
}

// by describes the limit of r: its numbers, how it is counted, and what passes at once.
func by(r *Rule) string {
	switch {
	case r == nil:
		return "no limit"
	case r.Limit.Unlimited || r.Limit.Algorithm == InFlight:
		return r.Limit.String()
	}
	text := r.Limit.String()
	if r.Limit.Algorithm == FixedWindow {
		text += " by fixed_window"
	}
	return fmt.Sprintf("%s, %d at once", text, r.Limit.AtOnce())
}

// sampleOf returns a request that matches n, unless an earlier wildcard takes it.
func sampleOf(n *node) []Entry {
	sample := n.path()
	for i := len(sample) - 1; n != nil; i, n = i-1, n.parent {
		e := &sample[i]
		switch {
		case e.Value == "":
			e.Value = "any"
		case n.form == wildcard:
			e.Value = strings.ReplaceAll(e.Value, "*", "any")
		case n.form == prefixed:
			e.Value = n.pattern.prefix + "any"
		case n.form == inRange:
			e.Value = n.pattern.cidr.Addr().String()
		}
	}
	return sample
}
