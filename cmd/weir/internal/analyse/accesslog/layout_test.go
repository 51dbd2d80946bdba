package accesslog

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// samples are lines from the documentation of each named format, and of IIS 8 and Cloudflare from
// the documentation of programs that read them.
var samples = []struct{ format, lines, start, ip, user, method, path, query, agent string }{
	{"envoy-text",
		`[2016-04-15T20:17:00.310Z] "POST /api/v1/locations HTTP/2" 204 - 154 0 226 100 "10.0.35.28" ` +
			`"nsq2http" "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "locations" "tcp://10.0.2.1:80"`,
		"2016-04-15T20:17:00.31Z", "10.0.35.28", "", "POST", "/api/v1/locations", "", "nsq2http"},
	{"haproxy",
		`Feb  6 12:14:14 localhost haproxy[14389]: 10.0.1.2:33317 [06/Feb/2009:12:14:14.655] http-in ` +
			`static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu} {} "GET /index.html ` +
			`HTTP/1.1"`,
		"2009-02-06T12:14:14.655Z", "10.0.1.2", "", "GET", "/index.html", "", ""},
	{"haproxy",
		`2001:db8:1:2:3:4:5:6:40001 [25/Mar/2026:14:12:00.294] in app/s 0/0/0/9/9 200 867 - - ---- ` +
			`1/1/0/0/0 0/0 "GET /cut/by/sysl`,
		"2026-03-25T14:12:00.294Z", "2001:db8:1:2:3:4:5:6", "", "GET", "/cut/by/sysl", "", ""},
	{"ingress-nginx",
		`{"time": "2026-03-25T14:12:00+00:00", "remote_addr": "", "x_forwarded_for": "203.0.113.7", ` +
			`"request_id": "5", "remote_user": "", "bytes_sent": 162, "request_time": 0.000, "status": 200, ` +
			`"vhost": "example.com", "request_proto": "HTTP/1.1", "path": "/a", "request_query": "b=c", ` +
			`"request_length": 80, "duration": 0.000,"method": "GET", "http_referrer": "", ` +
			`"http_user_agent": "curl/8" }`,
		"2026-03-25T14:12:00Z", "203.0.113.7", "", "GET", "/a", "b=c", "curl/8"},
	{"alb",
		`http 2018-07-02T22:23:00.186641Z app/my-loadbalancer/50dc6c495c0c9188 192.168.131.39:2817 ` +
			`10.0.0.1:80 0.000 0.001 0.000 200 200 34 366 "GET http://www.example.com:80/ HTTP/1.1" ` +
			`"curl/7.46.0" - - ` +
			`arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/my-targets/73e2d6bc24d8a067 ` +
			`"Root=1-58337262-36d228ad5d99923122bbe354" "-" "-" 0 2018-07-02T22:22:48.364000Z "forward" ` +
			`"-" "-" "10.0.0.1:80" "200" "-" "-" TID_1234abcd5678ef90`,
		"2018-07-02T22:22:48.364Z", "192.168.131.39", "", "GET", "/", "", "curl/7.46.0"},
	{"alb",
		`https 2018-07-02T22:23:00.186641Z app/my-loadbalancer/50dc6c495c0c9188 192.168.131.39:2817 ` +
			`10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 "GET https://www.example.com:443/ HTTP/1.1" ` +
			`"curl/7.46.0" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 ` +
			`arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/my-targets/73e2d6bc24d8a067 ` +
			`"Root=1-58337281-1d84f3d73c47ec4e58577259" "www.example.com" ` +
			`"arn:aws:acm:us-east-2:123456789012:certificate/12345678-1234-1234-1234-123456789012" 1 ` +
			`2018-07-02T22:22:48.364000Z "authenticate,forward" "-" "-" "10.0.0.1:80" "200" "-" "-"`,
		"2018-07-02T22:22:48.364Z", "192.168.131.39", "", "GET", "/", "", "curl/7.46.0"},
	{"alb",
		`http 2018-11-30T22:23:00.186641Z app/my-loadbalancer/50dc6c495c0c9188 192.168.131.39:2817 - ` +
			`0.000 0.001 0.000 200 200 34 366 "GET http://www.example.com:80/ HTTP/1.1" "curl/7.46.0" - ` +
			`- arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/my-targets/73e2d6bc24d8a067 "Root=1-58337364-23a8c76965a2ef7629b185e3" "-" "-" 0 2018-11-30T22:22:48.364000Z "forward" "-" "-" "-" "-" "-" "-"`,
		"2018-11-30T22:22:48.364Z", "192.168.131.39", "", "GET", "/", "", "curl/7.46.0"},
	{"s3",
		`79a59df900b949e55d96a1e698fbacedfd6e09d98eacf8f8d5218e7cd47ef2be amzn-s3-demo-bucket1 ` +
			`[06/Feb/2019:00:00:38 +0000] 192.0.2.3 ` +
			`79a59df900b949e55d96a1e698fbacedfd6e09d98eacf8f8d5218e7cd47ef2be 3E57427F3EXAMPLE ` +
			`REST.GET.VERSIONING - "GET /amzn-s3-demo-bucket1?versioning HTTP/1.1" 200 - 113 - 7 - "-" ` +
			`"S3Console/0.4" - ` +
			`s9lzHYrFp76ZVxRcpX9+5cjAnEH2ROuNkd2BHfIa6UkFVdtjf5mKR3/eTPFvsiP/XV/VLi31234= SigV4 ` +
			`ECDHE-RSA-AES128-GCM-SHA256 AuthHeader amzn-s3-demo-bucket1.s3.us-west-1.amazonaws.com ` +
			`TLSV1.2 arn:aws:s3:us-west-1:123456789012:accesspoint/example-AP Yes us-east-1`,
		"2019-02-06T00:00:38Z", "192.0.2.3",
		"79a59df900b949e55d96a1e698fbacedfd6e09d98eacf8f8d5218e7cd47ef2be", "GET",
		"/amzn-s3-demo-bucket1", "versioning", "S3Console/0.4"},
	{"cloudfront",
		"#Version: 1.0\n#Fields: date time x-edge-location sc-bytes c-ip cs-method cs(Host) " +
			"cs-uri-stem sc-status cs(Referer) cs(User-Agent) cs-uri-query cs(Cookie) x-edge-result-type " +
			"x-edge-request-id x-host-header cs-protocol cs-bytes time-taken x-forwarded-for " +
			"ssl-protocol ssl-cipher x-edge-response-result-type cs-protocol-version fle-status " +
			"fle-encrypted-fields c-port time-to-first-byte x-edge-detailed-result-type sc-content-type " +
			"sc-content-len sc-range-start sc-range-end\n" +
			"2019-12-04\t21:02:31\tLAX1\t392\t192.0.2.100\tGET\td111111abcdef8.cloudfront.net\t/index.html\t200\t-\tMozilla/5.0%20(Windows%20NT%2010.0;%20Win64;%20x64)%20AppleWebKit/537.36%20(KHTML,%20like%20Gecko)%20Chrome/78.0.3904.108%20Safari/537.36\t-\t-\tHit\tSOX4xwn4XV6Q4rgb7XiVGOHms_BGlTAC4KyHmureZmBNrjGdRLiNIQ==\td111111abcdef8.cloudfront.net\thttps\t23\t0.001\t-\tTLSv1.2\tECDHE-RSA-AES128-GCM-SHA256\tHit\tHTTP/2.0\t-\t-\t11040\t0.001\tHit\ttext/html\t78\t-\t-",
		"2019-12-04T21:02:30Z", "192.0.2.100", "", "GET", "/index.html", "",
		"Mozilla/5.0%20(Windows%20NT%2010.0;%20Win64;%20x64)%20AppleWebKit/537.36%20(KHTML,%20like%20Gecko)%20Chrome/78.0.3904.108%20Safari/537.36"},
	{"w3c",
		"#Software: Microsoft Internet Information Services 6.0\n#Version: 1.0\n#Date: 2002-05-02 " +
			"17:42:15\n" +
			"#Fields: date time c-ip cs-username s-ip s-port cs-method cs-uri-stem cs-uri-query " +
			"sc-status cs(User-Agent)\n" +
			"2002-05-02 17:42:15 172.22.255.255 - 172.30.255.255 80 GET /images/picture.jpg - 200 " +
			"Mozilla/4.0+(compatible;MSIE+5.5;+Windows+2000+Server)",
		"2002-05-02T17:42:15Z", "172.22.255.255", "", "GET", "/images/picture.jpg", "",
		"Mozilla/4.0+(compatible;MSIE+5.5;+Windows+2000+Server)"},
	{"iis",
		"#Software: Microsoft Internet Information Services 8.0\n#Version: 1.0\n#Date: 2012-08-18 " +
			"19:46:23\n" +
			"#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip " +
			"cs(User-Agent) cs(Referer) sc-status sc-substatus sc-win32-status time-taken\n" +
			"2012-08-18 19:46:57 ::1 GET /msweb-brand.png - 80 - ::1 " +
			"Mozilla/5.0+(compatible;+MSIE+10.0;+Windows+NT+6.2;+WOW64;+Trident/6.0) http://localhost/ " +
			"200 0 0 0",
		"2012-08-18T19:46:57Z", "::1", "", "GET", "/msweb-brand.png", "",
		"Mozilla/5.0+(compatible;+MSIE+10.0;+Windows+NT+6.2;+WOW64;+Trident/6.0)"},
	{"cloudflare",
		`{"ClientIP":"192.0.2.1","ClientRequestHost":"example.com","ClientRequestMethod":"GET","ClientRequestURI":"/a?b","ClientRequestUserAgent":"curl/8","EdgeEndTimestamp":"2018-05-20T09:58:09Z","EdgeResponseStatus":200,"EdgeStartTimestamp":1526810289280000000,"RayID":"41ddf1740f67442d"}`,
		"2018-05-20T09:58:09.28Z", "192.0.2.1", "", "GET", "/a", "b", "curl/8"},
	{"cloudflare",
		`{"ClientIP":"192.0.2.89","ClientRequestHost":"testing.logpull.com","ClientRequestMethod":"GET","ClientRequestURI":"/var/www","EdgeEndTimestamp":1545155129703000000,"EdgeResponseBytes":1935,"EdgeResponseStatus":403,"EdgeStartTimestamp":1545155129696000000,"RayID":"48b371889c489b2c"}`,
		"2018-12-18T17:45:29.696Z", "192.0.2.89", "", "GET", "/var/www", "", ""},
	{"gcp",
		`{"httpRequest":{"latency":"0.058927s","referer":"http://dummy_referer/console/","remoteIp":"198.51.100.1","requestMethod":"GET","requestSize":"257","requestUrl":"https://34.1.0.35/console/?x","responseSize":"1467","status":302,"userAgent":"Mozilla/5.0"},"insertId":"1vzs264g1u90hp5","timestamp":"2023-01-13T15:02:22.078Z"}`,
		"2023-01-13T15:02:22.078Z", "198.51.100.1", "", "GET", "/console/", "x", "Mozilla/5.0"},
}

