package accesslog

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCombined(t *testing.T) {
	for _, row := range []struct{ name, line, referer, agent string }{
		{"nginx", nginxLine, "", "t \"q\" \\ é"},
		{"Apache", apacheLine, "http://x/?a=[b]", "agent \"x\" [y]"},
		{"hyphens", `1.2.3.4 - - [01/Jan/2020:00:00:00 +0000] "GET / HTTP/1.1" 200 1 "-" "-"`, "", ""},
		{"escapes",
			`1.2.3.4 - - [01/Jan/2020:00:00:00 +0000] "GET / HTTP/1.1" 200 1 "\"a\"\t\\" "\x22b\xE9\xZZ"`,
			"\"a\"\t\\", "\"b\xe9xZZ"},
		{"one field", `1.2.3.4 - - [01/Jan/2020:00:00:00 +0000] "GET / HTTP/1.1" 200 1 "a"`, "a", ""},
		{"the common format", `1.2.3.4 - - [01/Jan/2020:00:00:00 +0000] "GET / HTTP/1.1" 200 1`, "", ""},
		{"an open quote", `1.2.3.4 - - [01/Jan/2020:00:00:00 +0000] "GET / HTTP/1.1" 200 1 "a`, "", ""},
		{"an open quote, and a backslash",
			`1.2.3.4 - - [01/Jan/2020:00:00:00 +0000] "GET / HTTP/1.1" 200 1 "a" "b\`, "a", ""},
		{"JSON", `{"ts":1,"request":{"remote_ip":"a"}}`, "", ""},
	} {
		var e Entry
		require.NoError(t, new(Parser).Parse([]byte(row.line), &e), row.name)
		referer, agent := e.Headers()
		assert.Equal(t, []string{row.referer, row.agent}, []string{referer, agent}, row.name)
	}
}

func TestQuery(t *testing.T) {
	for line, want := range map[string]string{
		`1.2.3.4 - - [01/Jan/2020:00:00:00 +0000] "GET /a?b=c?d HTTP/1.1" 200 1`: "b=c?d",
		`1.2.3.4 - - [01/Jan/2020:00:00:00 +0000] "GET /a HTTP/1.1" 200 1`:       "",
		`{"ts":1,"request":{"remote_ip":"a","uri":"/a?b=c"}}`:                    "b=c",
	} {
		var e Entry
		require.NoError(t, new(Parser).Parse([]byte(line), &e))
		assert.Equal(t, want, string(e.Query))
		assert.Equal(t, "/a", string(e.Path))
	}
}
