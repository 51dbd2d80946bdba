package proxy

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/httplimit"
)

// TestACallerHasOneNameInAllReadings penalizes a caller through a path with several readings: the
// entry has the caller's name, holds for all spellings, and goes when it is removed.
func TestACallerHasOneNameInAllReadings(t *testing.T) {
	ip := func(*testing.T) Config { return withRoutes(t, config(t, "1000/1d"), "/a/ limit=3/1m:fixed") }
	path := func(*testing.T) Config { return by(t, config(t, "3/1m:fixed"), "path") }
	for name, row := range map[string]struct {
		cfg             func(*testing.T) Config
		through, caller string
		refused         []string
		others          []string
	}{
		"a route in capitals": {ip, "/A/b", "127.0.0.1", []string{"/b", "/a/b", "/A/b", "//a/b"}, nil},
		"a route by itself":   {ip, "/a/b", "127.0.0.1", []string{"/b", "/a/b", "/A/b", "//a/b"}, nil},
		"two routes": {func(t *testing.T) Config { return withRoutes(t, ip(t), "/c/ limit=9/1m:fixed") },
			"/a/../c/", "127.0.0.1", []string{"/b", "/a/b", "/c/", "/a/../c/"}, nil},
		"a limit with the same name as another": {func(t *testing.T) Config {
			return withRoutes(t, config(t, "1000/1d"), "/a/ limit=x=3/1m:fixed", "/c/ limit=x=3/1m:fixed")
		}, "/a/../c/", "127.0.0.1", []string{"/b", "/a/b", "/c/"}, nil},
		"a path in another spelling": {path, "/X/./B", "/x/b", []string{"/x/b", "/X//b", "/x;y/b"},
			[]string{"/x", "/b"}},
		"a path that servers read differently": {path, "/x;%2F..%2Fy", "/x",
			[]string{"/x", "/X/", "/x;%2F..%2Fy", "/x;%2F..%2Fz"}, []string{"/y", "/z"}},
		"an address and a path": {func(t *testing.T) Config {
			return by(t, config(t, "3/1m:fixed"), "ip+path")
		}, "/X/./B", "9:127.0.0.14:/x/b", []string{"/x/b", "/X//b"}, []string{"/x", "/b"}},
		"a pattern": {func(t *testing.T) Config { return by(t, ip(t), "ip+pattern") },
			"/A/b", "9:127.0.0.13:/a/", []string{"/a/b", "/A/b", "/A/c"}, []string{"/b"}},
	} {
		cfg := row.cfg(t)
		var err error
		cfg.Guard.Penalty, err = ParsePenalty("4/1m=10m")
		require.NoError(t, err)
		cfg.Guard.Headers = httplimit.HeadersDraft
		s := serve(t, cfg)
		for range 12 {
			resp, body := sendRaw(t, s, row.through)
			assert.NotRegexp(t, `\(\d\)`, fmt.Sprint(resp.Header, body), name)
		}
		entries := s.denied.Entries()
		require.Len(t, entries, 1, name)
		assert.Equal(t, row.caller, entries[0].Key, name)
		assert.Empty(t, entries[0].Policy, name)
		for _, target := range row.refused {
			resp, body := sendRaw(t, s, target)
			assert.Equal(t, 429, resp.StatusCode, "%s: %s", name, target)
			assert.Contains(t, body, "abnormal", "%s: %s: it is on the list", name, target)
		}
		f := s.figures()
		require.Len(t, f.Worst, 1, name)
		assert.Equal(t, cfg.By.shown(row.caller), f.Worst[0].Name, name)
		assert.True(t, f.Worst[0].Listed, name)
		require.Len(t, f.DenyList, 1, name)
		for _, target := range row.others {
			_, body := sendRaw(t, s, target)
			assert.NotContains(t, body, "abnormal", "%s: %s", name, target)
		}
		code, text := deny(t, s, "DELETE", fmt.Sprintf(`{"id":%q}`, f.DenyList[0].ID))
		assert.Equal(t, 204, code, "%s: %s", name, text)
		_, body := sendRaw(t, s, row.refused[0])
		assert.NotContains(t, body, "abnormal", name)
	}
}

