package accesslog

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// timesOf returns the arrival of a request and how long it took, and whether the line has the time
// of its end.
func timesOf(e *Entry) string {
	at := "arrival"
	if e.AtEnd {
		at = "end"
	}
	took := "unknown"
	if e.Took != NoDuration {
		took = time.Duration(e.Took).String()
	}
	return fmt.Sprintf("%s of %s, took %s", at, time.Unix(0, e.Logged).UTC().Format("15:04:05.999999"), took)
}

// TestDurations reads the duration of each format that has one, and which end of the request its
// time is.
func TestDurations(t *testing.T) {
	const alb = `http 2026-03-25T14:12:01.500000Z app/x/5 203.0.113.1:1 10.0.0.1:80 0.000 1.100 0.000 ` +
		`200 200 34 366 "GET http://a.example:80/ HTTP/1.1" "curl/8" - - arn:x "Root=1" "-" "-" 0 ` +
		`2026-03-25T14:12:00.250000Z "forward" "-" "-" "10.0.0.1:80" "200" "-" "-"`
	const haproxy = `203.0.113.1:33317 [25/Mar/2026:14:12:00.655] http-in static/srv1 10/0/30/69/%s ` +
		`200 2750 - - ---- 1/1/1/1/0 0/0 "GET / HTTP/1.1"`
	for _, row := range []struct{ format, line, want string }{
		{"auto", caddyLine, "end of 09:34:23.123456, took 500ms"},
		{"auto", `{"time":"2026-11-21T20:00:01.25Z","msg":"request","client":"203.0.113.1","ms":250.5}`,
			"end of 20:00:01.25, took 250.5ms"},
		{"auto", `time=2026-11-21T20:00:01.250Z msg=request client=203.0.113.1 ms=0.5`,
			"end of 20:00:01.25, took 500µs"},
		{"auto", `{"time_iso8601":"2026-11-21T20:00:01+00:00","remote_addr":"10.0.0.1","request_time":"1.023"}`,
			"end of 20:00:01, took 1.023s"},
		{"auto", `{"time_iso8601":"2026-11-21T20:00:01+00:00","remote_addr":"10.0.0.1"}`,
			"arrival of 20:00:01, took unknown"},
		{"auto", `{"ClientHost":"10.0.0.1","Duration":1500000,"StartUTC":"2026-11-21T20:00:00.5Z",` +
			`"time":"2026-11-21T20:00:01Z"}`, "arrival of 20:00:00.5, took 1.5ms"},
		{"auto", `{"start_time":"2026-11-21T20:00:00.123Z","duration":15,"downstream_remote_address":"10.0.0.1:1"}`,
			"arrival of 20:00:00.123, took 15ms"},
		{"auto", `{"start_time":"2026-11-21T20:00:00.123Z","duration":"-","downstream_remote_address":"10.0.0.1:1"}`,
			"arrival of 20:00:00.123, took unknown"},
		{"auto", `{"ClientIP":"192.0.2.89","EdgeEndTimestamp":1545155129703000000,"EdgeStartTimestamp":1545155129696000000}`,
			"arrival of 17:45:29.696, took 7ms"},
		{"auto", `{"ClientIP":"192.0.2.89","EdgeEndTimestamp":1545155129603000000,"EdgeStartTimestamp":1545155129696000000}`,
			"arrival of 17:45:29.696, took unknown"},
		{"auto", `{"httpRequest":{"latency":"0.25s","remoteIp":"198.51.100.1"},"timestamp":"2026-01-13T15:02:22.078Z"}`,
			"arrival of 15:02:22.078, took 250ms"},
		{"auto", `203.0.113.1 - - [25/Mar/2026:14:12:00 +0000] "GET / HTTP/1.1" 200 2 "-" "curl/8" 4 "web@docker" ` +
			`"http://10.0.0.1:80" 12ms`, "arrival of 14:12:00, took 12ms"}, // Traefik
		{"auto", `203.0.113.1 - - [25/Mar/2026:14:12:00 +0000] "GET / HTTP/1.1" 200 2 "-" "no time in ms"`,
			"arrival of 14:12:00, took unknown"},
		{"auto", `203.0.113.1 - - [25/Mar/2026:14:12:00 +0000] "GET / HTTP/1.1" 200 2 "-" ms`,
			"arrival of 14:12:00, took unknown"},
		{"alb", alb, "arrival of 14:12:00.25, took 1.25s"},
		{"haproxy", fmt.Sprintf(haproxy, "109"), "arrival of 14:12:00.655, took 109ms"},
		{"haproxy", fmt.Sprintf(haproxy, "+109"), "arrival of 14:12:00.655, took 109ms"},
		{"haproxy", fmt.Sprintf(haproxy, "-1"), "arrival of 14:12:00.655, took unknown"},
		{"envoy-text", `[2016-04-15T20:17:00.310Z] "POST /a HTTP/2" 204 - 154 0 226 100 "10.0.35.28" "x" "y" "z" "u"`,
			"arrival of 20:17:00.31, took 226ms"},
		{"squid", `1774447920.500    500 203.0.113.1 TCP_MISS/200   512 GET http://a.example/x - HIER_DIRECT/1 text/html`,
			"end of 14:12:00.5, took 500ms"},
		{"iis", `2012-08-18 19:46:57 ::1 GET /a - 80 - ::1 Mozilla/5.0 - 200 0 0 15`,
			"end of 19:46:57, took 15ms"},
	} {
		e := read(t, formatOf(t, row.format, ""), row.line)
		assert.Equal(t, row.want, timesOf(&e), row.line)
		if !e.AtEnd {
			assert.Equal(t, e.Logged, e.Start, row.line)
		}
	}
}

