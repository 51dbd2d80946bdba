package accesslog

import (
	"testing"

	"github.com/stretchr/testify/assert"
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
		e := read(t, Format{}, row.line)
		referer, agent := e.Headers()
		assert.Equal(t, []string{row.referer, row.agent}, []string{referer, agent}, row.name)
	}
}
