package rules

import (
	"maps"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/weirgo/weir/rules/describe"
)

// rateLimits are the rate_limits of a domain.
type rateLimits struct {
	at         position // of the key
	describers []describe.Describer
	items      []position // of the describers
	node       *yaml.Node // the YAML
}

// newRateLimits reads rate_limits.
func newRateLimits(r *reader, f *field) *rateLimits {
	limits := &rateLimits{at: r.at(f.key)}
	for _, n := range r.listOf(f) {
		var one describe.Describer
		in := r.mapping(n, "an item of rate_limits", ratelimitKeys)
		actions := r.listOf(in.get("actions"))
		for _, a := range actions {
			one.Actions = append(one.Actions, actionOf(r, a)...)
		}
		if len(actions) == 0 {
			r.errorf(r.at(n), "an item of rate_limits has no actions")
		}
		if f := in.get("hits_addend"); f != nil {
			if g := r.mapping(f.value, "hits_addend", []string{"number"}).get("number"); g != nil {
				one.Hits, one.HasHits = r.count(g, math.MaxUint32)
			}
		}
		limits.describers = append(limits.describers, one)
		limits.items = append(limits.items, r.at(n))
	}
	limits.node = r.plainCopy(f.value, 0)
	return limits
}

// options are the settings of an action. Reading a required setting that is missing reports an
// error.
type options struct {
	*reader
	fields
	name string
	at   position
}

// need is get of a setting that is required.
func (o *options) need(name string) *field {
	f := o.get(name)
	if f == nil {
		o.errorf(o.at, "%s has no %s", o.name, name)
	}
	return f
}

// text returns a string setting or its default. It reports an error if the result is empty.
func (o *options) text(name, otherwise string) string {
	s := otherwise
	if f := o.get(name); f != nil {
		s, _ = o.str(f)
	}
	if s == "" {
		o.errorf(o.at, "%s has no %s", o.name, name)
	}
	return s
}

func (o *options) flag(name string, otherwise bool) bool {
	if f := o.get(name); f != nil {
		return o.reader.flag(f)
	}
	return otherwise
}

func (o *options) bits(name string, most uint64) int {
	if f := o.get(name); f != nil {
		n, _ := o.count(f, most)
		return int(n)
	}
	return int(most)
}

// actionKind describes an action in a rules file: its settings and its constructor.
type actionKind struct {
	keys []string
	make func(o *options) describe.Action
}

var actionKinds = map[string]actionKind{
	"generic_key": {[]string{"descriptor_value", "descriptor_key"}, func(o *options) describe.Action {
		return describe.GenericKey(o.text("descriptor_key", "generic_key"),
			o.text("descriptor_value", ""))
	}},
	"remote_address": {nil, func(o *options) describe.Action { return describe.RemoteAddress() }},
	"masked_remote_address": {[]string{"v4_prefix_mask_len", "v6_prefix_mask_len"},
		func(o *options) describe.Action {
			return describe.MaskedRemoteAddress("masked_remote_address", o.bits("v4_prefix_mask_len", 32),
				o.bits("v6_prefix_mask_len", 128))
		}},
	"remote_address_match": {[]string{"descriptor_value", "descriptor_key", "address_matcher"},
		func(o *options) describe.Action {
			ranges, invert := o.addresses()
			return describe.RemoteAddressMatch(o.text("descriptor_key", "remote_address_match"),
				o.text("descriptor_value", ""), ranges, invert)
		}},
	"request_headers":             valueOf("header_name", describe.Header),
	"header_value_match":          matchOf("headers", "header_match", describe.HeaderMatch),
	"query_parameters":            valueOf("query_parameter_name", describe.Query),
	"query_parameter_value_match": matchOf("query_parameters", "query_match", describe.QueryMatch),

	// Not in Envoy.
	"path": {[]string{"descriptor_key"}, func(o *options) describe.Action {
		return describe.Path(o.text("descriptor_key", "path"))
	}},
	"path_template": {[]string{"descriptor_key"}, func(o *options) describe.Action {
		return describe.PathTemplate(o.text("descriptor_key", "path_template"))
	}},
	"context_value": {[]string{"name", "descriptor_key", "skip_if_absent"},
		func(o *options) describe.Action {
			name := o.text("name", "")
			return describe.ContextValue(name, o.text("descriptor_key", name),
				o.flag("skip_if_absent", false))
		}},
}

// valueOf is an action with the value of a header or parameter, whose name is in a setting.
func valueOf(
	setting string, action func(name, key string, optional bool) describe.Action,
) actionKind {
	keys := []string{setting, "descriptor_key", "skip_if_absent"}
	return actionKind{keys, func(o *options) describe.Action {
		return action(o.text(setting, ""), o.text("descriptor_key", ""), o.flag("skip_if_absent", false))
	}}
}

// matchOf is an action with tests of headers or parameters, which are in a setting, and a key.
func matchOf(
	setting, key string,
	action func(key, value string, expect bool, tests ...describe.Matcher) describe.Action,
) actionKind {
	keys := []string{"descriptor_value", "descriptor_key", "expect_match", setting}
	return actionKind{keys, func(o *options) describe.Action {
		return action(o.text("descriptor_key", key), o.text("descriptor_value", ""),
			o.flag("expect_match", true), o.matchers(setting)...)
	}}
}

var actionNames = slices.Sorted(maps.Keys(actionKinds))

