package rules_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/rules"
)

func TestParseRequest(t *testing.T) {
	want := &rules.Request{Domain: "d", Hits: 2, Descriptors: []rules.Descriptor{
		{Entries: []rules.Entry{{Key: "k", Value: "v"}, {Key: "l"}}},
		{HasHits: true, Hits: math.MaxUint64, GiveBack: true,
			Override: &rules.Override{Requests: 5, Unit: rules.Hour, Multiplier: 3}},
		{HasHits: true, Override: &rules.Override{Unit: rules.Day, Multiplier: 1}},
	}}
	for name, text := range map[string]string{
		"camel case": `{"domain": "d", "hitsAddend": 2, "descriptors": [{"entries": [{"key": "k", "value": "v"}, {"key": "l"}]},
			{"hitsAddend": "18446744073709551615", "isNegativeHits": true, "limit": {"requestsPerUnit": 5, "unit": "HOUR", "unitMultiplier": 3}},
			{"hitsAddend": 0, "limit": {"unit": 4}}]}`,
		"snake case": `{"domain": "d", "hits_addend": "2", "descriptors": [{"entries": [{"key": "k", "value": "v"}, {"key": "l", "value": null}], "limit": null},
			{"hits_addend": 18446744073709551615, "is_negative_hits": true, "limit": {"requests_per_unit": 5e0, "unit": 3, "unit_multiplier": "3"}},
			{"hits_addend": "0", "is_negative_hits": false, "limit": {"unit": "DAY", "unit_multiplier": null}}]}`,
	} {
		got, err := rules.ParseRequest([]byte(text))
		require.NoError(t, err, name)
		assert.Equal(t, want, got, name)
	}
	got, err := rules.ParseRequest([]byte(" {} \n"))
	require.NoError(t, err)
	assert.Equal(t, &rules.Request{}, got)
}

func TestParseRequestRefuses(t *testing.T) {
	for text, want := range map[string]string{
		``:                                     "want a JSON object",
		`[]`:                                   "want a JSON object",
		`{"domain": "d"} x`:                    "unexpected data after the object",
		`{"domain": "d"`:                       "EOF",
		`{"domain": 5}`:                        "domain: want a string",
		`{"domian": "d"}`:                      "domian: unknown field",
		`{"domain": "d", "domain": "e"}`:       "domain: repeated",
		`{"hitsAddend": 1, "hits_addend": 1}`:  "hits_addend: repeated",
		`{"hitsAddend": -1}`:                   "hitsAddend: -1 is not a whole number from 0 to 4294967295",
		`{"hitsAddend": 4294967296}`:           "not a whole number",
		`{"hitsAddend": 1.5}`:                  "not a whole number",
		`{"hitsAddend": "x"}`:                  "not a whole number",
		`{"hitsAddend": {}}`:                   "not a whole number",
		`{"descriptors": {}}`:                  "descriptors: want a list",
		`{"descriptors": [5]}`:                 "descriptors: [0]: want a JSON object",
		`{"descriptors": [{}, {"entry": []}]}`: "descriptors: [1]: entry: unknown field",
		`{"descriptors": [{"entries": [{"Key": "k"}]}]}`:                 "Key: unknown field",
		`{"descriptors": [{"limit": {"unit": "FORTNIGHT"}}]}`:            `limit: unit: unknown unit "FORTNIGHT"`,
		`{"descriptors": [{"limit": {"unit": "hour"}}]}`:                 `unknown unit "hour"`,
		`{"descriptors": [{"limit": {"unit": 1, "unitMultiplier": 0}}]}`: "unitMultiplier: must be at least 1",
		`{"descriptors": [{"isNegativeHits": 1}]}`:                       "want true or false",
		`{"descriptors": [{"hitsAddend": "18446744073709551616"}]}`:      "not a whole number",
	} {
		_, err := rules.ParseRequest([]byte(text))
		assert.ErrorContains(t, err, want, text)
	}
}
