package proxy

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/httplimit"
)

// The tests in this file do what an attacker would try.

// tunnel is an upstream that accepts any upgrade and then serves requests on the connection,
// uncounted.
func tunnel(requests *atomic.Int64) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		protocol := r.Header.Get("Upgrade")
		if protocol == "" {
			return
		}
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " +
			protocol + "\r\n\r\n")
		_ = rw.Flush()
		for {
			line, err := rw.ReadString('\n')
			if err != nil {
				return
			}
			if strings.HasPrefix(line, "POST /login") {
				requests.Add(1)
			}
		}
	}
}

func TestOnlyWebSocketsAreTunnelled(t *testing.T) {
	for protocol, want := range map[string]int{
		"h2c": 200, "H2C": 200, "TLS/1.0": 200, "websocket, h2c": 200, "h2c, websocket": 200,
		"anything":  200,
		"websocket": 101, "WebSocket": 101,
	} {
		var requests atomic.Int64
		cfg := config(t, "100/1d")
		cfg.Upstream = upstreamOf(t, tunnel(&requests))
		s := serve(t, cfg)
		conn := dial(t, s.addr(), "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\n"+
			"Upgrade: "+protocol+"\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n")
		r := bufio.NewReader(conn)
		resp, err := http.ReadResponse(r, nil)
		require.NoError(t, err)
		require.Equal(t, want, resp.StatusCode, protocol)
		_, _ = io.WriteString(conn,
			strings.Repeat("POST /login HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", 50))
		if want == 200 {
			for range 50 {
				resp, err := http.ReadResponse(r, nil)
				require.NoError(t, err)
				require.NoError(t, resp.Body.Close())
			}
			assert.EqualValues(t, 51, s.tally.stats.Count(httplimit.Admitted), "%s: each of them was counted",
				protocol)
		}
		require.NoError(t, conn.Close())
	}
}

func TestCONNECTIsRefused(t *testing.T) {
	cfg := config(t, "100/1d")
	cfg.Upstream = upstreamOf(t, func(http.ResponseWriter, *http.Request) { t.Error("passed on") })
	s := serve(t, cfg)
	conn := dial(t, s.addr(), "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n")
	resp := response(t, conn)
	assert.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode)
}

// TestHangingUpDoesNotEvadeCountIf makes sixty attempts, each of which hangs up before the upstream
// responds, under a limit of three failures. Three attempts must reach the upstream.
func TestHangingUpDoesNotEvadeCountIf(t *testing.T) {
	for name, body := range map[string]string{
		"with a whole body": "Content-Length: 2\r\n\r\n{}",
		// enough for a server that parses while it reads
		"without its end": "Content-Length: 3\r\n\r\n{}",
	} {
		var attempts atomic.Int64
		var here sync.WaitGroup
		cfg := config(t, "3/1d")
		var err error
		cfg.Guard.CountIf, err = cli.Statuses([]string{"401"})
		require.NoError(t, err)
		cfg.Upstream = upstreamOf(t, func(w http.ResponseWriter, r *http.Request) {
			if attempts.Add(1) > 3 {
				return
			}
			defer here.Done()
			_, _ = io.ReadFull(r.Body, make([]byte, 2))
			select {
			case <-r.Context().Done():
			case <-time.After(300 * time.Millisecond):
			}
			w.WriteHeader(http.StatusUnauthorized)
		})
		s := serve(t, cfg)
		for n := range 60 {
			if n < 3 {
				here.Add(1)
			}
			conn := dial(t, s.addr(), "POST /login HTTP/1.1\r\nHost: a\r\n"+body)
			if n < 3 {
				require.Eventually(t, func() bool {
					return attempts.Load() == int64(n+1)
				}, 10*time.Second, time.Millisecond)
			} else {
				// otherwise net/http waits for the rest of the body
				require.NoError(t, conn.(*net.TCPConn).CloseWrite())
				_, _ = io.Copy(io.Discard, conn)
			}
			require.NoError(t, conn.Close())
			s.inFlight.Wait()
		}
		here.Wait()
		assert.EqualValues(t, 3, attempts.Load(), name)
	}
}

