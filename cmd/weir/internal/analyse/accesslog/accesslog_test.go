package accesslog

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	nginxLine = `127.0.0.1 - - [20/Nov/2026:09:34:23 +0000] "GET /a%20b?x=\x22q\x22 HTTP/1.1" 200 ` +
		`2 "-" "t \x22q\x22 \x5C \xC3\xA9"`
	apacheLine = `2001:db8::7 - frank [10/Oct/2000:13:55:36 -0700] "GET /q\"uote\\ HTTP/1.0" 200 ` +
		`2326 "http://x/?a=[b]" "agent \"x\" [y]"`
	caddyLine = `{"level":"info","ts":1763631263.1234567,"logger":"http.log.access.log0","msg":"handled request",` +
		`"request":{"remote_ip":"10.0.0.1","remote_port":"51234","client_ip":"10.0.0.9","proto":"HTTP/2.0","method":"GET",` +
		`"host":"example.com","uri":"/a?b=c","headers":{"User-Agent":["curl/8.5.0"],"Accept":["*/*"]},` +
		`"tls":{"resumed":false,"version":772,"cipher_suite":4865,"proto":"h2","server_name":"example.com"}},` +
		`"bytes_read":0,"user_id":"ann","duration":0.5,"size":12,"status":200,"resp_headers":{"Server":["Caddy"]}}`
)

func at(s string) int64 {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		panic(err)
	}
	return t.UnixNano()
}

// read returns the request in a line of a format.
func read(t *testing.T, f Format, line string) (e Entry) {
	t.Helper()
	require.NoError(t, NewParser(f).Parse([]byte(line), &e), line)
	return e
}

// formatOf returns the format of ParseFormat.
func formatOf(t *testing.T, name, fields string) Format {
	t.Helper()
	f, err := ParseFormat(name, fields)
	require.NoError(t, err)
	return f
}

