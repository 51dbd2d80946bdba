package rules_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/rules"
)

// rateLimit is a valid limit for a descriptor.
const rateLimit = "rate_limit: {unit: second, requests_per_unit: 1}"

// in returns a file with one domain and the given descriptor.
func in(descriptor string) string { return "domain: d\ndescriptors:\n  - " + descriptor + "\n" }

// TestErrors has a row for each mistake for which Envoy's service has an error text. weir's error
// contains that text and the position.
func TestErrors(t *testing.T) {
	for _, row := range []struct{ name, file, want string }{
		{"a syntax error has its own position, not the block's",
			"domain: d\ndescriptors:\n  - key: a\n   value: b\n",
			"r.yaml:4:4: error loading config file: did not find expected '-' indicator while parsing a " +
				"block collection"},
		{"an unclosed quote", "domain: \"d\n",
			"error loading config file: found unexpected end of stream"},
		{"a tab", "\tdomain: d",
			"r.yaml:1:1: error loading config file: found character that cannot start any token"},
		{"a control character", "domain: d\n#\x01\n",
			"r.yaml:2:2: error loading config file: control characters are not allowed"},
		{"invalid UTF-8", "domain: d\n#\xff\n",
			"r.yaml:2:2: error loading config file: invalid leading UTF-8 octet"},
		{"an unknown alias", "domain: *x",
			"r.yaml:1:9: error loading config file: unknown anchor 'x' referenced"},
		{"a list at the top level", "- domain: d",
			"r.yaml:1:1: error loading config file: cannot unmarshal a list into the top of the file"},
		{"a negative number", in("{key: k, rate_limit: {unit: day, requests_per_unit: -1}}"),
			"r.yaml:3:57: error loading config file: cannot unmarshal -1 into requests_per_unit"},
		{"a quoted number", in("{key: k, rate_limit: {unit: day, requests_per_unit: '1'}}"),
			`error loading config file: cannot unmarshal "1" into requests_per_unit; ` +
				`want a whole number from 0 to 4294967295, without quotes`},
		{"a number over 32 bits", in("{key: k, rate_limit: {unit: day, requests_per_unit: 4294967296}}"),
			"error loading config file: cannot unmarshal 4294967296 into requests_per_unit"},
		{"a string for a boolean", in("{key: k, shadow_mode: maybe, " + rateLimit + "}"),
			"error loading config file: cannot unmarshal maybe into shadow_mode; want true or false"},
		{"a quoted boolean", in("{key: k, shadow_mode: 'true', " + rateLimit + "}"),
			`error loading config file: cannot unmarshal "true" into shadow_mode; want true or false, ` +
				`without quotes`},
		{"a list for a string", in("{key: [k]}"),
			"error loading config file: cannot unmarshal a list into key"},
		{"a map for a list", "domain: d\ndescriptors: {key: k}\n",
			"error loading config file: cannot unmarshal a map into descriptors"},
		{"a string for a map", in("{key: k, rate_limit: fast}"),
			"error loading config file: cannot unmarshal fast into rate_limit"},
		{"a key that is a number", "domain: d\n0.25: x\n",
			"r.yaml:2:1: config error, key is not of type string: 0.25"},
		{"a key that is a boolean", "domain: d\nyes: x\n",
			"config error, key is not of type string: yes"},
		{"a key that is a number in a merged map", "domain: d\n<<: {0.25: x}\n",
			"r.yaml:2:6: config error, key is not of type string: 0.25"},
		{"a text that is tagged as a number", in("{key: !!int k}"),
			"error loading config file: cannot unmarshal \"k\" into key; want a string"},
		{"an unknown key", in("{key: k, ratelimit: {}}"),
			"r.yaml:3:14: config error, unknown key 'ratelimit'; did you mean 'rate_limit'?"},
		{"an unknown key in a limit", in("{key: k, rate_limit: {unit: day, request_per_unit: 1}}"),
			"config error, unknown key 'request_per_unit'; did you mean 'requests_per_unit'?"},
		{"an unknown key without a similar one", in("{key: k, algorithm: gcra}"),
			"r.yaml:3:14: config error, unknown key 'algorithm'; it belongs in metadata.weir of a descriptor\n"},
		{"an unknown key like no other", in("{key: k, x: y}"),
			"r.yaml:3:14: config error, unknown key 'x'; want one of key, value, rate_limit, descriptors, shadow_mode, " +
				"quota_mode, detailed_metric, value_to_metric, share_threshold, metadata\n"},
		{"a list element that is not a map", "domain: d\ndescriptors: [a]\n",
			"r.yaml:2:15: config error, yaml file contains list of type other than map: a"},
		{"a null list element", "domain: d\ndescriptors: [~]\n",
			"config error, yaml file contains list of type other than map: ~"},
		{"a value with a fraction", in("{key: k, value: 1.5}"),
			"r.yaml:3:21: error checking config: value is the number 1.5; quote it"},
		{"infinity for a limit", in("{key: k, rate_limit: {unit: day, requests_per_unit: .inf}}"),
			"error checking config"},
		{"a value of more than 63 bits", in("{key: k, value: 9223372036854775808}"),
			"error checking config"},
		{"no domain", "descriptors: []\n", "r.yaml:1:1: config file cannot have empty domain"},
		{"an empty domain", "domain: ''\n", "r.yaml:1:9: config file cannot have empty domain"},
		{"an empty file", "", "r.yaml:1:1: config file cannot have empty domain"},
		{"a file of comments", "# nothing\n", "config file cannot have empty domain"},
		{"the same domain twice", "domain: d\n---\ndomain: d\n",
			"r.yaml:3:9: duplicate domain 'd' in config file; the first is in r.yaml, line 1"},
		{"no key", in("{value: v}"), "r.yaml:3:5: descriptor has empty key"},
		{"an empty key", in("{key: ''}"), "descriptor has empty key"},
		{"the same key twice", in("key: k\n  - key: k"),
			"r.yaml:4:5: duplicate descriptor composite key 'd.k'; the first is at line 3"},
		{"the same key and value twice, below a parent",
			in("{key: p, value: v, descriptors: [{key: k, value: v}, {key: k, value: v}]}"),
			"duplicate descriptor composite key 'd.p_v.k_v'"},
		{"no unit", in("{key: k, rate_limit: {requests_per_unit: 1}}"),
			"invalid rate limit unit ''; want one of second, minute"},
		{"an unknown unit", in("{key: k, rate_limit: {unit: hours, requests_per_unit: 1}}"),
			"invalid rate limit unit 'hours'; did you mean 'hour'?"},
		{"the unit named unknown", in("{key: k, rate_limit: {unit: unknown, requests_per_unit: 1}}"),
			"invalid rate limit unit 'unknown'"},
		{"an empty limit", in("{key: k, rate_limit: {}}"), "r.yaml:3:14: invalid rate limit unit ''"},
		{"unlimited with a unit", in("{key: k, rate_limit: {unlimited: true, unit: day}}"),
			"should not specify rate limit unit when unlimited"},
		{"replaces without a name",
			in("{key: k, rate_limit: {unit: day, requests_per_unit: 1, replaces: [{}]}}"),
			"should not have an empty replaces entry"},
		{"replaces with an empty name",
			in("{key: k, rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: ''}]}}"),
			"should not have an empty replaces entry"},
		{"replaces of itself",
			in("{key: k, rate_limit: {unit: day, requests_per_unit: 1, name: a, replaces: [{name: a}]}}"),
			"replaces should not contain name of same descriptor"},
		{"replaces that lists names",
			in("{key: k, rate_limit: {unit: day, requests_per_unit: 1, replaces: [a]}}"),
			"config error, yaml file contains list of type other than map: a"},
		{"share_threshold without a wildcard",
			in("{key: k, value: v, share_threshold: true, " + rateLimit + "}"),
			"share_threshold can only be used with wildcard values (containing '*'), but found key 'k_v'"},
		{"a value with an unknown key", in("{key: k, value: {cdir: 10.0.0.0/8}}"),
			"config error, unknown key 'cdir'; did you mean 'cidr'?"},
		{"a value with two keys", in("{key: k, value: {cidr: 10.0.0.0/8, prefix: a}}"),
			"a value that is a map has one of the keys prefix and cidr"},
		{"a range that is none", in("{key: k, value: {cidr: 10.0.0.0/33}}"),
			"cidr is 10.0.0.0/33; want a range such as 10.0.0.0/8"},
		{"a range with bits beyond its length", in("{key: k, value: {cidr: 10.1.2.3/8}}"),
			"cidr 10.1.2.3/8 has bits beyond its length; did you mean 10.0.0.0/8?"},
		{"an empty prefix", in("{key: k, value: {prefix: ''}}"), "prefix is empty; leave out the value"},
		{"a range twice",
			in("{key: k, value: {cidr: '::ffff:10.0.0.0/104'}}\n  - {key: k, value: {cidr: 10.0.0.0/8}}"),
			"duplicate descriptor composite key 'd.k_{cidr:10.0.0.0/8}'"},
		{"metadata with a key that is a list", in("{key: k, metadata: {[1]: a}}"),
			"error parsing metadata: config error, key is not of type string: a list"},
		{"metadata with a key that is null", in("{key: k, metadata: {a: {~: a}}}"),
			"error parsing metadata: config error, key is not of type string: ~"},
		{"metadata that JSON cannot express", in("{key: k, metadata: {a: [.nan]}}"),
			"error parsing metadata: .nan"},
		{"metadata that is a number no service loads", in("{key: k, metadata: 1.5}"),
			"error checking config: metadata is 1.5; want a map"},
		{"metadata that is a list", in("{key: k, metadata: [a]}"),
			"cannot unmarshal a list into metadata"},

		// Mistakes for which Envoy's service has no error text.
		{"a key twice in one map", "domain: d\ndomain: e\n",
			"r.yaml:2:1: error loading config file: key 'domain' already set in map, at line 1"},
		{"a multiplier of 0",
			in("{key: k, rate_limit: {unit: day, unit_multiplier: 0, requests_per_unit: 1}}"),
			"unit_multiplier must be at least 1"},
		{"a period of more than a year",
			in("{key: k, rate_limit: {unit: day, unit_multiplier: 366, requests_per_unit: 1}}"),
			"366 days are longer than 365 days"},
		{"an unknown algorithm", in("{key: k, " + rateLimit +
			", metadata: {weir: {algorithm: token_buckets}}}"),
			"unknown algorithm 'token_buckets'; did you mean 'token_bucket'?"},
		{"an algorithm without a similar one", in("{key: k, " + rateLimit +
			", metadata: {weir: {algorithm: x}}}"), "unknown algorithm 'x'; want one of fixed_window,"},
		{"an unknown setting", in("{key: k, " + rateLimit + ", metadata: {weir: {brust: 1}}}"),
			"unknown key 'brust' in metadata.weir; did you mean 'burst'?"},
		{"settings that are not a map", in("{key: k, " + rateLimit + ", metadata: {weir: fast}}"),
			"metadata.weir is fast; want a map"},
		{"a burst without a bucket", in("{key: k, " + rateLimit + ", metadata: {weir: {burst: 5}}}"),
			"burst applies to token_bucket only"},
		{"a burst of 0", in("{key: k, " + rateLimit +
			", metadata: {weir: {algorithm: token_bucket, burst: 0}}}"), "burst must be at least 1"},
		{"a burst that takes centuries to refill",
			in("{key: k, rate_limit: {unit: year, requests_per_unit: 1}, " +
				"metadata: {weir: {algorithm: token_bucket, burst: 1000}}}"),
			"a burst of 1000 takes more than 146 years to refill"},
		{"a merge of a number", "domain: d\n<<: 5\n",
			"map merge requires map or sequence of maps as the value"},
	} {
		t.Run(row.name, func(t *testing.T) {
			set, err := rules.Load(files("r.yaml", row.file))
			assert.Nil(t, set)
			if assert.Error(t, err) {
				assert.Contains(t, err.Error()+"\n", row.want)
				var p *rules.Problem
				assert.True(t, errors.As(err, &p) && p.Line > 0 && p.Column > 0 && p.File == "r.yaml", "%+v", p)
			}
		})
	}
}