// TestSpellingsOfARouteAreOneRoute checks that all spellings of a route are one route with one
// budget.
func TestSpellingsOfARouteAreOneRoute(t *testing.T) {
	cfg := withRoutes(t, config(t, "1000/1d"), "POST /login limit=1/1d", "API.example.com/Orders/{ID} limit=1/1d",
		"/exact/{$} limit=1/1d", "/tree/ limit=1/1d", "/Caf%C3%89/100%25;v=1 limit=1/1d")
	for first, others := range map[string][]string{
		"POST /login": {"POST /LOGIN", "POST /login/", "POST /x/%2e%2e/login", "POST //login",
			"POST /login/.", "POST /%6Cogin", "POST /login;a=b",
			"POST /x%2f..%2flogin", "POST /Login?a=b", "post /login"},
		"GET http://api.example.com/Orders/7": {"GET http://API.example.com/orders/8",
			"GET http://api.example.com./ORDERS/7",
			"GET http://api.example.com:1/orders/9/"},
		"GET /exact/":           {"GET /exact", "GET /Exact/"},
		"GET /Caf%C3%89/100%25": {"GET /CAF%c3%a9/100%25", "GET /caf%C3%A9/100%25;v=2/"},
		"GET /tree/a/b":         {"GET /TREE/A", "GET /tree", "GET /tree/", "GET /x/..//tree/c"},
	} {
		s := serve(t, cfg)
		ask := func(spelling string) (int, string) {
			method, target, _ := strings.Cut(spelling, " ")
			host := ""
			if strings.HasPrefix(target, "http://") {
				u, err := url.Parse(target)
				require.NoError(t, err)
				host, target = u.Host, u.EscapedPath()
			}
			header := []string{}
			if host != "" {
				header = []string{"Host", host}
			}
			resp, _ := send(t, method, s.front.URL+target, nil, header...)
			return resp.StatusCode, resp.Header.Get("Ratelimit-Policy")
		}
		got, policy := ask(first)
		assert.Equal(t, 200, got, first)
		assert.NotContains(t, policy, "1000", first)
		for _, spelling := range others {
			got, _ := ask(spelling)
			assert.Equal(t, 429, got, spelling)
		}
	}
}