func startOf(e *Entry) string { return time.Unix(0, e.Start).UTC().Format(time.RFC3339Nano) }

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		name, line     string
		start          string
		coarse         bool
		ip, user, path string
	}{
		{"nginx combined, with escapes", nginxLine, "2026-11-20T09:34:23Z", true, "127.0.0.1", "",
			"/a%20b"},
		{"Apache combined, an escaped quote in the path", apacheLine, "2000-10-10T20:55:36Z", true,
			"2001:db8::7", "frank", `/q\"uote\\`},
		{"common", `h.example - - [01/Jan/1970:00:00:00 +0000] "HEAD / HTTP/1.1" 304 -`,
			"1970-01-01T00:00:00Z", true, "h.example", "", "/"},
		{"before 1970", `1.2.3.4 - - [31/Dec/1969:23:59:59 +0000] "GET / HTTP/1.1" 200 1`,
			"1969-12-31T23:59:59Z", true, "1.2.3.4", "", "/"},
		{"a leap day in a half-hour zone",
			`1.2.3.4 - - [29/Feb/2024:00:10:00 +0530] "GET / HTTP/1.1" 200 1`,
			"2024-02-28T18:40:00Z", true, "1.2.3.4", "", "/"},
		{"a leap second becomes the next minute",
			`1.2.3.4 - - [31/Dec/2016:23:59:60 +0000] "GET / HTTP/1.1" 200 1`, "2017-01-01T00:00:00Z", true,
			"1.2.3.4", "", "/"},
		{"a user with spaces and a bracket",
			`1.2.3.4 - jo [x] doe [01/Jan/2020:00:00:00 +0000] "GET / HTTP/1.1" 200 1`,
			"2020-01-01T00:00:00Z", true, "1.2.3.4", "jo [x] doe", "/"},
		{"Apache's empty user", `1.2.3.4 - "" [01/Jan/2020:00:00:00 +0000] "GET / HTTP/1.1" 401 1`,
			"2020-01-01T00:00:00Z", true, "1.2.3.4", "", "/"},
		{"an identity", `1.2.3.4 ident ann [01/Jan/2020:00:00:00 +0000] "GET / HTTP/1.1" 200 1`,
			"2020-01-01T00:00:00Z", true, "1.2.3.4", "ann", "/"},
		{"vhost_combined",
			`example.com:443 1.2.3.4 - ann [01/Jan/2020:00:00:00 +0000] "GET /x HTTP/1.1" 200 1 "-" "-"`,
			"2020-01-01T00:00:00Z", true, "1.2.3.4", "ann", "/x"},
		{"a TLS handshake on a plain port has no path",
			`1.2.3.4 - - [01/Jan/2020:00:00:00 +0000] "\x16\x03\x01\x02" 400 150 "-" "-"`,
			"2020-01-01T00:00:00Z", true, "1.2.3.4", "", ""},
		{"an empty request has no path", `1.2.3.4 - - [01/Jan/2020:00:00:00 +0000] "" 400 0 "-" "-"`,
			"2020-01-01T00:00:00Z", true, "1.2.3.4", "", ""},
		{"HTTP/0.9", `1.2.3.4 - - [01/Jan/2020:00:00:00 +0000] "GET /old" 200 0`, "2020-01-01T00:00:00Z",
			true, "1.2.3.4", "", "/old"},
		{"a carriage return at the end", nginxLine + "\r", "2026-11-20T09:34:23Z", true, "127.0.0.1", "",
			"/a%20b"},
		{"Caddy: start is ts minus duration, client_ip beats remote_ip", caddyLine,
			"2025-11-20T09:34:22.6234567Z", false, "10.0.0.9", "ann", "/a"},
		{"Caddy without client_ip", `{"ts":1,"request":{"remote_ip":"10.0.0.1","uri":"/"}}`,
			"1970-01-01T00:00:01Z", false, "10.0.0.1", "", "/"},
		{"Caddy before 2.5", `{"ts":1,"request":{"remote_addr":"[::1]:80","uri":"/"}}`,
			"1970-01-01T00:00:01Z", false, "::1", "", "/"},
		{"Caddy, RFC 3339 and a duration as text",
			`{"ts":"2024-05-01T12:00:00.25+02:00","duration":"250ms","request":{"remote_ip":"a","uri":"/"}}`,
			"2024-05-01T10:00:00Z", false, "a", "", "/"},
		{"Caddy, milliseconds", `{"ts":1700000000123.5,"request":{"remote_ip":"a"}}`,
			"2023-11-14T22:13:20.1235Z", false, "a", "", ""},
		{"Caddy, nanoseconds", `{"ts":1700000000123456789,"request":{"remote_ip":"a"}}`,
			"2023-11-14T22:13:20.123456789Z", false, "a", "", ""},
		{"Caddy, an exponent", `{"ts":1.7e9,"request":{"remote_ip":"a"}}`, "2023-11-14T22:13:20Z", false,
			"a",
			"", ""},
		{"Caddy, escapes in values",
			`{"ts":1,"user_id":"\u00e9\n","request":{"remote_ip":"\u0031","uri":"\/x\"?y"}}`,
			"1970-01-01T00:00:01Z", false, "1", "é\n", `/x"`},
		{"Caddy, many keys with escapes", `{` + strings.Repeat(`"\u0061":{"\n":1},`, 20) +
			`"t\u0073":1,"request":{"remote_ip":"a"}}`, "1970-01-01T00:00:01Z", false, "a", "", ""},
		{"Caddy, white space and null",
			` { "ts" : 1 , "user_id" : null , "request" : { "remote_ip" : "a" } } `[1:],
			"1970-01-01T00:00:01Z", false, "a", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := read(t, Format{}, tc.line)
			assert.Equal(t, tc.start, startOf(&e))
			assert.Equal(t, tc.coarse, e.Coarse)
			assert.Equal(t, tc.ip, string(e.IP))
			assert.Equal(t, tc.user, string(e.User))
			assert.Equal(t, tc.path, string(e.Path))
		})
	}
}

