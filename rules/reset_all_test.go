package rules_test

import (
	"context"
	"errors"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/rules"
)

// ResetAll resets what begins with a descriptor: by its entries, and not by the letters of a value.
func TestResetAll(t *testing.T) {
	set, err := rules.Load(fstest.MapFS{"a.yaml": {Data: []byte(`
domain: edge
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 1}
    descriptors:
      - key: path
        rate_limit: {unit: day, requests_per_unit: 1}
  - key: ip
    rate_limit: {unit: hour, requests_per_unit: 1}
`)}}, "a.yaml")
	require.NoError(t, err)
	descriptors := []string{"user=ann", "user=anna", "user=ann,path=/a", "user=ann,path=/b", "ip=ann"}
	for of, want := range map[string][]string{
		"user=ann":           {"user=ann", "user=ann,path=/a", "user=ann,path=/b"},
		"user":               {"user=ann", "user=anna", "user=ann,path=/a", "user=ann,path=/b"},
		"user=ann,path":      {"user=ann,path=/a", "user=ann,path=/b"},
		"user=ann,path=/a":   {"user=ann,path=/a"},
		"":                   descriptors,
		"use":                nil,
		"user=an":            nil,
		"user=ann,path=/a,x": nil,
	} {
		e, err := rules.New(set, rules.Config{})
		require.NoError(t, err)
		defer e.Close()
		admitted := func() (names []string) {
			for _, name := range descriptors {
				entries, err := rules.ParseEntries(name)
				require.NoError(t, err)
				r, err := e.Decide(t.Context(), &rules.Request{Domain: "edge",
					Descriptors: []rules.Descriptor{{Entries: entries}}})
				require.NoError(t, err)
				if r.Allowed() {
					names = append(names, name)
				}
			}
			return names
		}
		require.Equal(t, descriptors, admitted())
		require.Empty(t, admitted())
		var entries []rules.Entry
		if of != "" {
			entries, err = rules.ParseEntries(of)
			require.NoError(t, err)
		}
		n, err := e.ResetAll(t.Context(), "edg", entries, nil)
		require.NoError(t, err)
		require.Zero(t, n, "of another domain")
		seen, reset := 0, 0
		n, err = e.ResetAll(t.Context(), "edge", entries, func(s, r int) { seen, reset = s, r })
		require.NoError(t, err)
		assert.Equal(t, []int{len(want), len(want)}, []int{n, reset}, of)
		assert.GreaterOrEqual(t, seen, n, of)
		assert.Equal(t, want, admitted(), of)
	}
}

func TestResetAllOfAStrategyThatCannot(t *testing.T) {
	set, err := rules.Load(fstest.MapFS{"a.yaml": {Data: []byte("domain: edge\ndescriptors: []\n")}},
		"a.yaml")
	require.NoError(t, err)
	l, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer l.Close()
	e, err := rules.New(set, rules.Config{Strategies: func(rules.Method) (weir.Strategy, error) {
		return ops.Without(l.FixedWindow(), weir.OpResetPrefix), nil
	}})
	require.NoError(t, err)
	_, err = e.ResetAll(context.Background(), "edge", nil, nil)
	assert.True(t, errors.Is(err, errors.ErrUnsupported))
}
