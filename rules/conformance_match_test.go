package rules_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/rules"
)

// tree returns rules in domain d, one per line: the indentation is the depth, and a trailing ! adds
// a rate_limit.
func tree(t testing.TB, lines ...string) *rules.Set {
	t.Helper()
	text := "domain: d\ndescriptors:\n"
	depth := 0
	for _, line := range lines {
		indent := 0
		for line[indent] == ' ' {
			indent++
		}
		if indent > depth {
			text += pad(indent) + "descriptors:\n"
		}
		depth = indent
		body, limited := line[indent:], false
		if body[len(body)-1] == '!' {
			body, limited = body[:len(body)-1], true
		}
		e := entries(t, body)[0]
		text += pad(indent) + "- key: " + quote(e.Key) + "\n"
		if e.Value != "" {
			text += pad(indent) + "  value: " + quote(e.Value) + "\n"
		}
		if limited {
			text += pad(indent) + "  rate_limit: {unit: hour, requests_per_unit: 1}\n"
		}
	}
	return load(t, text)
}

func pad(n int) string { return "                    "[:2*n] }

func quote(s string) string { return "'" + s + "'" }

// TestMatch has a row for each property of matching in Envoy's service.
func TestMatch(t *testing.T) {
	for _, row := range []struct {
		name    string
		rules   []string
		request string
		want    string // the rule's path; "" for none
	}{
		{"an exact value", []string{"k=v!"}, "k=v", "k=v"},
		{"another value has no limit", []string{"k=v!"}, "k=w", ""},
		{"a key without a value matches every value", []string{"k!"}, "k=v", "k"},
		{"a key without a value matches the empty value", []string{"k!"}, "k", "k"},
		{"an exact value beats a key without a value", []string{"k!", "k=v!"}, "k=v", "k=v"},
		{"an exact value beats an earlier wildcard", []string{"k=v*!", "k=vw!"}, "k=vw", "k=vw"},
		{"a wildcard beats an earlier key without a value", []string{"k!", "k=v*!"}, "k=vw", "k=v*"},
		{"a key without a value matches if no wildcard does", []string{"k=v*!", "k!"}, "k=w", "k"},
		{"the first wildcard in the file wins, not the longest", []string{"k=v*!", "k=*xyz!"}, "k=vxyz",
			"k=v*"},
		{"the first wildcard in the file wins, not the most specific", []string{"k=*!", "k=vxy*!"},
			"k=vxyz", "k=*"},
		{"a wildcard matches the empty text", []string{"k=v*!"}, "k=v", "k=v*"},
		{"a wildcard at the front", []string{"k=*v!"}, "k=wv", "k=*v"},
		{"a wildcard in the middle", []string{"k=a*z!"}, "k=abcz", "k=a*z"},
		{"several wildcards", []string{"k=a*m*z!"}, "k=a12m34z", "k=a*m*z"},
		{"the parts of a pattern must be in order", []string{"k=a*m*n*z!"}, "k=anmz", ""},
		{"the prefix and the suffix do not overlap", []string{"k=ab*ba!"}, "k=aba", ""},
		{"parts in the middle do not overlap", []string{"k=*aba*ab*!"}, "k=aba", ""},
		{"adjacent wildcards act as one", []string{"k=a**z!"}, "k=az", "k=a**z"},
		{"a wildcard alone matches the empty value", []string{"k=*!"}, "k", "k=*"},
		{"a wildcard with text does not match the empty value", []string{"k=a*!"}, "k", ""},
		{"a value equal to a pattern's text matches that pattern", []string{"k=*!", "k=a*!"}, "k=a*",
			"k=a*"},
		{"values are case-sensitive", []string{"k=v!"}, "k=V", ""},
		{"keys are case-sensitive", []string{"k!"}, "K=v", ""},

		{"a child", []string{"k=v", " l=w!"}, "k=v,l=w", "k=v,l=w"},
		{"a request shallower than the rule has no limit", []string{"k=v", " l=w!"}, "k=v", ""},
		{"a request deeper than the rule has no limit", []string{"k=v!"}, "k=v,l=w", ""},
		{"a limit on the parent applies to requests that end there", []string{"k=v!", " l=w!"}, "k=v",
			"k=v"},
		{"a limit on the parent does not apply to other requests", []string{"k=v!", " l=w!"}, "k=v,l=x",
			""},
		{"order matters", []string{"k=v", " l=w!"}, "l=w,k=v", ""},
		{"a subset does not match", []string{"k=v", " l=w!"}, "k=v,x=y,l=w", ""},
		{"no backtracking from an exact value", []string{"k=v", " l=w!", "k", " m!"}, "k=v,m=1", ""},
		{"no backtracking from a wildcard", []string{"k=v*", " l!", "k", " m!"}, "k=vw,m=1", ""},
		{"a value without a limit is whitelisted", []string{"k=v", "k!"}, "k=v", ""},
		{"a wildcard without a limit is whitelisted", []string{"k=v*", "k!"}, "k=vw", ""},
		{"a wildcard above", []string{"k=v*", " l!"}, "k=vw,l=x", "k=v*,l"},
		{"the same key at two levels", []string{"k", " k=v!"}, "k=u,k=v", "k,k=v"},
		{"a request without entries has no limit", []string{"k!"}, "", ""},

		// Envoy's service compares joined texts here; weir compares keys and values.
		{"key a_b with value c is not key a with value b_c", []string{"a_b=c!"}, "a=b_c", ""},
		{"key k_v does not match key k with value v", []string{"k_v!"}, "k=v", ""},
		{"an asterisk in a key is literal", []string{"k*!"}, "kx=v", ""},
		{"a wildcard does not match another key", []string{"k=a*!"}, "k_ab=c", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			set := tree(t, row.rules...)
			request := entries(t, row.request)
			got := ""
			if r := set.Match("d", request); r != nil {
				got = r.Path
			}
			assert.Equal(t, row.want, got)
			assert.Nil(t, set.Match("e", request), "an unknown domain")
			assertExplains(t, set, "d", request)
		})
	}
}

// TestManyWildcards compares the index for many wildcards of one key with trying them one by one.
func TestManyWildcards(t *testing.T) {
	var many, values []string
	for _, a := range []string{"", "a", "b", "ab", "ba", "abc"} {
		for _, b := range []string{"", "a", "b", "bb"} {
			for _, c := range []string{"", "a", "cb", "bca"} {
				many = append(many, "k="+a+"*"+b+"*"+c+"!")
				values = append(values, a+b+c, a+"x"+b+c, "b"+a+b+"yy"+c+"a", c+b+a)
			}
		}
	}
	set := tree(t, many...)
	for _, v := range values {
		if v == "" {
			continue
		}
		want := ""
		for _, line := range many {
			one := tree(t, line)
			if one.Match("d", []rules.Entry{{Key: "k", Value: v}}) != nil {
				want = line[:len(line)-1]
				break
			}
		}
		assert.Equal(t, want, set.Match("d", []rules.Entry{{Key: "k", Value: v}}).Path, v)
	}
}