func TestParseReadsMethodQueryAndStatus(t *testing.T) {
	const head = `1.2.3.4 - - [01/Jan/2020:00:00:00 +0000] `
	for line, want := range map[string]string{
		nginxLine:                              `GET x=\x22q\x22 200`,
		apacheLine:                             "GET  200",
		caddyLine:                              "GET b=c 200",
		head + `"\x16\x03" 400 150 "-" "-"`:    "  400",
		head + `"POST /"`:                      "POST  0",
		head + `"POST /" 2xx`:                  "POST  0",
		head + `"POST /" 099 1`:                "POST  0",
		head + `"GET /a?b=c?d HTTP/1.1" 200 1`: "GET b=c?d 200",
		`{"ts":1,"request":{"remote_ip":"a","uri":"/a?b=c"}}`: " b=c 0",
	} {
		e := read(t, Format{}, line)
		assert.Equal(t, want, fmt.Sprintf("%s %s %d", e.Method, e.Query, e.Status), line)
	}
}

// TestPresets parses a line of each server with its preset and with automatic detection.
func TestPresets(t *testing.T) {
	for _, tc := range []struct {
		format, line           string
		start                  string
		coarse                 bool
		ip, user, method, path string
		status                 int
	}{
		{"weir",
			`{"time":"2026-11-21T20:00:01.25Z","level":"INFO","msg":"request","client":"2001:db8::1","method":"POST","host":"x","path":"/login","status":429,"bytes":9,"ms":250.5,"outcome":"denied","policy":"5/1m"}`,
			"2026-11-21T20:00:00.9995Z", false, "2001:db8::1", "", "POST", "/login", 429},
		{"nginx",
			`{"time_iso8601":"2026-11-21T20:00:01+01:00","remote_addr":"10.0.0.1","remote_user":"","request_method":"GET","request_uri":"/a?b","status":"200","request_time":"0.000"}`,
			"2026-11-21T19:00:01Z", true, "10.0.0.1", "", "GET", "/a", 200},
		{"nginx",
			`{"msec":"1700000000.123","remote_addr":"10.0.0.1","remote_user":"ann","request":"PUT /a?b ` +
				`HTTP/1.1","status":"201","request_time":"1.023"}`,
			"2023-11-14T22:13:19.1Z", false, "10.0.0.1", "ann", "PUT", "/a", 201},
		{"nginx",
			`{"time_local":"20/Nov/2026:09:34:23 ` +
				`+0000","remote_addr":"10.0.0.1","remote_user":"-","request":"GET / HTTP/1.1","status":200}`,
			"2026-11-20T09:34:23Z", true, "10.0.0.1", "", "GET", "/", 200},
		{"traefik",
			`{"ClientAddr":"10.0.0.1:5555","ClientHost":"10.0.0.1","ClientUsername":"-","DownstreamStatus":404,"Duration":12345,"RequestMethod":"GET","RequestPath":"/x?y=1","StartUTC":"2026-11-21T20:00:00.5Z","time":"2026-11-21T20:00:01Z"}`,
			"2026-11-21T20:00:00.5Z", false, "10.0.0.1", "", "GET", "/x", 404},
		{"envoy",
			`{"start_time":"2026-11-21T20:00:00.123Z","method":"GET","path":"/p?q","response_code":200,"duration":15,"downstream_remote_address":"[2001:db8::1]:443"}`,
			"2026-11-21T20:00:00.123Z", false, "2001:db8::1", "", "GET", "/p", 200},
		{"caddy", caddyLine, "2025-11-20T09:34:22.6234567Z", false, "10.0.0.9", "ann", "GET", "/a", 200},
	} {
		for _, name := range []string{tc.format, "auto"} {
			f := formatOf(t, name, "")
			p := NewParser(f)
			var e Entry
			for range 2 {
				require.NoError(t, p.Parse([]byte(tc.line), &e), "%s: %s", name, tc.line)
				assert.Equal(t, tc.start, startOf(&e), "%s: %s", name, tc.line)
				assert.Equal(t, tc.coarse, e.Coarse, tc.line)
				assert.Equal(t, []string{tc.ip, tc.user, tc.method, tc.path},
					[]string{string(e.IP), string(e.User), string(e.Method), string(e.Path)}, tc.line)
				assert.Equal(t, tc.status, e.Status, tc.line)
			}
		}
	}
}

