package replay

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/accesslog"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// clientFields are request headers in which CDNs, clouds, balancers and frameworks pass on the
// address of the client.
var clientFields = []string{"X-Forwarded-For", "X-Real-IP", "Forwarded", "X-Forwarded", "Forwarded-For",
	"X-Original-Forwarded-For", "X-Client-IP", "Client-IP", "X-Cluster-Client-IP", "True-Client-IP",
	"CF-Connecting-IP", "CF-Connecting-IPv6", "Fastly-Client-IP", "X-Azure-ClientIP", "X-Azure-SocketIP",
	"X-Appengine-User-IP", "X-Envoy-External-Address", "CloudFront-Viewer-Address", "Incap-Client-IP",
	"DO-Connecting-IP", "X-Nf-Client-Connection-Ip", "X-Vercel-Forwarded-For", "Ali-Cdn-Real-Ip",
	"X-Sucuri-ClientIP", "EO-Connecting-IP", "Proxy-Client-IP", "WL-Proxy-Client-IP", "Fly-Client-IP",
	"X-Originating-IP", "Cdn-Src-Ip", "X-Forwarded-IP", "X-Real-Client-IP", "NS-Client-IP"}

// strangeFields are names that say nothing.
var strangeFields = []string{"X-Strange", "Whence", "X-Visitor"}

func cgi(name string) string { return strings.ToLower(strings.ReplaceAll(name, "-", "_")) }

// loggedField is a log with the address of the client in a field.
type loggedField struct {
	log    string // its format
	format func(t *testing.T, name, more string) accesslog.Format
	line   func(name, at, peer, client string) string
}

// named is the format with a name.
func named(format string) func(*testing.T, string, string) accesslog.Format {
	return func(t *testing.T, _, more string) accesslog.Format {
		f, err := accesslog.ParseFormat(format, more)
		require.NoError(t, err, more)
		return f
	}
}

// layoutOf is a format by its text, in which a name is spelled.
func layoutOf(text string, spell func(string) string) func(*testing.T, string, string) accesslog.Format {
	return func(t *testing.T, name, more string) accesslog.Format {
		require.Empty(t, more)
		f, err := accesslog.ParseLayout(strings.ReplaceAll(text, "NAME", spell(name)))
		require.NoError(t, err, text)
		return f
	}
}

// jsonOf is a line of JSON. In text, NAME is spelled.
func jsonOf(text string, spell func(string) string) func(name, at, peer, client string) string {
	return func(name, at, peer, client string) string {
		return strings.NewReplacer("NAME", spell(name), "AT", at, "PEER", peer, "CLIENT", client).Replace(text)
	}
}

func same(name string) string { return name }