// raw sends a request with a target that no client library would send, and returns the status.
func raw(t *testing.T, s served, method, target string) int {
	t.Helper()
	conn := dial(t, s.addr(), method+" "+target+" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
	defer conn.Close()
	resp := response(t, conn)
	_ = resp.Body.Close()
	return resp.StatusCode
}

// readers are upstreams that read a path in different ways. Each returns the route that it serves.
var readers = map[string]func(target string) string{
	"Express": func(target string) string {
		switch {
		case regexp.MustCompile(`(?i)^/users/[^/]+/reset/?$`).MatchString(target):
			return "reset"
		case regexp.MustCompile(`(?i)^/search(/|$)`).MatchString(target):
			return "search"
		}
		return "other"
	},
	"Go": func(target string) string {
		u, err := url.ParseRequestURI(target)
		if err != nil {
			return "other"
		}
		return plainReader(path.Clean(u.Path))
	},
	"Tomcat": func(target string) string {
		u, err := url.ParseRequestURI(regexp.MustCompile(`;[^/]*`).ReplaceAllString(target, ""))
		if err != nil {
			return "other"
		}
		return plainReader(path.Clean(u.Path))
	},
	"Node": func(target string) string {
		target = regexp.MustCompile(`^//+[^/]*`).ReplaceAllString(target, "")
		return plainReader(path.Clean(regexp.MustCompile(`(?i)%2e`).ReplaceAllString(target, ".")))
	},
}

func plainReader(path string) string {
	switch {
	case strings.HasPrefix(path, "/search/"):
		return "search"
	case regexp.MustCompile(`^/users/[^/]+/reset$`).MatchString(path):
		return "reset"
	}
	return "other"
}

// TestNoReadingOfAPathPassesItsLimit sends spellings of two routes to upstreams that read them
// differently. Each route has a limit of 1, and so has everything else: no upstream may get two
// requests for what it takes for one route.
func TestNoReadingOfAPathPassesItsLimit(t *testing.T) {
	spellings := []string{"/users/42/reset", "/users/42%2Fx/reset", "/users/4%2F2/reset",
		"/USERS/42/RESET/",
		"/x/../users/1/reset", "/users/1;a/reset;b", "/users/%34/%72eset", "/search/a", "/search/../foo",
		"/search/..;/foo", "/search/%2e%2e/foo", "//search/foo", "//x/search/foo", "/x/..;/search/a",
		"/search",
		"/x%2f..%2fsearch/b", "/a;%2f../search/c", "/search/;/c", `/search\x`, "/search%5Cx", "/SEARCH/x",
		"/%73earch/1",
		"/..;/users/1/reset", "/foo", "/foo//", "/sea%2572ch/1", "/users/1/reset/", "/users/1/reset%00"}
	for name, read := range readers {
		var got []string
		cfg := config(t, "1/1d")
		cfg.Upstream = upstreamOf(t, func(_ http.ResponseWriter, r *http.Request) {
			got = append(got, read(r.RequestURI)+" "+r.RequestURI)
		})
		cfg = withRoutes(t, cfg, "/users/{id}/reset limit=1/1d", "/search/ limit=1/1d")
		s := serve(t, cfg)
		for _, spelling := range spellings {
			raw(t, s, "POST", spelling)
		}
		routes := map[string]bool{}
		for _, g := range got {
			route, _, _ := strings.Cut(g, " ")
			assert.False(t, routes[route], "%s got %q", name, got)
			routes[route] = true
		}
		assert.True(t, routes["reset"] && routes["search"], "%s got %q", name, got)
	}
}

// TestPathsAreForwardedAsTheyCame checks that nothing is rewritten, but for bytes that may not
// stand in a path.
func TestPathsAreForwardedAsTheyCame(t *testing.T) {
	cfg := config(t, "100/1d")
	got := ""
	cfg.Upstream = upstreamOf(t, func(_ http.ResponseWriter, r *http.Request) { got = r.RequestURI })
	s := serve(t, cfg)
	for target, want := range map[string]string{
		"/a%2Fb//c/../d;v=1/%7e/.%2e/": "", "/a%2Fb\\c|d": "/a%2Fb%5Cc%7Cd", "//x/y": "",
		"http://a/%6c": "/%6c", "http://a": "/", "/a%2fb\xff": "/a%2fb%FF",
	} {
		assert.Equal(t, 200, raw(t, s, "GET", target))
		assert.Equal(t, cmp.Or(want, target), got, target)
	}
	for _, target := range []string{"x:%2Fa", "*"} {
		assert.Equal(t, 400, raw(t, s, "GET", target), target)
	}
}

func TestAPathWithTooManyReadingsIsRefused(t *testing.T) {
	cfg := config(t, "100/1d")
	cfg.Routes = []Route{{Pattern: "/a", Cost: 1}}
	s := serve(t, cfg)
	assert.Equal(t, 400, raw(t, s, "GET", strings.Repeat("//a;b/%252e%252e%253b/%2f..", 20)))
}

// TestLimitsOfRoutesAlone has no general limit.
func TestLimitsOfRoutesAlone(t *testing.T) {
	s := serve(t, withRoutes(t, config(t), "/a limit=1/1d"))
	for i, target := range []string{"/b", "/a", "/b", "/x/../b", "//a", "/a", "/b"} {
		assert.Equal(t, i == 4 || i == 5, raw(t, s, "GET", target) == 429, "%d: %s", i, target)
	}
}

func TestNormalizedPathsAreForwarded(t *testing.T) {
	cfg := config(t, "1/1d")
	got := ""
	cfg.Upstream = upstreamOf(t, func(_ http.ResponseWriter, r *http.Request) { got = r.RequestURI })
	cfg.NormalizePaths = true
	cfg = withRoutes(t, cfg, "/login limit=100/1d")
	s := serve(t, cfg)
	for target, want := range map[string]string{
		"/x/%2e%2e/login?a=%2F": "/login?a=%2F", "//login": "/login", "/log%69n": "/login",
		"/./login":        "/login",
		"http://a//login": "/login",
	} {
		assert.Equal(t, 200, raw(t, s, "GET", target), target)
		assert.Equal(t, want, got, target)
	}
	for _, target := range []string{"/a%2Fb", "/a%5Cb", "/a%00", "/a%252Fb", "/x/..;/login"} {
		got = ""
		assert.Equal(t, 400, raw(t, s, "GET", target), target)
		assert.Empty(t, got)
	}
}

// TestAPathThatServersReadDifferentlyCountsUnderEachName uses one that is /a for Tomcat and /b for
// nginx.
func TestAPathThatServersReadDifferentlyCountsUnderEachName(t *testing.T) {
	for _, name := range []string{"/a", "/b"} {
		cfg := by(t, config(t, "1/1d"), "path")
		s := serve(t, cfg)
		assert.Equal(t, 200, raw(t, s, "GET", "/a;%2F..%2Fb"))
		assert.Equal(t, 429, raw(t, s, "GET", name), name)
		assert.Equal(t, 200, raw(t, s, "GET", "/c"))
	}
	cfg := by(t, config(t, "1/1d"), "path")
	s := serve(t, cfg)
	assert.Equal(t, 200, raw(t, s, "GET", "/a"))
	assert.Equal(t, 429, raw(t, s, "GET", "/a;%2F..%2Fb"))
	assert.Equal(t, 200, raw(t, s, "GET", "/b"), "a denial takes nothing")
}

// TestAnAmbiguousRequestThatIsDeniedTakesNothing denies a request by one of its two routes.
func TestAnAmbiguousRequestThatIsDeniedTakesNothing(t *testing.T) {
	cfg := withRoutes(t, config(t, "100/1d"), "/a/ limit=1/1d", "/b/ limit=1/1d")
	s := serve(t, cfg)
	assert.Equal(t, 200, raw(t, s, "GET", "/a/1"))
	assert.Equal(t, 429, raw(t, s, "GET", "/a/../b/1"))
	assert.Equal(t, 200, raw(t, s, "GET", "/b/1"))
}

func TestSpellingsOfAPathAreOneKey(t *testing.T) {
	cfg := by(t, config(t, "1/1d"), "ip+path")
	s := serve(t, cfg)
	assert.Equal(t, 200, status(t, "GET", s.front.URL+"/a/b"))
	for _, path := range []string{"/A/B", "/a/b/", "/a//b", "/a/x/../b", "/a/%62", "/a;x/b;y",
		"/a/./b"} {
		assert.Equal(t, 429, status(t, "GET", s.front.URL+path), path)
	}
	assert.Equal(t, 200, status(t, "GET", s.front.URL+"/a/c"))
}

// TestOneAddressCannotFillTheTable checks that one address with more paths than the table has
// buckets does not keep other clients out.
func TestOneAddressCannotFillTheTable(t *testing.T) {
	for most, want := range map[int]int{100: 200, -1: 503} { // without the bound it does
		cfg := by(t, config(t, "5/1d:fixed"), "ip+path")
		cfg.Table.MaxBuckets, cfg.Guard.MaxKeysPerClient = 500, most
		cfg.Trust = loopback
		s := serve(t, cfg)
		for i := range 1000 {
			r := requestOf("198.51.100.1:1", fmt.Sprintf("/%d", i))
			s.handler.ServeHTTP(httptest.NewRecorder(), r)
		}
		assert.Equal(t, want, status(t, "GET", s.front.URL+"/"))
	}
}

func TestAllowedClientsHaveNoLimit(t *testing.T) {
	cfg := config(t, "1/1d")
	cfg.Allow = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	cfg.Trust = loopback
	cfg.Deny = []httplimit.DenyEntry{entry(t, "10.0.0.1")}
	cfg.MaxInFlight = 1
	s := serve(t, cfg)
	for range 3 {
		assert.Equal(t, 200, status(t, "GET", s.front.URL, "X-Forwarded-For", "10.0.0.1"))
	}
	assert.Equal(t, 200, status(t, "GET", s.front.URL, "X-Forwarded-For", "192.0.2.1"))
	assert.Equal(t, 429, status(t, "GET", s.front.URL, "X-Forwarded-For", "192.0.2.1"))
	assert.Equal(t, 429, status(t, "GET", s.front.URL, "X-Forwarded-For", "10.0.0.1, 192.0.2.1"),
		"a forged address is not allowed")
	assert.EqualValues(t, 3, s.figures().Requests["exempt"])
	assert.Equal(t, 1, s.limiter.Stats().Buckets)
}

func TestRequestsInFlightAreBoundedOverAllRoutes(t *testing.T) {
	release := make(chan struct{})
	arrived := make(chan struct{}, 10)
	cfg := withRoutes(t, config(t, "100/1d"), "/other limit=100/1d")
	cfg.MaxInFlight = 2
	cfg.Upstream = upstreamOf(t, func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-release
	})
	s := serve(t, cfg)
	var wg sync.WaitGroup
	for _, path := range []string{"/", "/other"} {
		wg.Go(func() { assert.Equal(t, 200, status(t, "GET", s.front.URL+path)) })
		<-arrived
	}
	resp, body := send(t, "GET", s.front.URL+"/other", nil)
	assert.Equal(t, 503, resp.StatusCode)
	assert.Equal(t, "1", resp.Header.Get("Retry-After"))
	assert.Contains(t, body, "in flight")
	close(release)
	wg.Wait()
	assert.Equal(t, 200, status(t, "GET", s.front.URL))
	assert.EqualValues(t, 1, s.figures().Requests["busy"])
}

