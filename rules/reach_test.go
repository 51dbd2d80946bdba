package rules_test

import (
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/rules"
)

// webRules returns a file with descriptors, and rate_limits with lists of actions.
func webRules(descriptors string, actions ...string) string {
	text := "domain: d\ndescriptors:\n" + descriptors + "rate_limits:\n"
	for _, a := range actions {
		text += "  - actions: [" + a + "]\n"
	}
	return text
}

const (
	address = "{remote_address: {}}"
	user    = "{context_value: {name: user}}"
)

// plan returns an action with a constant value.
func plan(value string) string {
	return "{generic_key: {descriptor_key: plan, descriptor_value: " + value + "}}"
}

// TestRulesThatNothingReaches has a row for each way to write rules that no descriptor of the
// rate_limits matches, and rate_limits whose descriptors no rule matches.
func TestRulesThatNothingReaches(t *testing.T) {
	for _, row := range []struct {
		name, file string
		want       []string
	}{
		{"a key with a slip, in the only rule",
			webRules("  - {key: remote_adress, "+rateLimit+"}\n", address), []string{
				"r.yaml:3:5: warning: unreachable: no descriptor of rate_limits has the key 'remote_adress' " +
					"here; did you mean 'remote_address'?",
				"r.yaml:5:5: warning: no rule matches what these actions describe: remote_address: " +
					"no descriptor with this key; did you mean 'remote_adress'?",
			}},
		{"a key that no action makes, below one that is made",
			webRules("  - {key: plan, value: free, descriptors: [{key: usr, "+rateLimit+"}]}\n",
				plan("free")+", "+user), []string{
				"r.yaml:3:44: warning: unreachable: no descriptor of rate_limits has the key 'usr' here; did " +
					"you mean 'user'?",
				"r.yaml:5:5: warning: no rule matches what these actions describe: plan=free,user: no " +
					"descriptor with this key; did you mean 'usr'?",
			}},
		{"many values of a key that no action makes: one warning",
			webRules("  - {key: usr, value: a, "+rateLimit+"}\n  - {key: usr, value: b, "+rateLimit+
				"}\n  - {key: remote_address, "+rateLimit+"}\n", address), []string{"r.yaml:3:5: "}},
		{"an action whose key no rule has",
			webRules("  - {key: remote_address, "+rateLimit+"}\n", address, user), []string{
				"r.yaml:6:5: warning: no rule matches what these actions describe: user: no descriptor with " +
					"this key",
			}},
		{"a constant that no rule has, and a rule for another",
			webRules("  - {key: plan, value: free, "+rateLimit+"}\n", plan("fre")), []string{
				"r.yaml:3:5: warning: unreachable: no descriptor of rate_limits has a value of 'plan' for it; " +
					"did you mean 'fre'?",
				"r.yaml:5:5: warning: no rule matches what these actions describe: plan=fre: no match among " +
					"the 1 value of this key",
			}},
		{"any value, where each constant has a rule of its own",
			webRules("  - {key: plan, value: free, "+rateLimit+"}\n  - {key: plan, "+rateLimit+"}\n",
				plan("free")), []string{"r.yaml:4:5: warning: unreachable: no descriptor of rate_limits has a"}},
		{"the entries in another order",
			webRules("  - {key: user, descriptors: [{key: remote_address, "+rateLimit+"}]}\n",
				address+", "+user), []string{
				"3:5: warning: unreachable: no descriptor of rate_limits has the key 'user'",
				"5:5: warning: no rule matches what these actions describe: remote_address: no descriptor"}},
		{"a limit above the last entry",
			webRules("  - {key: user, "+rateLimit+", descriptors: [{key: remote_address, "+rateLimit+"}]}\n",
				user+", "+address), []string{
				"r.yaml:3:17: warning: unreachable: no descriptor of rate_limits ends here"}},
		{"a limit below the last entry",
			webRules("  - {key: user, descriptors: [{key: remote_address, "+rateLimit+"}]}\n", user), []string{
				"r.yaml:3:31: warning: unreachable: no descriptor of rate_limits has the key 'remote_address'",
				"r.yaml:5:5: warning: no rule matches what these actions describe: user: the descriptor ends " +
					"here, and only those below have a rate_limit",
			}},
		{"more entries than a rule has",
			webRules("  - {key: user, "+rateLimit+"}\n", user+", "+address), []string{
				"r.yaml:3:17: warning: unreachable: no descriptor of rate_limits ends here",
				"r.yaml:5:5: warning: no rule matches what these actions describe: user,remote_address: no " +
					"descriptors below: the rule is not as deep as the request",
			}},
		{"rate_limits without descriptors", "domain: d\nrate_limits: [{actions: [" + address + "]}]\n",
			[]string{"r.yaml:2:1: warning: the rate_limits limit nothing: domain 'd' has no descriptors"}},
		{"rate_limits with none", "domain: d\ndescriptors: [{key: k, " + rateLimit + "}]\nrate_limits: []\n",
			[]string{"r.yaml:2:15: warning: unreachable: no descriptor of rate_limits has the key 'k' here\n"}},

		{"no rate_limits: descriptors are made elsewhere", in("{key: remote_adress, " + rateLimit + "}"), nil},
		{"another domain has rate_limits", webRules("  - {key: remote_address, "+rateLimit+"}\n", address) +
			"---\ndomain: e\ndescriptors: [{key: remote_adress, " + rateLimit + "}]\n", nil},
		{"rate_limits in another document", "domain: d\nrate_limits: [{actions: [" + address + "]}]\n---\n" +
			in("{key: remote_address, "+rateLimit+"}"), nil},
		{"an entry that is skipped", webRules("  - {key: a, "+rateLimit+", descriptors: [{key: b, "+rateLimit+
			"}]}\n  - {key: b, "+rateLimit+"}\n",
			"{request_headers: {header_name: a, descriptor_key: a, skip_if_absent: true}}, "+
				"{request_headers: {header_name: b, descriptor_key: b, skip_if_absent: true}}"), nil},
		{"a constant that a wildcard matches", webRules("  - {key: plan, value: 'f*', "+rateLimit+"}\n",
			plan("free")), nil},
		{"a value that always passes", webRules("  - {key: plan, value: vip}\n  - {key: plan, "+rateLimit+
			"}\n", plan("vip"), plan("free")), nil},
		{"a mistake elsewhere", webRules("  - {key: remote_address, "+rateLimit+"}\n", "{remote_addres: {}}"),
			[]string{"r.yaml:5:16: unknown action"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, found := (&rules.Loader{}).Check(files("r.yaml", row.file))
			if assert.Len(t, found, len(row.want), "%v", found) {
				for i, p := range found {
					assert.Contains(t, p.Error()+"\n", row.want[i])
				}
			}
		})
	}
}