// loggedFields has the layouts of docs/replay.md with keys, or whose text a configuration gives.
var loggedFields = []loggedField{
	{"nginx", named("auto"), jsonOf(`{"time":"AT","remote_addr":"PEER","request_uri":"/","status":200,"http_NAME":"CLIENT"}`, cgi)},
	{"nginx, the header's name", named("nginx"), jsonOf(`{"time":"AT","remote_addr":"PEER","NAME":"CLIENT","status":200}`, same)},
	{"nginx, the name in capitals", named("auto"), jsonOf(`{"time":"AT","HTTP_NAME":"CLIENT","remote_addr":"PEER"}`,
		func(name string) string { return strings.ToUpper(cgi(name)) })},
	{"Caddy", named("auto"), jsonOf(`{"ts":"AT","request":{"remote_ip":"PEER","uri":"/","headers":{"NAME":["CLIENT"]}}}`, same)},
	{"Traefik", named("auto"), jsonOf(`{"StartUTC":"AT","time":"AT","ClientAddr":"PEER:40001","ClientHost":"PEER",`+
		`"request_NAME":"CLIENT","ServiceAddr":"172.17.0.9:80"}`, same)},
	{"Envoy Gateway", named("auto"), jsonOf(`{"start_time":"AT","method":"GET","x-envoy-origin-path":"/","NAME":"CLIENT",`+
		`"downstream_remote_address":"PEER:40001","upstream_host":"172.17.0.9:80","downstream_local_address":"172.17.0.2:80"}`,
		strings.ToLower)},
	{"weir", named("weir"), jsonOf(`{"time":"AT","client":"PEER","method":"GET","path":"/","NAME":"CLIENT"}`, same)},
	{"weir, logfmt", named("auto"), jsonOf(`time=AT level=INFO msg=request client=PEER method=GET path=/ status=200 NAME="CLIENT"`, same)},
	{"logfmt", named("logfmt"), jsonOf(`ts=AT remote_addr=PEER NAME="CLIENT" status=200`, same)},
	{"gcp", named("auto"), jsonOf(`{"timestamp":"AT","httpRequest":{"remoteIp":"PEER","serverIp":"172.17.0.9"},"NAME":"CLIENT"}`, same)},
	{"cloudflare", named("auto"), jsonOf(`{"EdgeStartTimestamp":"AT","ClientIP":"PEER","NAME":"CLIENT"}`, strings.ToLower)},
	{"azure", named("azure"), jsonOf(`{"time":"AT","properties":{"clientIp":"PEER","NAME":"CLIENT"}}`, same)},
	{"cloudfront, JSON", named("auto"), jsonOf(`{"date":"2026-03-25","time":"14:12:00","c-ip":"PEER","NAME":"CLIENT"}`, same)},
	{"W3C", named("auto"), func(name, _, peer, client string) string {
		return "#Fields: date time c-ip cs-method cs(" + name + ") s-ip\n2026-03-25 14:12:00 " + peer + " GET " +
			strings.ReplaceAll(client, " ", "") + " 172.17.0.9"
	}},
	{"W3C, tabs", named("cloudfront"), func(name, _, peer, client string) string {
		return "#Fields: date time c-ip " + name + "\n2026-03-25\t14:12:00\t" + peer + "\t" + client
	}},
	{"log_format", layoutOf(`$remote_addr [$time_iso8601] "$request" $status "$http_NAME"`, cgi),
		jsonOf(`PEER [AT] "GET / HTTP/1.1" 200 "CLIENT"`, same)},
	{"log_format, without quotes", layoutOf(`$time_iso8601 $http_NAME $remote_addr`, cgi), jsonOf(`AT CLIENT PEER`, same)},
	{"LogFormat", layoutOf(`%h %l %u [%{msec}t] "%r" %>s "%{NAME}i"`, same), jsonOf(`PEER - - [[AT]] "GET / HTTP/1.1" 200 "CLIENT"`, same)},
	{"Envoy's format", layoutOf(`[%START_TIME%] "%REQ(:METHOD)%" %DOWNSTREAM_REMOTE_ADDRESS% "%REQ(NAME)%" "%UPSTREAM_HOST%"`, strings.ToUpper),
		jsonOf(`[AT] "GET" PEER:40001 "CLIENT" "172.17.0.9:80"`, same)},
	{"JSON by a map", func(t *testing.T, name, more string) accesslog.Format {
		return named("json")(t, name, strings.TrimPrefix(more+",time=t,ip=peer", ","))
	}, jsonOf(`{"t":"AT","peer":"PEER","deep":{"NAME":"CLIENT"}}`, same)},
}

// places has the layouts whose fields have no names, with the client in a place.
var placedFields = []loggedField{
	{"after the agent", named("combined"), jsonOf(`PEER - - [AT] "GET / HTTP/1.1" 200 2 "-" "x" "CLIENT"`, same)},
	{"two fields after the agent", named("auto"), jsonOf(`PEER - - [AT] "GET / HTTP/1.1" 200 2 "-" "x" "-" "CLIENT"`, same)},
	{"after the upstream", named("auto"), jsonOf(`PEER - - [AT] "GET / HTTP/1.1" 200 2 "-" "x" 0.1 172.17.0.9:80 0.1 CLIENT`, same)},
	{"by a name at the end", named("auto"), jsonOf(`PEER - - [AT] "GET / HTTP/1.1" 200 2 "-" "x" rt=0.1 xff="CLIENT"`, same)},
	{"HAProxy's captures", named("haproxy"),
		jsonOf(`PEER:40001 [AT] in app/s 0/0/0/9/9 200 867 - - ---- 1/1/0/0/0 0/0 {CLIENT|curl} "GET / HTTP/1.1"`, same)},
	{"S3 with a field", named("s3"), jsonOf(`o b [AT] PEER - R O - "GET / HTTP/1.1" 200 - 1 - 7 - "-" "x" - CLIENT`, same)},
	{"ALB with a field", named("alb"), jsonOf(`http AT app/l/5 PEER:2817 172.17.0.9:80 0 0 0 200 200 34 366 "GET / HTTP/1.1" `+
		`"x" - - arn "R" "-" "-" 0 AT "CLIENT"`, same)},
	{"Squid with a field", named("squid"), jsonOf(`AT     12 PEER TCP_MISS/200 12 GET http://a.example/ - HIER_DIRECT/172.17.0.9 text/html CLIENT`, same)},
}

