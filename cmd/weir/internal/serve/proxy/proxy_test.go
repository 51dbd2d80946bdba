package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
	"github.com/weirgo/weir/cmd/weir/internal/serve/live"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/redislimit/redistest"
)

// config returns the Config of the tests. The limits are over periods long enough that no window
// ends during a test.
func config(t testing.TB, limits ...string) Config {
	t.Helper()
	cfg := Config{Listen: "127.0.0.1:0", Drain: 5 * time.Second}
	for _, text := range limits {
		l, err := ParseLimit(text, rule.Defaults{Strategy: rule.Sliding})
		require.NoError(t, err)
		cfg.Limits = append(cfg.Limits, l)
	}
	return by(t, cfg, "ip")
}

// withRoutes returns cfg with further routes.
func withRoutes(t testing.TB, cfg Config, texts ...string) Config {
	t.Helper()
	for _, text := range texts {
		r, err := ParseRoute(text, rule.Defaults{Strategy: rule.Fixed})
		require.NoError(t, err)
		cfg.Routes = append(cfg.Routes, r)
	}
	return cfg
}

// by returns cfg with callers that are told apart by these parts.
func by(t testing.TB, cfg Config, text string) Config {
	t.Helper()
	var err error
	cfg.By, err = ParseBy(text)
	require.NoError(t, err)
	return cfg
}

// textLog has a log of cfg written to a buffer.
func textLog(of **slog.Logger) *bytes.Buffer {
	log := new(bytes.Buffer)
	*of = slog.New(slog.NewTextHandler(log, nil))
	return log
}

// jsonLog is textLog in JSON.
func jsonLog(of **slog.Logger) *bytes.Buffer {
	log := new(bytes.Buffer)
	*of = slog.New(slog.NewJSONHandler(log, nil))
	return log
}

// loopback has the addresses of the tests' clients, for those that are trusted or have no limit.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// served is a Proxy behind test servers.
type served struct {
	*Proxy
	front, back *httptest.Server
}

func serve(t testing.TB, cfg Config) served {
	t.Helper()
	p, err := New(cfg)
	require.NoError(t, err)
	s := served{p, httptest.NewUnstartedServer(p.handler), httptest.NewServer(p.admin)}
	s.front.Config.Protocols = protocols(true)
	s.front.Start()
	t.Cleanup(func() {
		s.front.Close()
		s.back.Close()
		assert.NoError(t, p.close())
	})
	return s
}

// addr is the address that s serves on.
func (s served) addr() string { return s.front.Listener.Addr().String() }

// dial opens a connection and sends text. It is closed before the servers of the test are.
func dial(t testing.TB, addr, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = io.WriteString(conn, text)
	require.NoError(t, err)
	return conn
}

// response reads the header of a response.
func response(t testing.TB, conn net.Conn) *http.Response {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	return resp
}

// upstreamOf starts a server and returns its address.
func upstreamOf(t testing.TB, h http.HandlerFunc) *url.URL {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	require.NoError(t, err)
	return u
}

// send sends a request and returns the response with its body read. Headers are pairs of name and
// value.
func send(
	t testing.TB, method, target string, body io.Reader, header ...string,
) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, target, body)
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
			continue
		}
		r.Header.Add(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(text)
}

func status(t testing.TB, method, target string, header ...string) int {
	t.Helper()
	resp, _ := send(t, method, target, nil, header...)
	return resp.StatusCode
}

