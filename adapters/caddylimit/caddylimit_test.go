package caddylimit_test

import (
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/adapters/caddylimit"
	"github.com/weirgo/weir/redislimit/redistest"
	"github.com/weirgo/weir/weirtest"
)

// options are the global options of every test: no admin endpoint, no certificates and no storage.
// Loopback addresses are trusted proxies, so that a test can have several clients.
const options = `{
	admin off
	auto_https off
	persist_config off
	log {
		output discard
	}
	storage file_system %s
	servers {
		trusted_proxies static 127.0.0.1/32
	}
}
`

// adapt converts the sites of a Caddyfile to a configuration.
func adapt(t *testing.T, sites string) ([]byte, error) {
	file := fmt.Sprintf(options, t.TempDir()) + sites
	config, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(file),
		map[string]any{"filename": "Caddyfile"})
	for _, w := range warnings {
		t.Log(w)
	}
	return config, err
}

// run starts Caddy with a site. It returns the site's URL and a function that loads another site
// instead.
func run(t *testing.T, site string) (url string, reload func(site string) (url string)) {
	t.Helper()
	url = load(t, site)
	t.Cleanup(func() { assert.NoError(t, caddy.Stop()) })
	return url, func(site string) string { t.Helper(); return load(t, site) }
}

// load loads a configuration with a site on an unused loopback address: after a reload the old
// configuration's server still accepts or resets connections for a while. The strings of replace
// are replaced in the configuration.
func load(t *testing.T, site string, replace ...string) (url string) {
	t.Helper()
	for try := 0; ; try++ {
		url = fmt.Sprintf("http://127.0.0.1:%d", redistest.FreePort(t))
		config, err := adapt(t, url+" {\n"+site+"\n}\n")
		require.NoError(t, err)
		err = caddy.Load([]byte(strings.NewReplacer(replace...).Replace(string(config))), true)
		if err == nil {
			return url
		}
		// Another program has taken the port.
		if try == 5 || !strings.Contains(err.Error(), "address already in use") {
			require.NoError(t, err)
		}
	}
}

// atQuarter sets the handlers' clock to 15 s past a minute and returns it.
func atQuarter(t *testing.T) *weirtest.Clock {
	clock := weirtest.NewClock(time.Date(2026, 11, 20, 12, 0, 15, 0, time.UTC))
	t.Cleanup(caddylimit.SetNow(clock.Now))
	return clock
}

// get sends a request from the given client through a trusted proxy, which is the test, with these
// header fields, names and values in turn.
func get(t *testing.T, url, client string, header ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	req.Header.Set("X-Forwarded-For", client)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	req.Close = true // each configuration has its own server
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { assert.NoError(t, resp.Body.Close()) }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(text)
}

const alice, bob = "203.0.113.7", "203.0.113.8"

func TestDenialAndRecovery(t *testing.T) {
	clock := atQuarter(t)
	url, _ := run(t, `
		weir {
			limit    2/1m
			strategy fixed
		}
		respond hello`)
	for _, left := range []string{"1", "0"} {
		resp, text := get(t, url, alice)
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		assert.Equal(t, "hello", text)
		assert.Equal(t, `"1m";q=2;w=60`, resp.Header.Get("RateLimit-Policy"))
		assert.Equal(t, `"1m";r=`+left+`;t=45`, resp.Header.Get("RateLimit"))
	}
	resp, text := get(t, url, alice)
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	assert.Equal(t, "45", resp.Header.Get("Retry-After"))
	assert.Equal(t, `"1m";r=0;t=45`, resp.Header.Get("RateLimit"))
	assert.Empty(t, text, "the handler ran")
	resp, _ = get(t, url, bob)
	assert.Equal(t, http.StatusOK, resp.StatusCode, "another client")

	clock.Advance(45 * time.Second)
	resp, text = get(t, url, alice)
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, "hello", text)
}

