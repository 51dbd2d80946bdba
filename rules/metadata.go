package rules

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weirgo/weir/internal/core/algorithm"
)

// ownKey is the key of weir's settings in a descriptor's metadata. Envoy's service rejects unknown
// keys but ignores metadata, so it loads a file with these settings.
const ownKey = "weir"

var settingKeys = []string{"algorithm", "burst", "calendar", "costs"}

// costsAfterwards is the value of the key costs.
const costsAfterwards = "afterwards"

// metadata reads a descriptor's metadata into x. It returns weir's own settings, a map, or nil if
// there are none. Envoy's service loads a scalar, too, and makes nothing of it.
func (d *decoder) metadata(x *node, f *field) (settings *field) {
	switch {
	case f.absent():
		return nil
	case f.value.Kind == yaml.ScalarNode && !refusedNumber(f.value):
		d.warnf(d.at(f.value), "metadata is %s, and has no effect; want a map", brief(f.value))
		return nil
	case f.value.Kind != yaml.MappingNode:
		d.mistyped(f, "a map")
		return nil
	}
	before := len(d.list)
	v, _ := d.plainValue(f.value, 0).(map[string]any)
	if len(d.list) > before {
		return nil
	}
	delete(v, ownKey)
	if len(v) > 0 {
		x.metadata = v
	}
	settings = d.metadataFields(f.value).get(ownKey)
	switch {
	case settings.absent():
		return nil
	case settings.value.Kind != yaml.MappingNode:
		d.errorf(d.at(settings.value), "metadata.weir is %s; want a map", brief(settings.value))
		return nil
	}
	return settings
}

// plainValue converts a node to a Go value that JSON can represent.
func (d *decoder) plainValue(n *yaml.Node, depth int) any {
	d.steps--
	if d.steps < 0 {
		return nil
	}
	if depth > maxDepth {
		d.errorf(d.at(n), "error parsing metadata: nested more than %d deep", maxDepth)
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		m := make(map[string]any, len(n.Content)/2)
		for _, f := range d.metadataFields(n) {
			m[f.name] = d.plainValue(f.value, depth+1)
		}
		return m
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, c := range n.Content {
			list[i] = d.plainValue(deref(c), depth+1)
		}
		return list
	}
	return d.scalar(n)
}

// metadataFields is like fields, but a key may be any scalar but null, and is its text: on and 1
// are keys, as in Envoy's service. Problems get the prefix that Envoy's service uses for metadata.
func (d *decoder) metadataFields(n *yaml.Node) fields {
	before := len(d.list)
	fields := d.fieldsBy(n, func(key *yaml.Node) bool {
		return key.Kind == yaml.ScalarNode && !isNull(key)
	})
	for _, p := range d.list[before:] {
		p.Message = "error parsing metadata: " + p.Message
	}
	return fields
}

func (d *decoder) scalar(n *yaml.Node) any {
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
		d.errorf(d.at(n), "error parsing metadata: %s cannot be represented in JSON", brief(n))
		return nil
	}
	if v, ok := boolean(n); ok {
		return v
	}
	return n.Value
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
	settings := d.metadata(new(node), metadata)
	if settings == nil {
		return d.usual
	}
	limit := Limit{Algorithm: d.usual}
	in := d.options(settings.value, d.at(settings.key), "metadata.weir at the top of a file",
		"algorithm")
	d.algorithm(&limit, in.get("algorithm"))
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
	d.algorithm(limit, in.get("algorithm"))
	d.costs(limit, in.get("costs"))
	d.burst(limit, in.get("burst"))
	if x.rule != nil {
		d.calendar(limit, in.get("calendar"))
	}
	if x.rule != nil && limit.Unlimited {
		d.warnf(d.at(f.value), "metadata.weir has no effect: the rule is unlimited")
		limit.Algorithm, limit.Burst, limit.Calendar, limit.Afterwards = FixedWindow, 0, Calendar{}, false
	}
}

func (d *decoder) algorithm(limit *Limit, f *field) {
	name, ok := d.str(f)
	i := slices.Index(algorithmNames, name)
	switch {
	case f == nil || !ok:
	case limit.Algorithm == InFlight || name == inFlightUnit:
		d.errorf(d.at(f.key), "the unit %s has no algorithm, and no algorithm is named so", inFlightUnit)
	case i < 0:
		d.errorf(d.at(f.value), "unknown algorithm '%s'%s", name, oneOf(name, algorithmNames))
	default:
		limit.Algorithm = Algorithm(i)
	}
}

func (d *decoder) costs(limit *Limit, f *field) {
	if f == nil {
		return
	}
	name, ok := d.str(f)
	if ok && name != costsAfterwards {
		d.errorf(d.at(f.value),
			"unknown costs '%s'; want %s, for hits that are reported when a request ends "+
				"and count in full, even over the limit; or leave the key out", name, costsAfterwards)
	}
	if limit.Algorithm == InFlight {
		d.errorf(d.at(f.key), "costs do not apply to the unit %s", inFlightUnit)
		return
	}
	limit.Afterwards = ok
}

func (d *decoder) burst(limit *Limit, f *field) {
	n, ok := d.count(f, math.MaxUint32)
	switch {
	case f == nil || !ok:
	case n == 0:
		d.errorf(d.at(f.value), "burst must be at least 1")
	case limit.Algorithm != TokenBucket:
		d.errorf(d.at(f.key), "burst applies to token_bucket only; the algorithm is %s", limit.Algorithm)
	case !refills(limit, n):
		d.errorf(d.at(f.value), "a burst of %d takes more than 146 years to refill", n)
	default:
		limit.Burst = n
	}
}

// refills reports whether a weir.TokenBucket of that size refills soon enough.
func refills(limit *Limit, size uint64) bool {
	p := algorithm.Params{Scale: limit.Period().Milliseconds(), Limit: int64(limit.Requests)}
	_, ok := (&algorithm.TokenBucket{Burst: int64(size)}).Prepare(p)
	return ok
}
