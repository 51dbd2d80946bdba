package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/httplimit"
)

// explained asks s about a caller.
func explained(t *testing.T, s served, query url.Values) (x cli.Explained) {
	t.Helper()
	resp, body := send(t, "GET", s.back.URL+"/-/explain?"+query.Encode(), nil)
	require.Equal(t, 200, resp.StatusCode, body)
	require.NoError(t, json.Unmarshal([]byte(body), &x), body)
	return x
}

// TestExplainSaysWhatALimitHolds spends limits of every strategy, and compares what explain says
// before each request with whether it passes. Explain counts nothing, so all of the limit passes.
func TestExplainSaysWhatALimitHolds(t *testing.T) {
	for name, text := range map[string]string{
		"fixed window": "3/1d:fixed", "sliding window": "3/1d:sliding", "sliding log": "3/1d:log",
		"token bucket": "3/1d:token", "tiers": "3/1d,5/2d", "calendar": "3/year@UTC",
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, config(t, text))
			for i := range 5 {
				var held cli.Held
				for range 3 {
					x := explained(t, s, url.Values{"key": {"127.0.0.1"}})
					require.Len(t, x.Limits, 1)
					held = x.Limits[0]
					assert.Equal(t, name, held.Counting)
					assert.EqualValues(t, max(0, i-3), len(x.Last), "the denials")
				}
				assert.EqualValues(t, min(i, 3), held.Used)
				assert.EqualValues(t, 3-min(i, 3), held.Left)
				assert.Equal(t, held.Passes == 0, status(t, "GET", s.front.URL) == 200, "request %d", i)
				if held.Passes != 0 {
					assert.Greater(t, held.Passes, time.Now().UnixMilli())
				}
			}
			other := explained(t, s, url.Values{"key": {"192.0.2.1"}})
			assert.Zero(t, other.Limits[0].Used)
			assert.Empty(t, other.Last)
		})
	}
}

func TestExplainNamesTheList(t *testing.T) {
	cfg := config(t, "1/1d", "daily=100/2d")
	cfg.Deny = []httplimit.DenyEntry{{Prefix: netip.MustParsePrefix("192.0.2.0/24")}}
	cfg.Trust = loopback
	cfg.Allow = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
	cfg.Guard.Penalty = httplimit.Penalty{Denials: 2, Within: time.Hour, For: time.Hour}
	cfg.MaxInFlightPerClient = 4
	cfg = withRoutes(t, cfg, "/login limit=7/1d:fixed")
	s := serve(t, cfg)
	ask := func(from, path string) int {
		return status(t, "GET", s.front.URL+path, "X-Forwarded-For", from)
	}

	x := explained(t, s, url.Values{"key": {"192.0.2.7"}})
	require.NotNil(t, x.Listed)
	assert.Equal(t, cli.Listed{Prefix: "192.0.2.0/24", Name: "192.0.2.0/24", Kind: "prefix",
		By: "command line"}, *x.Listed)
	assert.True(t, explained(t, s, url.Values{"key": {"198.51.100.9"}}).Exempt)

	require.Equal(t, 200, ask("203.0.113.5", "/login"))
	for i := range 4 { // the second denial lists it
		assert.Equal(t, i == 0, ask("203.0.113.5", "/a") == 200)
	}
	x = explained(t, s, url.Values{"key": {"203.0.113.5"}})
	require.NotNil(t, x.Listed)
	assert.Equal(t, "penalty box", x.Listed.By)
	assert.Equal(t, "key", x.Listed.Kind)
	used := map[string]uint64{}
	for _, h := range x.Limits {
		used[h.Route+" "+h.Limit] = h.Used
	}
	assert.Equal(t, map[string]uint64{" 4 at a time": 0, " 1/1d": 1, " 100/2d": 1, "/login 7/1d": 1}, used)
	assert.EqualValues(t, 3, x.Denials)
	require.Len(t, x.Last, 3)
	assert.Equal(t, "deny list", x.Last[0].Limit)
	assert.Equal(t, "GET /a", x.Last[2].Of)
	assert.Equal(t, "1/1d", x.Last[2].Limit)
	assert.Equal(t, x, func() cli.Explained {
		again := explained(t, s, url.Values{"id": {x.ID}})
		again.Now, again.Notes = x.Now, x.Notes // which say how much time is left, as When
		for i := range again.Limits {
			again.Limits[i].When = x.Limits[i].When
		}
		return again
	}(), "the id of a key is as good")

	// Of an IPv6 address, its prefix is the key.
	require.Equal(t, 200, ask("2001:db8::1", "/a"))
	x = explained(t, s, url.Values{"key": {"2001:db8::99"}})
	assert.Equal(t, "2001:db8::/64", x.Name)
	assert.EqualValues(t, 1, x.Limits[1].Used)

	for _, bad := range []string{"300.1.1.1", ""} {
		resp, _ := send(t, "GET", s.back.URL+"/-/explain?key="+bad, nil)
		assert.Equal(t, 400, resp.StatusCode, bad)
	}
}