func TestBodiesAreBounded(t *testing.T) {
	cfg := config(t, "100/1d")
	cfg.Bodies = Bodies{Max: 1000}
	cfg.Upstream = upstreamOf(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
	})
	s := serve(t, cfg)
	post := func(body io.Reader) int {
		resp, _ := send(t, "POST", s.front.URL, body)
		return resp.StatusCode
	}
	assert.Equal(t, 200, post(strings.NewReader(strings.Repeat("x", 1000))))
	assert.Equal(t, 413, post(strings.NewReader(strings.Repeat("x", 1001))))
	assert.Equal(t, 413, post(io.MultiReader(strings.NewReader(strings.Repeat("x", 1001)))),
		"chunked: its length is not announced")
}

// TestSlowBodiesEnd checks that a body slower than the rate is cut off, whether the upstream reads
// it or the client is denied. A body that keeps to the rate is not, nor is a slow upstream.
func TestSlowBodiesEnd(t *testing.T) {
	cfg := config(t, "3/1d")
	cfg.Bodies = Bodies{Rate: 1000, Grace: 100 * time.Millisecond}
	cfg.Upstream = upstreamOf(t, func(_ http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			time.Sleep(200 * time.Millisecond) // longer than the grace
		}
	})
	s := serve(t, cfg)
	dribble := func(every time.Duration, piece string) (int, time.Duration) {
		conn, err := net.Dial("tcp", s.addr())
		require.NoError(t, err)
		defer conn.Close()
		start := time.Now()
		_, err = io.WriteString(conn, "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n")
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			for sent := 0; sent < 1000 && ctx.Err() == nil; sent += len(piece) {
				if _, err := io.WriteString(conn, piece); err != nil {
					return
				}
				time.Sleep(every) // the pace of a slow client
			}
		}()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return 0, time.Since(start)
		}
		return resp.StatusCode, time.Since(start)
	}
	status, _ := dribble(time.Millisecond, strings.Repeat("x", 250))
	assert.Equal(t, 200, status)
	status, took := dribble(20*time.Millisecond, "x")
	assert.Equal(t, 408, status)
	assert.Less(t, took, 8*time.Second, "the whole body would take 20 s")
	dribble(20*time.Millisecond, "x")
	status, took = dribble(20*time.Millisecond, "x")
	assert.Contains(t, []int{0, 429}, status,
		"denied, and the body that nobody wants is not waited for")
	assert.Less(t, took, 8*time.Second)
}