func TestEveryMistakeIsReportedAtOnce(t *testing.T) {
	_, err := rules.Load(files(
		"a.yaml",
		"domain: a\ndescriptors:\n  - key: k\n    ratelimit: {unit: day}\n  - key: l\n    rate_limit: "+
			"{unit: days, requests_per_unit: x}\n",
		"b.yaml", "domain: a\ndescriptors: 5\n",
		"c.yml", "domain: [\n",
	))
	assert.EqualError(t, err, strings.Join([]string{
		"a.yaml:4:5: config error, unknown key 'ratelimit'; did you mean 'rate_limit'?",
		"a.yaml:6:24: invalid rate limit unit 'days'; did you mean 'day'?",
		"a.yaml:6:49: error loading config file: cannot unmarshal x into requests_per_unit; want a " +
			"whole number " +
			"from 0 to 4294967295",
		"b.yaml:1:9: duplicate domain 'a' in config file; the first is in a.yaml, line 1",
		"b.yaml:2:14: error loading config file: cannot unmarshal 5 into descriptors; want a list of maps",
		"c.yml:2:1: error loading config file: did not find expected node content while parsing a " +
			"flow node",
	}, "\n"))
}

func TestAMistakeIsReportedOnce(t *testing.T) {
	_, found := (&rules.Loader{}).Check(files("r.yaml",
		in("{key: k, rate_limit: {unit: day, requests_per_unit: '1'}}")))
	assert.Len(t, found, 1)
	_, found = (&rules.Loader{}).Check(files("r.yaml",
		"domain: d\ndescriptors:\n  - &a {key: k, 5.5: x}\n  - {<<: *a, key: l}\n  - {<<: *a, key: m}\n"))
	assert.Len(t, found, 1, "an alias repeats none")
}

