package rules_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/rules"
	"github.com/weirgo/weir/rules/describe"
)

// varied limits values that clients choose.
const varied = `
domain: web
descriptors:
  - {key: remote_address, rate_limit: {unit: hour, requests_per_unit: 100000}}
  - {key: path, rate_limit: {unit: hour, requests_per_unit: 2}}
---
domain: web
rate_limits:
  - actions: [{remote_address: {}}]
  - actions: [{path: {}}]
`

// asker returns a function that sends a request for a path from a peer, and returns the status.
func asker(g *httplimit.Guard) func(peer, path string) int {
	h := g.Wrap(hello)
	return func(peer, path string) int {
		r, answer := httptest.NewRequest("GET", path, nil), httptest.NewRecorder()
		r.RemoteAddr = peer
		h.ServeHTTP(answer, r)
		return answer.Code
	}
}

// One client asks for twice as many paths as the table has buckets, or from as many addresses of
// its /64; another one still gets a bucket. Without the bound it does not.
func TestOneClientCannotFillTheTable(t *testing.T) {
	const buckets = 600
	for name, row := range map[string]struct {
		most, want int
		path, peer string // formats
	}{
		"by path":             {buckets / 4, 200, "/%d", "203.0.113.7:%d"},
		"by address":          {buckets / 4, 200, "/%d", "[2001:db8::%x]:1"},
		"by default":          {0, 503, "/%d", "203.0.113.7:%d"}, // its bound is above this table
		"by path, unbound":    {-1, 503, "/%d", "203.0.113.7:%d"},
		"by address, unbound": {-1, 503, "/%d", "[2001:db8::%x]:1"},
		// what a path denies takes no bucket
		"by address, denied": {-1, 200, "/same?%d", "[2001:db8::%x]:1"},
	} {
		t.Run(name, func(t *testing.T) {
			limiter, err := weir.New(weir.Config{MaxBuckets: buckets, Now: func() time.Time {
				return start
			}})
			require.NoError(t, err)
			defer limiter.Close()
			w := newWorld(t, varied, rules.Config{Strategies: rules.StrategiesOf(limiter)})
			send := asker(rules.NewGuard(rules.Decider{Engine: w.engine}, httplimit.Config{
				MaxKeysPerClient: row.most, Logger: slog.New(slog.DiscardHandler)}))
			for i := range 2 * buckets {
				send(fmt.Sprintf(row.peer, i+1), fmt.Sprintf(row.path, i))
			}
			assert.Equal(t, row.want, send("198.51.100.9:1", "/another"))
		})
	}
}

// Values beyond the bound share one counter in each rule, which is the client's alone; those within
// keep theirs.
func TestValuesBeyondTheBoundShareACounter(t *testing.T) {
	w := newWorld(t, varied, rules.Config{})
	var log bytes.Buffer
	send := asker(rules.NewGuard(rules.Decider{Engine: w.engine,
		Describers: []describe.Describer{describe.By(describe.Path("path"))}}, httplimit.Config{
		MaxKeysPerClient: 3, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		Now: func() time.Time { return w.now }}))
	passed := func(peer string, paths ...string) (n int) {
		for _, p := range paths {
			if send(peer, p) == 200 {
				n++
			}
		}
		return n
	}
	assert.Equal(t, 3, passed("203.0.113.7:1", "/1", "/2", "/3"))
	assert.Equal(t, 2, passed("203.0.113.7:2", "/4", "/5", "/6", "/7"), "the further ones share")
	assert.Equal(t, 3, passed("203.0.113.7:3", "/1", "/2", "/3", "/1", "/2", "/3"),
		"the first ones do not")
	assert.Equal(t, 3+2, passed("203.0.113.8:1", "/a", "/b", "/c", "/d", "/e", "/f"),
		"nor do other clients")
	assert.Contains(t, log.String(), "share one budget")
	assert.LessOrEqual(t, strings.Count(log.String(), "\n"), 10, "one line a second")

	w.now = w.now.Add(5 * time.Hour)
	assert.Equal(t, 3, passed("203.0.113.7:1", "/7", "/8", "/9"),
		"the old ones have no counters any more")
}

// As in Envoy, a request without an address has no descriptor with one. It is logged.
func TestAnUnknownAddressIsLogged(t *testing.T) {
	proxy := httplimit.ClientIP([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")})
	for name, row := range map[string]struct {
		peer, xff string
		actions   []describe.Action
		logged    bool
	}{
		"a Unix socket": {"@", "", []describe.Action{describe.RemoteAddress()}, true},
		"a range, of a Unix socket": {"@", "",
			[]describe.Action{describe.RemoteAddressMatch("k", "v", nil, true)}, true},
		"an invalid X-Forwarded-For": {"10.0.0.1:1", "rubbish", []describe.Action{describe.RemoteAddress()},
			true},
		"a known address": {"10.0.0.1:1", "192.0.2.1", []describe.Action{describe.RemoteAddress()},
			false},
		"a header that is missing": {"@", "", []describe.Action{describe.Header("X-K", "k", false)},
			false},
	} {
		w := newWorld(t, varied, rules.Config{})
		var log bytes.Buffer
		h := rules.NewGuard(
			rules.Decider{Engine: w.engine, Describers: []describe.Describer{describe.By(row.actions...)}},
			httplimit.Config{ClientIP: proxy, Logger: slog.New(slog.NewTextHandler(&log, nil))}).Wrap(hello)
		for range 3 {
			r, answer := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
			if r.RemoteAddr = row.peer; row.xff != "" {
				r.Header.Set("X-Forwarded-For", row.xff)
			}
			h.ServeHTTP(answer, r)
			if row.logged {
				assert.Equal(t, 200, answer.Code, name)
			}
		}
		assert.Equal(t, row.logged, strings.Contains(log.String(), "address is unknown"), "%s: %s", name,
			&log)
	}
}
