package rules

import (
	"math"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// metadataReader reads the metadata of a descriptor or of a document.
type metadataReader struct{ *reader }

// read reads a descriptor's metadata into x. It returns weir's own settings, a map, or nil if
// there are none. Envoy's service loads a scalar, too, and makes nothing of it.
func (m metadataReader) read(x *node, f *field) (settings *field) {
	switch {
	case f.absent():
		return nil
	case f.value.Kind == yaml.ScalarNode && !refusedNumber(f.value):
		m.warnf(m.at(f.value), "metadata is %s, and has no effect; want a map", brief(f.value))
		return nil
	case f.value.Kind != yaml.MappingNode:
		m.mistyped(f, "a map")
		return nil
	}
	before := len(m.list)
	v, _ := m.plainValue(f.value, 0).(map[string]any)
	if len(m.list) > before {
		return nil
	}
	delete(v, ownKey)
	if len(v) > 0 {
		x.metadata = v
	}
	settings = m.fields(f.value).get(ownKey)
	switch {
	case settings.absent():
		return nil
	case settings.value.Kind != yaml.MappingNode:
		m.errorf(m.at(settings.value), "metadata.weir is %s; want a map", brief(settings.value))
		return nil
	}
	return settings
}

// plainValue converts a node to a Go value that JSON can represent.
func (m metadataReader) plainValue(n *yaml.Node, depth int) any {
	m.steps--
	if m.steps < 0 {
		return nil
	}
	if depth > maxDepth {
		m.errorf(m.at(n), "error parsing metadata: nested more than %d deep", maxDepth)
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		values := make(map[string]any, len(n.Content)/2)
		for _, f := range m.fields(n) {
			values[f.name] = m.plainValue(f.value, depth+1)
		}
		return values
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, c := range n.Content {
			list[i] = m.plainValue(deref(c), depth+1)
		}
		return list
	}
	return m.scalar(n)
}

// fields is like that of reader, but a key may be any scalar but null, and is its text: on and 1
// are keys, as in Envoy's service. Problems get the prefix that Envoy's service uses for metadata.
func (m metadataReader) fields(n *yaml.Node) fields {
	before := len(m.list)
	all := m.fieldsBy(n, func(key *yaml.Node) bool {
		return key.Kind == yaml.ScalarNode && !isNull(key)
	})
	for _, p := range m.list[before:] {
		p.Message = "error parsing metadata: " + p.Message
	}
	return all
}

func (m metadataReader) scalar(n *yaml.Node) any {
	text := strings.ReplaceAll(n.Value, "_", "")
	switch {
	case isNull(n):
		return nil
	case !plain(n):
	case n.Tag == "!!int":
		if v, err := strconv.ParseInt(text, 0, 64); err == nil {
			return v
		}
		if v, err := strconv.ParseUint(text, 0, 64); err == nil {
			return v
		}
		if v, err := strconv.ParseFloat(text, 64); err == nil {
			return v
		}
	case n.Tag == "!!float":
		if v, err := strconv.ParseFloat(text, 64); err == nil && !math.IsInf(v, 0) && !math.IsNaN(v) {
			return v
		}
		m.errorf(m.at(n), "error parsing metadata: %s cannot be represented in JSON", brief(n))
		return nil
	}
	if v, ok := boolean(n); ok {
		return v
	}
	return n.Value
}
