package live

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/weirgo/weir/rules"
)

// TestRulesSchema compares the schema with the loader: the schema accepts what loads without a
// problem and rejects what does not, except for mistakes that a schema cannot express. It is not
// with the tool's tests, since those start some hundred processes, and each would take 23 ms longer
// to initialize jsonschema.
func TestRulesSchema(t *testing.T) {
	text, err := os.ReadFile("../../../rules.schema.json")
	require.NoError(t, err)
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	require.NoError(t, err)
	compiler := jsonschema.NewCompiler()
	require.NoError(t, compiler.AddResource("rules.json", parsed))
	schema, err := compiler.Compile("rules.json")
	require.NoError(t, err)

	const limit = "rate_limit: {unit: second, requests_per_unit: 1}"
	in := func(descriptor string) string { return "domain: d\ndescriptors:\n  - " + descriptor + "\n" }
	limited := func(limit string) string { return in("{key: k, rate_limit: {" + limit + "}}") }
	calendar := func(settings string) string {
		return in("{key: k, rate_limit: {unit: month, requests_per_unit: 1}, " +
			"metadata: {weir: {calendar: " + settings + "}}}")
	}
	for _, row := range []struct{ name, file string }{
		{"a rule", in("{key: k, value: v, " + limit + "}")},
		{"everything",
			in("{key: k, value: 'v*', share_threshold: true, shadow_mode: false, quota_mode: true, " +
				"detailed_metric: true, value_to_metric: true, metadata: {a: [1, {b: 2}], weir: {algorithm: " +
				"token_bucket, burst: 5}}, rate_limit: {unit: Day, unit_multiplier: 2, requests_per_unit: " +
				"7, name: n}, " +
				"descriptors: [{key: l}]}")},
		{"unlimited", limited("unlimited: true")},
		{"replaces",
			in("{key: k, rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: n}]}}\n  - " +
				"{key: l, rate_limit: {unit: day, requests_per_unit: 1, name: n}}")},
		{"an algorithm", in("{key: k, " + limit + ", metadata: {weir: {algorithm: sliding_log}}}")},
		{"a class", in("{key: k, " + limit + ", metadata: {weir: {class: critical}}}")},
		{"a class without a limit on rates",
			in("{key: k, rate_limit: {unlimited: true}, metadata: {weir: {class: sheddable}}}")},
		{"an unknown class", in("{key: k, " + limit + ", metadata: {weir: {class: high}}}")},
		{"a class of requests in flight",
			in("{key: k, rate_limit: {unit: in_flight, requests_per_unit: 4}, " +
				"metadata: {weir: {class: critical}}}")},
		{"a calendar", calendar("{zone: Europe/Berlin, unit: month, anchor: 17}")},
		{"a calendar with a time", calendar("{zone: Europe/Berlin, time: 6h30m}")},
		{"a calendar with a number for the time", calendar("{zone: Europe/Berlin, time: 6}")},
		{"a calendar without a zone", calendar("{anchor: 17}")},
		{"a calendar that is a text", calendar("month")},
		{"a calendar with an unknown key", calendar("{zone: UTC, day: 17}")},
		{"requests in flight",
			in("{key: k, rate_limit: {unit: in_flight, requests_per_unit: 4}, metadata: {a: 1, weir: {}}}")},
		{"requests in flight in capitals", limited("unit: IN_FLIGHT, requests_per_unit: 4, lease: 1h30m")},
		{"requests in flight with a fraction",
			limited("unit: in_flight, requests_per_unit: 4, lease: 1.5s")},
		{"requests in flight with a multiplier",
			limited("unit: in_flight, requests_per_unit: 4, unit_multiplier: 2")},
		{"requests in flight with a number for the lease",
			limited("unit: in_flight, requests_per_unit: 4, lease: 60")},
		{"requests in flight with an empty lease",
			limited("unit: in_flight, requests_per_unit: 4, lease: ''")},
		{"requests in flight with an algorithm",
			in("{key: k, rate_limit: {unit: in_flight, requests_per_unit: 4}, " +
				"metadata: {weir: {algorithm: sliding_log}}}")},
		{"requests in flight with costs",
			in("{key: k, rate_limit: {unit: in_flight, requests_per_unit: 4}, " +
				"metadata: {weir: {costs: afterwards}}}")},
		{"a lease of minutes", limited("unit: minute, requests_per_unit: 4, lease: 60s")},
		{"unlimited with a lease", limited("unlimited: true, lease: 60s")},
		{"unlimited in flight", limited("unlimited: true, unit: in_flight")},
		{"numbers for texts", "domain: 5\ndescriptors: [{key: 1, value: 010}]\n"},
		{"nulls",
			"domain: d\ndescriptors: [{key: k, value: ~, rate_limit: ~, descriptors: ~, metadata: ~}]\n"},
		{"no descriptors", "domain: d\n"},
		{"no domain", "descriptors: []\n"},
		{"an empty domain", "domain: ''\n"},
		{"a list at the top", "- domain: d\n"},
		{"an unknown key at the top", "domain: d\nx: 1\n"},
		{"an unknown key in a descriptor", in("{key: k, ratelimit: {}}")},
		{"an unknown key in a limit", limited("unit: day, requests_per_unit: 1, x: 1")},
		{"an unknown setting", in("{key: k, " + limit + ", metadata: {weir: {x: 1}}}")},
		{"a key at the wrong level", limited("unit: day, requests_per_unit: 1, shadow_mode: true")},
		{"no key", in("{value: v}")},
		{"a value with a fraction", in("{key: k, value: 1.5}")},
		{"no unit", limited("requests_per_unit: 1")},
		{"an unknown unit", limited("unit: days, requests_per_unit: 1")},
		{"no number", limited("unit: day")},
		{"a negative number", limited("unit: day, requests_per_unit: -1")},
		{"a quoted number", limited("unit: day, requests_per_unit: '1'")},
		{"unlimited with a unit", limited("unlimited: true, unit: day")},
		{"unlimited with a number", limited("unlimited: true, requests_per_unit: 1")},
		{"a multiplier of 0", limited("unit: day, unit_multiplier: 0, requests_per_unit: 1")},
		{"a shared threshold without a wildcard",
			in("{key: k, value: v, share_threshold: true, " + limit + "}")},
		{"a shared threshold without a value", in("{key: k, share_threshold: true, " + limit + "}")},
		{"a prefix", in("{key: k, value: {prefix: 'v*'}, share_threshold: true, " + limit + "}")},
		{"a range", in("{key: k, value: {cidr: '2001:db8::/32'}, " + limit + "}")},
		{"an address as a range", in("{key: k, value: {cidr: 192.0.2.7}, " + limit + "}")},
		{"a range that is none", in("{key: k, value: {cidr: localhost}, " + limit + "}")},
		{"a range and a prefix", in("{key: k, value: {cidr: 10.0.0.0/8, prefix: v}, " + limit + "}")},
		{"a value with an unknown key", in("{key: k, value: {regex: v}, " + limit + "}")},
		{"a value that is an empty map", in("{key: k, value: {}, " + limit + "}")},
		{"a list for metadata", in("{key: k, metadata: [1]}")},
		{"an unknown algorithm", in("{key: k, " + limit + ", metadata: {weir: {algorithm: gcra}}}")},
		{"a burst without a bucket", in("{key: k, " + limit + ", metadata: {weir: {burst: 5}}}")},
		{"a burst of 0",
			in("{key: k, " + limit +
				", metadata: {weir: {algorithm: token_bucket, burst: 0}}}")},
		{"replaces of texts", limited("unit: day, requests_per_unit: 1, replaces: [n]")},
		{"descriptors that are a map", "domain: d\ndescriptors: {key: k}\n"},
		{"a descriptor that is a text", "domain: d\ndescriptors: [k]\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var value any
			require.NoError(t, yaml.Load([]byte(row.file), &value))
			file := fstest.MapFS{"r.yaml": {Data: []byte(row.file)}}
			_, found := (&rules.Loader{}).Check(file)
			found = slices.DeleteFunc(found, func(p *rules.Problem) bool { // of what the schema allows
				return strings.HasSuffix(p.Message, `write "descriptors: []" in that domain`)
			})
			err := schema.Validate(value)
			assert.Equal(t, len(found) == 0, err == nil, "%v, %v", found, err)
		})
	}
	for _, algorithm := range []rules.Algorithm{rules.FixedWindow, rules.SlidingWindow,
		rules.SlidingLog,
		rules.TokenBucket, rules.InFlight} {
		assert.True(t, strings.Contains(string(text), `"`+algorithm.String()+`"`), algorithm)
	}
}