// sendRaw sends a GET with a target as it is, without a network.
func sendRaw(t testing.TB, s served, target string) (*http.Response, string) {
	t.Helper()
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, requestOf(client, target))
	body, err := io.ReadAll(w.Result().Body)
	require.NoError(t, err)
	return w.Result(), string(body)
}

const client = "127.0.0.1:1234"

// requestOf returns a GET of a client, for a handler without a network.
func requestOf(client, target string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, target, nil)
	r.RemoteAddr = client
	return r
}

// TestADeniedPathIsDeniedInAllReadings has keys that an operator puts on the deny list.
func TestADeniedPathIsDeniedInAllReadings(t *testing.T) {
	ruled := by(t, doors["--rules"](t), "path")
	ruled.Deny, ruled.MaxInFlight, ruled.MaxInFlightPerClient = []httplimit.DenyEntry{{Key: "/b"}}, 9, 9
	for target, want := range map[string]int{"/b": 403, "/B/": 403, "/x/../b": 403, "/a": 200} {
		assert.Equal(t, want, raw(t, serve(t, ruled), "GET", target), "rules: %s", target)
	}
	cfg := by(t, config(t, "1000/1d"), "path")
	cfg.Deny = []httplimit.DenyEntry{{Key: "/b"}}
	s := serve(t, cfg)
	for target, want := range map[string]int{
		"/b": 403, "/B/": 403, "/a;%2F..%2Fb": 403, "/b;%2F..%2Fa": 403, "/x/..;/b": 403, "/a": 200,
	} {
		assert.Equal(t, want, raw(t, s, "GET", target), target)
	}
}

// doors are the ways to limit requests of which most read the path.
var doors = map[string]func(testing.TB) Config{
	"--limit": func(t testing.TB) Config { return config(t, "1000000/1d") },
	"--route": func(t testing.TB) Config {
		return withRoutes(t, config(t, "1000000/1d"), "/a/ limit=1000000/1d",
			"/users/{id}/reset limit=1000000/1d")
	},
	"--by path": func(t testing.TB) Config { return by(t, config(t, "1000000/1d"), "ip+path") },
	"--normalize-paths": func(t testing.TB) Config {
		cfg := withRoutes(t, config(t, "1000000/1d"), "/a/ limit=1000000/1d")
		cfg.NormalizePaths = true
		return cfg
	},
	"--rules": func(t testing.TB) Config {
		cfg, _ := rulesConfig(t, `
domain: web
descriptors:
  - {key: path, rate_limit: {unit: day, requests_per_unit: 1000000}}
  - {key: path, value: /search/*, rate_limit: {unit: day, requests_per_unit: 1000000}}
  - {key: path, value: /Users/*/reset, rate_limit: {unit: day, requests_per_unit: 1000000}}
rate_limits: [{actions: [{path: {}}]}, {actions: [{remote_address: {}}, {path: {}}]}]
`)
		return cfg
	},
}