// TestDocumentedSamples reads a sample of each named format by its name, also without the head of a
// W3C log, and in JSON and W3C without a name.
func TestDocumentedSamples(t *testing.T) {
	for _, s := range samples {
		lines := strings.Split(s.lines, "\n")
		names := []string{s.format, "auto"}
		switch s.format {
		case "w3c": // by its fields alone
			names = names[1:]
		case "ingress-nginx":
			names[0] = "nginx"
		}
		for _, name := range names {
			f := formatOf(t, name, "")
			for skip := range len(lines) {
				if auto := name == "auto"; auto && (skip > 0 || lines[0][0] != '{' && lines[0][0] != '#') {
					continue
				}
				p := NewParser(f)
				var e Entry
				for _, line := range lines[skip:] {
					if err := p.Parse([]byte(line), &e); line[0] == '#' {
						require.ErrorIs(t, err, ErrDirective)
					} else {
						require.NoError(t, err, "%s: %s", s.format, line)
					}
				}
				_, agent := e.Headers()
				assert.Equal(t, []string{s.start, s.ip, s.user, s.method, s.path, s.query, s.agent},
					[]string{startOf(&e), string(e.IP), string(e.User), string(e.Method), string(e.Path),
						string(e.Query), agent}, s.format)
			}
		}
	}
}