func TestMap(t *testing.T) {
	f, err := ParseFormat("json",
		"time=at,time=t.end,ip=who.ip,path=url,user=who.name,status=code,duration_ms=took,method=verb")
	require.NoError(t, err)
	p := NewParser(f)
	var e Entry
	for _, line := range []string{
		`{"at":1700000000500,"who":{"ip":"1.2.3.4:80","name":"ann"},"url":"/a?b","code":"503","took":250,"verb":"GET","extra":[1,{"at":2}]}`,
		`{"t":{"end":"2023-11-14 ` +
			`22:13:20.500"},"code":503,"took":"250ms","url":"/a","verb":"GET","who":{"deep":{"ip":"9"},"name":"ann","ip":"1.2.3.4"},"at":null}`,
	} {
		require.NoError(t, p.Parse([]byte(line), &e), line)
		assert.Equal(t, "2023-11-14T22:13:20.25Z", startOf(&e), line)
		assert.Equal(t, "1.2.3.4 ann GET /a 503",
			fmt.Sprintf("%s %s %s %s %d", e.IP, e.User, e.Method, e.Path, e.Status), line)
		assert.False(t, e.Coarse)
	}
	assert.ErrorIs(t, p.Parse([]byte(`{"at":1700000000}`), &e), ErrNoAccess, "a mapped ip is required")
	assert.ErrorIs(t, p.Parse([]byte(nginxLine), &e), ErrText, "the format was given")

	f = formatOf(t, "auto", "time=t,user=u")
	require.NoError(t, NewParser(f).Parse([]byte(`{"t":"1700000000","u":7}`), &e),
		"ip is optional if it is not mapped")
	assert.Equal(t, "7", string(e.User))
	assert.True(t, e.Coarse)

	for _, text := range []string{"", "ip=a", "time", "time=", "time=a..b", "time=a,moon=b",
		"time=a,duration=b,duration_ms=c"} {
		_, err := ParseFormat("json", text)
		assert.Error(t, err, text)
	}
	for name, fields := range map[string]string{"moon": "", "common": "time=t"} {
		_, err := ParseFormat(name, fields)
		assert.Error(t, err, name)
	}
}

func TestWithoutPort(t *testing.T) {
	for addr, want := range map[string]string{"1.2.3.4:5": "1.2.3.4", "1.2.3.4": "1.2.3.4",
		"[::1]:80": "::1",
		"[::1]":    "::1", "::1": "::1", "2001:db8::7": "2001:db8::7", "": "", "[": "[",
		"host:80": "host", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2:3:4:5:6",
		"2001:db8:1:2:3:4:5:6:443": "2001:db8:1:2:3:4:5:6", "2001:db8::5:40001": "2001:db8::5",
		"2001:db8::5:8000": "2001:db8::5:8000", "::ffff:192.0.2.1": "::ffff:192.0.2.1",
		"::ffff:192.0.2.1:443": "::ffff:192.0.2.1", "1::3:4:5:6:7:8": "1::3:4:5:6:7:8",
		"1::3:4:5:6:7:8:443": "1::3:4:5:6:7:8", "::2:3:4:5:6:7:8": "::2:3:4:5:6:7:8",
		"1:2:3:4:5:6:7::": "1:2:3:4:5:6:7::", "1:2:3:4:5:6:7:8:x": "1:2:3:4:5:6:7:8:x"} {
		assert.Equal(t, want, string(withoutPort([]byte(addr))), addr)
	}
}