// TestBodiesThatBreakOff checks that a body that breaks off or is malformed is not logged as a
// failure of the upstream, for which an alert may be sent. An upstream that closes the connection
// while it gets a body has failed.
func TestBodiesThatBreakOff(t *testing.T) {
	cfg := config(t, "100/1d")
	cfg.Bodies = Bodies{Rate: 1000}
	log, access := textLog(&cfg.Log), textLog(&cfg.Access)
	cfg.Upstream = upstreamOf(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/broken" {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.Copy(io.Discard, r.Body)
	})
	s := serve(t, cfg)
	for i, body := range []string{
		"Content-Length: 100\r\n\r\nabc",
		"Transfer-Encoding: chunked\r\n\r\n5\r\nabc",
		"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
	} {
		conn := dial(t, s.addr(), "POST / HTTP/1.1\r\nHost: a\r\n"+body)
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
		_, _ = io.Copy(io.Discard, conn)
		require.NoError(t, conn.Close())
		s.inFlight.Wait()
		assert.Equal(t, i+1, strings.Count(access.String(), "status=400"), body)
	}
	assert.NotContains(t, log.String(), "the upstream failed")
	resp, _ := send(t, "POST", s.front.URL+"/broken", strings.NewReader(strings.Repeat("x", 64<<10)))
	assert.Equal(t, 502, resp.StatusCode)
	assert.Contains(t, log.String(), "the upstream failed")
}

// TestBodiesMayWaitForTheLimit checks that a client is not called slow while its request waits in a
// leaky bucket longer than the grace.
func TestBodiesMayWaitForTheLimit(t *testing.T) {
	cfg := config(t, "5/3s:leaky")
	cfg.Bodies = Bodies{Rate: 1000, Grace: 300 * time.Millisecond}
	cfg.Upstream = upstreamOf(t, func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n, err)
	})
	s := serve(t, cfg)
	body := strings.Repeat("x", 2<<20) // more than HTTP/2 buffers before it is read
	require.Equal(t, 200, status(t, "GET", s.front.URL))

	conn := dial(t, s.addr(),
		fmt.Sprintf("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", len(body)))
	require.Eventually(t, func() bool { return s.open.Load() == 1 }, 10*time.Second, time.Millisecond)
	go func() { _, _ = io.WriteString(conn, body) }()
	resp := response(t, conn)
	assert.Equal(t, 200, resp.StatusCode)

	h2 := &http.Client{Transport: &http.Transport{Protocols: protocols(false)}}
	defer h2.CloseIdleConnections()
	resp, err := h2.Post(s.front.URL, "text/plain", strings.NewReader(body))
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, "HTTP/2.0", resp.Proto)
	assert.Equal(t, fmt.Sprint(len(body), nil), string(text))
}

