package rules

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weirgo/weir/internal/core/bounds"
	"github.com/weirgo/weir/internal/doors/clientaddr"
)

// The keys of a rules file, grouped by the map that they belong to.
var (
	rootKeys       = []string{"domain", "descriptors", "rate_limits", "metadata"}
	descriptorKeys = []string{"key", "value", "rate_limit", "descriptors", "shadow_mode", "quota_mode",
		"detailed_metric", "value_to_metric", "share_threshold", "metadata"}
	limitKeys = []string{"unit", "unit_multiplier", "requests_per_unit", "lease", "unlimited",
		"name", "replaces"}
	replacesKeys = []string{"name"}
	valueKeys    = []string{"prefix", "cidr"}
	ownKeys      = []string{"rate_limits", "unit_multiplier", "lease"} // Envoy's service has no such
	allKeys      = slices.Compact(slices.Sorted(slices.Values(
		slices.Concat(rootKeys, descriptorKeys, limitKeys, replacesKeys))))
)

// homeOf returns the name of the map that a key belongs to, or "".
func homeOf(key string) string {
	switch {
	case key == "domain" || key == "rate_limits":
		return "the top of the file"
	case slices.Contains(descriptorKeys, key):
		return "a descriptor"
	case slices.Contains(limitKeys, key):
		return "rate_limit"
	}
	return ""
}

// mapping returns the fields of n whose names are in keys, and reports all others. name is the name
// of the map. It returns nil if n is not a map.
func (d *decoder) mapping(n *yaml.Node, name string, keys []string) fields {
	return d.known(n, name, keys, func(f field) { d.stray(f, name, keys) })
}

// known is mapping with another report of a field whose name is not in keys.
func (d *decoder) known(n *yaml.Node, name string, keys []string, stray func(field)) fields {
	if n.Kind != yaml.MappingNode {
		d.mistyped(&field{name: name, value: n}, "a map")
		return nil
	}
	return slices.DeleteFunc(d.fields(n), func(f field) bool {
		other := !slices.Contains(keys, f.name)
		if other {
			stray(f)
		}
		return other
	})
}

// secondLimit is the end of a message about a second rate_limit.
const secondLimit = "; for a second limit, add a generic_key to the actions of another item of " +
	"rate_limits, and a descriptor with that key"

// again returns the end of a message about a key that is given twice.
func again(key string) string {
	if key == "rate_limit" {
		return secondLimit
	}
	return ""
}

// stray reports a field that has no meaning where it is.
func (d *decoder) stray(f field, in string, keys []string) {
	switch home := homeOf(f.name); {
	case home == "": // checkStray reports it
	case f.name == "rate_limits" && in == "a descriptor":
		d.warnf(d.at(f.key), "'rate_limits' has no effect in a descriptor: its limit is 'rate_limit', "+
			"and "+
			"the actions of all descriptors stand at the top of the file")
	default:
		d.warnf(d.at(f.key), "'%s' has no effect in %s; it belongs in %s", f.name, in, home)
	}
	d.checkStray(f, keys, 0)
}

// checkStray checks the name of a field that has no effect, and the keys and types of its value, as
// Envoy's service does wherever they stand. keys are preferred to others as what is meant.
func (d *decoder) checkStray(f field, keys []string, depth int) {
	if homeOf(f.name) == "" {
		d.errorf(d.at(f.key), "config error, unknown key '%s'%s", f.name, meantKey(f.name, keys))
		return
	}
	d.portableKey(&f)
	maps := []*yaml.Node{f.value}
	switch {
	case f.name == "metadata":
		d.checkKeys(f.value, depth)
		return
	case f.value.Kind == yaml.SequenceNode:
		maps = d.maps(f.value)
	case f.value.Kind == yaml.ScalarNode:
		if refusedNumber(f.value) {
			d.errorf(d.at(f.value), "error checking config: %s is the number %s", f.name, brief(f.value))
		}
		return
	}
	for _, n := range maps {
		d.steps--
		if d.steps < 0 || depth > maxDepth {
			return
		}
		for _, f := range d.fields(n) {
			d.checkStray(f, nil, depth+1)
		}
	}
}

// meantKey returns the end of a message about an unknown key. keys, if any, are those that can
// stand in its place.
func meantKey(name string, keys []string) string {
	if slices.Contains(settingKeys, name) {
		return "; it belongs in metadata.weir of a descriptor"
	}
	text := cmp.Or(suggest(name, keys), suggest(name, allKeys))
	if text == "" && len(keys) > 0 {
		return oneOf(name, keys)
	}
	return text
}

// checkKeys reports the keys of metadata that has no effect that are maps or lists.
func (d *decoder) checkKeys(n *yaml.Node, depth int) {
	d.steps--
	if d.steps < 0 || depth > maxDepth {
		return
	}
	switch n.Kind {
	case yaml.SequenceNode:
		for _, e := range n.Content {
			d.checkKeys(deref(e), depth+1)
		}
	case yaml.MappingNode:
		isScalar := func(key *yaml.Node) bool { return key.Kind == yaml.ScalarNode }
		for _, f := range d.fieldsBy(n, isScalar) {
			d.checkKeys(f.value, depth+1)
		}
	}
}

// portableKey warns of a key that Envoy's service does not know.
func (d *decoder) portableKey(f *field) {
	if d.envoy && slices.Contains(ownKeys, f.name) {
		d.warnf(d.at(f.key), "not portable: Envoy's service refuses the key %s", f.name)
	}
}

