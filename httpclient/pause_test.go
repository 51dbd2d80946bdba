package httpclient

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func FuzzRetryAfter(f *testing.F) {
	for _, s := range []string{"", "0", "120", "-1", "1.5", " 7 ", "99999999999999999999",
		"9223372036",
		"9223372037",
		"Fri, 31 Dec 1999 23:59:59 GMT", "Friday, 31-Dec-99 23:59:59 GMT", "soon"} {
		f.Add(s)
	}
	now := time.Unix(946684000, 0)
	f.Fuzz(func(t *testing.T, s string) {
		d, ok := parseRetryAfter(s, now)
		require.GreaterOrEqual(t, d, time.Duration(0))
		if !ok {
			require.Zero(t, d)
		}
	})
}

// FuzzRequestedPause checks that no header causes a panic or a negative pause.
func FuzzRequestedPause(f *testing.F) {
	f.Add(429, "7", `"a";r=0;t=5`, "0", "6", "0", "2000000000", "", "")
	f.Add(200, "", "limit=1, remaining=0, reset=7", "0", "x", "0", "99999999999999", "0",
		"Fri, 20 Nov 2026 12:00:05 GMT")
	f.Add(503, "Sat", `"a\"b";r=0;t=5;pk=:YQ==:, tok;r=1`, "", "", "0", "9223372036854775807", "3",
		"x")
	f.Fuzz(func(t *testing.T, status int,
		after, limit, remaining, reset, legacyRemaining, legacyReset, age, date string) {
		resp := &http.Response{StatusCode: status, Header: http.Header{
			"Retry-After": {after}, "Ratelimit-Remaining": {remaining}, "Ratelimit-Reset": {reset},
			"Date":                  {date},
			"X-Ratelimit-Remaining": {legacyRemaining}, "X-Ratelimit-Reset": {legacyReset}, "Age": {age},
		}}
		if limit != "" {
			resp.Header["Ratelimit"] = []string{limit}
		}
		require.GreaterOrEqual(t, requestedPause(resp, time.Unix(1_800_000_000, 0)), time.Duration(0))
	})
}