// TestDurationsOfLogFormats reads durations by the texts of configurations.
func TestDurationsOfLogFormats(t *testing.T) {
	for _, row := range []struct{ format, line, want string }{
		{`$remote_addr [$time_local] "$request" $status $request_time`,
			`203.0.113.1 [25/Mar/2026:14:12:01 +0000] "GET / HTTP/1.1" 200 0.250`, "end of 14:12:01, took 250ms"},
		{`$remote_addr $msec $request_time`, `203.0.113.1 1774447921.500 0.250`, "end of 14:12:01.5, took 250ms"},
		{`$remote_addr $msec`, `203.0.113.1 1774447921.500`, "arrival of 14:12:01.5, took unknown"},
		{`%h %l %u %t "%r" %>s %b %D`, `203.0.113.1 - - [25/Mar/2026:14:12:01 +0000] "GET / HTTP/1.1" 200 2 1500`,
			"arrival of 14:12:01, took 1.5ms"},
		{`%h %t %T`, `203.0.113.1 [25/Mar/2026:14:12:01 +0000] 2`, "arrival of 14:12:01, took 2s"},
		{`%h %t %T %D`, `203.0.113.1 [25/Mar/2026:14:12:01 +0000] 2 2500000`, "arrival of 14:12:01, took 2.5s"},
		{`%h %{msec}t %{ms}T`, `203.0.113.1 1774447921500 7`, "arrival of 14:12:01.5, took 7ms"},
		{`%h %{usec}t %{us}T`, `203.0.113.1 1774447921500000 7`, "arrival of 14:12:01.5, took 7µs"},
		{`[%START_TIME%] %DOWNSTREAM_REMOTE_ADDRESS% %DURATION%`, `[2026-03-25T14:12:01.500Z] 203.0.113.1:1 7`,
			"arrival of 14:12:01.5, took 7ms"},
	} {
		f, err := ParseLayout(row.format)
		require.NoError(t, err, row.format)
		e := read(t, f, row.line)
		assert.Equal(t, row.want, timesOf(&e), row.format)
	}
}

// TestAMapOfTheStart reads a start beside a duration, beside an end, and alone. A time that is
// mapped takes the place of the start of a format.
func TestAMapOfTheStart(t *testing.T) {
	for _, row := range []struct{ format, fields, line, want string }{
		{"json", "start=a,ip=c", `{"a":1774447921.5,"c":"203.0.113.1"}`, "arrival of 14:12:01.5, took unknown"},
		{"json", "start=a,duration=d,ip=c", `{"a":1774447921.5,"c":"203.0.113.1","d":0.25}`,
			"arrival of 14:12:01.5, took 250ms"},
		{"json", "start=a,time=b,ip=c", `{"a":1774447921.5,"b":1774447922,"c":"203.0.113.1"}`,
			"arrival of 14:12:01.5, took 500ms"},
		{"json", "start=a,time=b,ip=c", `{"a":1774447921.5,"c":"203.0.113.1"}`, "arrival of 14:12:01.5, took unknown"},
		{"json", "time=b,duration_ms=d,ip=c", `{"b":1774447922.5,"c":"203.0.113.1","d":250}`,
			"end of 14:12:02.5, took 250ms"},
		{"envoy", "time=ts", `{"ts":1774447921.5,"duration":15,"downstream_remote_address":"10.0.0.1:1"}`,
			"arrival of 14:12:01.5, took unknown"},
		{"envoy", "duration=seconds", `{"start_time":1774447921.5,"seconds":15,"downstream_remote_address":"10.0.0.1:1"}`,
			"arrival of 14:12:01.5, took 15s"},
		{"auto", "start=a,ip=c", `a=1774447921.5 c=203.0.113.1`, "arrival of 14:12:01.5, took unknown"},
	} {
		e := read(t, formatOf(t, row.format, row.fields), row.line)
		assert.Equal(t, row.want, timesOf(&e), row.fields)
	}
}