// TestPortsThatAlwaysFollow: a format that has a port after each address says which group is the
// port, where the address by itself does not.
func TestPortsThatAlwaysFollow(t *testing.T) {
	const haproxy = ` [25/Mar/2026:14:12:00.294] in app/s 0/0/0/9/9 200 867 - - ---- 1/1/0/0/0 0/0 ` +
		`"GET / HTTP/1.1"`
	jsonIP := formatOf(t, "json", "time=t,ip=a")
	alb := `http 2018-07-02T22:23:00.186641Z app/x/5 ADDR 10.0.0.1:80 0.000 0.001 0.000 200 200 34 366 ` +
		`"GET http://www.example.com:80/ HTTP/1.1" "curl/7.46.0" - - arn:x "Root=1" "-" "-" 0 ` +
		`2018-07-02T22:22:48.364000Z "forward"`
	forms := map[string]struct {
		Format
		line string
	}{
		"HAProxy": {formatOf(t, "haproxy", ""), "ADDR" + haproxy},
		"ALB":     {formatOf(t, "alb", ""), alb},
		"nginx": {must(ParseLayout(`$remote_addr:$remote_port [$time_local] "$request"`)),
			`ADDR [25/Mar/2026:14:12:00 +0000] "GET / HTTP/1.1"`},
		"nginx, at the end": {must(ParseLayout(`$msec $remote_addr:$remote_port`)), `1774447920.000 ADDR`},
		"Apache": {must(ParseLayout(`%h:%{remote}p %t "%r"`)),
			`ADDR [25/Mar/2026:14:12:00 +0000] "GET / HTTP/1.1"`},
		"Envoy": {must(ParseLayout(`%START_TIME% %DOWNSTREAM_REMOTE_ADDRESS%`)), `2026-03-25T14:12:00Z ADDR`},
		"Envoy, by hand": {must(ParseLayout(`%START_TIME% %DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%:%DOWNSTREAM_REMOTE_PORT%`)),
			`2026-03-25T14:12:00Z ADDR`},
		"JSON": {formatOf(t, "json", "time=t,ip_port=a"), `{"t":1774447920,"a":"ADDR"}`},
	}
	for name, form := range forms {
		for addr, want := range map[string]string{
			"192.0.2.1:40001": "192.0.2.1", "192.0.2.1": "192.0.2.1", "[2001:db8::5]:8000": "2001:db8::5",
			"2001:db8:1:2:3:4:5:6:40001": "2001:db8:1:2:3:4:5:6",
			"2001:db8:1:2:3:4:5:6:80":    "2001:db8:1:2:3:4:5:6",
			"::ffff:203.0.113.7:40001":   "::ffff:203.0.113.7", "2001:db8:1::5:8000": "2001:db8:1::5",
			"2001:db8:1::5:8004": "2001:db8:1::5", "2001:db8:1:2:3:4:5:8000": "", "::1:80": "::1",
			"::1": "", "2001:db8::7": "", "host:80": "", "unix:1": ""} {
			var e Entry
			err := NewParser(form.Format).Parse([]byte(strings.ReplaceAll(form.line, "ADDR", addr)), &e)
			if want == "" { // it is no address with a port after it
				assert.Error(t, err, "%s: %s is read as %s", name, addr, e.IP)
				continue
			}
			require.NoError(t, err, "%s: %s", name, addr)
			assert.Equal(t, want, string(e.IP), "%s: %s", name, addr)
		}
	}
	for addr, want := range map[string]string{"2001:db8:1:2:3:4:5:6:80": "2001:db8:1:2:3:4:5:6",
		"2001:db8::5:8000": "2001:db8::5:8000", "2001:db8::5:40001": "2001:db8::5"} {
		e := read(t, jsonIP, `{"t":1774447920,"a":"`+addr+`"}`)
		assert.Equal(t, want, string(e.IP), "only one reading of %s is an address", addr)
		require.NoError(t, new(Parser).Parse([]byte(addr+` - - [25/Mar/2026:14:12:00 +0000] "GET / HTTP/1.1" 200 1`), &e))
		assert.Equal(t, want, string(e.IP), "the common format: %s", addr)
	}
}