// A domain none of whose rules is reached limits nothing, whatever the others are.
func TestADomainThatLimitsNothing(t *testing.T) {
	other := "---\ndomain: e\ndescriptors: [{key: k, " + rateLimit + "}]\n"
	for _, row := range []struct {
		name, file string
		want       bool
	}{
		{"a misspelled key", webRules("  - {key: remote_adress, "+rateLimit+"}\n", address), true},
		{"another domain counts", webRules("  - {key: remote_adress, "+rateLimit+"}\n", address) + other, true},
		{"one of two keys", webRules("  - {key: usr, "+rateLimit+"}\n  - {key: remote_address, "+rateLimit+"}\n",
			address), false},
		{"no descriptors", "domain: d\nrate_limits: [{actions: [" + address + "]}]\n", true},
		{"no rate_limits: descriptors are made elsewhere", in("{key: remote_adress, " + rateLimit + "}"), false},
		{"no rate_limit", "domain: d\ndescriptors: [{key: k}]\n", true},
		{"none is meant", "domain: d\ndescriptors: []\n", false},
		{"a limit above the last entry", webRules("  - {key: user, "+rateLimit+", descriptors: [{key: remote_address}]}\n",
			user+", "+address), true},
	} {
		_, found := (&rules.Loader{}).Check(files("r.yaml", row.file))
		nothing := false
		for _, p := range found {
			assert.True(t, p.Warning, p)
			nothing = nothing || p.LimitsNothing
		}
		assert.Equal(t, row.want, nothing, row.name)
	}
}

// randomRules are rules in a file, with one descriptor on each line, and rate_limits after them.
type randomRules struct {
	*rand.Rand
	text  strings.Builder
	lines []randomLine // of the file, from line 1 on
}

type randomLine struct {
	above int // the line of the descriptor above; 0 at the top
	key   string
}