func TestExactlyTheLimitReachesTheUpstream(t *testing.T) {
	var mu sync.Mutex
	seen := 0
	cfg := config(t, "25/1d")
	cfg.Upstream = upstreamOf(t, func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		seen++
	})
	s := serve(t, cfg)
	var wg sync.WaitGroup
	counts := make(map[int]int)
	for range 100 {
		wg.Go(func() {
			resp, err := http.Get(s.front.URL)
			if assert.NoError(t, err) {
				resp.Body.Close()
				mu.Lock()
				counts[resp.StatusCode]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	assert.Equal(t, map[int]int{200: 25, 429: 75}, counts)
	assert.Equal(t, 25, seen)
}

func TestTheUpstreamGetsTheClientsAddress(t *testing.T) {
	cfg := config(t, "100/1d")
	cfg.Upstream = upstreamOf(t, func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto",
			"Forwarded",
			"X-Real-Ip"} {
			fmt.Fprintf(w, "%s=%s;", name, strings.Join(r.Header[name], "|"))
		}
		fmt.Fprintf(w, "uri=%s;host=%s", r.RequestURI, r.Host)
	})
	cfg.Upstream.Path = "/base"
	lies := []string{"X-Forwarded-For", "6.6.6.6", "X-Forwarded-Host", "lie", "X-Forwarded-Proto",
		"https",
		"Forwarded", "for=6.6.6.6", "X-Real-IP", "6.6.6.6", "Host", "www.example.com"}

	s := serve(t, cfg)
	_, got := send(t, "GET", s.front.URL+"/a%2Fb?c=d", nil, lies...)
	assert.Equal(t,
		"X-Forwarded-For=127.0.0.1;X-Forwarded-Host=www.example.com;X-Forwarded-Proto=http;Forwarded=;X-Real-Ip=;uri=/base/a%2Fb?c=d;host="+
			cfg.Upstream.Host, got, "nobody is believed")

	cfg.Trust = loopback
	cfg.PreserveHost = true
	s = serve(t, cfg)
	_, got = send(t, "GET", s.front.URL+"/", nil, lies...)
	assert.Equal(t, "X-Forwarded-For=6.6.6.6, "+
		"127.0.0.1;X-Forwarded-Host=lie;X-Forwarded-Proto=https;Forwarded=;X-Real-Ip=6.6.6.6;uri=/base/;host=www.example.com",
		got, "a trusted peer is")

	cfg.Forwarded = true
	s = serve(t, cfg)
	_, got = send(t, "GET", s.front.URL+"/", nil, lies...)
	assert.Contains(t, got, "Forwarded=for=6.6.6.6;")
}

func TestCallersBehindATrustedProxyAreDistinguished(t *testing.T) {
	cfg := config(t, "1/1d")
	s := serve(t, cfg)
	assert.Equal(t, 200, status(t, "GET", s.front.URL, "X-Forwarded-For", "10.0.0.1"))
	assert.Equal(t, 429, status(t, "GET", s.front.URL, "X-Forwarded-For", "10.0.0.2"),
		"a made-up address is no further budget")

	cfg.Trust = loopback
	s = serve(t, cfg)
	assert.Equal(t, 200, status(t, "GET", s.front.URL, "X-Forwarded-For", "10.0.0.1"))
	assert.Equal(t, 200, status(t, "GET", s.front.URL, "X-Forwarded-For", "10.0.0.2"))
	assert.Equal(t, 429, status(t, "GET", s.front.URL, "X-Forwarded-For", "6.6.6.6, 10.0.0.2"))
	assert.Equal(t, 200, status(t, "GET", s.front.URL, "X-Forwarded-For", "2001:db8::1"))
	assert.Equal(t, 429, status(t, "GET", s.front.URL, "X-Forwarded-For", "2001:db8::2"),
		"the same /64")
	assert.Equal(t, 400, status(t, "GET", s.front.URL, "X-Forwarded-For", "unknown"))
}

func TestRoutes(t *testing.T) {
	s := serve(t, withRoutes(t, config(t, "10/1d"), "POST /login limit=2/1d", "GET /search/ cost=5"))
	for _, path := range []string{"/login", "//login"} {
		assert.Equal(t, 200, status(t, "POST", s.front.URL+path),
			"no way of writing the path is another route")
	}
	resp, _ := send(t, "POST", s.front.URL+"/x/../%6Cogin", nil)
	assert.Equal(t, 429, resp.StatusCode)
	assert.Equal(t, `"10/1d";q=10;w=86400, "2/1d POST /login";q=2;w=86400`,
		resp.Header.Get("Ratelimit-Policy"),
		"some server takes it for another path")
	resp, _ = send(t, "GET", s.front.URL+"/login", nil)
	assert.Equal(t, `"10/1d";r=8`, strings.Split(resp.Header.Get("Ratelimit"), ";t=")[0],
		"of the others only //login has touched this budget")
	assert.Equal(t, 200, status(t, "GET", s.front.URL+"/search/a"))
	assert.Equal(t, 429, status(t, "GET", s.front.URL+"/search/b"), "3 are left, and it costs 5")
	assert.Equal(t, 200, status(t, "GET", s.front.URL+"/"))
}

// The page lists every limit and every cost, and what it is for.
func TestLimitsShown(t *testing.T) {
	shown := func(routes ...string) (rows []string) {
		cfg := withRoutes(t, config(t, "10/1m:fixed"), routes...)
		cfg.MaxInFlightPerClient = 3
		for _, l := range serve(t, cfg).figures().Limits {
			rows = append(rows, strings.Join([]string{l.Name, l.Limit, l.Strategy, l.Route}, "|"))
		}
		return rows[1:]
	}
	assert.Equal(t, []string{"10/1m|10/1m|fixed window|"}, shown())
	assert.Equal(t, []string{"10/1m|10/1m|fixed window|all", "cost|5 a request||GET /search"},
		shown("GET /search cost=5"))
	assert.Equal(t, []string{"10/1m|10/1m|fixed window|", "login|5/1h|sliding log|/login",
		"cost|5 a request||/search", "cost|2 a request||/login"},
		shown("/search cost=5", "/login limit=login=5/1h:log cost=2"))
}

func TestByPatternIsByRoute(t *testing.T) {
	s := serve(t, by(t, withRoutes(t, config(t, "1/1d"), "/users/{id}"), "pattern"))
	assert.Equal(t, 200, status(t, "GET", s.front.URL+"/users/1"))
	assert.Equal(t, 429, status(t, "GET", s.front.URL+"/users/2"))
	assert.Equal(t, 200, status(t, "GET", s.front.URL+"/elsewhere"))
	assert.Equal(t, 429, status(t, "GET", s.front.URL+"/else/where"))
}

func TestFieldsOfSeveralPolicies(t *testing.T) {
	s := serve(t, config(t, "burst=2/1d", "daily=3/2d:log"))
	status(t, "GET", s.front.URL)
	status(t, "GET", s.front.URL)
	resp, body := send(t, "GET", s.front.URL, nil)
	assert.Equal(t, 429, resp.StatusCode)
	assert.Contains(t, resp.Header.Get("Ratelimit"), `"daily";r=1`,
		"a denial takes nothing from the other")
	assert.Contains(t, body, `"violated-policies":["burst"]`)
}

// TestTiersReportTheBindingTier checks that the tiers of a limit are one policy, whose
// remaining units are those of the tier that binds.
func TestTiersReportTheBindingTier(t *testing.T) {
	for limit, want := range map[string]string{
		"3/1d,1000/2d": `"3/1d,1000/2d";r=2,"3/1d,1000/2d";r=1,"3/1d,1000/2d";r=0,"3/1d,1000/2d";r=0,429`,
		"50/1d,2/2d":   `"50/1d,2/2d";r=1,"50/1d,2/2d";r=0,"50/1d,2/2d";r=0,429`,
	} {
		s := serve(t, config(t, limit))
		var got []string
		for {
			resp, _ := send(t, "GET", s.front.URL, nil)
			r, _, _ := strings.Cut(resp.Header.Get("Ratelimit"), ";t=")
			got = append(got, r)
			if resp.StatusCode != 200 {
				got = append(got, fmt.Sprint(resp.StatusCode))
				break
			}
		}
		assert.Equal(t, want, strings.Join(got, ","))
	}
}

func TestShadowModeDeniesNobody(t *testing.T) {
	cfg := config(t, "1/1d")
	cfg.Guard.Shadow = true
	s := serve(t, cfg)
	for range 3 {
		assert.Equal(t, 200, status(t, "GET", s.front.URL))
	}
	assert.EqualValues(t, 2, s.figures().Requests["denied"],
		"it counts the requests it would have denied")
	assert.True(t, s.figures().Shadow)

	cfg = by(t, cfg, "header:X-Key")
	cfg.MaxInFlight = 5
	s = serve(t, cfg)
	assert.Equal(t, 200, status(t, "GET", s.front.URL))
	assert.EqualValues(t, 1, s.figures().Requests["no key"])
}

// TestTotalsNeverFall changes the shadow mode while requests without a key come and all places are
// taken: the bound on requests in flight refuses them, or the limits see them too.
func TestTotalsNeverFall(t *testing.T) {
	cfg := by(t, config(t, "1/1d"), "header:X-Key")
	cfg.MaxInFlight = 5
	s := serve(t, cfg)
	s.places.Add(5)
	front := httptest.NewServer(s.now(func(p *Proxy) http.Handler { return p.handler }))
	t.Cleanup(front.Close)
	for i, shadow := range []bool{false, true, false, true} {
		cfg.Guard.Shadow = shadow
		require.NoError(t, s.Reconfigure(cfg))
		want := 400
		if shadow {
			want = 200
		}
		assert.Equal(t, want, status(t, "GET", front.URL))
		s.meter.Tick()
		minute, _, total := s.meter.Sums()
		assert.EqualValues(t, i+1, minute.Failed)
		assert.EqualValues(t, i+1, total.Failed)
		assert.EqualValues(t, 1, s.meter.Past()[i].Failed)
	}
}

// TestAFullTable checks that a full table cannot decide on a new caller, even when failing open.
func TestAFullTable(t *testing.T) {
	for admit, want := range map[bool]int{false: 503, true: 200} {
		cfg := config(t, "5/1d:fixed")
		cfg.Table.MaxBuckets = 1
		cfg.Guard.FailOpen, cfg.Guard.AdmitFull = true, admit
		cfg.Trust = loopback
		s := serve(t, cfg)
		assert.Equal(t, 200, status(t, "GET", s.front.URL, "X-Forwarded-For", "10.0.0.1"))
		assert.Equal(t, want, status(t, "GET", s.front.URL, "X-Forwarded-For", "10.0.0.2"))
		assert.Equal(t, 200, status(t, "GET", s.front.URL, "X-Forwarded-For", "10.0.0.1"),
			"a caller with a bucket goes on")
	}
}

func TestPenaltyBox(t *testing.T) {
	cfg := config(t, "1/1d")
	cfg.Guard.Penalty = httplimit.Penalty{Denials: 3, Within: 24 * time.Hour, For: time.Hour}
	s := serve(t, cfg)
	for range 4 {
		status(t, "GET", s.front.URL)
	}
	resp, body := send(t, "GET", s.front.URL, nil)
	assert.Equal(t, 429, resp.StatusCode)
	assert.Contains(t, body, "deny list")
	assert.InDelta(t, 3600, atoi(t, resp.Header.Get("Retry-After")), 5)
	require.Len(t, s.figures().DenyList, 1)
	assert.Equal(t, "127.0.0.1", s.figures().DenyList[0].Name)
}

// An operator takes a caller off the penalty box by each name that it has: its denials begin anew.
func TestTakenOffThePenaltyBox(t *testing.T) {
	cfg := config(t, "0/1d")
	cfg.Guard.Penalty = httplimit.Penalty{Denials: 3, Within: 24 * time.Hour, For: time.Hour}
	s := serve(t, cfg)
	denials := func() (n int) {
		for ; n < 10 && len(s.denied.Entries()) == 0; n++ {
			status(t, "GET", s.front.URL)
		}
		return n
	}
	for _, body := range []string{`{"id":"` + live.ID("127.0.0.1") + `"}`, `{"what":"key:127.0.0.1"}`,
		`{"what":"127.0.0.1"}`, `{"what":"127.0.0.1/32"}`} {
		assert.Equal(t, 3, denials())
		code, text := deny(t, s, "DELETE", body)
		assert.Equal(t, 204, code, text)
	}
	assert.Equal(t, 3, denials())
	assert.Equal(t, 404, code(deny(t, s, "DELETE", `{"what":"127.0.0.0/24"}`)), "it has no such entry")

	// Denied by hand for longer, and admitted again: the page's undo.
	assert.Equal(t, 204, code(deny(t, s, "POST", `{"id":"`+live.ID("127.0.0.1")+`","for":"2h","confirm":1}`)))
	assert.Equal(t, 204, code(deny(t, s, "DELETE", `{"id":"`+live.ID("127.0.0.1")+`"}`)))
	assert.Equal(t, 3, denials())
}

// A client of IPv6 is listed by the prefix that is its key.
func TestAPrefixIsTakenOffThePenaltyBox(t *testing.T) {
	s := serve(t, config(t, "1/1d"))
	for _, what := range []string{"2001:db8::/64", "2001:db8::7"} {
		key, err := s.cfg.keyOfAddr(netip.MustParseAddr("2001:db8::7"))
		require.NoError(t, err)
		require.NoError(t, s.denied.Add(httplimit.DenyEntry{Key: key}))
		assert.Equal(t, 404, code(deny(t, s, "DELETE", `{"what":"2001:db8::/60"}`)))
		assert.Equal(t, 204, code(deny(t, s, "DELETE", `{"what":"`+what+`"}`)), what)
	}
}

func atoi(t testing.TB, s string) (n int) {
	t.Helper()
	_, err := fmt.Sscan(s, &n)
	require.NoError(t, err)
	return n
}

func TestCountIf(t *testing.T) {
	cfg := config(t, "1/1d")
	var err error
	cfg.Guard.CountIf, err = cli.Statuses([]string{"401"})
	require.NoError(t, err)
	answer := http.StatusOK
	cfg.Upstream = upstreamOf(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(answer)
	})
	s := serve(t, cfg)
	for range 3 {
		assert.Equal(t, 200, status(t, "GET", s.front.URL))
	}
	answer = http.StatusUnauthorized
	assert.Equal(t, 401, status(t, "GET", s.front.URL))
	assert.Equal(t, 429, status(t, "GET", s.front.URL))
}

