package accesslog

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLayoutsAsConfigured has layouts of configurations whose variables stand back to back, or that
// have addresses of several hops. The client is the last address of list that is not of a proxy.
func TestLayoutsAsConfigured(t *testing.T) {
	const stamp = `[25/Mar/2026:14:12:00 +0000]`
	for _, row := range []struct{ layout, line, ip, list, path string }{
		{`$remote_addr - $remote_user [$time_local] $http_host "$request" $status $body_bytes_sent $request_time ` +
			`"$http_referer" "$http_user_agent" $upstream_addr $upstream_status $upstream_response_time ` +
			`"$upstream_scheme://$upstream_host$upstream_uri"`,
			`10.0.0.7 - - ` + stamp + ` a.example "GET /x HTTP/1.1" 200 2 0.1 "-" "curl" 172.17.0.9:80 200 0.1 ` +
				`"http://a.example/up"`, "10.0.0.7", "", "/x"},
		{`$remote_addr [$time_local] $scheme://$host$request_uri $status`,
			`10.0.0.7 ` + stamp + ` https://a.example/x?y 200`, "10.0.0.7", "", "/x"},
		{`$remote_addr [$time_local] "$scheme$host$server_port" $status`, `10.0.0.7 ` + stamp + ` "httpsa.example443" 200`,
			"10.0.0.7", "", ""},
		{`$remote_addr [$time_local] $http_x_real_ip`, `10.0.0.7 ` + stamp + ` 203.0.113.1`, "10.0.0.7", "203.0.113.1", ""},
		{`$remote_addr [$time_local] $http_cf_connecting_ip`, `10.0.0.7 ` + stamp + ` 203.0.113.1`, "10.0.0.7", "203.0.113.1", ""},
		{`$remote_addr [$time_local] $http_true_client_ip`, `10.0.0.7 ` + stamp + ` 203.0.113.1`, "10.0.0.7", "203.0.113.1", ""},
		{`$remote_addr [$time_local] $proxy_protocol_addr`, `10.0.0.7 ` + stamp + ` 203.0.113.1`, "10.0.0.7", "203.0.113.1", ""},
		{`$remote_addr [$time_local] $the_real_ip`, `10.0.0.7 ` + stamp + ` 203.0.113.1`, "10.0.0.7", "203.0.113.1", ""},
		{`$the_real_ip - [$the_real_ip] [$time_local]`, `203.0.113.1 - [203.0.113.1] ` + stamp, "203.0.113.1", "", ""},
		{`$proxy_protocol_addr [$time_local]`, `203.0.113.1 ` + stamp, "203.0.113.1", "", ""},
		{`$http_x_real_ip [$time_local]`, `203.0.113.1 ` + stamp, "203.0.113.1", "", ""},
		{`$realip_remote_addr [$time_local]`, `10.0.0.7 ` + stamp, "10.0.0.7", "", ""},
		{`$remote_addr $realip_remote_addr [$time_local]`, `203.0.113.1 10.0.0.7 ` + stamp, "203.0.113.1", "", ""},
		{`$realip_remote_addr $remote_addr [$time_local]`, `10.0.0.7 203.0.113.1 ` + stamp, "203.0.113.1", "", ""},
		{`$proxy_add_x_forwarded_for $remote_addr [$time_local]`, `203.0.113.1, 10.0.0.7 10.0.0.7 ` + stamp, "10.0.0.7",
			"203.0.113.1, 10.0.0.7", ""},
		{`$remote_addr $http_x_real_ip $http_x_forwarded_for [$time_local]`,
			`10.0.0.7 10.0.0.8 203.0.113.1, 10.0.0.8 ` + stamp, "10.0.0.7", "203.0.113.1, 10.0.0.8", ""},
		{`$remote_addr $http_x_forwarded_for $http_x_real_ip [$time_local]`, `10.0.0.7 - 203.0.113.1 ` + stamp,
			"10.0.0.7", "203.0.113.1", ""},
		{`$remote_addr "$http_forwarded" [$time_local]`, `10.0.0.7 "for=203.0.113.1;proto=https, For=\"[2001:db8::1]:80\"" ` + stamp,
			"10.0.0.7", "203.0.113.1, [2001:db8::1]:80", ""},
		{`%h %t "%{X-Real-IP}i"`, `10.0.0.7 ` + stamp + ` "203.0.113.1"`, "10.0.0.7", "203.0.113.1", ""},
		{`%h %t "%{CF-Connecting-IP}i"`, `10.0.0.7 ` + stamp + ` "203.0.113.1"`, "10.0.0.7", "203.0.113.1", ""},
		{`%{c}h %t "%r"`, `10.0.0.7 ` + stamp + ` "GET /x HTTP/1.1"`, "10.0.0.7", "", "/x"},
		{`%a %{c}a %t`, `203.0.113.1 10.0.0.7 ` + stamp, "203.0.113.1", "", ""},
		{`[%START_TIME%] "%REQ(X-REAL-IP)%" %DOWNSTREAM_REMOTE_ADDRESS%`,
			`[2026-03-25T14:12:00.000Z] "203.0.113.1" 10.0.0.7:4000`, "10.0.0.7", "203.0.113.1", ""},
		// Jetty and Squid pad their fields.
		{`%h %l %u %t "%r" %>s %b`, `10.0.0.7 -  -  ` + stamp + ` "GET /x HTTP/1.1" 200  2`, "10.0.0.7", "", "/x"},
		{`$msec $request_time $remote_addr $_/$status $_ $request_method $request_uri`,
			`1774447920.123     45 10.0.0.7 TCP_MISS/200   512 GET http://a.example/x`, "10.0.0.7", "", "/x"},
	} {
		f, err := ParseLayout(row.layout)
		require.NoError(t, err, row.layout)
		f.Lists = true
		e := read(t, f, row.line)
		list, _ := e.Forwarded()
		assert.Equal(t, fmt.Sprint(row.ip, " ", row.list, " ", row.path),
			fmt.Sprint(string(e.IP), " ", list, " ", string(e.Path)), row.layout)
	}
	for _, refused := range []string{`$remote_addr$msec`, `$msec$host$remote_addr`, `$time_local$remote_addr`} {
		_, err := ParseLayout(refused)
		assert.ErrorContains(t, err, "nothing stands between the variables before", refused)
	}
}

