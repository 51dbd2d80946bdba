package replay

import (
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/accesslog"
	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
	"github.com/weirgo/weir/httplimit"
)

// logOf writes n lines, whose peers take turns; after is the end of each. {9} is the number of the
// line modulo 9.
func logOf(t *testing.T, n int, peers, after string) string {
	modulo, all := regexp.MustCompile(`\{\d+\}`), strings.Fields(peers)
	var b strings.Builder
	for i := range n {
		line := fmt.Sprintf("%s - - [20/Nov/2026:09:34:%02d +0000] \"GET /%d HTTP/1.1\" 200 2 \"-\" \"x\"%s\n",
			all[i%len(all)], i/10%60, i, after)
		b.WriteString(modulo.ReplaceAllStringFunc(line, func(of string) string {
			m, err := strconv.Atoi(strings.Trim(of, "{}"))
			require.NoError(t, err)
			return strconv.Itoa(i % m)
		}))
	}
	return writeText(t, "a.log", b.String())
}

func TestDoubts(t *testing.T) {
	trust := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	for _, row := range []struct {
		name         string
		n            int
		trust        []netip.Prefix
		peers, after string
		want         string // none if empty
	}{
		{"addresses", 100, nil, "192.0.2.{9}", "", ""},
		{"IPv6 addresses", 100, nil, "2001:db8:{9}::1", "", ""},
		{"most are names", 100, nil, "192.0.2.1 host-{3}.example host-{3}.example host-{3}.example", "",
			"3 of 4 callers are no addresses"},
		{"some are names", 100, nil, "host.example 192.0.2.{9} 192.0.2.{9} 192.0.2.{9}", "", ""},
		{"one caller", 100, nil, "192.0.2.1", "", "one caller"},
		{"every line another caller", 100, nil, "192.0.2.{100}", "", "as many callers as lines"},
		{"too few lines to say", fewRequests - 1, nil, "192.0.2.1", "", ""},
		{"a balancer in front, not trusted", 100, nil, "10.0.0.{2}", ` "192.0.2.{9}"`, "give --trust"},
		{"balancers in the range that clouds share", 100, nil, "100.64.0.{2}", ` "203.0.113.{12}"`,
			"give --trust"},
		{"balancers on the same link", 100, nil, "fe80::1 fe80::2", ` "203.0.113.{12}"`, "give --trust"},
		{"a balancer in front, trusted", 100, trust, "10.0.0.{2}", ` "192.0.2.{9}"`, ""},
		{"Traefik's common format, trusted", 100, trust, "10.0.0.{9}",
			` 7 "web@docker" "http://172.17.0.3:80" 2ms`, "no X-Forwarded-For"},
		{"$upstream_addr after the agent, trusted", 100, trust, "10.0.0.{9}", ` "172.17.0.{3}:80"`,
			"no X-Forwarded-For"},
		{"$upstream_addr after the agent, not trusted", 100, nil, "10.0.0.{9}", ` "172.17.0.{3}:80"`, ""},
		{"public upstreams after the agent, trusted", 100, trust, "10.0.0.{9}", ` "192.0.2.{3}:443"`,
			"has port 443 in most requests"},
		{"clients with their ports after the agent, trusted", 100, trust, "10.0.0.{9}",
			` "192.0.2.{3}:5000{7}"`, ""},
		{"trusted, but no field", 100, trust, "10.0.0.{9}", "", "no X-Forwarded-For"},
	} {
		for _, force := range []bool{false, true} {
			cfg := config(t, []string{logOf(t, row.n, row.peers, row.after)}, "1/1m")
			cfg.Trust, cfg.Force = row.trust, force
			cfg.Suggest = &Suggest{Strategies: []string{rule.Fixed}, Durations: Durations}
			got := ran(t, cfg, row.name)
			checkDoubts(t, got, row.name, row.want)
		}
	}
}

// checkDoubts checks that the doubts of a replay with suggestions contain a text, or that there are
// none, and that nothing is suggested then.
func checkDoubts(t *testing.T, got *Result, name, want string) {
	t.Helper()
	if want == "" {
		assert.Empty(t, got.Doubts, name)
	} else {
		assert.Contains(t, strings.Join(got.Doubts, "; "), want, name)
	}
	doubtful := want != "" && !got.Force
	assert.Equal(t, doubtful, got.Doubtful, name)
	assert.Equal(t, doubtful, len(got.Suggestions) == 0, name)
}

