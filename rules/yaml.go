package rules

import (
	"bytes"
	"errors"
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// decoder reads the YAML nodes of one file and collects all mistakes in it.
type decoder struct {
	problems
	file  string
	envoy bool      // warn of input that Envoy's service would reject or ignore
	usual Algorithm // of rules that name none
	steps int       // nodes that may still be visited; aliases can make a short file long
}

// maxSteps bounds the number of nodes visited in a file of that length, counting an alias each time
// it is used. Without aliases a file has fewer than two nodes per byte.
func maxSteps(length int) int { return 100_000 + 20*length }

// maxDepth bounds the nesting of descriptors and metadata.
const maxDepth = 1000

func (d *decoder) at(n *yaml.Node) position { return position{d.file, n.Line, n.Column} }

// documents parses data. After a syntax error the rest of the file cannot be read.
func (d *decoder) documents(data []byte) (docs []yaml.Node) {
	if err := yaml.Load(data, &docs, yaml.WithAllDocuments()); err != nil {
		d.syntax(err, data)
	}
	return docs
}

// syntax reports a parser's error.
func (d *decoder) syntax(err error, data []byte) {
	at := position{d.file, 1, 1}
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
	d.errorf(at, "error loading config file: %s%s", text, remedy(data, at, text))
}

// remedy returns the end of a message about a syntax error: how a mistake that has such an error is
// mended, or "".
func remedy(data []byte, at position, text string) string {
	lines := bytes.Split(data, []byte("\n"))
	for n := at.line; n > 0 && n >= at.line-1 && n <= len(lines); n-- {
		line := lines[n-1]
		indent := line[:len(line)-len(bytes.TrimLeft(line, " \t"))]
		if bytes.IndexByte(indent, '\t') >= 0 {
			return "; line " + strconv.Itoa(n) + " is indented by a tab: YAML wants spaces"
		}
	}
	for _, of := range []string{"mapping values are not allowed", "did not find expected key",
		"did not find expected '-' indicator", "could not find expected ':'"} {
		if strings.Contains(text, of) {
			return "; indent a line by as many spaces as those of the same map or list"
		}
	}
	return ""
}

// locate returns the line and column of an offset.
func locate(data []byte, offset int) (line, column int) {
	before := data[:min(offset, len(data))]
	return 1 + bytes.Count(before, []byte("\n")),
		1 + len(before) - (1 + bytes.LastIndexByte(before, '\n'))
}

// deref returns the target of an alias, and n itself otherwise.
func deref(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	return n
}

// field is a key of a mapping and its value.
type field struct {
	name  string
	key   *yaml.Node
	value *yaml.Node // not an alias
}

// absent reports whether f is nil, for a key that a mapping does not have, or null.
func (f *field) absent() bool { return f == nil || isNull(f.value) }

// fields are those of a mapping.
type fields []field

// get returns the field with that name, or nil.
func (fs fields) get(name string) *field {
	for i := range fs {
		if fs[i].name == name {
			return &fs[i]
		}
	}
	return nil
}

// fields returns the fields of a mapping, including those of its merge keys that the mapping does
// not have itself. It reports keys that are not strings and duplicate keys.
func (d *decoder) fields(n *yaml.Node) fields { return d.fieldsBy(n, isText) }

// fieldsBy is fields of a mapping whose keys are those for which isKey returns true.
func (d *decoder) fieldsBy(n *yaml.Node, isKey func(*yaml.Node) bool) fields {
	return d.collect(nil, make(map[string]int, len(n.Content)/2), n, isKey, 0)
}

// collect adds the fields of a mapping that are not in fs yet: its own, and then those of its merge
// keys, of which the earlier ones win. from is the mapping, or at a depth the value of a merge key,
// of which no key is reported. at maps the names in fs to their lines.
func (d *decoder) collect(
	fs fields, at map[string]int, from *yaml.Node, isKey func(*yaml.Node) bool, depth int,
) fields {
	d.steps -= 1 + len(from.Content)
	if d.steps < 0 || depth > maxDepth {
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
				d.errorf(d.at(from.Content[i]),
					"error loading config file: key '%s' already set in map, at line %d%s", key.Value, first,
					again(key.Value))
			default:
				d.errorf(d.at(from.Content[i]), "config error, key is not of type string: %s", brief(key))
			}
		}
	} else if from.Kind != yaml.SequenceNode {
		d.errorf(d.at(from),
			"error loading config file: map merge requires map or sequence of maps as the value")
	}
	for _, n := range merges {
		fs = d.collect(fs, at, deref(n), isKey, depth+1)
	}
	return fs
}

