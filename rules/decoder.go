package rules

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weirgo/weir/internal/doors/clientaddr"
	"github.com/weirgo/weir/overload"
)

// decoder reads the documents of one file.
type decoder struct {
	*reader
	usual Algorithm // of rules that name none
}

// document reads the top of a document, and reports whether it has a domain.
func (d *decoder) document(n *yaml.Node) (doc document, ok bool) {
	doc.at, doc.top = d.at(n), d.at(n)
	if isNull(n) {
		n = &yaml.Node{Kind: yaml.MappingNode, Line: max(1, n.Line), Column: max(1, n.Column)}
	}
	if d.configMap(n) {
		return doc, false
	}
	top := d.mapping(n, "the top of the file", rootKeys)
	if n.Kind != yaml.MappingNode {
		return doc, false
	}
	name := top.get("domain")
	if name != nil {
		doc.at = d.at(name.value)
	}
	var valid bool
	doc.name, valid = d.str(name)
	if doc.name == "" && valid {
		d.errorf(doc.at, "config file cannot have empty domain")
	}
	doc.algorithm = d.usualOf(top.get("metadata"))
	list := top.get("descriptors")
	doc.descriptors = d.listOf(list)
	doc.emptied = !list.absent() && list.value.Kind == yaml.SequenceNode &&
		len(list.value.Content) == 0
	if f := top.get("rate_limits"); f != nil {
		doc.limits = newRateLimits(d.reader, f)
	}
	return doc, true
}

// configMap reports a document that is a ConfigMap of Kubernetes, or another object with rules
// inside.
func (d *decoder) configMap(n *yaml.Node) bool {
	if n.Kind != yaml.MappingNode {
		return false
	}
	var kind string
	var data *yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		switch value := deref(n.Content[i+1]); n.Content[i].Value {
		case "domain", "descriptors":
			return false
		case "kind":
			kind = value.Value
		case "data", "spec":
			data = value
		}
	}
	if kind == "" || data == nil {
		return false
	}
	where := ""
	if data.Kind == yaml.MappingNode && len(data.Content) > 0 && kind == "ConfigMap" {
		where = ": the rules are in data.'" + data.Content[0].Value +
			"', which is to be a file of its own"
	}
	d.errorf(d.at(n), "this is an object of Kubernetes, of the kind %s, and no rules%s", kind, where)
	return true
}

// descriptors reads a list of descriptors into l. path is the domain and the entries above, in
// Envoy's notation.
func (d *decoder) descriptors(l *level, list []*yaml.Node, parent *node, path string, depth int) {
	if depth > maxDepth {
		d.errorf(d.at(list[0]), "descriptors are nested more than %d deep", maxDepth)
		return
	}
	for _, n := range list {
		if d.steps < 0 {
			return // load reports it
		}
		d.descriptor(l, n, parent, path, depth)
	}
}

func (d *decoder) descriptor(l *level, n *yaml.Node, parent *node, path string, depth int) {
	x := &node{position: d.at(n), parent: parent}
	in := d.mapping(n, "a descriptor", descriptorKeys)
	d.value(x, in.get("value"))
	x.shadow, x.quota = d.flag(in.get("shadow_mode")), d.flag(in.get("quota_mode"))
	x.detailedMetric = d.flag(in.get("detailed_metric"))
	x.valueToMetric = d.flag(in.get("value_to_metric"))
	x.share = d.flag(in.get("share_threshold"))
	var named bool
	x.key, named = d.str(in.get("key"))
	composite := compositeKey(x.key, x.value)
	path += "." + composite
	if x.key == "" && named {
		d.errorf(x.position, "descriptor has empty key")
	} else if same := l.add(x); same != nil {
		d.errorf(x.position, "duplicate descriptor composite key '%s'; the first is %s%s", path,
			same.from(d.file), secondLimit)
	}
	if limit := in.get("rate_limit"); !limit.absent() {
		d.rateLimit(x, limit)
	}
	d.settings(x, metadataReader{d.reader}.read(x, in.get("metadata")))
	for name, set := range map[string]bool{"shadow_mode": x.shadow, "quota_mode": x.quota} {
		if set && x.rule == nil {
			d.warnf(d.at(in.get(name).key), "'%s' has no effect without a rate_limit", name)
		}
	}
	if x.share && x.form == exact {
		d.errorf(d.at(in.get("share_threshold").key), "share_threshold can only be used with wildcard "+
			"values (containing '*'), but found key '%s'", composite)
		x.share = false
	}
	if below := d.listOf(in.get("descriptors")); len(below) > 0 {
		d.descriptors(&x.level, below, x, path, depth+1)
	}
}

// rateLimit reads a rate_limit and stores it as x's rule.
func (d *decoder) rateLimit(x *node, from *field) {
	x.limitAt = d.at(from.key)
	if from.value.Kind != yaml.MappingNode {
		want := "a map"
		if from.value.Kind == yaml.SequenceNode {
			want += secondLimit
		}
		d.mistyped(from, want)
		return
	}
	r := &Rule{Shadow: x.shadow, Quota: x.quota, File: d.file, Line: x.line, Column: x.column, node: x}
	r.Limit.Multiplier = 1
	p := limitParser{d.reader, r, x.limitAt}
	p.read(d.mapping(from.value, "rate_limit", limitKeys))
	x.rule = r
}