// TestSilentConnectionsKeepNobodyOut checks that a new connection replaces the oldest silent one,
// and that one address cannot have all connections.
func TestSilentConnectionsKeepNobodyOut(t *testing.T) {
	cfg := config(t, "1000/1d")
	cfg.MaxConns = 20
	p := run(t, cfg)
	var silent []net.Conn
	for addr, n := range map[string]int{p.front: 100, p.back: maxAdminConns + 50} {
		for range n {
			silent = append(silent, dial(t, addr, ""))
		}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for range 20 {
		for _, url := range []string{"http://" + p.back + "/-/healthz", "http://" + p.front} {
			resp, err := client.Get(url)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, 200, resp.StatusCode)
		}
	}
	c := p.conns.Load()
	assert.GreaterOrEqual(t, c.evicted.Load(), uint64(80))
	c.mu.Lock()
	assert.LessOrEqual(t, c.open, 20)
	c.mu.Unlock()
	for _, c := range silent {
		c.Close()
	}
	p.end(t)
}

func TestConnectionsOfOneAddressAreBounded(t *testing.T) {
	for _, trusted := range []bool{false, true} {
		cfg := config(t, "1000/1d")
		cfg.MaxConnsPerAddr = 3
		if trusted {
			cfg.Trust = loopback
		}
		p := run(t, cfg)
		open := 0
		for range 10 {
			c := dial(t, p.front, "")
			_, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			if err == nil {
				_, err = http.ReadResponse(bufio.NewReader(c), nil)
			}
			if err == nil {
				open++
			}
		}
		assert.Equal(t, map[bool]int{false: 3, true: 10}[trusted], open,
			"a proxy in front has many clients")
		p.stop()
		<-p.done
	}
}

// TestConnectionsOfATrustedIPv6AddressAreNotBounded checks that a trusted proxy is exempt by its
// address, not by its /64, and that other addresses of the /64 are counted without it.
func TestConnectionsOfATrustedIPv6AddressAreNotBounded(t *testing.T) {
	cfg := config(t, "1000/1d")
	cfg.MaxConnsPerAddr = 1
	cfg.Trust = []netip.Prefix{netip.MustParsePrefix("2001:db8::10/128")}
	bounds := serve(t, cfg).connBounds()
	cs := newConns(nil, bounds)
	admit := func(ip string) bool {
		c := &conn{owner: cs, addr: bounds.counted(&net.TCPAddr{IP: net.ParseIP(ip)})}
		_, ok := cs.admit(c)
		return ok
	}
	for range 3 {
		assert.True(t, admit("2001:db8::10"))
	}
	assert.True(t, admit("2001:db8::20"))
	assert.False(t, admit("2001:db8::30"), "the same /64")
}

// TestConnectionsWithARequestAreKept checks that a connection with a request is never closed for a
// new one; if all have requests, the new one is closed.
func TestConnectionsWithARequestAreKept(t *testing.T) {
	release := make(chan struct{})
	cfg := config(t, "1000/1d")
	cfg.MaxConns = 2
	arrived := make(chan struct{}, 2)
	cfg.Upstream = upstreamOf(t, func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-release
	})
	p := run(t, cfg)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			resp, err := http.Get("http://" + p.front)
			if assert.NoError(t, err) {
				resp.Body.Close()
				assert.Equal(t, 200, resp.StatusCode)
			}
		})
		<-arrived
	}
	for range 5 {
		c := dial(t, p.front, "")
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		_, err := c.Read(make([]byte, 1))
		assert.Error(t, err)
		assert.NotErrorIs(t, err, context.DeadlineExceeded, "it is closed at once")
		c.Close()
	}
	close(release)
	wg.Wait()
	assert.GreaterOrEqual(t, p.conns.Load().refused.Load(), uint64(5))
	p.stop()
	<-p.done
}

// TestAProxyThatIsItsOwnUpstream checks that such a proxy responds at once: the request returns
// once and is not counted again.
func TestAProxyThatIsItsOwnUpstream(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	cfg := config(t, "1000/1d")
	cfg.Upstream = &url.URL{Scheme: "http", Host: l.Addr().String()}
	log := textLog(&cfg.Log)
	p, err := New(cfg)
	require.NoError(t, err)
	front := &httptest.Server{Listener: l, Config: &http.Server{Handler: p.handler}}
	front.Start()
	assert.Equal(t, http.StatusLoopDetected, status(t, "GET", front.URL))
	front.Close()
	require.NoError(t, p.close())
	assert.EqualValues(t, 1, p.tally.stats.Count(httplimit.Admitted))
	assert.Contains(t, log.String(), "a request came back")
}