// TestTimes: the forms of a time in JSON, in a given format, and in the common format.
func TestTimes(t *testing.T) {
	layout := must(ParseLayout(`$remote_addr [$time_local] "$request"`))
	for text, want := range map[string]string{
		"2026/03/25 14:12:00":                 "2026-03-25T14:12:00Z", // Caddy's wall
		"2026/03/25 14:12:00.294":             "2026-03-25T14:12:00.294Z",
		"2026/03/25 14:12:00.294123456":       "2026-03-25T14:12:00.294123456Z",
		"25/Mar/2026 14:12:00":                "2026-03-25T14:12:00Z", // Python's http.server
		"25/Mar/2026:14:12:00 +0100":          "2026-03-25T13:12:00Z",
		"25/Mar/2026 14:12:00 +0100":          "2026-03-25T13:12:00Z",
		"25/Mar/2026:14:12:00.294 -0330":      "2026-03-25T17:42:00.294Z",
		"2026-03-25 14:12:00 +0100":           "2026-03-25T13:12:00Z",
		"2026-03-25 14:12:00.5 +01:00":        "2026-03-25T13:12:00.5Z",
		"2026-03-25T14:12:00,500+01":          "2026-03-25T13:12:00.5Z",
		"2026-03-25T14:12:00.123456789+01:00": "2026-03-25T13:12:00.123456789Z",
		"2026-03-25 14:12:00 UTC":             "2026-03-25T14:12:00Z",
		"2026-03-25T23:59:60Z":                "2026-03-26T00:00:00Z",
		"2026-02-29 14:12:00":                 "", "2026-13-01 14:12:00": "", "2026/03-25 14:12:00": "",
		"2026-03-25 24:00:00": "", "2026-03-25 14:12": "", "2026-03-25 14:12:00 +0": "",
		"2026-03-25 14:12:00 +2400": "", "2026-03-25 14:12:00 CET": "", "2026-03-25 14:12:00.": "",
		"1899-12-31T23:59:59Z": "", "2100-01-01 00:00:00": "", "25/mar/2026 14:12:00": "",
		"2026-03-25_14:12:00": "", "2026-03-25 14:12:00 ": "", "2026-03-25 14:12:00  +0100": "",
	} {
		lines := map[string]string{
			"JSON":       `{"ts":"` + text + `","request":{"remote_ip":"192.0.2.1"}}`,
			"the common": `192.0.2.1 - - [` + text + `] "GET / HTTP/1.1" 200 1`,
			"a layout":   `192.0.2.1 [` + text + `] "GET / HTTP/1.1"`,
		}
		for name, line := range lines {
			p := new(Parser)
			if name == "a layout" {
				p = NewParser(layout)
			}
			var e Entry
			if err := p.Parse([]byte(line), &e); want == "" {
				assert.Error(t, err, "%s: %s", name, text)
				continue
			} else {
				require.NoError(t, err, "%s: %s", name, text)
			}
			assert.Equal(t, want, startOf(&e), "%s: %s", name, text)
			assert.Equal(t, !strings.ContainsAny(text, ".,"), e.Coarse, "%s: %s", name, text)
			assert.Equal(t, "192.0.2.1", string(e.IP), "%s: %s", name, text)
		}
	}
}

// TestConsole: a line of Caddy's console log is read as the JSON of the same request.
func TestConsole(t *testing.T) {
	const request = `{"request": {"remote_ip": "10.0.0.1", "client_ip": "192.0.2.1", "method": "GET", ` +
		`"uri": "/a?b", "headers": {"Accept": ["*/*"], "User-Agent": ["curl/8.7.1"]}}, "user_id": "", ` +
		`"duration": 0.25, "size": 12, "status": 404}`
	for ts, want := range map[string]string{
		"2026/03/25 14:12:00.500":  "2026-03-25T14:12:00.25Z",
		"1.774447920500e+09":       "2026-03-25T14:12:00.25Z",
		"2026-03-25T14:12:00.500Z": "2026-03-25T14:12:00.25Z", "1774447920.5": "2026-03-25T14:12:00.25Z",
	} {
		for _, logger := range []string{"http.log.access", "http.log.access.log0"} {
			for _, level := range []string{"INFO", "info", "\x1b[34mINFO\x1b[0m"} {
				line := strings.Join([]string{ts, level, logger, "handled request", request}, "\t")
				for _, wrap := range known {
					for _, format := range []string{"auto", "caddy"} {
						e := read(t, formatOf(t, format, ""), wrap(line))
						assert.Equal(t, want, startOf(&e), line)
						_, agent := e.Headers()
						assert.Equal(t, "192.0.2.1 GET /a b 404 curl/8.7.1", fmt.Sprintf("%s %s %s %s %d %s", e.IP,
							e.Method, e.Path, e.Query, e.Status, agent), line)
					}
				}
			}
		}
	}
	for _, line := range []string{
		"2026/03/25 14:12:00\tINFO\ttls\tcleaning storage\t" + `{"request":{"remote_ip":"10.0.0.1"}}`,
		"2026/03/25 14:12:00\tINFO\thttp.log.access\thandled request",
		"yesterday\tINFO\thttp.log.access\thandled request\t" + request,
		`","request":{"remote_ip":"6.6.6.6"},"x":"` + "\tINFO\thttp.log.access\thandled request\t" + request,
	} {
		var e Entry
		assert.Error(t, new(Parser).Parse([]byte(line), &e), line)
	}
}