// value reads a descriptor's value: text, {prefix: TEXT} or {cidr: RANGE}.
func (d *decoder) value(x *node, f *field) {
	if f == nil || f.value.Kind != yaml.MappingNode {
		x.value, _ = d.str(f)
		if isPattern(x.value) {
			x.form, x.pattern = wildcard, compilePattern(x.value)
		}
		return
	}
	if d.envoy {
		d.warnf(d.at(f.value), "not portable: Envoy's service refuses a map as a value")
	}
	fields := d.mapping(f.value, "value", valueKeys)
	if len(fields) != 1 {
		d.errorf(d.at(f.value), "a value that is a map has one of the keys %s",
			strings.Join(valueKeys, " and "))
		return
	}
	of := &fields[0]
	text, ok := d.str(of)
	switch {
	case !ok:
		return
	case text == "":
		d.errorf(d.at(of.value), "%s is empty; leave out the value to match any", of.name)
	case of.name == "prefix":
		x.form, x.pattern = prefixed, pattern{prefix: text}
	default:
		p, err := clientaddr.ParsePrefix(text)
		switch {
		case err != nil:
			d.errorf(d.at(of.value), "cidr is %s; want a range such as 10.0.0.0/8 or 2001:db8::/32",
				brief(of.value))
			return
		case p != p.Masked():
			d.errorf(d.at(of.value), "cidr %s has bits beyond its length; did you mean %s?", text,
				p.Masked())
		}
		p = p.Masked()
		x.form, x.pattern.cidr, text = inRange, p, p.String()
	}
	x.value = "{" + of.name + ":" + text + "}"
}

// portable warns of documents that Envoy's service would not read as weir does. Envoy's service
// ignores a later document with only rate_limits, which is harmless.
func (d *decoder) portable(doc *document, number int, requestsOnly bool) {
	switch {
	case number > 1 && !requestsOnly:
		d.warnf(doc.top, "not portable: Envoy's service reads only the first document of a file")
	case number == 1 && doc.limits != nil:
		d.warnf(doc.limits.at,
			"not portable: Envoy's service refuses rate_limits in the first document of a file")
	}
}

// usualOf returns the algorithm of the rules that name none: that of a document's metadata, if it
// has one.
func (d *decoder) usualOf(metadata *field) Algorithm {
	if metadata.absent() {
		return d.usual
	}
	if d.envoy {
		d.warnf(d.at(metadata.key), "not portable: Envoy's service refuses metadata at the top of a file")
	}
	if metadata.value.Kind == yaml.ScalarNode {
		d.mistyped(metadata, "a map")
		return 0
	}
	settings := metadataReader{d.reader}.read(new(node), metadata)
	if settings == nil {
		return d.usual
	}
	limit := Limit{Algorithm: d.usual}
	in := d.options(settings.value, d.at(settings.key), "metadata.weir at the top of a file",
		"algorithm")
	p := settingsParser{d.reader, &limit}
	p.algorithm(in.get("algorithm"))
	return limit.Algorithm
}

// settings reads weir's own settings into x's limit. Without an algorithm it gets the usual one,
// but a rule with a calendar is one of fixed windows.
func (d *decoder) settings(x *node, f *field) {
	limit := &Limit{}
	if x.rule != nil {
		limit = &x.rule.Limit
	}
	var in fields
	if f != nil {
		in = d.options(f.value, d.at(f.key), "metadata.weir", settingKeys...).fields
	}
	if x.rule != nil && !limit.Unlimited && limit.Algorithm != InFlight && in.get("calendar") == nil {
		limit.Algorithm = d.usual
	}
	if f == nil {
		return
	}
	if x.rule == nil && x.limitAt.line == 0 {
		d.warnf(d.at(f.value), "metadata.weir has no effect without a rate_limit")
	}
	d.class(x, in.get("class"))
	p := settingsParser{d.reader, limit}
	p.read(in)
	if x.rule != nil {
		p.calendar(in.get("calendar"))
	}
	counts := func(f field) bool { return f.name != "class" }
	if x.rule != nil && limit.Unlimited && (len(in) == 0 || slices.ContainsFunc(in, counts)) {
		d.warnf(d.at(f.value), "metadata.weir has no effect: the rule is unlimited")
		limit.Algorithm, limit.Burst, limit.Calendar, limit.Afterwards = FixedWindow, 0, Calendar{}, false
	}
}

// class reads the class of a descriptor.
func (d *decoder) class(x *node, f *field) {
	name, ok := d.str(f)
	if f == nil || !ok {
		return
	}
	class, err := overload.ParseClass(name)
	if err != nil {
		d.errorf(d.at(f.value), "unknown class '%s'%s", name,
			oneOf(name, []string{"sheddable", "normal", "critical"}))
	}
	if x.rule != nil {
		x.rule.Class = class
	}
}

// document is the contents of one YAML document.
type document struct {
	name        string // of the domain
	at          position
	top         position
	descriptors []*yaml.Node
	emptied     bool        // descriptors is an empty list
	algorithm   Algorithm   // of the rules that name none
	limits      *rateLimits // nil if there are none
}

// compositeKey returns a descriptor's key and value joined as Envoy's service does.
func compositeKey(key, value string) string {
	if value == "" {
		return key
	}
	return key + "_" + value
}