// TestUnreadLinesAreADoubt: from a share of lines that could not be read on, nothing is suggested,
// and the doubt says which lines.
func TestUnreadLinesAreADoubt(t *testing.T) {
	logOf := func(good int, others ...string) string {
		var b strings.Builder
		for i := range good {
			fmt.Fprintf(&b, "192.0.2.%d - - [20/Nov/2026:09:34:%02d +0000] \"GET / HTTP/1.1\" 200 2\n", i%9, i%60)
		}
		return b.String() + strings.Join(others, "")
	}
	most := logOf(100, strings.Repeat("garbage\n", 880), strings.Repeat("{\n", 20))
	for _, row := range []struct {
		name  string
		files []string
		want  string // no doubt if empty
	}{
		{"most", []string{most}, "900 of 1000 lines could not be read: 880 such as 0.log:101 (" +
			accesslog.ErrFormat.Error() + "), 20 such as 0.log:981 (" + accesslog.ErrJSON.Error() + ")"},
		{"all but a few requests", []string{logOf(3, strings.Repeat("garbage\n", 97))}, "97 of 100 lines could not be read"},
		{"in one of two files", []string{logOf(50), logOf(10, strings.Repeat("garbage\n", 40))}, "40 of 100 lines"},
		{"over 5 %", []string{logOf(94, strings.Repeat("garbage\n", 6))}, "6 of 100 lines"},
		{"5 %", []string{logOf(95, strings.Repeat("garbage\n", 5))}, ""},
		{"empty lines", []string{logOf(95, strings.Repeat("\n", 95))}, ""},
		{"a file that is left out", []string{logOf(95), strings.Repeat("garbage\n", 95)}, ""},
		{"too few lines to say", []string{logOf(5, "garbage\n")}, ""},
	} {
		for _, force := range []bool{false, true} {
			dir, files := t.TempDir(), []string{}
			t.Chdir(dir)
			for i, text := range row.files {
				name := fmt.Sprintf("%d.log", i)
				require.NoError(t, os.WriteFile(name, []byte(text), 0o666))
				files = append(files, name)
			}
			cfg := config(t, files, "1/1m")
			cfg.Force, cfg.Suggest = force, &Suggest{Strategies: []string{rule.Fixed}, Durations: Durations}
			got := ran(t, cfg, row.name)
			checkDoubts(t, got, row.name, row.want)
			assert.Equal(t, row.want != "", got.Unread, row.name)
		}
	}
}

// TestMostRequestsWithoutAnAddress: what is left of such a log says too little of its clients.
func TestMostRequestsWithoutAnAddress(t *testing.T) {
	for without, want := range map[int]string{20: "", 21: "21 of 41 requests have no address"} {
		var b strings.Builder
		for i := range 20 + without {
			addr := fmt.Sprintf("192.0.2.%d", i%9)
			if i >= 20 {
				addr = "-"
			}
			fmt.Fprintf(&b, "[2016-04-15T20:17:%02d.310Z] \"GET / HTTP/2\" 204 - 154 0 226 100 %q \"x\" \"c\" \"l\" \"u\"\n",
				i, addr)
		}
		cfg := config(t, []string{writeText(t, "a.log", b.String())}, "1/1m")
		cfg.Format, _ = accesslog.ParseFormat("envoy-text", "")
		got := ran(t, cfg)
		assert.EqualValues(t, without, got.Unkeyed)
		assert.Equal(t, want, strings.Join(got.Doubts, "; "))
	}
}

// TestTrustIsThatOfTheMiddleware replays chains of addresses: the caller is the key that
// httplimit.ClientIP has for the same peer and header.
func TestTrustIsThatOfTheMiddleware(t *testing.T) {
	trust := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"),
		netip.MustParsePrefix("2001:db8:1::/48")}
	ip := httplimit.ClientIP(trust)
	refused := map[string]bool{"unknown, 192.0.2.1": true, "192.0.2.1, unknown": true, "x": true,
		"192.0.2.1,, 10.0.0.2": true}
	for _, chain := range []string{"192.0.2.1", "192.0.2.1, 10.0.0.2", "192.0.2.9, 192.0.2.1",
		"10.0.0.3, 10.0.0.2",
		"2001:db8:2::1, 2001:db8:1::1", "[2001:db8:2::1]:80", "192.0.2.1:443", "unknown, 192.0.2.1",
		"192.0.2.1, unknown", "x", "-", "192.0.2.1,, 10.0.0.2"} {
		for _, peer := range []string{"10.0.0.1", "198.51.100.1", "2001:db8:1::9", "host.example"} {
			req := &http.Request{RemoteAddr: peer, Header: http.Header{}}
			if chain != "-" {
				req.Header.Set("X-Forwarded-For", chain)
			}
			want, err := ip.Extract(req)
			if peer == "host.example" {
				want, err = peer, nil // a server that looks up names
			}
			lines := map[string]string{
				"the field last": peer + ` - - [20/Nov/2026:09:34:23 +0000] "GET / HTTP/1.1" 200 2 "-" "x" "` +
					chain + `"`,
				"JSON": `{"time":1,"ip":"` + peer + `","xff":"` + chain + `"}`,
				"one list": chain + ", " + peer +
					` - - [20/Nov/2026:09:34:23 +0000] "GET / HTTP/1.1" 200 2`,
				"JSON, one list": `{"time":1,"ip":"` + chain + ", " + peer + `"}`,
			}
			for name, line := range lines {
				if listed := strings.HasSuffix(name, "list"); listed &&
					(chain == "-" || peer == "host.example") {
					continue
				}
				want, err := want, err
				if chain == "x" && name == "the field last" && peer != "host.example" {
					want, err = ip.Extract(&http.Request{RemoteAddr: peer}) // it is another field
				}
				cfg := config(t, []string{writeText(t, "a.log", line)}, "1/1h")
				cfg.Trust = trust
				if strings.HasPrefix(name, "JSON") {
					cfg.Format, _ = accesslogJSON()
				}
				cfg.Format.Lists = true
				cfg.Rules = crossed(t, []string{"0/1h"}) // everybody is denied and so has a name
				got, runErr := Run(cfg)
				if runErr != nil && name == "one list" && refused[chain] {
					continue // a line of text with such a list is refused
				}
				if runErr != nil {
					require.Error(t, err, "%s: %s: %v", name, line, runErr)
					continue
				}
				require.NoError(t, err, "%s: %s", name, line)
				assert.Equal(t, want, got.Rules[0].Worst[0].Name, "%s: %s", name, line)
			}
		}
	}
}

func accesslogJSON() (accesslog.Format, error) {
	return accesslog.ParseFormat("json", "time=time,ip=ip,xff=xff")
}
