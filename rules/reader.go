package rules

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// reader reads the YAML nodes of one file, and collects all mistakes in it.
type reader struct {
	problems
	file  string
	envoy bool // warn of input that Envoy's service would reject or ignore
	steps int  // nodes that may still be visited; aliases can make a short file long
}

// mapping returns the fields of n whose names are in keys, and reports all others. name is the name
// of the map. It returns nil if n is not a map.
func (r *reader) mapping(n *yaml.Node, name string, keys []string) fields {
	return r.known(n, name, keys, func(f field) { r.stray(f, name, keys) })
}

// known is mapping with another report of a field whose name is not in keys.
func (r *reader) known(n *yaml.Node, name string, keys []string, stray func(field)) fields {
	if n.Kind != yaml.MappingNode {
		r.mistyped(&field{name: name, value: n}, "a map")
		return nil
	}
	return slices.DeleteFunc(r.fields(n), func(f field) bool {
		other := !slices.Contains(keys, f.name)
		if other {
			stray(f)
		}
		return other
	})
}

// stray reports a field that has no meaning where it is.
func (r *reader) stray(f field, in string, keys []string) {
	switch home := homeOf(f.name); {
	case home == "": // checkStray reports it
	case f.name == "rate_limits" && in == "a descriptor":
		r.warnf(r.at(f.key), "'rate_limits' has no effect in a descriptor: its limit is 'rate_limit', "+
			"and "+
			"the actions of all descriptors stand at the top of the file")
	default:
		r.warnf(r.at(f.key), "'%s' has no effect in %s; it belongs in %s", f.name, in, home)
	}
	r.checkStray(f, keys, 0)
}

// checkStray checks the name of a field that has no effect, and the keys and types of its value, as
// Envoy's service does wherever they stand. keys are preferred to others as what is meant.
func (r *reader) checkStray(f field, keys []string, depth int) {
	if homeOf(f.name) == "" {
		r.errorf(r.at(f.key), "config error, unknown key '%s'%s", f.name, meantKey(f.name, keys))
		return
	}
	r.portableKey(&f)
	maps := []*yaml.Node{f.value}
	switch {
	case f.name == "metadata":
		r.checkKeys(f.value, depth)
		return
	case f.value.Kind == yaml.SequenceNode:
		maps = r.maps(f.value)
	case f.value.Kind == yaml.ScalarNode:
		if refusedNumber(f.value) {
			r.errorf(r.at(f.value), "error checking config: %s is the number %s", f.name, brief(f.value))
		}
		return
	}
	for _, n := range maps {
		r.steps--
		if r.steps < 0 || depth > maxDepth {
			return
		}
		for _, f := range r.fields(n) {
			r.checkStray(f, nil, depth+1)
		}
	}
}

// checkKeys reports the keys of metadata that has no effect that are maps or lists.
func (r *reader) checkKeys(n *yaml.Node, depth int) {
	r.steps--
	if r.steps < 0 || depth > maxDepth {
		return
	}
	switch n.Kind {
	case yaml.SequenceNode:
		for _, e := range n.Content {
			r.checkKeys(deref(e), depth+1)
		}
	case yaml.MappingNode:
		isScalar := func(key *yaml.Node) bool { return key.Kind == yaml.ScalarNode }
		for _, f := range r.fieldsBy(n, isScalar) {
			r.checkKeys(f.value, depth+1)
		}
	}
}

// portableKey warns of a key that Envoy's service does not know.
func (r *reader) portableKey(f *field) {
	if r.envoy && slices.Contains(ownKeys, f.name) {
		r.warnf(r.at(f.key), "not portable: Envoy's service refuses the key %s", f.name)
	}
}

// maps returns the elements of a list that are maps, and reports all others.
func (r *reader) maps(n *yaml.Node) []*yaml.Node {
	r.steps -= len(n.Content)
	maps := make([]*yaml.Node, 0, len(n.Content))
	for _, c := range n.Content {
		e := deref(c)
		if e.Kind != yaml.MappingNode {
			r.errorf(r.at(c), "config error, yaml file contains list of type other than map: %s", brief(e))
			continue
		}
		maps = append(maps, e)
	}
	return maps
}

// listOf returns the maps of the list in a field. A field that is absent counts as an empty list.
func (r *reader) listOf(f *field) []*yaml.Node {
	switch {
	case f.absent():
	case f.value.Kind == yaml.SequenceNode:
		return r.maps(f.value)
	default:
		r.mistyped(f, "a list of maps")
	}
	return nil
}

// options reads the settings in keys of an action, or of a part of one, and reports the others.
func (r *reader) options(n *yaml.Node, at position, name string, keys ...string) *options {
	in := r.known(n, name, keys, func(f field) {
		r.errorf(r.at(f.key), "unknown key '%s' in %s%s", f.name, name, settings(f.name, keys))
	})
	return &options{r, in, name, at}
}

// plainCopy returns n without its positions, comments, anchors, aliases and merge keys. Two
// rate_limits with equal copies mean the same; different copies may still mean the same.
func (r *reader) plainCopy(n *yaml.Node, depth int) *yaml.Node {
	r.steps--
	if r.steps < 0 || depth > maxDepth {
		return &yaml.Node{Kind: yaml.ScalarNode}
	}
	c := &yaml.Node{Kind: n.Kind}
	switch n.Kind {
	case yaml.MappingNode:
		for _, f := range r.fields(n) {
			c.Content = append(c.Content, r.plainCopy(deref(f.key), depth), r.plainCopy(f.value, depth+1))
		}
	case yaml.SequenceNode:
		for _, e := range n.Content {
			c.Content = append(c.Content, r.plainCopy(deref(e), depth+1))
		}
	default:
		c.Value = n.Value
		if !plain(n) {
			c.Tag, c.Style = "!!str", yaml.DoubleQuotedStyle
		}
	}
	return c
}

