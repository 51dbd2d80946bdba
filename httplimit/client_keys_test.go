package httplimit

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
)

var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

// path is an Extractor whose key the client chooses.
var path = ExtractorFunc(func(r *http.Request) (string, error) { return r.URL.Path, nil })

func request(peer, path string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.RemoteAddr = peer
	return r
}

// One client requests twice as many paths as the table has buckets, from many addresses of its /64.
// Another client still gets a bucket. The negative control has no bound.
func TestOneClientCannotFillTheTable(t *testing.T) {
	const buckets = 600
	for name, row := range map[string]struct {
		extractor Extractor
		most      int
		full      bool
	}{
		"by address and path":          {Join(RemoteAddr(), path), buckets / 2, false},
		"by path":                      {path, buckets / 2, false},
		"by each address of IPv6":      {RemoteAddr().IPv6Bits(128), buckets / 2, false},
		"by /64":                       {RemoteAddr(), 0, false},
		"by address and path, unbound": {Join(RemoteAddr(), path), -1, true},
		"by path, unbound":             {path, -1, true},
	} {
		t.Run(name, func(t *testing.T) {
			limiter, err := weir.New(weir.Config{MaxBuckets: buckets, Now: func() time.Time { return noon }})
			require.NoError(t, err)
			defer limiter.Close()
			list := NewDenyList(DenyListConfig{})
			guard := New(limiter.FixedWindow(), Config{
				Extractor: row.extractor, Limit: 1, Duration: time.Hour, MaxKeysPerClient: row.most,
				Now: func() time.Time { return noon }, Logger: slog.New(slog.DiscardHandler), DenyList: list,
			})(noop{})
			for i := range 2 * buckets {
				guard.ServeHTTP(httptest.NewRecorder(),
					request(fmt.Sprintf("[2001:db8::%x]:1", i), fmt.Sprintf("/%d", i)))
			}
			w := httptest.NewRecorder()
			guard.ServeHTTP(w, request("203.0.113.7:1", "/"))
			assert.Equal(t, row.full, w.Code == http.StatusServiceUnavailable, w.Code)
			stats := limiter.Stats()
			assert.Equal(t, row.full, stats.Full > 0)
		})
	}
}

// A client that uses a new path each second cannot fill the table either. A key counts toward the
// bound as long as its buckets live, whether a LimitFunc or the Penalty determines that, and
// otherwise for a minute.
func TestOneClientCannotFillTheTableSlowly(t *testing.T) {
	const buckets, day = 600, 24 * time.Hour
	for name, row := range map[string]struct {
		limits, denials time.Duration
		lives           time.Duration // how long a key counts
	}{
		"by a LimitFunc":   {limits: day, denials: time.Second, lives: 2 * day},
		"by a penalty box": {limits: time.Second, denials: day, lives: 2 * day},
		"by neither":       {limits: time.Second, denials: time.Second, lives: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			now := noon
			clock := func() time.Time { return now }
			limiter, err := weir.New(weir.Config{MaxBuckets: buckets, Now: clock})
			require.NoError(t, err)
			defer limiter.Close()
			limit := limiter.FixedWindow().Limit(1, row.limits)
			g := NewGuard(limiter.FixedWindow(), Config{
				Extractor: path, MaxKeysPerClient: buckets / 4,
				LimitFunc: func(*http.Request) *weir.Limit { return limit },
				Penalty: Penalty{Strategy: limiter.FixedWindow(), Denials: 2, Within: row.denials,
					For: time.Second},
				DenyList: NewDenyList(DenyListConfig{Now: clock}),
				Now:      clock, Logger: slog.New(slog.DiscardHandler),
			})
			guard := &handler{g, noop{}}
			ask := func(peer, path string) int {
				w := httptest.NewRecorder()
				guard.ServeHTTP(w, request(peer, path))
				return w.Code
			}
			for i := range 2 * buckets {
				now = now.Add(time.Second)
				ask("192.0.2.1:1", fmt.Sprintf("/%d", i))
				ask("192.0.2.1:1", fmt.Sprintf("/%d", i)) // is denied
			}
			assert.Equal(t, http.StatusOK, ask("203.0.113.7:1", "/"))
			assert.EqualValues(t, row.lives, g.keys.Life())
		})
	}
}