// TestTheListSaysWhoSetAnEntry has entries of each origin, of which one was listed for a caller of
// the last minute.
func TestTheListSaysWhoSetAnEntry(t *testing.T) {
	cfg := config(t, "100/1d")
	cfg.Deny = []httplimit.DenyEntry{{Prefix: netip.MustParsePrefix("192.0.2.0/24")}}
	cfg.DenyFile = t.TempDir() + "/deny"
	cfg.Trust = loopback
	s := serve(t, cfg)
	require.NoError(t, s.denied.file.write("198.51.100.7\n\"a key\"\n"))
	require.NoError(t, s.Reload())
	require.Equal(t, 204, code(deny(t, s, "POST", `{"what": "203.0.113.0/28", "confirm": 9}`)))
	for i := range 3 {
		for range 2 {
			from := netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}).String()
			require.Equal(t, 403, status(t, "GET", s.front.URL, "X-Forwarded-For", from))
		}
	}
	said := map[string]string{}
	for _, l := range s.figures().DenyList {
		said[l.Name] = l.Kind + " by " + l.By
		assert.Equal(t, l.Name == "192.0.2.0/24", l.Stops == 3, l.Name)
	}
	assert.Equal(t, map[string]string{
		"192.0.2.0/24": "prefix by command line", "198.51.100.7/32": "address by file",
		"a key": "key by file", "203.0.113.0/28": "prefix by hand",
	}, said)
}

// TestDenialsStandAtTheirRoute spends a limit that two routes share on the second of them.
func TestDenialsStandAtTheirRoute(t *testing.T) {
	cfg := withRoutes(t, config(t, "100/1d"), "/a limit=x=2/1d", "/b limit=x=2/1d")
	s := serve(t, cfg)
	for _, want := range []int{200, 200, 429, 429} {
		assert.Equal(t, want, status(t, "GET", s.front.URL+"/b"))
	}
	denied := map[string]uint64{}
	for _, h := range s.held.limits {
		denied[h.route.pattern] += h.denied.Load()
	}
	assert.Equal(t, map[string]uint64{"": 0, "/a": 0, "/b": 2}, denied)
}

// TestExplainOfRequestsInFlight has as many requests in flight as one caller may have: when another
// passes, no clock says.
func TestExplainOfRequestsInFlight(t *testing.T) {
	cfg := config(t, "100/1d")
	cfg.MaxInFlightPerClient = 1
	inside, goOn := make(chan struct{}), make(chan struct{})
	cfg.Upstream = upstreamOf(t, func(http.ResponseWriter, *http.Request) { inside <- struct{}{}; <-goOn })
	s := serve(t, cfg)
	ended := make(chan int)
	go func() { ended <- status(t, "GET", s.front.URL) }()
	<-inside
	held := func() cli.Held {
		x := explained(t, s, url.Values{"key": {"127.0.0.1"}})
		return x.Limits[slices.IndexFunc(x.Limits, func(h cli.Held) bool { return h.Counting == places })]
	}
	assert.True(t, held().Busy)
	assert.Zero(t, held().Passes)
	close(goOn)
	assert.Equal(t, 200, <-ended)
	assert.Eventually(t, func() bool { return !held().Busy }, 10*time.Second, time.Millisecond)
}