func (r *randomRules) one(of ...string) string { return of[r.IntN(len(of))] }

func (r *randomRules) line(above int, key, text string) {
	r.lines = append(r.lines, randomLine{above, key})
	r.text.WriteString(text + "\n")
}

func (r *randomRules) level(above, depth int) {
	had := make(map[string]bool)
	for range 1 + r.IntN(3) {
		key, value := r.one("a", "b"), r.one("", "x", "y", "'x*'", "'*'")
		if had[key+value] {
			continue
		}
		had[key+value] = true
		text := "{key: " + key + ", value: " + value
		if r.IntN(2) == 0 {
			text += ", " + rateLimit
		}
		if depth == 3 || r.IntN(2) == 0 {
			r.line(above, key, text+"},")
			continue
		}
		r.line(above, key, text+", descriptors: [")
		r.level(len(r.lines), depth+1)
		r.line(0, "", "]},")
	}
}

func newRandomRules(seed uint64) *randomRules {
	r := &randomRules{Rand: rand.New(rand.NewPCG(seed, 0))}
	r.line(0, "", "{domain: d, descriptors: [")
	r.level(0, 1)
	r.line(0, "", "], rate_limits: [")
	for range 1 + r.IntN(3) {
		item := "{actions: ["
		for header := range 1 + r.IntN(3) {
			if key := r.one("a", "b"); r.IntN(3) == 0 {
				item += fmt.Sprintf("{generic_key: {descriptor_key: %s, descriptor_value: %s}}, ", key,
					r.one("x", "y", "xz"))
			} else {
				item += fmt.Sprintf("{request_headers: {header_name: h%d, descriptor_key: %s, skip_if_absent: %v}}, ",
					header, key, r.IntN(2) == 0)
			}
		}
		r.line(0, "item", item+"]},")
	}
	r.line(0, "", "]}")
	return r
}

// excused reports whether a warning says why no request reaches the descriptor at a line: one of it
// or of the descriptors above it, or of the first of those beside them with the same key.
func (r *randomRules) excused(line int, warned map[int]bool) bool {
	for ; line > 0; line = r.lines[line-1].above {
		for i, beside := range r.lines {
			if beside == r.lines[line-1] && warned[i+1] {
				return true
			}
		}
	}
	return false
}

// TestReachIsThatOfRequests compares the warnings with the rules that requests reach, by requests
// with each combination of the values that the rules tell apart.
func TestReachIsThatOfRequests(t *testing.T) {
	unreached := 0
	for seed := range uint64(slow.N(200, 2000, 50_000)) {
		random := newRandomRules(seed)
		text := random.text.String()
		set := load(t, text)
		reached, limits := make(map[*rules.Rule]bool), make(map[int]bool)
		values := []string{"", "x", "xz", "y", "q"} // "": no header
		for i := range len(values) * len(values) * len(values) {
			req := httptest.NewRequest("GET", "/", nil)
			for _, name := range []string{"h0", "h1", "h2"} {
				if v := values[i%len(values)]; v != "" {
					req.Header.Set(name, v)
				}
				i /= len(values)
			}
			made, lines := set.ExplainRequest("d", req, httplimit.RemoteAddr())
			for n, line := range lines {
				if strings.Contains(line, ": no descriptor") {
					continue
				}
				entries := made.Descriptors[0].Entries
				made.Descriptors = made.Descriptors[1:]
				rule := set.Match("d", entries)
				reached[rule] = true
				limits[n] = limits[n] || rule != nil ||
					strings.Contains(set.Explain("d", entries), "always passes")
			}
		}
		warned := make(map[int]bool)
		for _, p := range set.Warnings() {
			warned[p.Line] = true
		}
		item := 0
		for i, line := range random.lines {
			if line.key == "item" {
				require.Equal(t, limits[item], !warned[i+1], "line %d of\n%s%v", i+1, text, set.Warnings())
				item++
			}
		}
		for r := range set.All() {
			if !reached[r] {
				unreached++
				require.True(t, random.excused(r.Line, warned), "%s is not reached:\n%s%v", r.Path, text,
					set.Warnings())
				continue
			}
			require.False(t, warned[r.Line], "%s is reached:\n%s%v", r.Path, text, set.Warnings())
		}
	}
	assert.Positive(t, unreached)
}