// TestNamedFormatsRefuseOthers: a line of one format is never read as another.
func TestNamedFormatsRefuseOthers(t *testing.T) {
	for _, s := range samples {
		for _, name := range []string{"envoy-text", "haproxy", "alb", "s3", "iis", "cloudfront"} {
			f := formatOf(t, name, "")
			lines := strings.Split(s.lines, "\n")
			line := lines[len(lines)-1]
			var e Entry
			if err := NewParser(f).Parse([]byte(line), &e); name != s.format && err == nil {
				assert.Equal(t, s.ip, string(e.IP), "%s as %s", s.format, name)
			}
		}
	}
}

// envoyDefault is the format string that Envoy documents as its default.
const envoyDefault = `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" ` +
	`%RESPONSE_CODE% %RESPONSE_FLAGS% %BYTES_RECEIVED% %BYTES_SENT% %DURATION% ` +
	`%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" ` +
	`"%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%"`

// TestNoAddressIsNoCaller: a request without a forwarded address, where the format has no other, is
// read and has no address.
func TestNoAddressIsNoCaller(t *testing.T) {
	envoy := formatOf(t, "envoy-text", "")
	nginx := must(ParseLayout(`$http_x_forwarded_for [$time_local] "$request"`))
	for line, f := range map[string]Format{
		`[2016-04-15T20:17:00.310Z] "GET /a HTTP/2" 204 - 154 0 226 100 "-" "x" "c" "l" "tcp://10.0.2.1:80"`: envoy,
		`- [20/Nov/2026:09:34:23 +0000] "GET /a HTTP/1.1"`:                                                   nginx,
	} {
		e := read(t, f, line)
		assert.Equal(t, "/a", string(e.Path), line)
		assert.Empty(t, e.IP, line)
	}
}

