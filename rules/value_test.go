package rules_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/rules"
)

const forms = `
domain: d
descriptors:
  - {key: k, value: 10.0.0.1, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: k, value: {cidr: 10.0.0.0/24}, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: k, value: {cidr: 10.0.0.0/8}, share_threshold: true, rate_limit: {unit: year, requests_per_unit: 3}}
  - {key: k, value: {cidr: "2001:db8::/32"}, rate_limit: {unit: year, requests_per_unit: 4}}
  - {key: k, value: {cidr: 192.0.2.7}, rate_limit: {unit: year, requests_per_unit: 5}}
  - {key: k, value: {prefix: "a*"}, rate_limit: {unit: year, requests_per_unit: 6}}
  - {key: k, value: "a*", rate_limit: {unit: year, requests_per_unit: 7}}
  - {key: k, rate_limit: {unit: year, requests_per_unit: 8}}
`

// TestValueForms matches values by ranges of addresses and by prefixes, before and after the rules
// are written and loaded again.
func TestValueForms(t *testing.T) {
	set := load(t, forms)
	for _, set := range []*rules.Set{set, rewritten(t, set)} {
		for value, want := range map[string]uint32{
			"10.0.0.1": 1, "10.0.0.2": 2, "::ffff:10.0.0.2": 2, "10.0.0.0/24": 2, "10.0.0.128/25": 2,
			"10.0.0.0/23":    3,
			"10.255.255.255": 3, "11.0.0.0": 8, "10.0.0.0/7": 8, "2001:db8::1": 4, "2001:db8:1::/48": 4,
			"fe80::1%eth0": 8, "2001:db9::": 8, "192.0.2.7": 5, "192.0.2.8": 8, "a*": 7, "a*b": 6, "ab": 7,
			"":                  8,
			"{cidr:10.0.0.0/8}": 8, "{prefix:a*}": 8, "10.0.0": 8, "10.0.0.1/x": 8,
		} {
			r := set.Match("d", []rules.Entry{{Key: "k", Value: value}})
			require.NotNil(t, r, value)
			assert.Equal(t, want, r.Limit.Requests, value)
		}
	}
	x := set.Explain("d", []rules.Entry{{Key: "k", Value: "10.9.9.9"}})
	assert.Contains(t, x,
		"k=10.9.9.9 -> k={cidr:10.0.0.0/8} (r.yaml:6): first CIDR in the file that matches")
	assert.Contains(t, x, "values of the wildcard share a counter")
}

// TestRangesShareACounter counts two addresses of a range together, since it has share_threshold,
// and two of another apart.
func TestRangesShareACounter(t *testing.T) {
	w := newWorld(t, forms, rules.Config{})
	for i, value := range []string{"10.1.0.1", "10.1.0.2", "10.1.0.3"} {
		assert.EqualValues(t, 2-i, w.ask(w.hit("k=" + value)).Statuses[0].Remaining)
	}
	assert.Equal(t, over, w.ask(w.hit("k=10.1.0.4")).Code())
	for _, value := range []string{"10.0.0.2", "10.0.0.3"} {
		assert.EqualValues(t, 1, w.ask(w.hit("k=" + value)).Statuses[0].Remaining)
	}
}

// TestManyRanges compares the rules of random addresses with those of a search through all ranges.
func TestManyRanges(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	address := func() netip.Addr { // few bits vary, so that ranges contain each other
		return netip.AddrFrom4([4]byte{10, byte(random.IntN(2)), byte(random.IntN(4)),
			byte(random.IntN(256))})
	}
	var list []netip.Prefix
	text := "domain: d\ndescriptors:\n"
	for seen := map[netip.Prefix]bool{}; len(list) < 300; {
		p, err := address().Prefix(8 + random.IntN(25))
		require.NoError(t, err)
		if !seen[p] {
			seen[p] = true
			list = append(list, p)
			text += fmt.Sprintf(
				"  - {key: k, value: {cidr: %s}, rate_limit: {unit: day, requests_per_unit: 1, name: %q}}\n", p,
				p,
			)
		}
	}
	set := load(t, text)
	matched := 0
	for range 10_000 {
		at := address()
		want := ""
		for _, p := range list {
			if p.Contains(at) {
				want = p.String()
				matched++
				break
			}
		}
		got := ""
		if r := set.Match("d", []rules.Entry{{Key: "k", Value: at.String()}}); r != nil {
			got = r.Limit.Name
		}
		require.Equal(t, want, got, at)
	}
	assert.Positive(t, matched)
}

// TestValueWarnings: a range behind a wider one is unreachable, and neither form is portable.
func TestValueWarnings(t *testing.T) {
	const limit = "rate_limit: {unit: day, requests_per_unit: 1}}\n"
	text := "domain: d\ndescriptors:\n  - {key: k, value: {cidr: 10.0.0.0/8}, " + limit +
		"  - {key: k, value: {cidr: 10.1.0.0/16}, " + limit + "  - {key: k, value: {cidr: 11.0.0.0/8}, " +
		limit +
		"  - {key: k, value: 'a*', " + limit + "  - {key: k, value: {prefix: ab}, " + limit
	_, found := (&rules.Loader{Envoy: true}).Check(fstest.MapFS{"r.yaml": {Data: []byte(text)}})
	var all []string
	for _, p := range found {
		all = append(all, p.Error())
	}
	lines := strings.Join(all, "\n")
	assert.Equal(t, 4, strings.Count(lines, "not portable: Envoy's service refuses a map as a value"),
		lines)
	assert.Contains(t, lines,
		"r.yaml:4:5: warning: unreachable: k={cidr:10.0.0.0/8} at line 3 comes first")
	assert.Contains(t, lines, "r.yaml:7:5: warning: unreachable: k=a* at line 6 comes first")
	assert.Equal(t, 2, strings.Count(lines, "unreachable"), lines)
}

// TestDiffOfRanges: exchanging two ranges matters if one contains the other.
func TestDiffOfRanges(t *testing.T) {
	rule := func(cidr string) string {
		return "  - {key: k, value: {cidr: " + cidr +
			"}, rate_limit: {unit: day, requests_per_unit: 1}}\n"
	}
	diff := func(a, b string) int {
		const top = "domain: d\ndescriptors:\n"
		return len(load(t, top+rule(a)+rule(b)).Diff(load(t, top+rule(b)+rule(a))))
	}
	assert.Equal(t, 1, diff("10.1.0.0/16", "10.0.0.0/8"))
	assert.Zero(t, diff("10.1.0.0/16", "10.2.0.0/16"))
}