// behind returns a log of 48 requests of 12 clients behind balancers.
func behind(l loggedField, name string, balancers int, prefix string) string {
	var b strings.Builder
	for i := range 48 {
		client := fmt.Sprint("203.0.113.", 1+i*7%12)
		if name == "Forwarded" {
			client = "for=" + client + ";proto=https"
		}
		at := time.Date(2026, 3, 25, 14, 12, i/10, i%10*1e8, time.UTC)
		stamp := at.Format("2006-01-02T15:04:05.000Z")
		line := l.line(name, stamp, fmt.Sprint(prefix, 1+i%balancers), client)
		switch {
		case strings.HasPrefix(l.log, "Squid"):
			line = strings.ReplaceAll(line, stamp, fmt.Sprintf("%d.%03d", at.Unix(), at.Nanosecond()/1e6))
		case l.log == "LogFormat":
			line = strings.ReplaceAll(line, "["+stamp+"]", fmt.Sprint(at.UnixMilli()))
		}
		b.WriteString(line + "\n")
	}
	return b.String()
}

// mended finds the map that a doubt asks for.
var mended = regexp.MustCompile(`--map (xff=[^ ]+)`)

// TestNoBalancerIsTheClientInSilence makes the logs of each layout with the client under each name,
// behind one and many balancers of private and public addresses. Each ends in the callers that sent
// the requests, or in a doubt with the flag that leads there.
func TestNoBalancerIsTheClientInSilence(t *testing.T) {
	cells := 0
	check := func(l loggedField, name string, known bool) {
		for _, prefix := range []string{"10.0.0.", "198.51.100."} {
			for _, balancers := range []int{1, 8} {
				cells++
				if every := slow.N(12, 4, 1); known && name != "X-Forwarded-For" && cells%every != len(name)%every {
					continue // only some of the cells of each name, others in each layout
				}
				cell := fmt.Sprint(l.log, ": ", name, " behind ", balancers, " of ", prefix)
				text := behind(l, name, balancers, prefix)
				replayed := func(more string, trust ...netip.Prefix) (callers []string, doubt string) {
					cfg := Config{By: ByIP, Trust: trust, Format: l.format(t, name, more)}
					cfg.Format.Lists = len(trust) > 0
					r, b := newRun(cfg), &block{data: []byte(text)}
					newScanner(&cfg).scan(b)
					require.NoError(t, r.take(b))
					r.result.count(&b.content)
					require.Zero(t, b.bad, cell)
					return r.callers.names, strings.Join(r.doubts(), "; ")
				}
				_, doubt := replayed("")
				if !assert.Contains(t, doubt, "--trust", cell) {
					continue
				}
				trusted := netip.MustParsePrefix(prefix + "0/24")
				got, doubt := replayed("", trusted)
				if doubt != "" && !known {
					assert.NotContains(t, doubt, "no X-Forwarded-For", cell)
					more := mended.FindStringSubmatch(doubt)
					if more == nil {
						assert.Contains(t, doubt, "--log-format with $http_x_forwarded_for", cell)
						continue
					}
					got, doubt = replayed(strings.TrimSuffix(more[1], ":"), trusted)
				}
				assert.Empty(t, doubt, cell)
				assert.Len(t, got, 12, cell)
				for _, caller := range got {
					assert.Contains(t, caller, "203.0.113.", cell)
				}
			}
		}
	}
	for _, l := range loggedFields {
		for _, name := range clientFields {
			check(l, name, l.log != "JSON by a map")
		}
		for _, name := range strangeFields {
			check(l, name, false)
		}
	}
	for _, l := range placedFields {
		check(l, "X-Forwarded-For", false)
		check(l, "Forwarded", false)
	}
	t.Log(cells, "cells")
}