func TestParseRefuses(t *testing.T) {
	const head = `1.2.3.4 - - [`
	const tail = `] "GET / HTTP/1.1" 200 1`
	for _, tc := range []struct {
		name, line string
		want       error
	}{
		{"nothing", "", ErrEmpty},
		{"white space", " \t\r", ErrEmpty},
		{"prose", "the quick brown fox", ErrFormat},
		{"one word", "x", ErrFormat},
		{"no address", ` - - [01/Jan/2020:00:00:00 +0000] "GET / HTTP/1.1" 200 1`, ErrFormat},
		{"no request", `1.2.3.4 - - [01/Jan/2020:00:00:00 +0000]`, ErrFormat},
		{"cut inside the request", `1.2.3.4 - - [01/Jan/2020:00:00:00 +0000] "GET /`, ErrFormat},
		{"the closing quote is escaped", `1.2.3.4 - - [01/Jan/2020:00:00:00 +0000] "GET /\"`, ErrFormat},
		{"an invalid day", head + "31/Apr/2020:00:00:00 +0000" + tail, ErrTime},
		{"February 29 in a common year", head + "29/Feb/1900:00:00:00 +0000" + tail, ErrTime},
		{"day zero", head + "00/Jan/2020:00:00:00 +0000" + tail, ErrTime},
		{"an invalid month", head + "01/jan/2020:00:00:00 +0000" + tail, ErrTime},
		{"hour 24", head + "01/Jan/2020:24:00:00 +0000" + tail, ErrTime},
		{"minute 60", head + "01/Jan/2020:00:60:00 +0000" + tail, ErrTime},
		{"second 61", head + "01/Jan/2020:00:00:61 +0000" + tail, ErrTime},
		{"a letter for a digit", head + "01/Jan/2020:00:00:0x +0000" + tail, ErrTime},
		{"a zone without sign", head + "01/Jan/2020:00:00:00 00000" + tail, ErrTime},
		{"a year before 1900", head + "01/Jan/1899:00:00:00 +0000" + tail, ErrTime},
		{"JSON cut short", caddyLine[:len(caddyLine)-1], ErrJSON},
		{"JSON with a tail", caddyLine + "x", ErrJSON},
		{"JSON that is not a request", `{"level":"info","ts":1700000000.5,"msg":"serving"}`, ErrNoAccess},
		{"a request without time", `{"request":{"remote_ip":"a"}}`, ErrNoAccess},
		{"a request that is not an object", `{"ts":1,"request":"x"}`, ErrNoAccess},
		{"ts that is not a time", `{"ts":true,"request":{"remote_ip":"a"}}`, ErrNoAccess},
		{"ts that is not RFC 3339", `{"ts":"yesterday","request":{"remote_ip":"a"}}`, ErrTime},
		{"ts out of range", `{"ts":99999999999999999999999,"request":{"remote_ip":"a"}}`, ErrTime},
		{"ts after 2099", `{"ts":4102444800,"request":{"remote_ip":"a"}}`, ErrTime},
		{"a negative duration", `{"ts":1,"duration":-1,"request":{"remote_ip":"a"}}`, ErrTime},
		{"a duration of years", `{"ts":1,"duration":1e9,"request":{"remote_ip":"a"}}`, ErrTime},
		{"an address with a space", `{"ts":1,"request":{"remote_ip":"a b"}}`, ErrField},
		{"a time of zero bytes", "192.0.2.1 - - [" + strings.Repeat("\x00",
			stampLen) + `] "GET / HTTP/1.1" 200 1`, ErrTime},
		{"a date of zero bytes", "192.0.2.1 - - [" + strings.Repeat("\x00",
			dateLen) + `:10:05:03 +0000] "GET / HTTP/1.1" 200 1`,
			ErrTime},
		{"a port without an address", `{"ts":1,"request":{"remote_addr":":80"}}`, ErrField},
		{"a leading zero", `{"ts":01,"request":{"remote_ip":"a"}}`, ErrField},
		{"a raw control character", "{\"ts\":1,\"request\":{\"remote_ip\":\"a\x01\"}}", ErrJSON},
		{"too deep", `{"a":` + deep(200) + `}`, ErrJSON},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var p Parser
			var e Entry
			assert.ErrorIs(t, p.Parse([]byte(tc.line), &e), tc.want)
		})
	}
}