// Keys beyond the bound share one count, separate for each client. Keys within the bound have their
// own.
func TestKeysBeyondTheBoundShareABudget(t *testing.T) {
	limiter, err := weir.New(weir.Config{Now: func() time.Time { return noon }})
	require.NoError(t, err)
	defer limiter.Close()
	var log strings.Builder
	guard := New(limiter.FixedWindow(), Config{
		Extractor: Join(RemoteAddr(), path), Name: "p", Limit: 2, Duration: time.Hour,
		MaxKeysPerClient: 3,
		Now: func() time.Time {
			return noon
		}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})(noop{})
	passed := func(peer string, paths ...string) (n int) {
		for _, p := range paths {
			w := httptest.NewRecorder()
			guard.ServeHTTP(w, request(peer, p))
			if w.Code == http.StatusOK {
				n++
			}
		}
		return n
	}
	assert.Equal(t, 3, passed("203.0.113.7:1", "/1", "/2", "/3"))
	assert.Equal(t, 2, passed("203.0.113.7:2", "/4", "/5", "/6", "/7"), "further keys share a count")
	assert.Equal(t, 3, passed("203.0.113.7:3", "/1", "/2", "/3", "/1", "/2", "/3"),
		"the first keys have their own")
	assert.Equal(t, 5, passed("203.0.113.8:1", "/1", "/2", "/3", "/4", "/5", "/6", "/7"),
		"other clients have their own")
	assert.Equal(t, 1, strings.Count(log.String(), "\n"), "one line a second: %s", log.String())
}

// The client that a key is attributed to does not depend on header fields that the client sends.
func TestClientOf(t *testing.T) {
	trusted := ClientIP([]netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")})
	for _, row := range []struct {
		ip               IP
		peer, xff, wants string
	}{
		{RemoteAddr(), "203.0.113.7:1", "198.51.100.1", "203.0.113.7"},
		{RemoteAddr().IPv6Bits(128), "[2001:db8::1]:1", "", "2001:db8::/64"},
		{RemoteAddr().IPv6Bits(48), "[2001:db8::1]:1", "", "2001:db8::/48"},
		{trusted, "10.0.0.1:1", "198.51.100.1", "198.51.100.1"},
		{trusted, "10.0.0.1:1", "rubbish", "10.0.0.1"},
		{trusted, "@", "198.51.100.1", ""},
	} {
		r := request(row.peer, "/")
		if row.xff != "" {
			r.Header.Set("X-Forwarded-For", row.xff)
		}
		got, ok := (&Guard{cfg: Config{ClientIP: row.ip}}).clientOf(nil, r)
		assert.Equal(t, row.wants, string(got))
		assert.Equal(t, row.wants != "", ok)
	}
}

// A client with too many keys is listed by its address, as its keys would fill the list.
func TestPenaltyOfAClientWithTooManyKeysListsItsAddress(t *testing.T) {
	limiter, err := weir.New(weir.Config{Now: func() time.Time { return noon }})
	require.NoError(t, err)
	defer limiter.Close()
	list := NewDenyList(DenyListConfig{Now: func() time.Time { return noon }})
	guard := New(limiter.FixedWindow(), Config{
		Extractor: path, Limit: 1, Duration: time.Hour, MaxKeysPerClient: 1, DenyList: list,
		Penalty: Penalty{Strategy: limiter.FixedWindow(), Denials: 3, Within: time.Hour, For: time.Hour},
		Now:     func() time.Time { return noon }, Logger: slog.New(slog.DiscardHandler),
	})(noop{})
	before := limiter.Stats().Buckets
	for i := range 100 {
		guard.ServeHTTP(httptest.NewRecorder(),
			request(fmt.Sprintf("[2001:db8::%x]:1", i), fmt.Sprintf("/%d", i)))
	}
	entries := list.Entries()
	require.Len(t, entries, 1)
	assert.Equal(t, "2001:db8::/64", entries[0].Prefix.String())
	assert.Equal(t, 3, limiter.Stats().Buckets-before, "one key, the shared key and its denials")
}