// Caddy's matchers select the limit, and its error pages render the denial.
func TestLimitPerRouteAndMethod(t *testing.T) {
	clock := atQuarter(t)
	url, _ := run(t, `
		@login {
			method GET
			path   /login*
		}
		weir @login login=1/1m {
			strategy fixed
		}
		weir all=3/1m {
			key      {method} {client_ip}
			strategy fixed
		}
		handle_errors {
			respond "{err.status_code} by {http.weir.policy}, {http.weir.remaining} left, {http.weir.outcome}"
		}
		respond hello`)
	for _, step := range []struct {
		path string
		want int
		body string
	}{
		{"/login", 200, "hello"},
		{"/login", 429, "429 by login, 0 left, denied"},
		{"/", 200, "hello"},
		{"/", 200, "hello"},
		{"/", 429, "429 by all, 0 left, denied"},
	} {
		resp, text := get(t, url+step.path, alice)
		assert.Equal(t, step.want, resp.StatusCode)
		assert.Equal(t, step.body, text)
	}
	resp, err := http.Head(url + "/login") // another client, which does not match the first limit
	require.NoError(t, err)
	assert.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	clock.Advance(45 * time.Second)
	resp, _ = get(t, url+"/login", alice)
	assert.Equal(t, http.StatusOK, resp.StatusCode)
}

func TestKeyOfPlaceholders(t *testing.T) {
	atQuarter(t)
	url, _ := run(t, `
		weir 1/1m {
			key      {query.user}
			strategy log
		}
		respond hello`)
	for _, step := range []struct {
		user string
		want int
	}{
		{"alice", 200}, {"alice", 429}, {"bob", 200}, {"", 400},
	} {
		resp, _ := get(t, url+"?user="+step.user, alice)
		assert.Equal(t, step.want, resp.StatusCode, step.user)
	}
}

func TestGlobalTokenBucket(t *testing.T) {
	clock := atQuarter(t)
	url, _ := run(t, `
		weir 60/1m {
			key      all
			strategy token
			burst    2
			headers  none
		}
		respond hello`)
	for _, step := range []struct {
		client string
		want   int
	}{
		{alice, 200}, {bob, 200}, {alice, 429},
	} {
		resp, _ := get(t, url, step.client)
		assert.Equal(t, step.want, resp.StatusCode)
		assert.Empty(t, resp.Header.Get("RateLimit"))
	}
	clock.Advance(time.Second)
	resp, _ := get(t, url, bob)
	assert.Equal(t, http.StatusOK, resp.StatusCode, "a token a second")
}

func TestDenyList(t *testing.T) {
	atQuarter(t)
	url, _ := run(t, `
		weir 10/1m {
			deny 203.0.113.7 2001:db8::/32
		}
		respond hello`)
	for client, want := range map[string]int{alice: 403, "2001:db8::1": 403, bob: 200} {
		resp, _ := get(t, url, client)
		assert.Equal(t, want, resp.StatusCode, client)
	}
}

// With room for one bucket, no decision on the second client is possible.
func TestFailClosed(t *testing.T) {
	atQuarter(t)
	url, _ := run(t, `
		weir 1/1m {
			max_buckets 1
			strategy    fixed
			fail        closed
		}
		respond hello`)
	resp, _ := get(t, url, alice)
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	resp, _ = get(t, url, bob)
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
}

// A new configuration keeps the counts of the old one, even for a new limit with the same name and
// period.
func TestReloadKeepsCounts(t *testing.T) {
	clock := atQuarter(t)
	url, reload := run(t, "weir api=2/1m\nrespond old")
	for range 2 {
		resp, _ := get(t, url, alice)
		require.Equal(t, http.StatusOK, resp.StatusCode)
	}
	url = reload("weir api=3/1m\nrespond new")
	resp, text := get(t, url, alice)
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, "new", text)
	assert.Contains(t, resp.Header.Get("RateLimit"), `"api";r=0`)
	resp, _ = get(t, url, alice)
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)

	clock.Advance(2 * time.Minute)
	resp, _ = get(t, url, alice)
	assert.Equal(t, http.StatusOK, resp.StatusCode)
}

// The counts belong to a limit's name and period, whatever becomes of its size and that of the
// table.
func TestReloadKeepsCountsOfOtherLimits(t *testing.T) {
	atQuarter(t)
	url, reload := run(t, "weir 2/1m\nrespond hello")
	for range 2 {
		resp, _ := get(t, url, alice)
		require.Equal(t, http.StatusOK, resp.StatusCode)
	}
	for _, step := range []struct {
		name, site string
		left       int
	}{
		{"another limit", "weir 4/1m", 2},
		{"another table", "weir 6/1m {\nmax_buckets 100\n}", 2},
		{"a smaller table", "weir 8/1m {\nmax_buckets 50\n}", 2},
		{"and the first table again", "weir 9/1m", 1},
	} {
		url = reload(step.site + "\nrespond hello")
		for range step.left {
			resp, _ := get(t, url, alice)
			assert.Equal(t, http.StatusOK, resp.StatusCode, step.name)
		}
		resp, _ := get(t, url, alice)
		assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode, step.name)
	}
	resp, _ := get(t, url, bob)
	assert.Equal(t, http.StatusOK, resp.StatusCode)
}

