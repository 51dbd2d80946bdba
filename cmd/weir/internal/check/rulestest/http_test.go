package rulestest_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/accesslog"
	"github.com/weirgo/weir/cmd/weir/internal/check/rulestest"
)

func TestARequestIsMadeOfItsParts(t *testing.T) {
	r, err := rulestest.HTTP{Method: "post", Path: "/login?next=%2F", Address: "192.0.2.7",
		Headers: map[string]string{"host": "a.example", "plan": "free"}}.Request()
	require.NoError(t, err)
	assert.Equal(t, []string{"POST", "/login", "next=%2F", "a.example", "192.0.2.7", "free"},
		[]string{r.Method, r.URL.Path, r.URL.RawQuery, r.Host, r.RemoteAddr, r.Header.Get("Plan")})
	r, err = rulestest.HTTP{Path: "/"}.Request()
	require.NoError(t, err)
	assert.Equal(t, "GET", r.Method)
	for _, path := range []string{"", "login", "/%zz"} {
		_, err := rulestest.HTTP{Path: path}.Request()
		assert.Error(t, err, path)
	}
}

func TestALineIsARequest(t *testing.T) {
	r, err := rulestest.Line(
		`192.0.2.7 - ann [20/Nov/2026:10:00:00 +0000] "GET /a?b=c HTTP/1.1" 200 5`, accesslog.Format{})
	require.NoError(t, err)
	assert.Equal(t, "192.0.2.7 /a?b=c", r.RemoteAddr+" "+r.URL.RequestURI())
	for text, want := range map[string]string{
		"nonsense": "the line of the log: ",
		`192.0.2.7 - - [20/Nov/2026:10:00:00 +0000] "-" 408 0`: "the line of the log has no path",
	} {
		_, err := rulestest.Line(text, accesslog.Format{})
		assert.ErrorContains(t, err, want)
	}
}
