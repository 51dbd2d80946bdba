package rules

import (
	"bytes"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

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

// refusedNumber reports whether a scalar is a number that Envoy's service refuses wherever it
// stands: one with a fraction or of more than 63 bits, or with the tag of an integer and none.
func refusedNumber(n *yaml.Node) bool {
	if n.Tag != "!!int" {
		return n.Tag == "!!float"
	}
	_, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 0, 64)
	return err != nil
}

// unquoted ends the description of a number or a boolean if the value has quotes.
func unquoted(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode && n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 {
		return ", without quotes"
	}
	return ""
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