// spellings returns a name with each byte that may stand in a field's name in place of its hyphens.
func spellings(name string) []string {
	all := []string{name, strings.ToUpper(name), strings.Replace(name, "-", "_", 1)}
	for _, c := range "!#$%&'*+.^_`|~" {
		all = append(all, strings.ReplaceAll(name, "-", string(c)))
	}
	return all
}

// cgi is an upstream that answers with the fields of a request as CGI programs see them.
func cgi(w http.ResponseWriter, r *http.Request) {
	env := make(map[string]string)
	for name, values := range r.Header {
		variable := "HTTP_" + strings.Map(func(c rune) rune {
			if unicode.IsLetter(c) || unicode.IsDigit(c) {
				return unicode.ToUpper(c)
			}
			return '_'
		}, name)
		env[variable] += strings.Join(values, "|")
	}
	for _, variable := range slices.Sorted(maps.Keys(env)) {
		fmt.Fprintf(w, "%s=%s\n", variable, env[variable])
	}
}

// TestForgedAddressFieldsDoNotPass sends each field that only a proxy may set, in each spelling
// that is the same one for a CGI program, over HTTP/1 and HTTP/2.
func TestForgedAddressFieldsDoNotPass(t *testing.T) {
	cfg := config(t, "100000/1d")
	cfg.Upstream = upstreamOf(t, cgi)
	names := []string{"Proxy", "X-Forwarded-For", "X-Real-Ip", "True-Client-Ip", "X-Scheme", "X-User"}
	s := serve(t, cfg)
	h2 := &http.Client{Transport: &http.Transport{Protocols: protocols(false)}}
	defer h2.CloseIdleConnections()
	for _, name := range names {
		lies := []string{"X-Api_key", "passes"}
		for _, spelling := range spellings(name) {
			lies = append(lies, spelling, "6.6.6.6")
		}
		_, got := send(t, "GET", s.front.URL, nil, lies...)
		require.NotContains(t, got, "6.6.6.6", name)
		assert.Contains(t, got, "HTTP_X_FORWARDED_FOR=127.0.0.1\n", name)
		assert.Contains(t, got, "HTTP_X_API_KEY=passes\n")
		assert.Regexp(t, `HTTP_VIA=1\.1 weir-[a-z0-9]{12}\n`, got)
	}

	// A field of each kind over HTTP/2, and in the trailer.
	r, err := http.NewRequestWithContext(t.Context(), "POST", s.front.URL,
		io.NopCloser(strings.NewReader("a")))
	require.NoError(t, err)
	r.Trailer = http.Header{"X.real.ip": {"6.6.6.6"}, "X-Real-Ip": {"6.6.6.6"}}
	for _, name := range []string{"x.forwarded.for", "x_real_ip", "true+client+ip", "remote.user"} {
		r.Header[name] = []string{"6.6.6.6"}
	}
	resp, err := h2.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	assert.Equal(t, 2, resp.ProtoMajor)
	assert.NotContains(t, string(got), "6.6.6.6")
	assert.Contains(t, string(got), "HTTP_X_FORWARDED_FOR=127.0.0.1\n")

	// A trusted proxy that sets Forwarded passes the client's own X-Forwarded-For through.
	cfg.Trust = loopback
	cfg.Forwarded = true
	s = serve(t, cfg)
	_, body := send(t, "GET", s.front.URL, nil, "Forwarded", "for=192.0.2.1", "X-Forwarded-For",
		"6.6.6.6", "X-Forwarded-Port", "6.6.6.6", "X-Forwarded-Host", "evil", "X_Forwarded_For", "6.6.6.6",
		"X.Forwarded.For", "6.6.6.6", "True-Client-Ip", "192.0.2.1", "True+Client+Ip", "6.6.6.6",
		"X-Original-Url", "/trusted")
	assert.NotContains(t, body, "6.6.6.6")
	assert.NotContains(t, body, "evil")
	assert.Contains(t, body, "HTTP_X_FORWARDED_FOR=192.0.2.1, 127.0.0.1\n")
	assert.Contains(t, body, "HTTP_FORWARDED=for=192.0.2.1\n")
	assert.Contains(t, body, "HTTP_TRUE_CLIENT_IP=192.0.2.1\n", "which a trusted proxy may set")
	assert.Contains(t, body, "HTTP_X_ORIGINAL_URL=/trusted\n", "no limit depends on the path")
}