// TestPaddingIsNeverAnAddress: an empty field does not make the next address the client.
func TestPaddingIsNeverAnAddress(t *testing.T) {
	f, err := ParseLayout(`$time_iso8601 $remote_addr $upstream_addr`)
	require.NoError(t, err)
	var e Entry
	assert.Error(t, NewParser(f).Parse([]byte(`2026-03-25T14:12:00Z  172.17.0.9`), &e))
}

// TestKeyedLines reads logfmt, and a time in two keys.
func TestKeyedLines(t *testing.T) {
	for _, row := range []struct{ format, more, line, start, ip, path, list string }{
		{"auto", "", `time=2026-03-25T14:12:00.500Z level=INFO msg=request client=203.0.113.1 method=GET host=a.example ` +
			`path=/x status=200 bytes=2 ms=500 decision=allowed key="a b"`, "2026-03-25T14:12:00Z", "203.0.113.1", "/x", ""},
		{"weir", "", `time=2026-03-25T14:12:00.500Z level=INFO msg=request client=203.0.113.1 path="/a b" ms=500`,
			"2026-03-25T14:12:00Z", "203.0.113.1", "/a b", ""},
		{"auto", "", `2026-03-25T14:12:00.500000+00:00 heroku[router]: at=info method=GET path="/x?y" host=a.example ` +
			`request_id=5 fwd="203.0.113.1" dyno=web.1 connect=1ms service=500ms status=200 bytes=13 protocol=https`,
			"2026-03-25T14:12:00Z", "203.0.113.1", "/x", ""},
		{"auto", "", `<158>1 2026-03-25T14:12:00.5+00:00 host heroku router - at=info method=GET path="/x" ` +
			`fwd="203.0.113.1" service=500ms status=200`, "2026-03-25T14:12:00Z", "203.0.113.1", "/x", ""},
		{"logfmt", "", `method=GET path=/x format=html controller=X action=index status=200 duration=500.00 view=4.4 ` +
			`time=2026-03-25T14:12:00.500Z remote_ip=203.0.113.1`, "2026-03-25T14:12:00Z", "203.0.113.1", "/x", ""},
		{"logfmt", "ip=whence,time=day+clock", `day=2026-03-25 clock=14:12:00 whence=203.0.113.1 uri=/x`,
			"2026-03-25T14:12:00Z", "203.0.113.1", "/x", ""},
		{"json", "time=t,ip=c,path=p", `t=1774447920 c=203.0.113.1 p=/x`, "2026-03-25T14:12:00Z", "203.0.113.1", "/x", ""},
		{"auto", "", `time=2026-03-25T14:12:00Z client=10.0.0.7 path=/x x-forwarded-for="203.0.113.1, 10.0.0.8"`,
			"2026-03-25T14:12:00Z", "10.0.0.7", "/x", "203.0.113.1, 10.0.0.8"},
		{"json", "time=date+time,ip=c-ip,path=u", `{"date":"2026-03-25","time":"14:12:00","c-ip":"203.0.113.1","u":"/x"}`,
			"2026-03-25T14:12:00Z", "203.0.113.1", "/x", ""},
		{"json", "time=ts,time=date+time,ip=c", `{"date":"2020-01-01","ts":1774447920,"c":"203.0.113.1"}`,
			"2026-03-25T14:12:00Z", "203.0.113.1", "", ""},
		{"auto", "", `{"date":"2026-03-25","time":"14:12:01","c-ip":"203.0.113.1","cs-uri-stem":"/x","time-taken":"1.0"}`,
			"2026-03-25T14:12:00Z", "203.0.113.1", "/x", ""},
		{"auto", "", `{"time":"2026-03-25T14:12:00Z","category":"FrontDoorAccessLog","properties":{"clientIp":"203.0.113.1",` +
			`"requestUri":"https://a.example:443/x","httpStatusCode":"200"}}`, "2026-03-25T14:12:00Z", "203.0.113.1", "/x", ""},
		{"squid", "", `1774447920.500    500 203.0.113.1 TCP_MISS/200   512 GET http://a.example/x - HIER_DIRECT/172.17.0.9 text/html`,
			"2026-03-25T14:12:00Z", "203.0.113.1", "/x", ""},
		{"auto", "", `203.0.113.1 -  -  [25/Mar/2026:14:12:00 +0000] "GET /x HTTP/1.1" 200  2`,
			"2026-03-25T14:12:00Z", "203.0.113.1", "/x", ""},
	} {
		e := read(t, formatOf(t, row.format, row.more), row.line)
		list, _ := e.Forwarded()
		assert.Equal(t, []string{row.start, row.ip, row.path, row.list},
			[]string{startOf(&e), string(e.IP), string(e.Path), list}, row.line)
	}
	for _, line := range []string{`level=info msg=10.0.0.7 - - [25/Mar/2026:14:12:00 +0000] "GET / HTTP/1.1" 200 2`,
		`time=2026-03-25T14:12:00Z level=INFO msg="listens"`, `time="2026`, `a=`, `=`} {
		var e Entry
		assert.Error(t, new(Parser).Parse([]byte(line), &e), line)
	}
}

func FuzzLogfmt(f *testing.F) {
	f.Add(`time=2026-03-25T14:12:00Z client=203.0.113.1 path="/a \" b" ms=1`, false)
	f.Add(`at=info fwd="203.0.113.1, 10.0.0.1" Forwarded="for=\"[::1]:1\"" ts=1774447920`, true)
	f.Fuzz(func(t *testing.T, line string, lists bool) {
		p, e := NewParser(Format{Lists: lists}), Entry{}
		if err := p.Parse([]byte(line), &e); err != nil || !isLogfmt(p.line) {
			return
		}
		if len(e.IP) == 0 {
			t.Fatalf("%q has no caller", line)
		}
		p.Addresses(func(Field, Address) {})
	})
}