// Only the answers that are listed count: those that handlers write, and those of errors.
func TestCountIf(t *testing.T) {
	atQuarter(t)
	url, _ := run(t, `
		weir 2/1m {
			count_if 401 5xx
		}
		respond /login "" 401
		error /broken "broken" 502
		respond hello`)
	for _, step := range []struct {
		path string
		want int
	}{
		{"/", 200}, {"/", 200}, {"/", 200}, {"/login", 401}, {"/broken", 502}, {"/", 429},
	} {
		resp, _ := get(t, url+step.path, alice)
		assert.Equal(t, step.want, resp.StatusCode, step.path)
	}
}

func TestCost(t *testing.T) {
	atQuarter(t)
	url, _ := run(t, `
		weir /search 10/1m {
			cost 6
		}
		weir /batch batch=10/1m {
			cost {query.n}
		}
		respond hello`)
	for _, step := range []struct {
		path string
		want int
	}{
		{"/search", 200}, {"/search", 429}, {"/batch?n=9", 200}, {"/batch?n=2", 429}, {"/batch?n=1", 200},
		{"/batch", 429}, {"/batch?n=-1", 429},
	} {
		resp, _ := get(t, url+step.path, alice)
		assert.Equal(t, step.want, resp.StatusCode, step.path)
	}
}

func TestInFlight(t *testing.T) {
	atQuarter(t)
	inside, leave := make(chan bool), make(chan bool)
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		inside <- true
		<-leave
	}))
	defer upstream.Close()
	url, _ := run(t, `
		metrics /metrics
		@work not path /metrics
		weir @work 100/1m {
			max_in_flight            2
			max_in_flight_per_client 1
		}
		reverse_proxy `+upstream.URL)
	done := make(chan int, 2)
	ask := func(client string) {
		go func() { resp, _ := get(t, url, client); done <- resp.StatusCode }()
		<-inside
	}
	ask(alice)
	resp, _ := get(t, url, alice)
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode, "one too many of a client")
	ask(bob)
	resp, _ = get(t, url, "203.0.113.9")
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode, "one too many of all")
	_, text := get(t, url+"/metrics", alice)
	assert.Contains(t, text, `weir_hold_places{name="sliding"} 2`+"\n")
	close(leave)
	assert.Equal(t, []int{200, 200}, []int{<-done, <-done})
}

// What is sheddable is refused while what is critical passes.
func TestOverload(t *testing.T) {
	inside, leave := make(chan bool), make(chan bool)
	upstream := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Wait") != "" {
			inside <- true
			<-leave
		}
	}))
	defer upstream.Close()
	url, _ := run(t, `
		weir {
			overload 250ms
			class    {http.request.header.Class}
			key      {http.request.header.Key}
		}
		reverse_proxy `+upstream.URL+`
		handle_errors {
			respond "{err.message}" {err.status_code}
		}`)
	ask := func(class, key, wait string) (int, string) {
		resp, text := get(t, url, alice, "Class", class, "Key", key, "Wait", wait)
		return resp.StatusCode, text
	}
	ended, n := make(chan int, 10_000), 0
	for ; ; n++ {
		status, text := ask("sheddable", "another", "")
		if status == http.StatusServiceUnavailable {
			assert.Regexp(t, `overload: full: \d+ of \d+ for sheddable`, text)
			break
		}
		key := strconv.Itoa(n)
		go func() { status, _ := ask("anything", key, "1"); ended <- status }()
		<-inside
	}
	for class, want := range map[string]int{"": 200, "normal": 200, "critical": 200, "sheddable": 503} {
		status, _ := ask(class, "another", "")
		assert.Equal(t, want, status, class)
	}
	close(leave)
	for range n {
		assert.Equal(t, 200, <-ended)
	}
}

