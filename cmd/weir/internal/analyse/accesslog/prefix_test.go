package accesslog

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	client  = "203.0.113.7"
	peer    = "10.0.0.1"
	request = `[20/Nov/2026:09:34:23 +0000] "GET /a HTTP/1.1" 200 2`
)

// known are the wrappers that are removed.
var known = map[string]func(line string) string{
	"none":           func(l string) string { return l },
	"Docker Compose": func(l string) string { return "web-1  | " + l },
	"Docker Compose with timestamps": func(l string) string {
		return "web-1  | 2026-11-23T05:38:03.123456789Z " + l
	},
	"docker service logs": func(l string) string { return "web.1.x2ab@node-1    | " + l },
	"docker logs -t":      func(l string) string { return "2026-11-23T05:38:03.123456789Z " + l },
	"Docker's JSON": func(l string) string {
		return `{"log":` + quoteJSON(l+"\n") + `,"stream":"stdout","time":"2026-11-23T05:38:03.1Z"}`
	},
	"CRI": func(l string) string {
		return "2026-11-23T05:38:03.123456789+01:00 stdout F " + l
	},
	"kubectl logs --prefix": func(l string) string { return "[pod/web-7d4f/nginx] " + l },
	"syslog":                func(l string) string { return "Nov 23 05:38:03 host nginx: " + l },
	"syslog, a day of one digit": func(l string) string {
		return "Nov  3 05:38:03 host nginx[123]: " + l
	},
	"syslog with a priority": func(l string) string { return "<190>Nov 23 05:38:03 host nginx: " + l },
	"syslog without a host":  func(l string) string { return "<190>Nov 23 05:38:03 nginx: " + l },
	"syslog, the host an address": func(l string) string {
		return "Nov 23 05:38:03 10.9.9.9 nginx: " + l
	},
	"rsyslog": func(l string) string { return "2026-11-23T05:38:03.123456+00:00 host nginx: " + l },
	"RFC 5424": func(l string) string {
		return "<190>1 2026-11-23T05:38:03Z host nginx 77 - - " + l
	},
	"RFC 5424 with data and a mark": func(l string) string {
		return `<190>1 2026-11-23T05:38:03Z 10.9.9.9 nginx - ID [a@1 ip="192.0.2.9" b="\"]"][c@1] ` +
			"\ufeff" + l
	},
	"journalctl": func(l string) string { return "Nov 23 05:38:03 host nginx[123]: " + l },
	"journalctl short-iso": func(l string) string {
		return "2026-11-23T05:38:03+0000 host nginx[123]: " + l
	},
	"journalctl JSON": func(l string) string {
		return `{"__REALTIME_TIMESTAMP":"1700000000000000","_HOSTNAME":"host","MESSAGE":` + quoteJSON(l) +
			`}`
	},
	"Docker's JSON of CRI": func(l string) string {
		return `{"log":` + quoteJSON("2026-11-23T05:38:03Z stderr F "+l) + `}`
	},
}