// hostilePaths are paths that cost much to read. Each is valid in a request line.
var hostilePaths = []string{
	"/%2e%2e/..;//..;/a%3b" + strings.Repeat("/a", 1190), // 4 ms of CPU in a version before
	"/%252f%2e/" + strings.Repeat("%25", 2700),
	"//%00%20;a%3b" + strings.Repeat(`/%25.\`, 700) + "|",
	"/%256/" + strings.Repeat("|", 2600) + "%c3%253b/../A",
	strings.Repeat("//a;/A..;", 900),
}

func denied(cfg Config) Config {
	cfg.Deny = []httplimit.DenyEntry{{Prefix: netip.MustParsePrefix("127.0.0.0/8")}}
	return cfg
}

// allocated returns the bytes that a request to a target allocates, which is the same on each
// machine, unlike its time. Whatever else the process does can only add to what is counted, and so
// can a sync.Pool, which forgets at random with the race detector: the least of many counts.
func allocated(s served, target string) uint64 {
	const times = 50
	r := requestOf(client, target)
	least := uint64(math.MaxUint64)
	var before, after runtime.MemStats
	for range times {
		w := httptest.NewRecorder()
		runtime.ReadMemStats(&before)
		s.handler.ServeHTTP(w, r)
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	return least
}

// TestADeniedClientsPathIsNotRead checks that the deny list comes first.
func TestADeniedClientsPathIsNotRead(t *testing.T) {
	for name, door := range doors {
		s := serve(t, denied(door(t)))
		plain := allocated(s, "/a/b")
		for _, target := range append([]string{"/a%2Fb", "/" + strings.Repeat("a", 20_000)}, hostilePaths...) {
			assert.Less(t, allocated(s, target), plain+1000, "%s: %.30s", name, target)
			resp, _ := sendRaw(t, s, target)
			assert.Equal(t, 403, resp.StatusCode, "%s: %.30s", name, target)
		}
	}
}

// TestTheWorkForAPathIsBounded has hostile paths of clients that are not denied.
func TestTheWorkForAPathIsBounded(t *testing.T) {
	for name, door := range doors {
		s := serve(t, door(t))
		plain := allocated(s, "/a/b")
		for _, target := range hostilePaths {
			assert.Less(t, allocated(s, target), plain+400_000, "%s: %.30s", name, target)
		}
	}
}

// TestAPathThatIsTooLongIsRefused has a path of more than 8 KiB, where paths are read.
func TestAPathThatIsTooLongIsRefused(t *testing.T) {
	long, escaped := "/"+strings.Repeat("a", 8<<10), "/"+strings.Repeat("%41", 3<<10)
	for name, door := range doors {
		cfg := door(t)
		s := serve(t, cfg)
		want, refused := 414, uint64(2)
		if name == "--limit" {
			want, refused = 200, 0
		}
		for _, target := range []string{long, escaped} {
			assert.Equal(t, want, raw(t, s, "GET", target), name)
			assert.Equal(t, 200, raw(t, s, "GET", target[:8<<10-1]), name)
		}
		assert.Equal(t, refused, s.tally.count(httplimit.NoKey), "%s: a refusal counts", name)

		cfg = door(t)
		cfg.Allow = loopback
		cfg.NormalizePaths = false
		s = serve(t, cfg)
		for _, target := range append([]string{long}, hostilePaths...) {
			assert.Equal(t, 200, raw(t, s, "GET", target), "%s: a client without a limit", name)
		}
		assert.EqualValues(t, 1+len(hostilePaths), s.tally.count(httplimit.Exempt), name)
	}
}

// TestListsCountOnce sends requests that two handlers compare with the deny list.
func TestListsCountOnce(t *testing.T) {
	for name, door := range doors {
		for _, shadow := range []bool{false, true} {
			cfg := denied(door(t))
			cfg.Guard.Shadow, cfg.MaxInFlight, cfg.MaxInFlightPerClient = shadow, 10, 10
			s := serve(t, cfg)
			want := 403
			if shadow {
				want = 200
			}
			assert.Equal(t, want, raw(t, s, "GET", "/a/../b"), "%s, shadow %v", name, shadow)
			assert.EqualValues(t, 1, s.tally.count(httplimit.Listed), "%s, shadow %v", name, shadow)
			assert.EqualValues(t, 1, s.figures().Denials, "%s, shadow %v", name, shadow)
		}
	}
}

// BenchmarkPaths compares hostile paths with a plain one, without the network and the parser of
// net/http.
func BenchmarkPaths(b *testing.B) {
	for name, door := range doors {
		for _, deny := range []bool{false, true} {
			cfg := door(b)
			if deny {
				cfg, name = denied(cfg), name+"/denied"
			}
			s := serve(b, cfg)
			for i, target := range append([]string{"/a/b"}, hostilePaths...) {
				b.Run(fmt.Sprintf("%s/path=%d", name, i), func(b *testing.B) {
					r := requestOf(client, target)
					b.ReportAllocs()
					for b.Loop() {
						s.handler.ServeHTTP(httptest.NewRecorder(), r)
					}
				})
			}
		}
	}
}