// TestOtherFieldsAreNoClients has logs of clients whose lines have other addresses too.
func TestOtherFieldsAreNoClients(t *testing.T) {
	for _, row := range []struct{ name, line, doubt string }{
		{"upstreams", `{"time":AT,"remote_addr":"203.0.113.{9}","upstream_addr":"172.17.0.{3}:80","server_addr":"10.0.0.5"}`, ""},
		{"more upstreams than private clients", `{"time":AT,"remote_addr":"10.1.0.{3}","upstream_addr":"172.17.0.{9}:4{7}"}`, ""},
		{"more pods than private clients", `{"time":AT,"remote_addr":"10.1.0.{3}","podIP":"172.17.0.{9}"}`, ""},
		{"a version", `{"time":AT,"remote_addr":"10.1.0.{3}","agent_version":"10.4.1.{9}"}`, ""},
		{"the same client twice", `{"time":AT,"remote_addr":"2001:db8:{9}::{7}","client_ip":"2001:db8:{9}::{11}"}`, ""},
		{"a client that is masked", `{"time":AT,"remote_addr":"203.0.{9}.0","client_ip":"203.0.{9}.{99}"}`, ""},
		{"a mask of more", `{"time":AT,"remote_addr":"203.0.0.0","x_real_ip":"203.0.{9}.{99}","n":"{9}"}`, "one caller"},
		{"the mask in the other field", `{"time":AT,"remote_addr":"203.0.{9}.1{7}","x_real_ip":"203.0.{9}.0"}`, ""},
		{"a peer that a module replaced", `{"time":AT,"remote_addr":"203.0.113.{9}","realip_remote_addr":"10.0.0.{2}"}`, ""},
		{"an office that adds its own addresses", `{"time":AT,"remote_addr":"203.0.113.{3}","http_x_forwarded_for":"192.168.1.{9}"}`, ""},
		{"nobody forwards", `{"time":AT,"remote_addr":"10.0.0.{9}","http_x_forwarded_for":"-","host":"203.0.113.1"}`, ""},
		{"text with upstreams", `10.1.0.{3} - - [TIME] "GET / HTTP/1.1" 200 2 "-" "x" 172.17.0.{9}:80 203.0.113.5`, ""},
	} {
		modulo := regexp.MustCompile(`\{(\d+)\}`)
		var b strings.Builder
		for i := range 120 {
			at := time.Date(2026, 3, 25, 14, 12, i/3, 0, time.UTC)
			line := strings.NewReplacer("AT", fmt.Sprint(at.Unix()), "TIME", at.Format("02/Jan/2006:15:04:05 -0700")).
				Replace(row.line)
			b.WriteString(modulo.ReplaceAllStringFunc(line, func(of string) string {
				var m int
				_, err := fmt.Sscanf(of, "{%d}", &m)
				require.NoError(t, err)
				return fmt.Sprint(i % m)
			}) + "\n")
		}
		got := ran(t, config(t, []string{writeText(t, "a.log", b.String())}, "1/1h"), row.name)
		if row.doubt == "" {
			assert.Empty(t, got.Doubts, row.name)
		} else {
			assert.Contains(t, strings.Join(got.Doubts, "; "), row.doubt, row.name)
		}
	}
}

// TestTrustOfSomeProxies: a proxy that is not trusted, behind one that is, is not the client
// either.
func TestTrustOfSomeProxies(t *testing.T) {
	var b strings.Builder
	for i := range 120 {
		fmt.Fprintf(&b, `{"time":%d,"remote_addr":"10.0.0.%d","http_x_forwarded_for":"203.0.113.%d, 198.51.100.%d"}`+"\n",
			1774447920+i/3, i%2, i%12, i%3)
	}
	cfg := config(t, []string{writeText(t, "a.log", b.String())}, "1/1h")
	cfg.Format.Lists = true
	cfg.Trust = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	assert.Equal(t, []string{"callers are probably not the clients: 12 addresses were forwarded by proxies that are not " +
		"trusted: give --trust with the addresses of all your proxies"}, ran(t, cfg).Doubts)
	cfg.Trust = append(cfg.Trust, netip.MustParsePrefix("198.51.100.0/24"))
	assert.Empty(t, ran(t, cfg).Doubts)
}