// TestWarnings has a row for each likely mistake that Envoy's service accepts.
func TestWarnings(t *testing.T) {
	for _, row := range []struct{ name, file, want string }{
		{"a limit of 0", in("{key: k, rate_limit: {unit: day, requests_per_unit: 0}}"),
			"r.yaml:3:57: warning: requests_per_unit is 0: the rule denies everything"},
		{"no limit", in("{key: k, rate_limit: {unit: day}}"),
			"requests_per_unit is missing and defaults to 0"},
		{"unlimited with a number", in("{key: k, rate_limit: {unlimited: true, requests_per_unit: 5}}"),
			"requests_per_unit has no effect: the rule is unlimited"},
		{"unlimited with a bogus unit", in("{key: k, rate_limit: {unlimited: true, unit: foo}}"),
			"unit 'foo' has no effect: the rule is unlimited"},
		{"unlimited with a multiplier", in("{key: k, rate_limit: {unlimited: true, unit_multiplier: 5}}"),
			"unit_multiplier has no effect"},
		{"unlimited with an algorithm",
			in("{key: k, rate_limit: {unlimited: true}, metadata: {weir: {algorithm: sliding_log}}}"),
			"metadata.weir has no effect"},
		{"a known key at the wrong level",
			in("{key: k, rate_limit: {unit: day, requests_per_unit: 1, shadow_mode: true}}"),
			"r.yaml:3:60: warning: 'shadow_mode' has no effect in rate_limit; it belongs in a descriptor"},
		{"a limit's key beside key", in("{key: k, unit: day, " + rateLimit + "}"),
			"'unit' has no effect in a descriptor; it belongs in rate_limit"},
		{"replaces with an unknown name",
			in("{key: k, rate_limit: {unit: day, requests_per_unit: 1, name: " +
				"fredy, replaces: [{name: freddy}]}}"),
			"replaces 'freddy', but no rule of domain 'd' has this name; did you mean 'fredy'?"},
		{"a wildcard after one that covers it",
			in("{key: k, value: 'a*', " + rateLimit + "}\n  - {key: k, value: 'a*b', " + rateLimit + "}"),
			"r.yaml:4:5: warning: unreachable: k=a* at line 3 comes first and matches everything that " +
				"k=a*b matches"},
		{"a key without a value and a wildcard for all values",
			in("{key: k, " + rateLimit + "}\n  - {key: k, value: '*', " + rateLimit + "}"),
			"r.yaml:3:5: warning: unreachable: k=* at line 4 matches every value of k"},
		{"shadow_mode without a limit", in("{key: k, shadow_mode: true}"),
			"'shadow_mode' has no effect without a rate_limit"},
		{"quota_mode without a limit", in("{key: k, quota_mode: true}"),
			"'quota_mode' has no effect without a rate_limit"},
		{"metadata that is a text", in("{key: k, " + rateLimit + ", metadata: fast}"),
			"metadata is fast, and has no effect; want a map"},
		{"metadata that is a whole number", in("{key: k, " + rateLimit + ", metadata: 5}"),
			"metadata is 5, and has no effect; want a map"},
		{"metadata that is a boolean", in("{key: k, " + rateLimit + ", metadata: yes}"),
			"metadata is yes, and has no effect; want a map"},
		{"an algorithm without a limit", in("{key: k, metadata: {weir: {algorithm: sliding_log}}}"),
			"metadata.weir has no effect without a rate_limit"},
	} {
		t.Run(row.name, func(t *testing.T) {
			set := load(t, row.file)
			warnings := set.Warnings()
			if assert.Len(t, warnings, 1) {
				assert.Contains(t, warnings[0].Error(), row.want)
				assert.True(t, warnings[0].Warning)
			}
		})
	}
}

