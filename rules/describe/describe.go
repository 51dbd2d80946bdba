// Package describe turns HTTP requests into descriptors, the lists of entries that rules match. It
// has the actions of Envoy's rate_limits, and a few of weir's own. Package rules reads them from
// files; a program may have them in Go instead:
//
//	decider := rules.Decider{Engine: engine, Describers: []describe.Describer{
//		describe.By(describe.Path("path"), describe.RemoteAddress()),
//		describe.By(describe.Header("X-User", "user", false)),
//	}}
//
// A request to /login then has the descriptors path=/login,remote_address=192.0.2.1 and, if it has
// the header, user=ann.
package describe

import (
	"slices"
	"strings"
)

// Entry is one key and value of a descriptor.
type Entry struct{ Key, Value string }

// Describer says how to turn an HTTP request into one descriptor. It is one item of Envoy's
// rate_limits.
type Describer struct {
	Actions []Action

	// Hits is the cost of the descriptor if HasHits is set. 0 is a peek.
	Hits    uint64
	HasHits bool
}

// By returns a Describer with the given actions, in order. If an action has no entry for a request,
// the request gets no descriptor.
func By(actions ...Action) Describer { return Describer{Actions: actions} }

// String returns the names of the actions, joined by commas.
func (d *Describer) String() string {
	names := make([]string, len(d.Actions))
	for i, a := range d.Actions {
		names[i] = a.String()
	}
	return strings.Join(names, ", ")
}

// Describe calls yield with the entries of the descriptor of r. If an action has the path, and
// servers read it differently, it does so for each reading that counts elsewhere: under another
// rule, or another name of the path. rule returns the name of the rule that limits entries, which
// it must not keep, or "" if there is none.
//
// If r has no descriptor, Describe returns the name of the action that has no entry, or "each
// action" if it is not a single one.
func (d *Describer) Describe(
	r *Request, rule func(entries []Entry) string, yield func(entries []Entry),
) (missing string) {
	entries, missing := d.entries(r)
	switch {
	case missing != "":
		return missing
	case len(entries) == 0:
		return eachAction
	case len(r.pathAt) == 0:
		yield(entries)
		return ""
	}
	spellings := r.readPath()
	if len(spellings) == 0 {
		return eachAction
	}
	r.setPath(entries, spellings[0].path)
	if len(spellings) == 1 {
		yield(entries)
		return ""
	}
	type count struct{ rule, key string }
	var counts []count
	probe := slices.Clone(entries)
	for _, one := range spellings {
		r.setPath(probe, one.path)
		c := count{rule(probe), one.key}
		if c.rule != "" && !slices.Contains(counts, c) {
			counts = append(counts, c)
			yield(slices.Clone(probe))
		}
	}
	if len(counts) == 0 {
		yield(entries)
	}
	return ""
}

const eachAction = "each action"

// entries returns the entries of r, without the path, whose places it sets in r, or the name of the
// first action that has none.
func (d *Describer) entries(r *Request) (entries []Entry, missing string) {
	entries, r.pathAt = make([]Entry, 0, len(d.Actions)), r.pathAt[:0]
	for i := range d.Actions {
		a := &d.Actions[i]
		value, ok := a.value(r)
		switch {
		case ok:
			if a.path {
				r.pathAt = append(r.pathAt, len(entries))
			}
			entries = append(entries, Entry{Key: a.entry.Key, Value: value})
		case !a.optional:
			return nil, a.name
		}
	}
	return entries, ""
}
