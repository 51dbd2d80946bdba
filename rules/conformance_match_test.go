package rules_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/rules"
)

// tree is rules below domain d, one a line: indentation is depth, a trailing ! is a rate_limit. The
// rule's name is the line.
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

// TestMatch has a row for each property of the matching of Envoy's service.
func TestMatch(t *testing.T) {
	for _, row := range []struct {
		name    string
		rules   []string
		request string
		want    string // the rule's path; "" for none
	}{
		{"an exact value", []string{"k=v!"}, "k=v", "k=v"},
		{"another value has no limit", []string{"k=v!"}, "k=w", ""},
		{"a key without a value takes every value", []string{"k!"}, "k=v", "k"},
		{"a key without a value takes the empty value", []string{"k!"}, "k", "k"},
		{"the exact value precedes the key only", []string{"k!", "k=v!"}, "k=v", "k=v"},
		{"the exact value precedes an earlier wildcard", []string{"k=v*!", "k=vw!"}, "k=vw", "k=vw"},
		{"a wildcard precedes an earlier key only", []string{"k!", "k=v*!"}, "k=vw", "k=v*"},
		{"the key only takes what no wildcard does", []string{"k=v*!", "k!"}, "k=w", "k"},
		{"the first wildcard in the file wins, not the longest", []string{"k=v*!", "k=*xyz!"}, "k=vxyz", "k=v*"},
		{"and not the most specific", []string{"k=*!", "k=vxy*!"}, "k=vxyz", "k=*"},
		{"a wildcard stands for nothing, too", []string{"k=v*!"}, "k=v", "k=v*"},
		{"a wildcard at the front", []string{"k=*v!"}, "k=wv", "k=*v"},
		{"a wildcard in the middle", []string{"k=a*z!"}, "k=abcz", "k=a*z"},
		{"several wildcards", []string{"k=a*m*z!"}, "k=a12m34z", "k=a*m*z"},
		{"their parts come in order", []string{"k=a*m*n*z!"}, "k=anmz", ""},
		{"and do not overlap", []string{"k=ab*ba!"}, "k=aba", ""},
		{"nor do parts in the middle", []string{"k=*aba*ab*!"}, "k=aba", ""},
		{"wildcards beside each other are one", []string{"k=a**z!"}, "k=az", "k=a**z"},
		{"a wildcard takes the empty value", []string{"k=*!"}, "k", "k=*"},
		{"a wildcard with text does not", []string{"k=a*!"}, "k", ""},
		{"a value that is a pattern's text is that pattern, exactly", []string{"k=*!", "k=a*!"}, "k=a*", "k=a*"},
		{"values are compared case by case", []string{"k=v!"}, "k=V", ""},
		{"keys too", []string{"k!"}, "K=v", ""},

		{"a child", []string{"k=v", " l=w!"}, "k=v,l=w", "k=v,l=w"},
		{"a request shallower than the rule has no limit", []string{"k=v", " l=w!"}, "k=v", ""},
		{"a request deeper than the rule has none", []string{"k=v!"}, "k=v,l=w", ""},
		{"a limit on the parent is for requests that end there", []string{"k=v!", " l=w!"}, "k=v", "k=v"},
		{"and for no others", []string{"k=v!", " l=w!"}, "k=v,l=x", ""},
		{"order matters", []string{"k=v", " l=w!"}, "l=w,k=v", ""},
		{"a subset does not match", []string{"k=v", " l=w!"}, "k=v,x=y,l=w", ""},
		{"no backtracking from an exact value to the key only", []string{"k=v", " l=w!", "k", " m!"}, "k=v,m=1", ""},
		{"no backtracking from a wildcard", []string{"k=v*", " l!", "k", " m!"}, "k=vw,m=1", ""},
		{"a value without a limit is whitelisted", []string{"k=v", "k!"}, "k=v", ""},
		{"a wildcard without a limit is whitelisted", []string{"k=v*", "k!"}, "k=vw", ""},
		{"a wildcard above", []string{"k=v*", " l!"}, "k=vw,l=x", "k=v*,l"},
		{"the same key at two levels", []string{"k", " k=v!"}, "k=u,k=v", "k,k=v"},
		{"no entries have no limit", []string{"k!"}, "", ""},

		// Where Envoy's service compares joined texts, weir compares keys and values.
		{"key a_b with value c is not key a with value b_c", []string{"a_b=c!"}, "a=b_c", ""},
		{"a key k_v does not serve key k with value v", []string{"k_v!"}, "k=v", ""},
		{"an asterisk in a key is one", []string{"k*!"}, "kx=v", ""},
		{"a wildcard of one key does not serve another", []string{"k=a*!"}, "k_ab=c", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			set := tree(t, row.rules...)
			request := entries(t, row.request)
			got := ""
			if r := set.Match("d", request); r != nil {
				got = r.Path
			}
			assert.Equal(t, row.want, got)
			assert.Nil(t, set.Match("e", request), "of an unknown domain")
			if x := set.Explain("d", request); assert.NotEmpty(t, x.Verdict) {
				assert.Equal(t, set.Match("d", request), x.Rule, "explain")
			}
		})
	}
}

// TestManyWildcards compares the index that many wildcards of one key have with trying one by one.
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