func isMerge(key *yaml.Node) bool {
	return key.Kind == yaml.ScalarNode && key.Value == "<<" && (key.Tag == "!!merge" || key.Style == 0)
}

// A scalar has its type of YAML 1.1, as in Envoy's service: yes and on are booleans where a boolean
// is wanted.

func plain(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle|
		yaml.LiteralStyle|yaml.FoldedStyle|yaml.TaggedStyle) == 0
}

// isText reports whether a mapping's key is a string.
func isText(n *yaml.Node) bool {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" && n.Tag != "!!timestamp" {
		return false
	}
	_, isBool := boolean(n)
	return !isBool
}

var booleans = map[string]bool{
	"y": true, "yes": true, "on": true, "true": true, "n": false, "no": false, "off": false,
	"false": false,
}

// boolean returns the value of a YAML 1.1 boolean, in lower case, capitals or with a first capital.
func boolean(n *yaml.Node) (value, ok bool) {
	if !plain(n) || n.Value == "" || len(n.Value) > len("false") {
		return false, false
	}
	lower := strings.ToLower(n.Value)
	value, ok = booleans[lower]
	return value, ok && (n.Value == lower || n.Value == strings.ToUpper(n.Value) ||
		n.Value == strings.ToUpper(lower[:1])+lower[1:])
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

// str reads a string. Numbers without a fraction and booleans keep their text. A field that is
// absent is the empty string.
func (d *decoder) str(f *field) (string, bool) {
	if f.absent() {
		return "", true
	}
	n := f.value
	switch {
	case n.Kind != yaml.ScalarNode:
	case refusedNumber(n) && plain(n):
		d.errorf(d.at(n), "error checking config: %s is the number %s; quote it", f.name, brief(n))
		return "", false
	case refusedNumber(n):
	case n.Tag == "!!str" || n.Tag == "!!int" || n.Tag == "!!bool" || n.Tag == "!!timestamp":
		return n.Value, true
	}
	d.mistyped(f, "a string")
	return "", false
}

// refusedNumber reports whether a scalar is a number that Envoy's service refuses wherever it
// stands: one with a fraction or of more than 63 bits, or with the tag of an integer and none.
func refusedNumber(n *yaml.Node) bool {
	if n.Tag != "!!int" {
		return n.Tag == "!!float"
	}
	_, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 0, 64)
	return err != nil
}

// flag reads a boolean. A field that is absent is false.
func (d *decoder) flag(f *field) bool {
	if f.absent() {
		return false
	}
	v, ok := boolean(f.value)
	if !ok {
		d.mistyped(f, "true or false"+unquoted(f.value))
	}
	return v
}

// count reads an unsigned number up to most. A field that is absent is 0.
func (d *decoder) count(f *field, most uint64) (uint64, bool) {
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
	d.mistyped(f, want+unquoted(n))
	return 0, false
}

// unquoted ends the description of a number or a boolean if the value has quotes.
func unquoted(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode && n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
		return ", without quotes"
	}
	return ""
}

// mistyped reports a value that is not of the wanted type.
func (d *decoder) mistyped(f *field, want string) {
	if plain(f.value) && f.value.Tag == "!!float" {
		d.errorf(d.at(f.value), "error checking config: %s is %s; want %s", f.name, brief(f.value), want)
		return
	}
	d.errorf(d.at(f.value), "error loading config file: cannot unmarshal %s into %s; want %s",
		brief(f.value), f.name, want)
}

// brief describes a node in a few words.
func brief(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a map"
	case yaml.SequenceNode:
		return "a list"
	}
	text := n.Value
	if len(text) > 40 {
		text = text[:40] + "…"
	}
	if !plain(n) {
		return strconv.Quote(strings.ToValidUTF8(text, "�"))
	}
	if text == "" {
		return "null"
	}
	return strings.ToValidUTF8(text, "�")
}
