package replay

import (
	"cmp"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/accesslog"
	"github.com/weirgo/weir/httplimit"
)

// TestAddressesAreNormalized checks that each caller has one key, the middleware's, however the
// address is written.
func TestAddressesAreNormalized(t *testing.T) {
	for bits, tc := range map[int]map[string]string{
		0: {"192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1", "2001:db8::1": "2001:db8::/64",
			"2001:DB8::1":   "2001:db8::/64",
			"[2001:db8::1]": "2001:db8::/64", "2001:db8:0:0:9::": "2001:db8::/64",
			"2001:db8::1%eth0": "2001:db8::/64",
			"192.0.2.01":       "192.0.2.01", "Host.Example": "host.example", "256.1.1.1": "256.1.1.1",
			"1.2.3": "1.2.3", "1..2.3": "1..2.3"},
		128: {"2001:DB8::1": "2001:db8::1"},
		48:  {"2001:DB8:0:7::1": "2001:db8::/48"},
	} {
		for addr, want := range tc {
			k := newKeyer(&Config{By: ByIP, IPv6Bits: bits})
			for range 2 {
				assert.Equal(t, want, string(k.append(nil, &accesslog.Entry{IP: []byte(addr)})), addr)
			}
			ip := httplimit.RemoteAddr().IPv6Bits(cmp.Or(bits, 64))
			if key, err := ip.Extract(&http.Request{RemoteAddr: addr}); err == nil {
				assert.Equal(t, want, key, "the middleware's key of %s", addr)
			}
		}
	}
	var lines string
	for _, ip := range []string{"2001:db8::1", "2001:DB8::1", "2001:db8::2"} {
		lines += request{at: time.Unix(0, 0).UTC(), ip: ip, path: "/"}.common() + "\n"
	}
	lines += strings.Replace(request{at: time.Unix(0, 0).UTC(), ip: "2001:db8::3", path: "/"}.caddy(),
		"2001:db8::3", "[2001:db8::3]:443", 1)
	got := ran(t, config(t, []string{writeText(t, "a.log", lines)}, "1/1m"))
	assert.Equal(t, 1, got.Callers)
	assert.EqualValues(t, 3, got.Rules[0].Denied)
}

// TestNamesStayApart checks that names are UTF-8, and that different ones stay different.
func TestNamesStayApart(t *testing.T) {
	lines := ""
	for _, user := range []string{"\xff", "\xfe", "caf\u00e9 \x1b\ufffd"} {
		lines += "10.0.0.1 - " + user + ` [20/Nov/2026:11:53:07 +0000] "GET / HTTP/1.1" 200 1` + "\n"
	}
	cfg := config(t, []string{writeText(t, "a.log", lines+"\xfd\n")}, "0/1m")
	cfg.By = ByUser
	got := ran(t, cfg)
	var names []string
	for _, c := range got.Rules[0].Worst {
		names = append(names, c.Name)
	}
	assert.ElementsMatch(t, []string{`\xff`, `\xfe`, "caf\u00e9 \x1b\ufffd"}, names)
	assert.Equal(t, `\xfd`, got.Unreadable.Examples[0].Text)
}

func TestLongNames(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	long := "/" + strings.Repeat("x", 2000)
	requests := []request{{at: at, ip: "a", path: long + "1"}, {at: at, ip: "a", path: long + "2"},
		{at: at, ip: "a", path: long + "1"}}
	cfg := config(t, []string{write(t, "a.log", requests, request.common)}, "1/1m")
	cfg.By = ByPath
	got := ran(t, cfg)
	assert.Equal(t, 2, got.Callers)
	require.Len(t, got.Rules[0].Worst, 1)
	assert.EqualValues(t, 1, got.Rules[0].Denied)
	assert.Len(t, got.Rules[0].Worst[0].Name, maxName)
}

// TestSpellingsOfAPathAreOneCaller checks that spellings under which one handler is reached are
// counted together, as by the proxy.
func TestSpellingsOfAPathAreOneCaller(t *testing.T) {
	for by, want := range map[By]string{ByPath: "/login", ByIPPath: "1.2.3.4 /login"} {
		k := newKeyer(&Config{By: by})
		for _, path := range []string{"/login", "/LOGIN", "/login/", "//login", "/x/../login",
			"/x/%2e%2e/login",
			"/login;v=1", "/%6Cogin", "/x/..;/login", "/login?x=1"} {
			line := `1.2.3.4 - - [01/Jan/2020:00:00:00 +0000] "GET ` + path + ` HTTP/1.1" 200 1`
			var e accesslog.Entry
			require.NoError(t, new(accesslog.Parser).Parse([]byte(line), &e))
			assert.Equal(t, want, string(k.append(nil, &e)), path)
		}
		var e accesslog.Entry
		assert.Empty(t, k.append(nil, &e), "a request without a path has no key")
	}
}
