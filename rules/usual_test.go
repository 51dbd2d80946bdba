package rules_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/rules"
)

// usualText has a rule of each kind that may name an algorithm, or must not.
const usualText = `
descriptors:
  - {key: none, rate_limit: {unit: minute, requests_per_unit: 3}}
  - key: own
    rate_limit: {unit: minute, requests_per_unit: 3}
    metadata: {weir: {algorithm: fixed_window}}
    descriptors: [{key: below, rate_limit: {unit: hour, requests_per_unit: 3}}]
  - key: bucket
    rate_limit: {unit: minute, requests_per_unit: 3}
    metadata: {weir: {algorithm: token_bucket, burst: 7}}
  - key: month
    rate_limit: {unit: month, requests_per_unit: 3}
    metadata: {weir: {calendar: {zone: UTC}}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: places, rate_limit: {unit: in_flight, requests_per_unit: 3}}
`

func TestTheUsualAlgorithm(t *testing.T) {
	const own = "metadata: {weir: {algorithm: sliding_log}, x: 1}\n"
	for _, of := range []struct {
		top    string
		loader rules.Loader
		want   rules.Algorithm
	}{
		{"", rules.Loader{}, rules.FixedWindow},
		{"", rules.Loader{Algorithm: rules.SlidingWindow}, rules.SlidingWindow},
		{"", rules.Loader{Algorithm: rules.InFlight}, rules.FixedWindow},
		{own, rules.Loader{}, rules.SlidingLog},
		{own, rules.Loader{Algorithm: rules.SlidingWindow}, rules.SlidingLog},
		{"metadata: {weir: {algorithm: fixed_window}}\n", rules.Loader{Algorithm: rules.TokenBucket}, rules.FixedWindow},
		{"metadata: null\n", rules.Loader{Algorithm: rules.TokenBucket}, rules.TokenBucket},
		{"metadata: {weir: {}}\n", rules.Loader{Algorithm: rules.TokenBucket}, rules.TokenBucket},
		{"metadata: {x: y}\n", rules.Loader{}, rules.FixedWindow},
	} {
		text := "domain: d\n" + of.top + usualText + "---\ndomain: other\ndescriptors: [{key: none, " +
			"rate_limit: {unit: minute, requests_per_unit: 3}}]\n"
		set, err := of.loader.Parse(rules.File{Name: "f.yaml", Data: []byte(text)})
		require.NoError(t, err)
		got := map[string]rules.Algorithm{}
		for r := range set.All() {
			got[r.Domain+" "+r.Path] = r.Limit.Algorithm
		}
		other := of.loader.Algorithm
		if other == rules.InFlight {
			other = rules.FixedWindow
		}
		assert.Equal(t, map[string]rules.Algorithm{
			"d none": of.want, "d own": rules.FixedWindow, "d own,below": of.want, "d bucket": rules.TokenBucket,
			"d month": rules.FixedWindow, "d free": rules.FixedWindow, "d places": rules.InFlight,
			"other none": other,
		}, got, of.top)

		rewritten(t, set)
	}
}

func TestMistakesInTheUsualAlgorithm(t *testing.T) {
	for text, want := range map[string]string{
		"metadata: {weir: {algorithm: moon}}": "f.yaml:2:30: unknown algorithm 'moon'",
		"metadata: {weir: {burst: 3}}":        "f.yaml:2:19: ",
		"metadata: {weir: 3}":                 "f.yaml:2:18: metadata.weir is 3; want a map",
		"metadata: 3":                         "f.yaml:2:11: ",
		"metadata: {weir: {algorithm: 3}}":    "f.yaml:2:30: ",
	} {
		_, err := new(rules.Loader).Parse(rules.File{Name: "f.yaml",
			Data: []byte("domain: d\n" + text + "\ndescriptors: []\n")})
		assert.ErrorContains(t, err, want, text)
	}
	loader := rules.Loader{Envoy: true}
	set, err := loader.Parse(rules.File{Name: "f.yaml",
		Data: []byte("domain: d\nmetadata: {weir: {algorithm: sliding_log}}\n")})
	require.NoError(t, err)
	assert.ErrorContains(t, set.Warnings()[0], "not portable: Envoy's service refuses metadata")
}

func TestAtOnce(t *testing.T) {
	for limit, want := range map[rules.Limit]uint64{
		{Requests: 5}: 10,
		{Requests: 5, Algorithm: rules.SlidingWindow}:          5,
		{Requests: 5, Algorithm: rules.TokenBucket}:            5,
		{Requests: 5, Algorithm: rules.TokenBucket, Burst: 20}: 20,
		{Requests: 5, Algorithm: rules.InFlight}:               5,
	} {
		assert.Equal(t, want, limit.AtOnce(), "%v", &limit)
	}
}
