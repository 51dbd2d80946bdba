package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/serve/onredis"
	"github.com/weirgo/weir/redislimit/redistest"
)

// openStream begins a request, whose answer streams until the returned function ends it.
func openStream(t *testing.T, target, client string) (status int, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", target, nil)
	require.NoError(t, err)
	r.Header.Set("X-Forwarded-For", client)
	resp, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	return resp.StatusCode, func() {
		cancel()
		_ = resp.Body.Close()
	}
}

// streams is an upstream whose answers end with the request.
func streams(w http.ResponseWriter, r *http.Request) {
	_, _ = io.WriteString(w, "data: hello\n\n")
	_ = http.NewResponseController(w).Flush()
	if r.URL.Path != "/short" {
		<-r.Context().Done()
	}
}

const eachClient = 2

// perClient returns a Config with a bound on the requests of a client in flight.
func perClient(t *testing.T, limits ...string) Config {
	cfg := config(t, limits...)
	cfg.MaxInFlightPerClient = eachClient
	cfg.Trust = loopback
	cfg.Upstream = upstreamOf(t, streams)
	return cfg
}

// A client has a number of requests in flight, over all routes, and by rules as well.
func TestRequestsOfAClientInFlight(t *testing.T) {
	for name, cfg := range map[string]func() Config{
		"limits": func() Config { return perClient(t, "100/1d") },
		"routes": func() Config {
			cfg := withRoutes(t, perClient(t, "100/1d"), "/a limit=50/1d")
			return cfg
		},
		"rules": func() Config {
			cfg, _ := rulesConfig(t, ruleText)
			own := perClient(t)
			cfg.MaxInFlightPerClient, cfg.Trust, cfg.Upstream = own.MaxInFlightPerClient, own.Trust,
				own.Upstream
			return cfg
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, cfg())
			var ends []func()
			for _, path := range []string{"/a", "/b"} {
				code, end := openStream(t, s.front.URL+path, "192.0.2.1")
				require.Equal(t, 200, code)
				ends = append(ends, end)
			}
			for _, path := range []string{"/a", "/b"} {
				resp, text := send(t, "GET", s.front.URL+path, nil, "X-Forwarded-For", "192.0.2.1")
				assert.Equal(t, 429, resp.StatusCode)
				assert.Contains(t, text, `"violated-policies":["in flight"]`)
				assert.Equal(t, "1", resp.Header.Get("Retry-After"))
			}
			code, end := openStream(t, s.front.URL+"/a", "192.0.2.2")
			assert.Equal(t, 200, code, "another client")
			end()
			f := s.figures()
			assert.EqualValues(t, 2, f.Requests["denied"])
			assert.Equal(t, limitShown{limitTitle{"in flight", "2 at a time", "in flight", 2}, "",
				f.Limits[0].Requests, 2}, f.Limits[0])
			assert.GreaterOrEqual(t, f.Limits[0].Requests, uint64(2))
			assert.Contains(t, s.metrics(), `outcome="denied",policy="in flight"`)

			ends[0]()
			assert.Eventually(t, func() bool {
				return status(t, "GET", s.front.URL+"/short", "X-Forwarded-For", "192.0.2.1") == 200
			}, 20*time.Second, 10*time.Millisecond)
			ends[1]()
		})
	}
}