func TestExplainSaysWhatItWants(t *testing.T) {
	s := serve(t, config(t, "1/1d"))
	for query, want := range map[string]string{
		"descriptor=a%3Db": "there are no rules here, and so no descriptors", "key=": "want a key", "": "want a key",
	} {
		resp, body := send(t, "GET", s.back.URL+"/-/explain?"+query, nil)
		assert.Equal(t, 400, resp.StatusCode)
		assert.Contains(t, body, want)
	}
}

// A key is named as the page and the log show it, with escapes for what cannot be printed.
func TestExplainOfAKeyThatCannotBePrinted(t *testing.T) {
	s := serve(t, by(t, config(t, "1/1d"), "header:X-Key"))
	ask := func(key string) int { return status(t, "GET", s.front.URL, "X-Key", key) }
	require.Equal(t, 200, ask("b\xffc"))
	require.Equal(t, 429, ask("b\xffc"))
	x := explained(t, s, url.Values{"key": {`b\xffc`}})
	assert.Equal(t, `b\xffc`, x.Name)
	assert.EqualValues(t, 1, x.Limits[0].Used)
	assert.Len(t, x.Last, 1)

	require.Equal(t, 200, ask(`b\xffc`), "another key, which looks like the first")
	x = explained(t, s, url.Values{"key": {`b\xffc`}})
	assert.Empty(t, x.Last, "a key that is spelled so comes first")
	x = explained(t, s, url.Values{"key": {`no\xffne`}})
	assert.Zero(t, x.Limits[0].Used)
}

// Where keys have several parts, a caller is shown by these, and named so, in the deny list too.
func TestCallersOfSeveralParts(t *testing.T) {
	cfg := by(t, config(t, "1/1d"), "header:X-Key+path")
	cfg.Deny, cfg.DenyFile = []httplimit.DenyEntry{{Key: "eve /b"}}, filepath.Join(t.TempDir(), "deny")
	s := serve(t, cfg)
	ask := func(key, path string) int { return status(t, "GET", s.front.URL+path, "X-Key", key) }
	require.Equal(t, []int{200, 429, 200}, []int{ask("ann", "/a"), ask("ann", "/a"), ask("ann", "/b")})
	require.Equal(t, 200, ask("two words", "/a"))
	assert.Equal(t, 403, ask("eve", "/b"))
	assert.Equal(t, 200, ask("eve", "/a"))
	cfg.Deny = []httplimit.DenyEntry{{Key: "eve /b"}}
	require.NoError(t, s.Reconfigure(cfg))
	require.NoError(t, s.Reload())
	assert.Equal(t, 403, ask("eve", "/b"), "also when the settings and the lists were read again")
	for name, want := range map[string]string{
		"ann /a": "ann /a", "3:ann2:/a": "ann /a", "key:3:ann2:/a": "ann /a", "bob /a": "bob /a",
		`"two words" /a`: `"two words" /a`,
	} {
		x := explained(t, s, url.Values{"key": {name}})
		assert.Equal(t, want, x.Name)
		assert.Equal(t, x.Name != "bob /a", x.Limits[0].Used == 1, name)
	}
	for _, name := range []string{"ann", "127.0.0.1", "ann /a x"} {
		resp, body := send(t, "GET", s.back.URL+"/-/explain?"+url.Values{"key": {name}}.Encode(), nil)
		assert.Equal(t, 400, resp.StatusCode)
		assert.Equal(t, fmt.Sprintf("%q names no caller: here a key has 2 parts, those of --by "+
			"header:X-Key+path, with spaces between them\n", name), body)
	}
	resp, body := send(t, "POST", s.back.URL+"/-/deny", strings.NewReader(`{"what": "ann"}`),
		"Weir-Admin", "1")
	assert.Equal(t, 400, resp.StatusCode, body)
	resp, body = send(t, "POST", s.back.URL+"/-/deny", strings.NewReader(`{"what": "ann /b"}`),
		"Weir-Admin", "1")
	require.Equal(t, 204, resp.StatusCode, body)
	assert.Equal(t, 403, ask("ann", "/b"))
	_, body = send(t, "GET", s.back.URL+"/-/stats", nil)
	assert.Contains(t, body, `"name":"ann /a"`)

	cfg.Deny = []httplimit.DenyEntry{{Key: "ann"}}
	_, err := New(cfg)
	assert.ErrorContains(t, err, `--deny: "ann" names no caller`)
}