// maps returns the elements of a list that are maps, and reports all others.
func (d *decoder) maps(n *yaml.Node) []*yaml.Node {
	d.steps -= len(n.Content)
	maps := make([]*yaml.Node, 0, len(n.Content))
	for _, c := range n.Content {
		e := deref(c)
		if e.Kind != yaml.MappingNode {
			d.errorf(d.at(c), "config error, yaml file contains list of type other than map: %s", brief(e))
			continue
		}
		maps = append(maps, e)
	}
	return maps
}

// listOf returns the maps of the list in a field. A field that is absent counts as an empty list.
func (d *decoder) listOf(f *field) []*yaml.Node {
	switch {
	case f.absent():
	case f.value.Kind == yaml.SequenceNode:
		return d.maps(f.value)
	default:
		d.mistyped(f, "a list of maps")
	}
	return nil
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
		doc.limits = d.rateLimits(f)
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
	d.settings(x, d.metadata(x, in.get("metadata")))
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

// compositeKey returns a descriptor's key and value joined as Envoy's service does.
func compositeKey(key, value string) string {
	if value == "" {
		return key
	}
	return key + "_" + value
}

// rateLimit reads a rate_limit and stores it as x's rule.
func (d *decoder) rateLimit(x *node, from *field) {
	x.limitAt = d.at(from.key)
	r := &Rule{Shadow: x.shadow, Quota: x.quota, File: d.file, Line: x.line, Column: x.column, node: x}
	r.Limit.Multiplier = 1
	if from.value.Kind != yaml.MappingNode {
		want := "a map"
		if from.value.Kind == yaml.SequenceNode {
			want += secondLimit
		}
		d.mistyped(from, want)
		return
	}
	in := d.mapping(from.value, "rate_limit", limitKeys)
	r.Limit.Unlimited = d.flag(in.get("unlimited"))
	r.Limit.Name, _ = d.str(in.get("name"))
	d.unit(r, x.limitAt, in.get("unit"))
	d.inFlight(&r.Limit, in.get("unit_multiplier"), in.get("lease"))
	d.multiplier(r, in.get("unit_multiplier"))
	d.requests(r, x.limitAt, in.get("requests_per_unit"))
	d.replaces(r, in.get("replaces"))
	x.rule = r
}

func (d *decoder) unit(r *Rule, at position, f *field) {
	if f != nil {
		at = d.at(f.value)
	}
	name, ok := d.str(f)
	u := unitOf(name)
	known := u.valid()
	inFlight := strings.EqualFold(name, inFlightUnit)
	switch {
	case !ok:
	case r.Limit.Unlimited && (known || inFlight):
		d.errorf(at, "should not specify rate limit unit when unlimited")
	case r.Limit.Unlimited && name != "":
		d.warnf(at, "unit '%s' has no effect: the rule is unlimited", name)
	case inFlight:
		r.Limit.Algorithm = InFlight
		if d.envoy {
			d.warnf(at, "not portable: Envoy's service refuses the unit %s", inFlightUnit)
		}
	case !r.Limit.Unlimited && !known:
		d.errorf(at, "invalid rate limit unit '%s'%s", name, meantUnit(name))
	case known:
		r.Limit.Unit = u
	}
}

// shortUnits are units by their common abbreviations in the singular.
var shortUnits = map[string]string{
	"sec": "second", "m": "minute", "min": "minute", "h": "hour", "hr": "hour",
	"d": "day", "w": "week", "wk": "week", "mo": "month", "mon": "month", "y": "year", "yr": "year"}

// meantUnit returns the end of a message about an unknown unit.
func meantUnit(name string) string {
	short := strings.ToLower(name)
	unit := shortUnits[strings.TrimSuffix(short, "s")]
	if short == "s" {
		unit = "second"
	}
	if unit != "" {
		return "; did you mean '" + unit + "'?"
	}
	return oneOf(name, unitNames)
}

func (d *decoder) multiplier(r *Rule, f *field) {
	if f == nil || r.Limit.Algorithm == InFlight { // as is reported
		return
	}
	n, ok := d.count(f, math.MaxUint32)
	switch {
	case !ok:
	case r.Limit.Unlimited:
		d.warnf(d.at(f.key), "unit_multiplier has no effect: the rule is unlimited")
	case n == 0:
		d.errorf(d.at(f.value), "unit_multiplier must be at least 1")
	default:
		r.Limit.Multiplier = uint32(n)
		if r.Limit.Period() > bounds.MaxDuration {
			d.errorf(d.at(f.value), "%d %ss are longer than 365 days", n, r.Limit.Unit)
		}
	}
	d.portableKey(f)
}

func (d *decoder) requests(r *Rule, at position, f *field) {
	n, ok := d.count(f, math.MaxUint32)
	r.Limit.Requests = uint32(n)
	switch {
	case !ok:
	case r.Limit.Unlimited && f != nil:
		d.warnf(d.at(f.key), "requests_per_unit has no effect: the rule is unlimited")
		r.Limit.Requests = 0
	case r.Limit.Unlimited:
	case f == nil:
		d.warnf(at, "requests_per_unit is missing and defaults to 0: the rule denies everything")
	case r.Limit.Requests == 0:
		d.warnf(d.at(f.value), "requests_per_unit is 0: the rule denies everything")
	}
}

func (d *decoder) replaces(r *Rule, f *field) {
	for _, n := range d.listOf(f) {
		at := d.at(n)
		f := d.mapping(n, "replaces", replacesKeys).get("name")
		if f != nil {
			at = d.at(f.value)
		}
		name, ok := d.str(f)
		switch {
		case !ok:
		case name == "":
			d.errorf(at, "should not have an empty replaces entry")
		case name == r.Limit.Name:
			d.errorf(at, "replaces should not contain name of same descriptor")
		default:
			r.Replaces = append(r.Replaces, name)
			r.replacesAt = append(r.replacesAt, at)
		}
	}
}