// A request that passes two handlers takes a place of each, and of none two.
func TestPlacesOfTwoHandlersAreSeparate(t *testing.T) {
	atQuarter(t)
	url, _ := run(t, `
		weir 100/1m {
			max_in_flight_per_client 1
		}
		weir /* login=50/1m {
			max_in_flight_per_client 1
		}
		respond hello`)
	for range 3 {
		resp, _ := get(t, url, alice)
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		assert.Contains(t, resp.Header.Values("RateLimit-Policy"),
			`"login in flight";q=1;qu="concurrent-requests", "login";q=50;w=60`)
		assert.Len(t, resp.Header.Values("RateLimit-Policy"), 2)
	}
	_, err := adapt(t, "example.com {\n\tweir 1/1m {\n\t\tmax_in_flight_per_client -1\n\t}\n}")
	assert.ErrorContains(t, err, "a bound on requests in flight is negative")
}

func TestPrefixes(t *testing.T) {
	atQuarter(t)
	url, _ := run(t, `
		weir 1/1m {
			ipv4_prefix 24
			ipv6_prefix 48
		}
		respond hello`)
	for _, step := range []struct {
		client string
		want   int
	}{
		{alice, 200}, {bob, 429}, {"203.0.114.7", 200}, {"2001:db8:1:2::1", 200},
		{"2001:db8:1:3::1", 429},
		{"2001:db8:2::1", 200},
	} {
		resp, _ := get(t, url, step.client)
		assert.Equal(t, step.want, resp.StatusCode, step.client)
	}
}

// Caddy's own metrics include the decisions, the table and Redis, and the decisions continue over a
// reload.
func TestMetrics(t *testing.T) {
	server := redistest.Start(t)
	atQuarter(t)
	policy := rand.Text() // the process counts decisions, of earlier runs of this test too
	site := `
		metrics /metrics
		route /metered {
			weir ` + policy + `=1/1m
			weir redis` + policy + `=5/1h {
				redis redis://` + server.Addr + `
				overload
			}
			respond hello
		}`
	url, reload := run(t, site)
	get(t, url+"/metered", alice)
	url = reload(site)
	get(t, url+"/metered", alice)
	_, text := get(t, url+"/metrics", alice)
	for _, want := range []string{
		`weir_decisions_total{outcome="admitted",policy="` + policy + `",source="local"} 1`,
		`weir_decisions_total{outcome="denied",policy="` + policy + `",source="local"} 1`,
		`weir_decisions_total{outcome="admitted",policy="redis` + policy + `",source="primary"} 1`,
		`weir_buckets{name="sliding"} 1`,
		`weir_hold_waits_total 0`, `weir_hold_lapsed_total 0`,
		`weir_fallback_breaker_state{name="sliding, redis weir:",state="closed"} 1`,
		`weir_overload_in_flight{name="sliding, redis weir:"} 0`,
		`weir_overload_refused_total{class="normal",name="sliding, redis weir:",reason="full"} 0`,
	} {
		assert.Contains(t, text, want+"\n")
	}
	assert.NotContains(t, text, server.Addr)
}

// Two Caddys on one Redis share a limit. Here they run one after another without shared memory.
// When Redis is down, the process decides locally.
func TestRedis(t *testing.T) {
	server := redistest.Start(t)
	site := `
		weir 2/1h {
			strategy log
			redis redis://{env.WEIR_TEST_REDIS}/0 {
				prefix    caddy:
				timeout   2s
				instances 2
			}
		}
		respond "{http.weir.source}"`
	t.Setenv("WEIR_TEST_REDIS", server.Addr)
	url, _ := run(t, site)
	for range 2 {
		resp, text := get(t, url, alice)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		assert.Equal(t, "primary", text)
	}
	require.NoError(t, caddy.Stop())
	url, _ = run(t, site)
	resp, _ := get(t, url, alice)
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)

	server.Kill()
	resp, text := get(t, url, bob)
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, "local", text)
}

