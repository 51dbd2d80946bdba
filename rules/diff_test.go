package rules_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/rules"
)

// TestDiff has a row for each kind of change.
func TestDiff(t *testing.T) {
	const base = "{key: k, value: v, rate_limit: {unit: day, requests_per_unit: 1}}"
	for _, row := range []struct {
		name, before, after string
		want                []string
	}{
		{"nothing", in(base), in(base), nil},
		{"the same rules, written differently", in(base), "---\ndescriptors:\n- rate_limit:\n    " +
			"requests_per_unit: 1\n    unit: DAY\n  value: v\n  key: k\ndomain: d\n", nil},
		{"descriptors in another order", in(base + "\n  - {key: l}"), in("{key: l}\n  - " + base), nil},
		{"wildcards that cannot match the same value",
			in("{key: k, value: 'a*'}\n  - {key: k, value: 'b*'}"),
			in("{key: k, value: 'b*'}\n  - {key: k, value: 'a*'}"), nil},
		{"wildcards in another order that can match the same value",
			in("{key: k, value: 'a*'}\n  - {key: k, value: '*b'}"),
			in("{key: k, value: '*b'}\n  - {key: k, value: 'a*'}"),
			[]string{"d: k=a*: now comes after k=*b; which now limits the values that both match"}},
		{"another limit", in(base),
			in("{key: k, value: v, rate_limit: {unit: day, requests_per_unit: 2}}"),
			[]string{"d: k=v: 1 per day by fixed_window, 2 at once -> 2 per day by fixed_window, 4 at once; counters are kept"}},
		{"another unit", in(base),
			in("{key: k, value: v, rate_limit: {unit: hour, requests_per_unit: 1}}"),
			[]string{"d: k=v: 1 per day by fixed_window, 2 at once -> 1 per hour by fixed_window, 2 at once; counters start at zero"}},
		{"flags, names and metadata", in(base),
			in("{key: k, value: v, shadow_mode: true, quota_mode: true, " +
				"value_to_metric: true, detailed_metric: true, metadata: {a: 1}, rate_limit: {unit: day, " +
				"requests_per_unit: 1, name: n, replaces: [{name: m}]}}"),
			[]string{"d: k=v: name none -> n, replaces none -> m, shadow_mode false -> true, quota_mode " +
				"false -> " +
				"true, detailed_metric false -> true, value_to_metric false -> true, metadata changes"}},
		{"an added rule that takes requests from another",
			in("{key: k, rate_limit: {unit: day, requests_per_unit: 9}}"),
			in("{key: k, rate_limit: {unit: day, requests_per_unit: 9}}\n  - " + base),
			[]string{"d: k=v: added; requests such as k=v: 9 per day by fixed_window, 18 at once -> 1 per day by fixed_window, 2 at once"}},
		{"a removed rule", in(base), in("{key: l}"),
			[]string{"d: k=v: removed; requests such as k=v: 1 per day by fixed_window, 2 at once -> no limit",
				"d: l: added; requests such as l=any: no limit -> no limit"}},
		{"a removed tree", in("{key: k, descriptors: [" + base + ", {key: m}]}"), in("{key: l}"),
			[]string{"d: k: removed; with 1 rule below it",
				"d: l: added; requests such as l=any: no limit -> no limit"}},
		{"a rule added after a wildcard",
			in("{key: k, value: '*', rate_limit: {unit: day, requests_per_unit: 9}}"),
			in("{key: k, value: '*', rate_limit: {unit: day, requests_per_unit: 9}}\n  - {key: k, value: " +
				"'a*', rate_limit: {unit: day, requests_per_unit: 1}}"),
			[]string{"d: k=a*: added; an earlier wildcard matches all its requests"}},
		{"a removed limit", in(base), in("{key: k, value: v}"),
			[]string{"d: k=v: 1 per day by fixed_window, 2 at once -> no limit"}},
		{"domains", "domain: a\n", in(base),
			[]string{"a: removed; its requests are no longer limited", "d: added; with 1 rule"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			var got []string
			for _, c := range load(t, row.before).Diff(load(t, row.after)) {
				got = append(got, c.String())
			}
			assert.Equal(t, row.want, got)
		})
	}
}

