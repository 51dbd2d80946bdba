package rules_test

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/rules"
	"github.com/weirgo/weir/rules/describe"
)

// TestActions has a row for each action and each of its cases.
func TestActions(t *testing.T) {
	request := httptest.NewRequest("POST", "http://example.org/a%20b/c?x=1&x=2&y=", nil)
	request.RemoteAddr = "10.1.2.3:555"
	request.Pattern = "POST /{any}/c"
	request.Header.Add("X-Plan", "Free")
	request.Header.Add("X-Plan", "gold")
	request.Header.Set("X-Count", "7")
	request.Header.Set("X-Empty", "")
	request.Header.Set("X-Forwarded-For", "2001:db8::1")
	request = request.WithContext(describe.WithValue(request.Context(), "user", "ann"))
	direct := httplimit.RemoteAddr()
	proxied := httplimit.ClientIP([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")})
	for _, row := range []struct {
		name, actions string // actions of one descriptor
		ip            httplimit.IP
		want          string // the entries; "none" for no descriptor
	}{
		{"a constant", "{generic_key: {descriptor_value: v}}", direct, "generic_key=v"},
		{"a constant with a key", "{generic_key: {descriptor_value: v, descriptor_key: k}}", direct,
			"k=v"},
		{"the address", "{remote_address: {}}", direct, "remote_address=10.1.2.3"},
		{"the address, null", "{remote_address: }", direct, "remote_address=10.1.2.3"},
		{"the address from a trusted proxy", "{remote_address: {}}", proxied,
			"remote_address=2001:db8::1"},
		{"a masked address", "{masked_remote_address: {v4_prefix_mask_len: 24}}", direct,
			"masked_remote_address=10.1.2.0/24"},
		{"a masked IPv6 address", "{masked_remote_address: {v6_prefix_mask_len: 32}}", proxied,
			"masked_remote_address=2001:db8::/32"},
		{"an address not masked", "{masked_remote_address: {}}", direct,
			"masked_remote_address=10.1.2.3/32"},
		{"an address in a range",
			"{remote_address_match: {descriptor_value: lan, address_matcher: {ranges: " +
				"[{address_prefix: 192.168.0.0, prefix_len: 16}, {address_prefix: 10.0.0.0, prefix_len: 8}]}}}",
			direct,
			"remote_address_match=lan"},
		{"an address in no range",
			"{remote_address_match: {descriptor_value: lan, address_matcher: {ranges: " +
				"[{address_prefix: 10.1.2.4}]}}}", direct, "none"},
		{"an address in no range, inverted",
			"{remote_address_match: {descriptor_value: wan, address_matcher: " +
				"{invert_match: true, ranges: [{address_prefix: 10.1.2.4}]}}}", direct,
			"remote_address_match=wan"},
		{"a header's first value", "{request_headers: {header_name: x-plan, descriptor_key: plan}}",
			direct, "plan=Free"},
		{"a header that is empty", "{request_headers: {header_name: x-empty, descriptor_key: e}}",
			direct, "e"},
		{"a missing header drops the descriptor",
			"{request_headers: {header_name: x-no, descriptor_key: no}}, {remote_address: {}}", direct,
			"none"},
		{"a missing header drops only the entry",
			"{request_headers: {header_name: x-no, descriptor_key: no, " +
				"skip_if_absent: true}}, {remote_address: {}}", direct, "remote_address=10.1.2.3"},
		{"a descriptor without entries is dropped",
			"{request_headers: {header_name: x-no, descriptor_key: no, skip_if_absent: true}}", direct,
			"none"},
		{"the path with the query", "{request_headers: {header_name: ':path', descriptor_key: p}}",
			direct,
			`p="/a%20b/c?x=1&x=2&y="`},
		{"the method", "{request_headers: {header_name: ':method', descriptor_key: m}}", direct,
			"m=POST"},
		{"the host", "{request_headers: {header_name: ':authority', descriptor_key: h}}", direct,
			"h=example.org"},
		{"the host, as other fields are named",
			"{request_headers: {header_name: Host, descriptor_key: h}}", direct, "h=example.org"},
		{"the scheme", "{request_headers: {header_name: ':scheme', descriptor_key: s}}", direct,
			"s=http"},
		{"the path without the query", "{path: {}}", direct, "path=/a%20b/c"},
		{"the route", "{path_template: {descriptor_key: route}}", direct, `route="POST /{any}/c"`},
		{"a context value", "{context_value: {name: user}}", direct, "user=ann"},
		{"a missing context value", "{context_value: {name: plan}}", direct, "none"},
		{"a query parameter's first value",
			"{query_parameters: {query_parameter_name: x, descriptor_key: q}}", direct, "q=1"},
		{"a query parameter that is empty",
			"{query_parameters: {query_parameter_name: y, descriptor_key: q}}", direct, "q"},
		{"a missing query parameter", "{query_parameters: {query_parameter_name: z, descriptor_key: q}}",
			direct, "none"},
		{"entries keep the order of the actions",
			"{path: {}}, {remote_address: {}}, {path: {descriptor_key: again}}", direct,
			"path=/a%20b/c,remote_address=10.1.2.3,again=/a%20b/c"},
		{"a query match",
			"{query_parameter_value_match: {descriptor_value: v, query_parameters: [{name: x, " +
				"string_match: {exact: '1'}}]}}", direct, "query_match=v"},
		{"a query match fails",
			"{query_parameter_value_match: {descriptor_value: v, query_parameters: [{name: " +
				"z, present_match: true}]}}", direct, "none"},
	} {
		t.Run(row.name, func(t *testing.T) {
			assert.Equal(t, row.want, described(t, row.actions, request, row.ip))
		})
	}
	for matcher, want := range map[string]bool{
		"{name: x-plan, exact_match: Free}":                                              true,
		"{name: x-plan, exact_match: free}":                                              false,
		"{name: x-plan, string_match: {exact: free, ignore_case: true}}":                 true,
		"{name: x-plan, prefix_match: Fr}":                                               true,
		"{name: x-plan, suffix_match: ee}":                                               true,
		"{name: x-plan, contains_match: re}":                                             true,
		"{name: x-plan, contains_match: go}":                                             false,
		"{name: x-plan, safe_regex_match: {regex: 'F.*'}}":                               true,
		"{name: x-plan, safe_regex_match: {regex: 'F'}}":                                 false,
		"{name: x-plan, string_match: {safe_regex: {regex: 'f.ee'}, ignore_case: true}}": true,
		"{name: x-plan, present_match: true}":                                            true,
		"{name: x-plan, present_match: false}":                                           false,
		"{name: x-no, present_match: false}":                                             true,
		"{name: x-no, exact_match: a}":                                                   false,
		"{name: x-no, exact_match: a, invert_match: true}":                               true,
		"{name: x-plan}": true,
		"{name: x-count, range_match: {start: 7, end: 8}}":   true,
		"{name: x-count, range_match: {start: 0, end: 7}}":   false,
		"{name: x-plan, range_match: {start: 0, end: 9}}":    false,
		"{name: x-count, range_match: {start: -1, end: +8}}": true,
		"{name: x-plan, exact_match: Free}, {name: x-no}":    false,
		"{name: ':method', exact_match: POST}":               true,
	} {
		for expect, opposite := range map[string]bool{"true": false, "false": true} {
			want := want != opposite
			got := described(t, "{header_value_match: {descriptor_value: v, expect_match: "+expect+
				", headers: ["+matcher+"]}}", request, direct)
			assert.Equal(t, want, got == "header_match=v", "%s, expect %s", matcher, expect)
		}
	}
}

func described(t *testing.T, actions string, r *http.Request, ip httplimit.IP) string {
	set := load(t, "domain: d\nrate_limits: [{actions: ["+actions+"]}]\n")
	req := set.RequestOf("d", r, ip)
	assert.Equal(t, "d", req.Domain)
	if len(req.Descriptors) == 0 {
		return "none"
	}
	require.Len(t, req.Descriptors, 1)
	return rules.FormatEntries(req.Descriptors[0].Entries)
}

// TestActionErrors has a row for each mistake in rate_limits.
func TestActionErrors(t *testing.T) {
	for _, row := range []struct{ name, limits, want string }{
		{"no list", "5", "cannot unmarshal 5 into rate_limits; want a list of maps"},
		{"no actions", "[{}]", "r.yaml:2:15: an item of rate_limits has no actions"},
		{"an unknown key", "[{action: []}]", "unknown key 'action'; did you mean 'actions'?"},
		{"an unknown action", "[{actions: [{remote_addressx: {}}]}]",
			"r.yaml:2:27: unknown action 'remote_addressx'; did you mean 'remote_address'?"},
		{"two actions in one map", "[{actions: [{remote_address: {}, path: {}}]}]",
			"want an action, such as remote_address: {}"},
		{"a missing setting", "[{actions: [{request_headers: {header_name: x}}]}]",
			"request_headers has no descriptor_key"},
		{"an unknown setting", "[{actions: [{path: {key: x}}]}]", "unknown key 'key' in path"},
		{"a setting of the wrong type",
			"[{actions: [{masked_remote_address: {v4_prefix_mask_len: 33}}]}]",
			"cannot unmarshal 33 into v4_prefix_mask_len; want a whole number from 0 to 32"},
		{"settings that are not a map", "[{actions: [{path: x}]}]",
			"cannot unmarshal x into path; want a map"},
		{"a bad regular expression",
			"[{actions: [{header_value_match: {descriptor_value: v, headers: [{name: " +
				"x, safe_regex_match: {regex: '('}}]}}]}]", "error parsing regexp"},
		{"a bad range",
			"[{actions: [{remote_address_match: {descriptor_value: v, address_matcher: {ranges: " +
				"[{address_prefix: x}]}}}]}]", `unable to parse IP`},
		{"no headers", "[{actions: [{header_value_match: {descriptor_value: v}}]}]",
			"header_value_match has no headers"},
		{"an empty string_match",
			"[{actions: [{header_value_match: {descriptor_value: v, headers: [{name: x, " +
				"string_match: {}}]}}]}]", "string_match has nothing to match"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := rules.Load(files("r.yaml", "domain: d\nrate_limits: "+row.limits+"\n"))
			assert.ErrorContains(t, err, row.want)
		})
	}
}

// TestRateLimitsAreASecondDocument uses the layout that Envoy's service loads too, since it ignores
// later documents.
func TestRateLimitsAreASecondDocument(t *testing.T) {
	first := "domain: d\n" +
		"descriptors: [{key: remote_address, rate_limit: {unit: day, requests_per_unit: 1}}]\n"
	second := "domain: d\nrate_limits: [{hits_addend: {number: 3}, actions: [{remote_address: {}}]}]\n"
	for _, text := range []string{first + "---\n" + second, second + "---\n" + first} {
		set, found := (&rules.Loader{Envoy: true}).Check(files("r.yaml", text))
		require.NotNil(t, set)
		assert.Equal(t, strings.HasPrefix(text, second), len(found) > 0, "%v", found)
		assert.Equal(t, 1, set.Len())
		d := set.Describers("d")
		require.Len(t, d, 1)
		assert.True(t, d[0].HasHits)
		assert.EqualValues(t, 3, d[0].Hits)

		rewritten(t, set)
		assert.NotEmpty(t, set.Diff(load(t, first)))
	}
	_, err := rules.Load(files("r.yaml", second+"---\n"+second))
	assert.ErrorContains(t, err, "domain 'd' has rate_limits already, in r.yaml, line 2")
}

// TestExplainRequestMakesTheSameDescriptors compares the descriptors of an explanation with those
// that the engine is asked about, and checks the actions of those that are missing.
func TestExplainRequestMakesTheSameDescriptors(t *testing.T) {
	set := load(t, `
domain: d
rate_limits:
  - actions: [{remote_address: {}}, {path: {}}]
  - {actions: [{path: {}}, {request_headers: {header_name: plan, descriptor_key: plan}}], hits_addend: {number: 3}}
  - actions: [{request_headers: {header_name: plan, descriptor_key: plan, skip_if_absent: true}}]
`)
	for _, row := range []struct {
		plan string
		want []string
	}{
		{"", []string{"remote_address, path: remote_address=192.0.2.1,path=/a",
			"path, request_headers: no descriptor, since the request lacks what request_headers needs",
			"request_headers: no descriptor, since the request lacks what each action needs"}},
		{"free", []string{"remote_address, path: remote_address=192.0.2.1,path=/a",
			"path, request_headers: path=/a,plan=free", "request_headers: plan=free"}},
	} {
		r := httptest.NewRequest("GET", "/a?x=1", nil)
		if row.plan != "" {
			r.Header.Set("Plan", row.plan)
		}
		made, lines := set.ExplainRequest("d", r, httplimit.RemoteAddr())
		require.Equal(t, row.want, lines)
		require.Equal(t, set.RequestOf("d", r, httplimit.RemoteAddr()), made)
	}
	_, lines := set.ExplainRequest("other", httptest.NewRequest("GET", "/", nil), httplimit.RemoteAddr())
	require.Empty(t, lines)
}