// TestNoFieldChangesWhatWasCounted checks that a request reaches the upstream with the URL, the
// method and the key that it was counted by.
func TestNoFieldChangesWhatWasCounted(t *testing.T) {
	ruled, _ := rulesConfig(t, ruleText)
	for name, row := range map[string]struct {
		set    func(*Config)
		passes bool
	}{
		"one limit for all":          {passes: true, set: func(*Config) {}},
		"a route":                    {set: func(c *Config) { *c = withRoutes(t, *c, "POST /login limit=5/1d") }},
		"callers told apart by path": {set: func(c *Config) { *c = by(t, *c, "ip+path") }},
		"rules":                      {set: func(c *Config) { c.Limits, c.Rules = nil, ruled.Rules }},
	} {
		cfg := config(t, "100000/1d")
		cfg.Upstream = upstreamOf(t, cgi)
		cfg.Trust = loopback
		row.set(&cfg)
		s := serve(t, cfg)
		for i, field := range slices.Sorted(maps.Keys(targetFields)) {
			from := []string{"X-Forwarded-For", fmt.Sprintf("192.0.2.%d", i)}
			_, got := send(t, "GET", s.front.URL, nil, append(from, field, "DELETE")...)
			assert.Equal(t, row.passes, strings.Contains(got, "DELETE"), "%s: %s", name, field)
			if row.passes {
				continue
			}
			for _, spelling := range spellings(field) {
				from = append(from, spelling, "DELETE")
			}
			_, got = send(t, "GET", s.front.URL, nil, from...)
			assert.NotContains(t, got, "DELETE", name)
			assert.Contains(t, got, "HTTP_VIA", name)
		}
	}

	cfg := by(t, config(t, "100000/1d"), "header:X-Api-Key+header:x_plan")
	cfg.Upstream = upstreamOf(t, cgi)
	s := serve(t, cfg)
	lies := []string{"X-Api-Key", "counted", "X_plan", "counted", "X-Plan", "forged"}
	for _, spelling := range spellings("X-Api-Key")[2:] {
		lies = append(lies, spelling, "forged")
	}
	_, got := send(t, "GET", s.front.URL, nil, lies...)
	assert.NotContains(t, got, "forged")
	assert.Contains(t, got, "HTTP_X_API_KEY=counted\n")
	assert.Contains(t, got, "HTTP_X_PLAN=counted\n")
}

// TestTheUpstreamsFieldsAreNotDuplicated checks that fields with a single value are the proxy's,
// since a client could not choose between two. The fields of the draft are lists.
func TestTheUpstreamsFieldsAreNotDuplicated(t *testing.T) {
	for style, want := range map[httplimit.HeaderStyle]int{httplimit.HeadersLegacy: 1,
		httplimit.HeadersOriginal: 1, httplimit.HeadersDraft: 2} {
		cfg := config(t, "1000/1d")
		cfg.Guard.Headers = style
		cfg.Upstream = upstreamOf(t, func(w http.ResponseWriter, _ *http.Request) {
			for _, name := range style.Fields() {
				w.Header().Set(name, "7")
			}
		})
		s := serve(t, cfg)
		resp, _ := send(t, "GET", s.front.URL, nil)
		for _, name := range style.Fields() {
			if name != "X-Ratelimit-Retry-After" {
				assert.Len(t, resp.Header[name], want, name)
			}
		}
	}
}

func TestTheTokenCannotBeGuessed(t *testing.T) {
	cfg := config(t, "1/1d")
	log := textLog(&cfg.Log)
	cfg.Admin.Token = "0123456789abcdef"
	s := serve(t, cfg)
	get := func(token string) int {
		return status(t, "GET", s.back.URL+"/-/stats", "Authorization", "Bearer "+token)
	}
	for range 50 {
		assert.Equal(t, 200, get(cfg.Admin.Token), "right tokens do not count")
		assert.Equal(t, 401, status(t, "GET", s.back.URL+"/-/stats"),
			"requests without a token do not count")
	}
	codes := make(map[int]int)
	for range 1000 {
		codes[get("wrong")]++
	}
	assert.LessOrEqual(t, codes[401], 20, "at most ten in each of two windows")
	assert.Equal(t, 1000, codes[401]+codes[429])
	assert.Equal(t, 1, strings.Count(log.String(), "wrong admin token"))
	assert.Equal(t, 200, status(t, "GET", s.back.URL+"/-/healthz"))
}