// TestNoWarnings has valid rules that resemble the mistakes above.
func TestNoWarnings(t *testing.T) {
	for _, row := range []struct{ name, file string }{
		{"a narrower wildcard before a wider one",
			in("{key: k, value: 'ab*', " + rateLimit + "}\n  - {key: k, value: 'a*', " + rateLimit + "}")},
		{"wildcards that overlap",
			in("{key: k, value: 'a*', " + rateLimit + "}\n  - {key: k, value: '*b', " + rateLimit + "}")},
		{"an exact value after a wildcard",
			in("{key: k, value: 'a*', " + rateLimit + "}\n  - {key: k, value: ab, " + rateLimit + "}")},
		{"a wildcard for all values of another key",
			in("{key: k, value: '*', " + rateLimit + "}\n  - {key: l, " + rateLimit + "}")},
		{"a whitelisted value", in("{key: k, value: v}\n  - {key: k, " + rateLimit + "}")},
		{"replaces of a name further down", in("{key: k, rate_limit: {unit: day, requests_per_unit: 1, " +
			"replaces: [{name: n}]}}\n  - {key: l, rate_limit: {name: n, unit: day, requests_per_unit: 1}}")},
		{"unlimited", in("{key: k, rate_limit: {unlimited: true}}")},
	} {
		t.Run(row.name, func(t *testing.T) { assert.Empty(t, load(t, row.file).Warnings()) })
	}
}