// actionOf reads one action, a map with the action's name as its only key. It returns nil after an
// error.
func actionOf(r *reader, n *yaml.Node) []describe.Action {
	fields := r.fields(n)
	if len(fields) != 1 {
		r.errorf(r.at(n), "want an action, such as remote_address: {}")
		return nil
	}
	f := fields[0]
	kind, ok := actionKinds[f.name]
	if !ok {
		r.errorf(r.at(f.key), "unknown action '%s'%s", f.name, meantAction(f.name))
		return nil
	}
	if isNull(f.value) {
		return []describe.Action{kind.make(&options{reader: r, name: f.name, at: r.at(f.key)})}
	}
	return []describe.Action{kind.make(r.options(f.value, r.at(f.key), f.name, kind.keys...))}
}

// envoyActions are actions of Envoy about what the process of the rules does not see.
var envoyActions = []string{"source_cluster", "destination_cluster", "dynamic_metadata", "metadata",
	"extension"}

// meantAction returns the end of a message about an unknown action.
func meantAction(name string) string {
	if slices.Contains(envoyActions, name) {
		return ": it is one of Envoy, which makes its descriptors itself; without Envoy, want one of " +
			strings.Join(actionNames, ", ")
	}
	return oneOf(name, actionNames)
}

// stringKinds are the kinds of Envoy's string matchers.
var stringKinds = []string{"exact", "prefix", "suffix", "contains", "safe_regex"}

func (o *options) matchers(name string) []describe.Matcher {
	var list []describe.Matcher
	for _, n := range o.listOf(o.need(name)) {
		list = append(list, o.options(n, o.reader.at(n), "a matcher", matcherKeys...).matcher())
	}
	return list
}

func (o *options) matcher() describe.Matcher {
	m := describe.Matcher{Name: o.text("name", ""), Invert: o.flag("invert_match", false)}
	if f := o.get("present_match"); f != nil && !o.flag("present_match", true) {
		m.Invert = !m.Invert
	}
	for _, kind := range stringKinds {
		if f := o.get(kind + "_match"); f != nil {
			m.Test = o.test(kind, f, o.flag("ignore_case", false))
		}
	}
	if f := o.get("string_match"); f != nil {
		m.Test = o.stringMatch(f)
	}
	if f := o.get("range_match"); f != nil {
		r := o.sub(f, "range_match", "start", "end")
		m.Test = rangeTest(r.whole("start"), r.whole("end"))
	}
	return m
}

// sub returns the fields of a setting that is itself a map.
func (o *options) sub(f *field, name string, keys ...string) *options {
	return o.options(f.value, o.reader.at(f.key), name, keys...)
}

func (o *options) whole(name string) int64 {
	f := o.need(name)
	if f == nil {
		return 0
	}
	n, err := strconv.ParseInt(strings.ReplaceAll(f.value.Value, "_", ""), 0, 64)
	if err != nil || !plain(f.value) || f.value.Tag != "!!int" {
		o.mistyped(f, "a whole number")
	}
	return n
}

func (o *options) stringMatch(f *field) func(string) bool {
	s := o.sub(f, "string_match", append(slices.Clip(stringKinds), "ignore_case")...)
	fold := s.flag("ignore_case", false)
	for i := range s.fields {
		if g := &s.fields[i]; g.name != "ignore_case" {
			return s.test(g.name, g, fold)
		}
	}
	o.errorf(s.at, "string_match has nothing to match")
	return nil
}

func (o *options) test(kind string, f *field, fold bool) func(string) bool {
	var want string
	if kind == "safe_regex" && f.value.Kind == yaml.MappingNode {
		want = o.sub(f, f.name, "regex", "google_re2").text("regex", "")
	} else {
		want, _ = o.str(f)
	}
	test, err := stringTest(kind, want, fold)
	if err != nil {
		o.errorf(o.reader.at(f.value), "%v", err)
	}
	return test
}

// stringTest returns the test for one of Envoy's string matchers. fold ignores letter case.
func stringTest(kind, want string, fold bool) (func(string) bool, error) {
	if kind == "safe_regex" {
		flags := ""
		if fold {
			flags = "(?i)"
		}
		re, err := regexp.Compile(flags + "^(?:" + want + ")$")
		if err != nil {
			return nil, err
		}
		return re.MatchString, nil
	}
	compare := map[string]func(s, want string) bool{
		"exact":    func(s, want string) bool { return s == want },
		"prefix":   strings.HasPrefix,
		"suffix":   strings.HasSuffix,
		"contains": strings.Contains,
	}[kind]
	if !fold {
		return func(s string) bool { return compare(s, want) }, nil
	}
	want = strings.ToLower(want)
	return func(s string) bool { return compare(strings.ToLower(s), want) }, nil
}

// rangeTest returns a test for whole numbers n with start <= n < end.
func rangeTest(start, end int64) func(string) bool {
	return func(s string) bool {
		n, err := strconv.ParseInt(s, 10, 64)
		return err == nil && n >= start && n < end
	}
}

// addresses reads an address_matcher.
func (o *options) addresses() (ranges []netip.Prefix, invert bool) {
	f := o.need("address_matcher")
	if f == nil {
		return nil, false
	}
	m := o.sub(f, "address_matcher", "ranges", "invert_match")
	for _, n := range o.listOf(m.need("ranges")) {
		r := o.options(n, o.reader.at(n), "a range", "address_prefix", "prefix_len")
		addr, err := netip.ParseAddr(r.text("address_prefix", ""))
		if err != nil {
			o.errorf(r.at, "%v", err)
			continue
		}
		p, err := addr.Prefix(r.bits("prefix_len", uint64(addr.BitLen())))
		if err != nil {
			o.errorf(r.at, "%v", err)
			continue
		}
		ranges = append(ranges, p)
	}
	return ranges, m.flag("invert_match", false)
}