// A reload evaluates the placeholders of the URL again, even if the configuration is the same: here
// the database, in practice a password.
func TestReloadReplacesPlaceholders(t *testing.T) {
	server := redistest.Start(t)
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("0"), 0o600))
	site := `
		weir 1/1h {
			strategy log
			redis redis://` + server.Addr + `/{file.` + secret + `} {
				timeout 2s
			}
		}
		respond "{http.weir.source}"`
	_, reload := run(t, site)
	for _, step := range []struct {
		database string
		want     int
	}{
		{"0", 200}, {"0", 429}, {"1", 200}, {"1", 429}, {"0", 429},
	} {
		require.NoError(t, os.WriteFile(secret, []byte(step.database), 0o600))
		url := reload(site)
		resp, _ := get(t, url, alice)
		assert.Equal(t, step.want, resp.StatusCode, step.database)
	}
}

// A backend survives a reload, and then logs to the new configuration's logger.
func TestBreakerLogsAfterReload(t *testing.T) {
	server := redistest.Start(t)
	site := "weir 100/1h {\nredis redis://" + server.Addr + " {\ntimeout 2s\n}\n}\nrespond hello"
	url, _ := run(t, site)
	get(t, url, alice)

	file := filepath.Join(t.TempDir(), "caddy.log")
	url = load(t, site, `"writer":{"output":"discard"}`,
		fmt.Sprintf(`"writer":{"output":"file","filename":%q}`, file))
	server.Kill()
	redistest.Eventually(t, time.Minute, "a change of the breaker in the new log", func() bool {
		get(t, url, alice)
		log, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(log), "redis breaker")
	})
}

func TestCaddyfileErrors(t *testing.T) {
	for _, tt := range []struct{ name, directive, want string }{
		{"no limit", "weir", "no limit: want one such as 100/1m"},
		{"no count", "weir 1m", `limit "1m": want [NAME=]COUNT/PERIOD, such as 100/1m`},
		{"a count that is none", "weir ten/1m", `limit "ten/1m": "ten" is not a count from 1`},
		{"a count of 0", "weir 0/1m", `"0" is not a count from 1`},
		{"a period that is none", "weir 10/fortnight", `"fortnight" is not a period such as 500ms`},
		{"a period that is too fine", "weir 10/1us", `"1us" is not a period`},
		{"no name", "weir =10/1m", "a name stands before the equals sign"},
		{"two of one name", "weir a=10/1m a=20/1h", `there are two of the name "a"`},
		{"an unknown key", "weir 10/1m {\nkey ipp\n}",
			`there is no key "ipp": want ip, all or a {placeholder}`},
		{"an unknown strategy", "weir 10/1m {\nstrategy leaky\n}",
			`there is no strategy "leaky": want sliding, fixed, log, token`},
		{"a burst without a bucket", "weir 10/1m {\nburst 3\n}", "burst is for strategy token"},
		{"a goal that is none", "weir {\noverload soon\n}", `"soon"`},
		{"a goal of nothing", "weir {\noverload 0s\n}", "overload: the goal 0s is not positive"},
		{"two goals", "weir {\noverload 1s 2s\n}", "wrong argument count"},
		{"a class without overload", "weir 10/1m {\nclass critical\n}", "class has no effect without overload"},
		{"an unknown class", "weir {\noverload\nclass urgent\n}",
			`class "urgent" is neither sheddable, normal or critical nor a {placeholder}`},
		{"an unknown option", "weir 10/1m {\nrate 5\n}", `there is no option "rate": want limit, key`},
		{"an option without a value", "weir 10/1m {\nstrategy\n}", "wrong argument count"},
		{"an option with two", "weir 10/1m {\nstrategy fixed log\n}", "wrong argument count"},
		{"a status that is none", "weir 10/1m {\nstatus many\n}", `"many": invalid syntax`},
		{"an unknown way to fail", "weir 10/1m {\nfail later\n}",
			`there is no way to fail "later": want closed, open`},
		{"an unknown style", "weir 10/1m {\nheaders x\n}",
			`there is no style of headers "x": want draft, legacy, none`},
		{"an empty entry", "weir 10/1m {\ndeny \"\"\n}", "either a key or a prefix"},
		{"redis without a URL", "weir 10/1m {\nredis\n}", "wrong argument count"},
		{"an unknown option of redis", "weir 10/1m {\nredis redis://x {\nport 1\n}\n}",
			`redis has no option "port"`},
		{"two handlers of one limit", "weir /a 10/1m\nweir /b 10/1m",
			"there are two limits for a period of 1m: give each a name"},
		{"two limits for one period", "weir /a 10/1m\nweir 20/1m", "such as login=20/1m"},
		{"a status that counts and is none", "weir 1/1m {\ncount_if 6xx\n}",
			"is not a status such as 401 or 5xx"},
		{"a cost that is none", "weir 1/1m {\ncost much\n}",
			"neither a number from 1 nor a {placeholder}"},
		{"a prefix that is too long", "weir 1/1m {\nipv4_prefix 33\n}",
			"ipv4_prefix 33 is not in 1 to 32"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := adapt(t, "http://127.0.0.1:1 {\n"+tt.directive+"\n}\n")
			require.ErrorContains(t, err, tt.want)
			assert.Contains(t, err.Error(), "Caddyfile:", "the place in the file")
		})
	}
}