// TestEnvoyWarnings has a row for each rule that weir accepts and that Envoy's service rejects or
// interprets differently.
func TestEnvoyWarnings(t *testing.T) {
	for _, row := range []struct{ name, file, want string }{
		{"unit_multiplier",
			in("{key: k, rate_limit: {unit: day, unit_multiplier: 2, requests_per_unit: 1}}"),
			"refuses the key unit_multiplier"},
		{"a second document", "domain: d\ndescriptors: []\n---\ndomain: e\ndescriptors: []\n",
			"r.yaml:4:1: warning: not portable: Envoy's service reads only the first document"},
		{"an asterisk in a key", in("{key: 'k*', " + rateLimit + "}"),
			"treats the asterisk in key 'k*' as a wildcard"},
		{"two descriptors with equal joined texts", in("{key: a_b, value: c, " + rateLimit +
			"}\n  - {key: a, value: b_c, " + rateLimit + "}"),
			"confuses 'a_b_c' below d with the descriptor at line 3"},
	} {
		t.Run(row.name, func(t *testing.T) {
			set, found := (&rules.Loader{Envoy: true}).Check(files("r.yaml", row.file))
			assert.NotNil(t, set)
			if assert.Len(t, found, 1) {
				assert.Contains(t, found[0].Error(), row.want)
			}
			assert.Empty(t, load(t, row.file).Warnings(), "without Envoy")
		})
	}
}