func deep(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }

// TestClockAgreesWithTheStandardLibrary covers the three paths of the clock: the same second, the
// same day, and any other time. Each must agree with time.Parse.
func TestClockAgreesWithTheStandardLibrary(t *testing.T) {
	const layout = "02/Jan/2006:15:04:05 -0700"
	var c clock
	zone := time.FixedZone("", -(3*3600 + 30*60))
	steps := []time.Duration{0, time.Second, time.Second, 59 * time.Second, -30 * time.Second,
		time.Minute, 0,
		time.Hour, 24 * time.Hour, 365 * 24 * time.Hour, -11 * time.Hour}
	now := time.Date(1901, 2, 27, 23, 59, 58, 0, time.UTC)
	for i := range 2000 {
		now = now.Add(steps[i%len(steps)])
		text := now.Format(layout)
		if i%7 > 4 {
			text = now.In(zone).Format(layout)
		}
		got, coarse, ok := c.read([]byte(text))
		require.True(t, ok && coarse, text)
		require.Equal(t, now.UnixNano(), got, text)
	}
}

func TestClockDoesNotCacheInvalidTimes(t *testing.T) {
	var c clock
	_, _, ok := c.read([]byte("01/Jan/2020:00:00:10 +0000"))
	require.True(t, ok)
	_, _, ok = c.read([]byte("01/Jan/2020:00:00:99 +0000"))
	require.False(t, ok)
	got, _, ok := c.read([]byte("01/Jan/2020:00:00:11 +0000"))
	require.True(t, ok)
	assert.Equal(t, at("2020-01-01T00:00:11Z"), got)
}

// TestParseDoesNotAllocate: replay parses over a million lines per second.
func TestParseDoesNotAllocate(t *testing.T) {
	for name, line := range map[string]string{"nginx": nginxLine, "apache": apacheLine,
		"caddy": caddyLine} {
		var p Parser
		var e Entry
		b := []byte(line)
		assert.Zero(t, testing.AllocsPerRun(100, func() { _ = p.Parse(b, &e) }), name)
	}
}

func BenchmarkParse(b *testing.B) {
	for _, bc := range []struct{ name, line string }{{"combined", nginxLine}, {"caddy", caddyLine}} {
		b.Run("format="+bc.name, func(b *testing.B) {
			var p Parser
			var e Entry
			line := []byte(bc.line)
			b.ReportAllocs()
			b.SetBytes(int64(len(line)))
			for b.Loop() {
				if err := p.Parse(line, &e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestPlainStopsAtTheFirstSpecialByte checks the scan of eight bytes at a time against every byte
// at every position.
func TestPlainStopsAtTheFirstSpecialByte(t *testing.T) {
	for length := range 40 {
		for c := range 256 {
			for pos := range length {
				s := []byte(strings.Repeat("~", length))
				s[pos] = byte(c)
				want := length
				if c == '"' || c == '\\' || c < ' ' {
					want = pos
				}
				require.Equal(t, want, plain(s), "byte %#x at %d of %d", c, pos, length)
			}
		}
	}
}