func TestLayouts(t *testing.T) {
	const stamp = "20/Nov/2026:09:34:23 +0000"
	for _, row := range []struct{ format, line, start, rest string }{
		{`$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent ` +
			`"$http_referer" "$http_user_agent"`,
			`1.2.3.4 - ann [` + stamp + `] "GET /a?b HTTP/1.1" 200 12 "-" "x \"y\""`, "2026-11-20T09:34:23Z",
			"1.2.3.4 ann GET /a b 200"},
		{"log_format main '$remote_addr - $remote_user [$time_local] \"$request\" '\n  '$status " +
			"\"$http_x_forwarded_for\"';",
			`10.0.0.1 - - [` + stamp + `] "GET /a HTTP/1.1" 404 "1.2.3.4"`, "2026-11-20T09:34:23Z",
			"10.0.0.1  GET /a  404"},
		{`$host ${remote_addr} $msec $request_time $request_method $uri$is_args$args $status`,
			`example.com 1.2.3.4 1700000000.250 0.250 POST /a?b 200`, "2023-11-14T22:13:20Z",
			"1.2.3.4  POST /a b 200"},
		{`$time_iso8601 $remote_addr $request_uri`, `2026-11-20T10:34:23+01:00 2001:db8::1 /a`,
			"2026-11-20T09:34:23Z", "2001:db8::1   /a  0"},
		{`LogFormat "%h %l %u %t \"%r\" %>s %b \"%{Referer}i\" \"%{User-agent}i\"" combined`,
			`1.2.3.4 - ann [` + stamp + `] "GET /a HTTP/1.1" 200 12 "-" "x"`, "2026-11-20T09:34:23Z",
			"1.2.3.4 ann GET /a  200"},
		{`%v:%p %a %{usec}t %m %U%q %>s %D`, `example.com:80 1.2.3.4 1700000000250000 GET /a?b 200 77`,
			"2023-11-14T22:13:20.25Z", "1.2.3.4  GET /a b 200"},
		{`{"time":"$time_iso8601","ip":"$remote_addr","path":"$request_uri"}`,
			`{"time":"2026-11-20T09:34:23Z","ip":"1.2.3.4","path":"/\"a"}`, "2026-11-20T09:34:23Z",
			`1.2.3.4   /\"a  0`},
		{`web-1 [$time_local] $http_x_forwarded_for "$request"`,
			`web-1 [` + stamp + `] 9.9.9.9, 1.2.3.4 "GET /a HTTP/1.1"`, "2026-11-20T09:34:23Z",
			"1.2.3.4  GET /a  0"},
		// Envoy's default, and the same without a forwarded address
		{envoyDefault, `[2026-11-20T09:34:23.250Z] "GET /a?b HTTP/2" 204 - 154 0 226 100 "9.9.9.9,1.2.3.4" ` +
			`"curl" "cc21d9b0" "example.com" "10.0.2.1:80"`, "2026-11-20T09:34:23.25Z", "1.2.3.4  GET /a b 204"},
		{envoyDefault, `[2026-11-20T09:34:23.250Z] "GET /a?b HTTP/2" 204 - 154 0 226 100 "-" "curl" "cc21d9b0" ` +
			`"example.com" "10.0.2.1:80"`, "2026-11-20T09:34:23.25Z", "  GET /a b 204"},
		{`"` + strings.ReplaceAll(envoyDefault, `"`, `\"`) + `\n"`, // as in YAML
			`[2026-11-20T09:34:23.250Z] "GET /a HTTP/2" 204 - 154 0 226 100 "1.2.3.4" "curl" "c" "x" "10.0.2.1:80"`,
			"2026-11-20T09:34:23.25Z", "1.2.3.4  GET /a  204"},
		{`%START_TIME(%s.%3f)% %DOWNSTREAM_REMOTE_ADDRESS% %REQ(:method)% %REQ(:PATH):20% %RESPONSE_CODE% ` +
			`%DOWNSTREAM_DIRECT_REMOTE_ADDRESS%`, `1700000000.250 [2001:db8::1]:443 GET /a?b 200 10.0.0.1:80`,
			"2023-11-14T22:13:20.25Z", "2001:db8::1  GET /a b 200"},
		{`%START_TIME(%Y/%m/%dT%H:%M:%S%z)% %DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT% %PATH(NQ)%`,
			`2026/11/20T10:34:23+0100 1.2.3.4 /a`, "2026-11-20T09:34:23Z", "1.2.3.4   /a  0"},
	} {
		f := must(ParseLayout(row.format))
		f.Lists = true
		var e Entry
		for name, wrap := range known {
			line := wrap(row.line)
			require.NoError(t, NewParser(f).Parse([]byte(line), &e), "%s: %s: %s", row.format, name, line)
			assert.Equal(t, row.start, startOf(&e), row.format)
			got := []string{string(e.IP), string(e.User), string(e.Method), string(e.Path), string(e.Query),
				time.Duration(e.Status).String()}
			got[5] = strings.TrimSuffix(strings.TrimSuffix(got[5], "s"), "n")
			assert.Equal(t, row.rest, strings.Join(got, " "), row.format)
		}
	}
	for _, format := range []string{"", "x", "$remote_addr", "$time_local $status",
		"$remote_addr$time_local",
		"%h %{%d/%b/%Y}t", "%h", "%l %u", "%START_TIME%", "%DOWNSTREAM_REMOTE_ADDRESS%",
		"%START_TIME(%c)% %DOWNSTREAM_REMOTE_ADDRESS%",
		"%START_TIME(%Y %s)% %DOWNSTREAM_REMOTE_ADDRESS%"} {
		_, err := ParseLayout(format)
		assert.Error(t, err, format)
	}
	f := must(ParseLayout(`$remote_addr [$time_local] "$request"`))
	var e Entry
	for _, line := range []string{"1.2.3.4", `1.2.3.4 [x] "GET / HTTP/1.1"`,
		`a b [` + stamp + `] "GET / HTTP/1.1"`,
		`1.2.3.4 [` + stamp + `] "GET /`, `-1.2.3.4 [` + stamp + `] "GET / HTTP/1.1"`} {
		assert.Error(t, NewParser(f).Parse([]byte(line), &e), line)
	}
}

// TestUnitsOfEpochs: the same instant in each unit.
func TestUnitsOfEpochs(t *testing.T) {
	for _, number := range []string{"1700000000.25", "1700000000250", "1700000000250000",
		"1700000000250000000"} {
		for _, line := range []string{`{"ts":` + number + `,"request":{"remote_ip":"a"}}`,
			`{"ts":"` + number + `","request":{"remote_ip":"a"}}`} {
			e := read(t, Format{}, line)
			assert.Equal(t, at("2023-11-14T22:13:20.25Z"), e.Start, line)
		}
	}
}