// A directive of a site with several addresses counts once, and limits may share a name
// deliberately.
func TestValidDirectives(t *testing.T) {
	for _, sites := range []string{
		"http://a.test, http://b.test {\nweir 10/1m\n}\n",
		"http://a.test {\nhandle /x/* {\nweir 10/1m\n}\nroute /y {\nweir y=20/1m\n}\n}\n",
		"(limits) {\nweir {args[0]}=10/1m\n}\nhttp://a.test {\nimport limits a\n}\n" +
			"http://b.test {\nimport limits b\n}\n",
		"http://a.test {\nweir /x api=10/1m\nweir /y api=10/1m\n}\n",
		"http://a.test {\nweir {\nmax_in_flight 10\n}\n}\n",
		"http://a.test {\nweir {\noverload\n}\n}\n",
		"http://a.test {\nweir {\nclass critical\noverload 1s\n}\n}\n",
	} {
		_, err := adapt(t, sites)
		assert.NoError(t, err, sites)
	}
}

// These mistakes are found when the configuration is loaded. The running one stays in use.
func TestConfigurationErrors(t *testing.T) {
	atQuarter(t)
	url, _ := run(t, "weir 1/1m\nrespond hello")
	for handler, want := range map[string]string{
		`{"handler": "weir"}`: "no limit",
		`{"handler": "weir", "limits": [{"limit": 1, "period": "1ns"}]}`:                   "whole number of milliseconds",
		`{"handler": "weir", "limits": [{"limit": 1, "period": "1m"}], "status": 200}`:     "no error status",
		`{"handler": "weir", "limits": [{"limit": 1, "period": "1m"}], "max_buckets": -1}`: "max_buckets",
		`{"handler": "weir", "limits": [{"limit": 1, "period": "1m"}], "redis": {"url": ` +
			`"http://x:secret@"}}`: "want redis://",
		`{"handler": "weir", "limits": [{"limit": 1, "period": "1m"}], "redis": ` +
			`{"url": "redis://:{env.WEIR_TEST_UNSET}@secret"}}`: "a placeholder of the URL",
		`{"handler": "weir", "limits": [{"limit": 1, "period": "1m"}], "redis": ` +
			`{"url": "redis://:{nothing}@secret"}}`: "a placeholder of the URL",
	} {
		config, err := adapt(t, "http://127.0.0.1:1 {\nrespond x\n}\n")
		require.NoError(t, err)
		config = []byte(strings.Replace(string(config), `"handle":[`, `"handle":[`+handler+`,`, 1))
		err = caddy.Load(config, true)
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "secret")
	}
	resp, _ := get(t, url, alice)
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	resp, _ = get(t, url, alice)
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
}

func TestMain(m *testing.M) {
	// By default Caddy locks and logs in the user's directories.
	dir, err := os.MkdirTemp("", "caddylimit-")
	if err != nil {
		panic(err)
	}
	for _, name := range []string{"XDG_DATA_HOME", "XDG_CONFIG_HOME", "HOME"} {
		if err := os.Setenv(name, dir); err != nil {
			panic(err)
		}
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// A bound on requests in flight needs no other limit.
func TestBoundsInFlightAlone(t *testing.T) {
	for _, option := range []string{"max_in_flight 1", "max_in_flight_per_client 1"} {
		url, _ := run(t, "weir {\n"+option+"\n}\nrespond hello")
		for range 3 { // one after the other
			resp, _ := get(t, url, alice)
			assert.Equal(t, http.StatusOK, resp.StatusCode, option)
		}
	}
}
