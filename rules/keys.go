package rules

import (
	"cmp"
	"slices"
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

// ratelimitKeys are the keys of an item of rate_limits.
var ratelimitKeys = []string{"actions", "hits_addend"}

// matcherKeys are the keys of a header or query parameter matcher. The keys that end in _match are
// an older form of string_match.
var matcherKeys = []string{"name", "string_match", "exact_match", "prefix_match", "suffix_match",
	"contains_match", "safe_regex_match", "range_match", "present_match", "invert_match",
	"ignore_case"}

// settings returns the end of a message about an unknown key of an action.
func settings(name string, keys []string) string {
	if len(keys) == 0 {
		return ", which has none"
	}
	return oneOf(name, keys)
}

var settingKeys = []string{"algorithm", "burst", "calendar", "class", "costs"}

// ownKey is the key of weir's settings in a descriptor's metadata. Envoy's service rejects unknown
// keys but ignores metadata, so it loads a file with these settings.
const ownKey = "weir"