// An upgraded connection is in flight until it is closed.
func TestUpgradedConnectionsAreInFlight(t *testing.T) {
	cfg := perClient(t, "100/1d")
	cfg.Upstream = upstreamOf(t, echoUpgrade)
	s := serve(t, cfg)
	var conns []net.Conn
	for range eachClient {
		conn := dial(t, s.addr(), "GET / HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 192.0.2.1\r\n"+
			"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		resp := response(t, conn)
		require.Equal(t, 101, resp.StatusCode)
		conns = append(conns, conn)
	}
	require.Equal(t, 429, status(t, "GET", s.front.URL, "X-Forwarded-For", "192.0.2.1"))
	require.NoError(t, conns[0].Close())
	assert.Eventually(t, func() bool {
		return status(t, "GET", s.front.URL, "X-Forwarded-For", "192.0.2.1") == http.StatusUpgradeRequired
	}, 20*time.Second, 10*time.Millisecond, "the upstream's answer")
}

// Proxies that share a Redis share the bound. Without Redis each has its share of it.
func TestRequestsInFlightOverSeveralProxies(t *testing.T) {
	server := redistest.Start(t)
	var proxies []served
	for range 2 {
		cfg := perClient(t, "1000/1d")
		cfg.Redis = shared(server, 2)
		proxies = append(proxies, serve(t, cfg))
	}
	code, first := openStream(t, proxies[0].front.URL, "192.0.2.1")
	require.Equal(t, 200, code)
	code, second := openStream(t, proxies[1].front.URL, "192.0.2.1")
	require.Equal(t, 200, code)
	assert.Contains(t, proxies[0].metrics(), "\nweir_hold_leases 2\n",
		"of the process, with both proxies")
	short := func(i int) int {
		return status(t, "GET", proxies[i].front.URL+"/short", "X-Forwarded-For", "192.0.2.1")
	}
	assert.Equal(t, []int{429, 429}, []int{short(0), short(1)}, "both have one, and together all")
	first()
	assert.Eventually(t, func() bool { return short(1) == 200 }, 20*time.Second, 10*time.Millisecond)

	server.Kill()
	assert.Equal(t, []int{200, 429}, []int{short(0), short(1)},
		"each has one: the second's is in flight")
	second()
	assert.Eventually(t, func() bool { return short(1) == 200 }, 20*time.Second, 10*time.Millisecond)
	assert.Equal(t, "in flight", proxies[0].figures().Deciding[0].Limit)
	assert.EqualValues(t, 1, proxies[0].figures().Deciding[0].Counts["local"])
}

const placesText = `
domain: web
descriptors:
  - {key: remote_address, rate_limit: {unit: in_flight, requests_per_unit: 2, lease: 30s, name: streams}}
---
domain: web
rate_limits: [{actions: [{remote_address: {}}]}]
`

// A rule limits the requests of an address in flight: in this process, and over proxies that share
// a Redis, which have their shares without it.
func TestRequestsInFlightByRules(t *testing.T) {
	rulesOf := func(r onredis.Config) Config {
		cfg, _ := rulesConfig(t, placesText)
		own := perClient(t)
		cfg.Trust, cfg.Upstream, cfg.Redis = own.Trust, own.Upstream, r
		return cfg
	}
	open := func(s served) (int, func()) { return openStream(t, s.front.URL, "192.0.2.1") }
	short := func(s served) int {
		return status(t, "GET", s.front.URL+"/short", "X-Forwarded-For", "192.0.2.1")
	}
	passes := func(s served) {
		assert.Eventually(t, func() bool { return short(s) == 200 }, 20*time.Second, 10*time.Millisecond)
	}

	alone := serve(t, rulesOf(onredis.Config{}))
	code, first := open(alone)
	require.Equal(t, 200, code)
	code, second := open(alone)
	require.Equal(t, 200, code)
	resp, text := send(t, "GET", alone.front.URL+"/short", nil, "X-Forwarded-For", "192.0.2.1")
	assert.Equal(t, 429, resp.StatusCode)
	assert.Contains(t, text, `"violated-policies":["streams"]`)
	assert.Equal(t, `"streams";q=2;qu="concurrent-requests"`, resp.Header.Get("RateLimit-Policy"))
	assert.Equal(t, "1", resp.Header.Get("Retry-After"))
	assert.Equal(t, 200, status(t, "GET", alone.front.URL+"/short", "X-Forwarded-For", "192.0.2.2"))
	assert.Equal(t, "2 in flight, lease 30s", alone.figures().Rules.Top[0].Limit)
	first()
	passes(alone)
	second()

	server := redistest.Start(t)
	var proxies []served
	for range 2 {
		cfg := rulesOf(shared(server, 2))
		cfg.MaxInFlightPerClient = 100
		proxies = append(proxies, serve(t, cfg))
	}
	code, first = open(proxies[0])
	require.Equal(t, 200, code)
	code, second = open(proxies[1])
	require.Equal(t, 200, code)
	assert.Equal(t, []int{429, 429}, []int{short(proxies[0]), short(proxies[1])})
	first()
	passes(proxies[1])
	server.Kill()
	assert.Equal(t, []int{200, 429}, []int{short(proxies[0]), short(proxies[1])},
		"each has one: the second's is in flight")
	second()
	passes(proxies[1])
	var deciding []string
	for _, d := range proxies[0].figures().Deciding {
		deciding = append(deciding, d.Limit)
	}
	assert.Subset(t, deciding, []string{"in flight", "in flight, by rules"})
}