func (r *reader) at(n *yaml.Node) position { return position{r.file, n.Line, n.Column} }

// documents parses data. After a syntax error the rest of the file cannot be read.
func (r *reader) documents(data []byte) (docs []yaml.Node) {
	if err := yaml.Load(data, &docs, yaml.WithAllDocuments()); err != nil {
		r.syntax(err, data)
	}
	return docs
}

// syntax reports a parser's error.
func (r *reader) syntax(err error, data []byte) {
	at := position{r.file, 1, 1}
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	var e *yaml.LoadError
	if errors.As(err, &e) {
		text = e.Message
		if e.ContextMsg != "" {
			text += " " + e.ContextMsg
		}
		at.line, at.column = e.Mark.Line, e.Mark.Column
		if at.line == 0 { // the reader has only the offset
			at.line, at.column = locate(data, e.Mark.Index)
		}
	}
	r.errorf(at, "error loading config file: %s%s", text, remedy(data, at, text))
}

// fields returns the fields of a mapping, including those of its merge keys that the mapping does
// not have itself. It reports keys that are not strings and duplicate keys.
func (r *reader) fields(n *yaml.Node) fields { return r.fieldsBy(n, isText) }

// fieldsBy is fields of a mapping whose keys are those for which isKey returns true.
func (r *reader) fieldsBy(n *yaml.Node, isKey func(*yaml.Node) bool) fields {
	return r.collect(nil, make(map[string]int, len(n.Content)/2), n, isKey, 0)
}

// collect adds the fields of a mapping that are not in fs yet: its own, and then those of its merge
// keys, of which the earlier ones win. from is the mapping, or at a depth the value of a merge key,
// of which no key is reported. at maps the names in fs to their lines.
func (r *reader) collect(
	fs fields, at map[string]int, from *yaml.Node, isKey func(*yaml.Node) bool, depth int,
) fields {
	r.steps -= 1 + len(from.Content)
	if r.steps < 0 || depth > maxDepth {
		return fs // load reports it
	}
	merges := from.Content
	if from.Kind == yaml.MappingNode {
		merges = nil
		for i := 0; i+1 < len(from.Content); i += 2 {
			key, value := deref(from.Content[i]), from.Content[i+1]
			first, present := at[key.Value]
			switch {
			case isMerge(key):
				merges = append(merges, value)
			case isKey(key) && !present:
				at[key.Value] = from.Content[i].Line
				fs = append(fs, field{key.Value, from.Content[i], deref(value)})
			case isKey(key) && depth > 0: // the mapping itself has it, or an earlier merge
			case isKey(key):
				r.errorf(r.at(from.Content[i]),
					"error loading config file: key '%s' already set in map, at line %d%s", key.Value, first,
					again(key.Value))
			default:
				r.errorf(r.at(from.Content[i]), "config error, key is not of type string: %s", brief(key))
			}
		}
	} else if from.Kind != yaml.SequenceNode {
		r.errorf(r.at(from),
			"error loading config file: map merge requires map or sequence of maps as the value")
	}
	for _, n := range merges {
		fs = r.collect(fs, at, deref(n), isKey, depth+1)
	}
	return fs
}

// str reads a string. Numbers without a fraction and booleans keep their text. A field that is
// absent is the empty string.
func (r *reader) str(f *field) (string, bool) {
	if f.absent() {
		return "", true
	}
	n := f.value
	switch {
	case n.Kind != yaml.ScalarNode:
	case refusedNumber(n) && plain(n):
		r.errorf(r.at(n), "error checking config: %s is the number %s; quote it", f.name, brief(n))
		return "", false
	case refusedNumber(n):
	case n.Tag == "!!str" || n.Tag == "!!int" || n.Tag == "!!bool" || n.Tag == "!!timestamp":
		return n.Value, true
	}
	r.mistyped(f, "a string")
	return "", false
}

// flag reads a boolean. A field that is absent is false.
func (r *reader) flag(f *field) bool {
	if f.absent() {
		return false
	}
	v, ok := boolean(f.value)
	if !ok {
		r.mistyped(f, "true or false"+unquoted(f.value))
	}
	return v
}

// count reads an unsigned number up to most. A field that is absent is 0.
func (r *reader) count(f *field, most uint64) (uint64, bool) {
	if f.absent() {
		return 0, true
	}
	n := f.value
	if plain(n) && n.Tag == "!!int" {
		v, err := strconv.ParseUint(strings.TrimPrefix(strings.ReplaceAll(n.Value, "_", ""), "+"), 0, 64)
		if err == nil && v <= most {
			return v, true
		}
	}
	want := "a whole number from 0 to " + strconv.FormatUint(most, 10)
	if most == math.MaxUint64 {
		want = "a whole number from 0 on"
	}
	r.mistyped(f, want+unquoted(n))
	return 0, false
}

// mistyped reports a value that is not of the wanted type.
func (r *reader) mistyped(f *field, want string) {
	if plain(f.value) && f.value.Tag == "!!float" {
		r.errorf(r.at(f.value), "error checking config: %s is %s; want %s", f.name, brief(f.value), want)
		return
	}
	r.errorf(r.at(f.value), "error loading config file: cannot unmarshal %s into %s; want %s",
		brief(f.value), f.name, want)
}

// maxSteps bounds the number of nodes visited in a file of that length, counting an alias each time
// it is used. Without aliases a file has fewer than two nodes per byte.
func maxSteps(length int) int { return 100_000 + 20*length }

// maxDepth bounds the nesting of descriptors and metadata.
const maxDepth = 1000