// TestWhatEnvoyRefusesWhereverItStands has every key of Envoy's service at every level, with values
// that it refuses at each. They are mistakes; other values of a key at the wrong level are none.
func TestWhatEnvoyRefusesWhereverItStands(t *testing.T) {
	const descriptor = " key value descriptors rate_limit shadow_mode quota_mode detailed_metric " +
		"value_to_metric share_threshold "
	const limit = " unit requests_per_unit unlimited name replaces "
	refused := []string{"5.5", "1e3", ".inf", ".NAN", "9223372036854775808", "[a]", "[~]", "[[]]",
		"{5.5: a}", "{yes: a}", "{bogus: a}", "[{bogus: a}]", "{unit: 5.5}", "[{key: {value: [{unit: .inf}]}}]",
		"{metadata: {[a]: b}}", "[{metadata: [{{a: b}: c}]}]"}
	harmless := []string{"text", "5", "-5", "'5.5'", "true", "~", "{}", "[]", "[{key: 5, unit: {name: ~}}]",
		"{metadata: {5: 5.5, ~: .inf, bogus: [a]}}"}
	const first = "domain: d\ndescriptors: [{key: k, "
	for level, home := range map[string]string{
		"domain: d\n%s: %s\n":                                                      " domain descriptors ",
		first + "%s: %s}]\n":                                                       descriptor,
		first + "descriptors: [{key: l, %s: %s}]}]\n":                              descriptor,
		first + "unit: {%s: %s}}]\n":                                               "",
		first + "unit: [{%s: %s}]}]\n":                                             "",
		first + "rate_limit: {unlimited: true, %s: %s}}]\n":                        limit,
		first + "rate_limit: {unlimited: true, replaces: [{name: n, %s: %s}]}}]\n": " name ",
	} {
		for _, key := range strings.Fields("domain" + descriptor + limit) {
			for _, value := range refused {
				text := fmt.Sprintf(level, key, value)
				_, err := rules.Load(files("r.yaml", text))
				assert.Error(t, err, text)
			}
			for _, value := range harmless {
				text := fmt.Sprintf(level, key, value)
				if !strings.Contains(home, " "+key+" ") {
					_, err := rules.Load(files("r.yaml", text))
					assert.NoError(t, err, text)
				}
			}
		}
		for _, key := range []string{"unit_multiplier", "lease"} {
			if home == limit {
				continue
			}
			_, found := (&rules.Loader{Envoy: true}).Check(files("r.yaml", fmt.Sprintf(level, key, "5")))
			assert.Contains(t, fmt.Sprint(found), "Envoy's service refuses the key "+key)
		}
	}
}

func TestSettingsInMetadataArePortable(t *testing.T) {
	file := in("{key: k, " + rateLimit +
		", metadata: {team: a, weir: {algorithm: token_bucket, burst: 5}}}")
	set, found := (&rules.Loader{Envoy: true}).Check(files("r.yaml", file))
	assert.Empty(t, found)
	for r := range set.All() {
		assert.Equal(t, rules.TokenBucket, r.Limit.Algorithm)
		assert.EqualValues(t, 5, r.Limit.Burst)
		assert.Equal(t, map[string]any{"team": "a"}, r.Metadata(), "without weir's settings")
	}
}
