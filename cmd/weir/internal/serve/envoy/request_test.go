package envoy

import (
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/weirgo/weir/cmd/weir/internal/check/rulestest"
	"github.com/weirgo/weir/rules"
)

// requestOf parses a request as /json does.
func requestOf(body []byte) (*rules.Request, error) {
	var in pb.RateLimitRequest
	if err := protojson.Unmarshal(body, &in); err != nil {
		return nil, err
	}
	var x exchange
	x.read(&in)
	return &x.req, nil
}

// TestRequestsAreReadAlike checks that the tests of rules read a request as /json does.
func TestRequestsAreReadAlike(t *testing.T) {
	for _, body := range []string{
		`{}`, `{"domain": "d", "descriptors": []}`, `{"domain": null, "hitsAddend": null}`,
		`{"hitsAddend": 7}`, `{"hits_addend": "7"}`, `{"hitsAddend": 7.0}`, `{"hitsAddend": 1e3}`,
		`{"hitsAddend": 4294967295}`, `{"hitsAddend": 0}`,
		`{"descriptors": [{"entries": [{"key": "k", "value": "v"}, {"key": "é"}, {}]}, {}]}`,
		`{"descriptors": [{"hitsAddend": "18446744073709551615", "isNegativeHits": true}]}`,
		`{"descriptors": [{"hits_addend": 0, "is_negative_hits": false}]}`,
		`{"descriptors": [{"limit": {}}]}`, `{"descriptors": [{"limit": null, "entries": null}]}`,
		`{"descriptors": [{"limit": {"requestsPerUnit": 3, "unit": "MINUTE"}}]}`,
		`{"descriptors": [{"limit": {"requests_per_unit": "3", "unit": 7, "unit_multiplier": 5}}]}`,
		`{"descriptors": [{"limit": {"unit": "UNKNOWN", "unitMultiplier": 0}}]}`,
		`{"descriptors": [{"limit": {"unit": "YEAR", "unitMultiplier": null}}]}`,
		`{"descriptors": [{"limit": {"unit": "YEAR", "requestsPerUnit": null}}]}`,
	} {
		want, err := requestOf([]byte(body))
		require.NoError(t, err, body)
		got, err := rulestest.ParseRequest([]byte(body))
		require.NoError(t, err, body)
		for _, r := range []*rules.Request{want, got} { // where an empty list is none
			for i := range r.Descriptors {
				r.Descriptors[i].Entries = append([]rules.Entry{}, r.Descriptors[i].Entries...)
			}
			r.Descriptors = append([]rules.Descriptor{}, r.Descriptors...)
		}
		assert.Equal(t, want, got, body)
	}
	for _, body := range []string{
		``, `[]`, `7`, `{} {}`, `{"domain": 7}`, `{"domains": "d"}`, `{"domain": "d"`,
		`{"hitsAddend": -1}`, `{"hitsAddend": 4294967296}`, `{"hitsAddend": 1.5}`, `{"hitsAddend": "x"}`,
		`{"hitsAddend": ""}`, `{"hitsAddend": true}`, `{"descriptors": {}}`, `{"descriptors": [null]}`,
		`{"descriptors": [{"entries": [null]}]}`, `{"descriptors": [{"entries": [{"name": "k"}]}]}`,
		`{"descriptors": [{"hitsAddend": "18446744073709551616"}]}`,
		`{"descriptors": [{"limit": {"unit": "minute"}}]}`, `{"descriptors": [{"limit": {"unit": "WISH"}}]}`,
		`{"descriptors": [{"limit": {"unit": true}}]}`, `{"descriptors": [{"limit": {"unit": "WEEK"}}]}`,
		`{"descriptors": [{"limit": {"unit": "IN_FLIGHT"}}]}`,
	} {
		_, err := requestOf([]byte(body))
		require.Error(t, err, body)
		_, err = rulestest.ParseRequest([]byte(body))
		assert.Error(t, err, body)
	}
}