func TestYAMLIsAnEqualSet(t *testing.T) {
	for _, text := range []string{house,
		in("{key: '1.5', value: 'yes', metadata: {a: {b: [1, 2.5, true, null, 'x: y']}}}"),
		"domain: \"a\\0b\"\n---\ndomain: b\n"} {
		set := load(t, text)
		assert.Empty(t, rewritten(t, set).Diff(set))
	}
}

func TestExplain(t *testing.T) {
	set := load(t, house)
	for _, row := range []struct{ name, request, want string }{
		{"a rule", "ten=x",
			"domain d\n  ten=x -> ten (r.yaml:5): key only\nten: 10 per minute at r.yaml:5\n"},
		{"a wildcard, and a level below", "sharedabove=ab,user=u",
			"domain d\n  sharedabove=ab -> sharedabove=a* (r.yaml:8): wildcard\n" +
				"    user=u -> user (r.yaml:11): key only\nsharedabove=a*,user: 10 per minute, values of " +
				"the wildcard " +
				"share a counter at r.yaml:11\n"},
		{"a misspelt key", "horly=x", "domain d\n  horly=x: no descriptor with this key; did you mean " +
			"'hourly'?\nno limit: no descriptor matches\n"},
		{"no value", "shared=b",
			"domain d\n  shared=b: no match among the 1 value of this key\nno limit: no " +
				"descriptor matches\n"},
		{"too deep", "ten=x,y=z",
			"domain d\n  ten=x -> ten (r.yaml:5): key only\n    y=z: no descriptors " +
				"below: the rule is not as deep as the request\n" +
				"no limit: no descriptor matches; the choices above are final, so no other branch is tried\n"},
		{"too shallow", "sharedabove=ab",
			"domain d\n  sharedabove=ab -> sharedabove=a* (r.yaml:8): wildcard\n" +
				"no limit: the descriptor ends here, and only those below have a rate_limit\n"},
		{"whitelisted", "pass=x",
			"domain d\n  pass=x -> pass (r.yaml:17): key only\nno limit: the descriptor " +
				"has no rate_limit, so it always passes\n"},
		{"unlimited", "free=x",
			"domain d\n  free=x -> free (r.yaml:16): key only\nfree: unlimited at r.yaml:16\n"},
		{"no entries", "", "domain d\nno limit: the descriptor has no entries\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.want, set.Explain("d", entries(t, row.request)))
		})
	}
	assert.Equal(t, "domain edge\nno limit: the rules do not know domain 'edge'\n",
		set.Explain("edge", entries(t, "a=b")))
}

func TestResponseSaysWhichRuleDenied(t *testing.T) {
	w := newWorld(t, house, rules.Config{})
	w.ask(w.hit("one=x"), w.hit("shadow=x"))
	over := w.hit("ten=y")
	over.Override = &rules.Override{Unit: rules.Day}
	r := w.ask(w.hit("ten=x"), w.hit("one=x"), w.hit("shadow=x"), w.hit("free=x"), w.hit("other=x"),
		over)
	assert.Equal(t, `OVER_LIMIT
  0: OK: within limit, rule ten, 10 per minute, 10 left, reset in 40s
  1: OVER_LIMIT: over limit, rule one, 1 per minute, 0 left, reset in 40s
  2: OK: shadowed limit, rule shadow, 1 per minute, 0 left, reset in 40s
  3: OK: unlimited, rule free
  4: OK: no limit, no rule
  5: OVER_LIMIT: over limit, limit override, 0 per day, 0 left, reset in 39640s
`, r.String())
}