func quoteJSON(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// strange are prefixes that no rule knows.
var strange = []string{"web-1 ", "web ", "web web ", "10.9.9.9 ", "10.9.9.9 web ", "10.9.9.9 web: ",
	"10.9.9.9 - ", "web - ", "web - - ", "access.log:", "access.log:12:", "web-1|", "[web] ", "(web) ",
	"1 ",
	"12:00:01 ", "2026-11-23 ", "2026/11/23 05:38:03 ", "INFO ", "level=info msg=", "pod nginx ",
	"nginx | ", "\x1b[36mweb-1  |\x1b[0m ", "web\t", `"`, "host=10.9.9.9 ", "192.0.2.5:80 ",
	"192.0.2.5, ",
	"2001:db8::1 ", "- ", "- - ", "x - ann [", "a b c d e f "}

// orders are formats of the common kind with the address of the client or of the peer in some
// place.
var orders = []string{
	`PEER - - REQ "-" "curl/8" "CLIENT"`, `PEER - ann REQ "-" "curl/8" "CLIENT"`, `CLIENT - - REQ`,
	`CLIENT - - REQ "-" "curl/8"`, `CLIENT - ann lee REQ "http://10.8.8.8/" "curl"`,
	`CLIENT, PEER - - REQ "-" "curl"`, `CLIENT,PEER - - REQ`, `9.9.9.9, CLIENT, PEER - - REQ "-" "x"`,
	`PEER CLIENT - REQ`, `CLIENT PEER - REQ`, `PEER CLIENT, 10.0.0.2 - REQ`,
	`CLIENT, 10.0.0.2 PEER - REQ`,
	`PEER - CLIENT REQ`, `PEER - CLIENT, 10.0.0.2 REQ`, `example.com CLIENT - - REQ`,
	`example.com:443 CLIENT - ann REQ "-" "x"`, `PEER example.com CLIENT - - REQ`,
	`- PEER - - REQ`, `PEER "CLIENT" - REQ`, `PEER xff=CLIENT - REQ`,
	`example.com CLIENT, PEER - - REQ`,
}

// TestNeverAnotherCaller parses lines with every prefix and the address in every place. Each line
// has the right client or is refused: never is another word the caller.
func TestNeverAnotherCaller(t *testing.T) {
	read := 0
	check := func(name, line string, f Format, mustRead bool) {
		t.Helper()
		var e Entry
		p := NewParser(f)
		err := p.Parse([]byte(line), &e)
		if err != nil {
			require.False(t, mustRead, "%s: %q: %v", name, line, err)
			return
		}
		read++
		forwarded, _ := e.Forwarded()
		shown := false // to those who look for the client in other fields
		p.Addresses(func(_ Field, a Address) { shown = shown || a.String() == client })
		switch {
		case string(e.IP) == client, string(e.IP) == peer && strings.HasSuffix(forwarded, client):
		case string(e.IP) == peer && (!strings.Contains(line, client) || shown):
		default:
			require.Fail(t, "another caller", "%s: %q: the caller is %q (%q)", name, line, e.IP, forwarded)
		}
	}
	for _, order := range orders {
		line := strings.NewReplacer("PEER", peer, "CLIENT", client, "REQ", request).Replace(order)
		for _, lists := range []bool{false, true} {
			f := Format{Lists: lists}
			var plain Entry
			bare := NewParser(f).Parse([]byte(line), &plain)
			for name, wrap := range known {
				check(name, wrap(line), f, bare == nil)
				check(name+" in Docker Compose", "web-1  | "+wrap(line), f, false)
			}
			for _, prefix := range strange {
				check(prefix, prefix+line, f, false)
				f := Format{Lists: lists, Prefix: regexp.MustCompile(`^(?:` + regexp.QuoteMeta(prefix) + `)`)}
				check("stripped "+prefix, prefix+line, f, bare == nil)
			}
		}
	}
	assert.Greater(t, read, 500, "most lines with a known prefix are read")
	for name, wrap := range known {
		for _, lists := range []bool{false, true} {
			check(name, wrap(strings.ReplaceAll(caddyLine, "10.0.0.9", client)), Format{Lists: lists}, true)
		}
	}
}

func TestPartsOfLinesAreRefused(t *testing.T) {
	var p Parser
	var e Entry
	line := client + " - - " + request
	assert.Error(t, p.Parse([]byte("2026-11-23T05:38:03Z stdout P "+line), &e))
	assert.ErrorIs(t, p.Parse([]byte("nov 23 "+line), &e), ErrCaller)
	assert.ErrorIs(t, p.Parse([]byte(client+", 10.0.0.1 - - "+request), &e), ErrList)
}

func TestPortAfterAgent(t *testing.T) {
	for list, want := range map[string]string{"1.2.3.4:80": "80", "9.9.9.9, 1.2.3.4:80": "80",
		"1.2.3.4": "", "[2001:db8::1]:80": "80", "[2001:db8::1]": "", "2001:db8::1": "",
		"2001:db8::1:50123": "50123", "-": "",
		"web@docker": "", "http://1.2.3.4:80": "", "10.0.0.9:80": ""} {
		var e Entry
		line := `10.0.0.1 - - ` + request + ` "-" "x" "` + list + `"`
		require.NoError(t, new(Parser).Parse([]byte(line), &e), line)
		assert.Equal(t, want, e.PortAfterAgent(), line)
	}
}

func TestForwarded(t *testing.T) {
	for _, row := range []struct {
		line, ip, list string
		logged         bool
	}{
		{`10.0.0.1 - - ` + request + ` "-" "x" "1.2.3.4, 10.0.0.2"`, "10.0.0.1", "1.2.3.4, 10.0.0.2",
			true},
		{`10.0.0.1 - - ` + request + ` "-" "x" "-"`, "10.0.0.1", "", true},
		{`10.0.0.1 - - ` + request + ` "-" "x" ""`, "10.0.0.1", "", true},
		{`10.0.0.1 - - ` + request + ` "-" "x" "unknown, 1.2.3.4"`, "10.0.0.1", "unknown, 1.2.3.4", true},
		{`10.0.0.1 - - ` + request + ` "-" "x" "1.2.3.4:50123"`, "10.0.0.1", "1.2.3.4:50123", true},
		{`10.0.0.1 - - ` + request + ` "-" "x" "[2001:db8::1]"`, "10.0.0.1", "[2001:db8::1]", true},
		// Traefik: the router and its server; HAProxy: the frontend
		{`10.0.0.1 - - ` + request + ` "-" "curl/8" 7 "web@docker" "http://172.17.0.3:80" 2ms`, "10.0.0.1", "",
			false},
		{`10.0.0.1 - - ` + request + ` "" "" 33317 655 "http-in" "static" "srv1" 10`, "10.0.0.1", "", false},
		// "$upstream_addr"
		{`10.0.0.1 - - ` + request + ` "-" "x" "172.17.0.3:80"`, "10.0.0.1", "", false},
		{`10.0.0.1 - - ` + request + ` "-" "x" "172.17.0.3:80, [fd00::1]:8080"`, "10.0.0.1", "", false},
		{`10.0.0.1 - - ` + request + ` "-" "x" "100.64.0.9:8080"`, "10.0.0.1", "", false},
		{`10.0.0.1 - - ` + request + ` "-" "x" "unix:/run/app.sock"`, "10.0.0.1", "", false},
		{`10.0.0.1 - - ` + request + ` "-" "9.9.9.9"`, "10.0.0.1", "", false},
		{`1.2.3.4, 10.0.0.2:80 - - ` + request, "10.0.0.2", "1.2.3.4", true},
		{`{"ts":1,"request":{"remote_ip":"10.0.0.1","headers":{"X-Forwarded-For":["1.2.3.4","5.6.7.8"]}}}`,
			"10.0.0.1", "1.2.3.4, 5.6.7.8", true},
		{`{"ts":1,"request":{"remote_ip":"10.0.0.1","headers":{"X-Forwarded-For":["1.2.3.4"]}}}`,
			"10.0.0.1", "1.2.3.4", true},
		{`{"time":1,"remote_addr":"10.0.0.1","realip_remote_addr":"9.9.9.9","http_x_forwarded_for":"-"}`,
			"10.0.0.1", "", false},
	} {
		e := read(t, Format{Lists: true}, row.line)
		list, logged := e.Forwarded()
		assert.Equal(t, fmt.Sprint(row.ip, row.list, row.logged), fmt.Sprint(string(e.IP), list, logged),
			row.line)
	}
}