func TestMochiwebAndTheOtherHeaders(t *testing.T) {
	cfg := config(t, "0/1d")
	cfg.Guard = httplimit.Mochiweb()
	resp, body := send(t, "GET", serve(t, cfg).front.URL, nil)
	assert.Equal(t, 413, resp.StatusCode)
	assert.Equal(t, "text/html", resp.Header.Get("Content-Type"))
	assert.Contains(t, body, "Request Entity Too Large")
	for style, field := range []string{httplimit.HeadersDraft: "Ratelimit",
		httplimit.HeadersLegacy: "X-Ratelimit-Limit", httplimit.HeadersOriginal: "Rate-Limiting-State",
		httplimit.HeadersNone: ""} {
		cfg := config(t, "5/1d")
		cfg.Guard.Headers = httplimit.HeaderStyle(style)
		resp, _ := send(t, "GET", serve(t, cfg).front.URL, nil)
		for _, f := range []string{"Ratelimit", "X-Ratelimit-Limit", "Rate-Limiting-State"} {
			assert.Equal(t, f == field, resp.Header.Get(f) != "", "%s %s", HeaderStyles[style], f)
		}
	}
}

func TestAnUpstreamThatFails(t *testing.T) {
	gone := upstreamOf(t, func(http.ResponseWriter, *http.Request) {})
	gone.Host = fmt.Sprintf("127.0.0.1:%d", redistest.FreePort(t))
	cfg := config(t, "100/1d")
	cfg.Upstream = gone
	log := textLog(&cfg.Log)
	assert.Equal(t, 502, status(t, "GET", serve(t, cfg).front.URL))
	assert.Contains(t, log.String(), "the upstream failed")

	release := make(chan struct{})
	cfg = config(t, "100/1d")
	cfg.UpstreamTimeout = 20 * time.Millisecond
	cfg.Upstream = upstreamOf(t, func(http.ResponseWriter, *http.Request) { <-release })
	assert.Equal(t, 504, status(t, "GET", serve(t, cfg).front.URL))
	close(release)

	cfg = config(t, "100/1d")
	access := jsonLog(&cfg.Access)
	cfg.Upstream = upstreamOf(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half of it")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	s := serve(t, cfg)
	resp, err := http.Get(s.front.URL)
	require.NoError(t, err)
	defer resp.Body.Close()
	_, err = io.ReadAll(resp.Body)
	assert.Error(t, err, "a truncated response is an error")
	s.inFlight.Wait()
	assert.Contains(t, access.String(), `"status":200`, "and it has its line in the log")
}

func TestInvalidConfigs(t *testing.T) {
	parse := func(text string) *url.URL {
		u, err := url.Parse(text)
		require.NoError(t, err)
		return u
	}
	for name, set := range map[string]func(*Config){
		"no limit":               func(c *Config) { c.Limits = nil },
		"two of one name":        func(c *Config) { c.Limits = append(c.Limits, c.Limits[0]) },
		"a name with a newline":  func(c *Config) { c.Limits[0].Name = "a\nb" },
		"no http":                func(c *Config) { c.Upstream = parse("ftp://example.com") },
		"no host":                func(c *Config) { c.Upstream = parse("http:///x") },
		"a password":             func(c *Config) { c.Upstream = parse("http://u:p@example.com") },
		"a query":                func(c *Config) { c.Upstream = parse("http://example.com/?a=b") },
		"a route that is none":   func(c *Config) { c.Routes = []Route{{Pattern: "x y z", Cost: 1}} },
		"by routes without one":  func(c *Config) { c.By, _ = ParseBy("ip+pattern") },
		"an address for all":     func(c *Config) { c.Admin.Addr = ":8081" },
		"a Redis that is none":   func(c *Config) { c.Redis.URL = "http://127.0.0.1" },
		"a negative table":       func(c *Config) { c.Table.MaxBuckets = -1 },
		"an entry that is empty": func(c *Config) { c.Deny = []httplimit.DenyEntry{{}} },
	} {
		cfg := config(t, "1/1d")
		set(&cfg)
		_, err := New(cfg)
		assert.Error(t, err, name)
	}
}

func TestCustomDeniedPage(t *testing.T) {
	name := filepath.Join(t.TempDir(), "denied.html")
	require.NoError(t, os.WriteFile(name, []byte("<p>come back later"), 0o600))
	cfg := config(t, "0/1d")
	var err error
	cfg.DeniedPage, err = NewDeniedPage(name)
	require.NoError(t, err)
	cfg.Guard.Respond = cfg.DeniedPage.Respond
	resp, body := send(t, "GET", serve(t, cfg).front.URL, nil)
	assert.Equal(t, 429, resp.StatusCode)
	assert.Equal(t, "text/html; charset=utf-8", resp.Header.Get("Content-Type"))
	assert.Equal(t, "<p>come back later", body)
}
