package rules_test

import (
	"context"
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/rules"
)

// FuzzLoad loads arbitrary text. Problems must have a position. Rules that load are written and
// loaded again, which must give equal rules.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(house))
	f.Add([]byte("domain: d\n---\ndomain: e\ndescriptors: [{key: a, value: '*'}]\n"))
	f.Add([]byte("domain: d\ndescriptors: &x\n  - key: k\n    descriptors: *x\n"))
	f.Add(
		[]byte(
			"domain: d\ndescriptors: [{key: a, value: {cidr: '::ffff:10.0.0.0/104'}}, {key: a, value: " +
				"{prefix: 'x*'}}]\n",
		),
	)
	f.Add([]byte("domain: d\n<<: &x {<<: *x}\n0.25: x\n"))
	f.Add([]byte(in("{key: k, metadata: {a: [1, .inf, ~, 2020-01-01], weir: {algorithm: " +
		"token_bucket, burst: 5}}, " + rateLimit + "}")))
	f.Add([]byte("domain: d\ndescriptors:\n  - key: a\n   value: b\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		set, found := (&rules.Loader{Envoy: true, MergeDomains: true}).Check(files("r.yaml",
			string(data)))
		for _, p := range found {
			require.True(t, p.Line > 0 && p.Column > 0 && p.Message != "" && p.File == "r.yaml", "%+v", p)
			require.False(t, set != nil && !p.Warning, "%+v", p)
		}
		if set == nil {
			return
		}
		require.Equal(t, set.Domains(), rewritten(t, set).Domains())
		for r := range set.All() {
			path, err := rules.ParseEntries(r.Path)
			require.NoError(t, err)
			require.Equal(t, r.Path, rules.FormatEntries(path))
		}
	})
}

// FuzzMatch matches arbitrary descriptors. Match and Explain must agree.
func FuzzMatch(f *testing.F) {
	f.Add([]byte(house), "d", "ten=x,user=u")
	f.Add([]byte(house), "d", `sharedabove="a\xff",user`)
	f.Add([]byte("domain: d\ndescriptors: [{key: k, value: 'a*b*c'}, {key: k, value: '*', "+rateLimit+
		"}]\n"), "d", "k=abc")
	f.Fuzz(func(t *testing.T, data []byte, domain, descriptor string) {
		set, _ := (&rules.Loader{MergeDomains: true}).Check(files("r.yaml", string(data)))
		path, err := rules.ParseEntries(descriptor)
		if set == nil || err != nil {
			return
		}
		r := set.Match(domain, path)
		assertExplains(t, set, domain, path)
		if r != nil {
			require.Equal(t, domain, r.Domain)
		}
	})
}

// FuzzDecide decides twice on an arbitrary request. The engine must answer or fail, and no count
// may go down unless the request gives hits back.
func FuzzDecide(f *testing.F) {
	f.Add([]byte(`{"Domain": "d", "Hits": 2, "Descriptors": [{"Entries": [{"Key": "ten", "Value": ` +
		`"x"}]}, ` +
		`{"Entries": [{"Key": "one", "Value": "x"}], "HasHits": true, "Hits": 18446744073709551615}]}`))
	f.Add([]byte(`{"Domain": "d", "Descriptors": [{"Override": {"Unit": 0}}, {}, {"Entries": [{}], ` +
		`"Override": ` +
		`{"Unit": 5, "Multiplier": 4294967295}}]}`))
	f.Add([]byte(`{"Domain": "d", "Descriptors": [{"Entries": [{"Key": "bucket"}], "HasHits": ` +
		`true, "Hits": 9, ` +
		`"GiveBack": true}, {"Entries": [{"Key": "later"}], "HasHits": true}]}`))
	set := load(f, house)
	f.Fuzz(func(t *testing.T, data []byte) {
		req := new(rules.Request)
		if json.Unmarshal(data, req) != nil {
			return
		}
		engine, err := rules.New(set, rules.Config{})
		require.NoError(t, err)
		defer engine.Close()
		first, err := engine.Decide(context.Background(), req)
		if err != nil {
			return
		}
		require.NoError(t, first.Lost)
		second, err := engine.Decide(context.Background(), req)
		require.NoError(t, err)
		require.Len(t, second.Statuses, len(req.Descriptors))
		gives := slices.ContainsFunc(req.Descriptors, func(d rules.Descriptor) bool { return d.GiveBack })
		for i, s := range second.Statuses {
			require.Equal(t, s.Limit == nil, first.Statuses[i].Limit == nil)
			if !gives && s.Limit != nil && s.Limit.Unit >= rules.Day { // no such window ends during the test
				require.LessOrEqual(t, s.Remaining, first.Statuses[i].Remaining)
			}
		}
	})
}

func FuzzEntries(f *testing.F) {
	f.Add("k", "v", "a,b", "\xff\"=")
	f.Fuzz(func(t *testing.T, k, v, l, w string) {
		if k == "" || l == "" {
			return
		}
		want := []rules.Entry{{Key: k, Value: v}, {Key: l, Value: w}}
		got, err := rules.ParseEntries(rules.FormatEntries(want))
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}
