package httplimit_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/weirtest"
)

func TestMissingLimitPanics(t *testing.T) {
	for name, cfg := range map[string]httplimit.Config{
		"a Duration alone": {Duration: time.Minute},
		"in Policies":      {Policies: []httplimit.Policy{{Duration: time.Minute}}},
		"a Limit alone":    {Limit: 5},
		"a Limit and Policies": {Limit: 5,
			Policies: []httplimit.Policy{{Limit: 1, Duration: time.Minute}}},
		"a Name alone":           {Name: "a"},
		"DenyAll without a time": {DenyAll: true},
		"DenyAll and a Limit":    {Limit: 5, Duration: time.Minute, DenyAll: true},
	} {
		cfg.Extractor = httplimit.RemoteAddr()
		assert.Panics(t, func() { httplimit.New(weirtest.DenyAll(), cfg) }, name)
	}
	limiter := newLimiter(t, at(noon))
	_, ran := serve(limiter.FixedWindow(), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Duration: time.Minute, DenyAll: true,
	}, from("203.0.113.7:1"))
	assert.Zero(t, ran, "an explicit way to deny all")
}

// Two guards with the same limit would share a count without notice, so the second needs a name.
func TestSecondGuardWithoutANamePanics(t *testing.T) {
	limiter, other := newLimiter(t, at(noon)), newLimiter(t, at(noon))
	unnamed := httplimit.Config{Extractor: httplimit.RemoteAddr(), Limit: 5, Duration: time.Minute}
	named := unnamed
	named.Name = "login"
	first := httplimit.New(limiter.FixedWindow(), unnamed)
	for name, s := range map[string]weir.Strategy{"of one limiter": limiter.FixedWindow()} {
		const want = "httplimit: a second middleware without a name on one fixed window: give its policy " +
			`"5/1m" a Name of its own, or the first one's Name to share the budget`
		assert.PanicsWithValue(t, want, func() { httplimit.New(s, unnamed) }, name)
		unlike := unnamed
		unlike.Limit = 6 // distinct only by chance, as a configuration change may make them equal
		assert.Panics(t, func() { httplimit.New(s, unlike) }, name)
		assert.NotPanics(t, func() { httplimit.New(s, named); httplimit.New(s, named) }, name)
	}
	assert.NotPanics(t, func() {
		httplimit.New(limiter.SlidingWindow(), unnamed) // counted separately from the fixed window
		httplimit.New(other.FixedWindow(), unnamed)
	})
	for name, of := range map[string]func() weir.Strategy{
		"sliding window": func() weir.Strategy { return limiter.SlidingWindow() },
		"sliding log":    func() weir.Strategy { return limiter.SlidingLog() },
		"token bucket":   func() weir.Strategy { return limiter.TokenBucket(9) },
		"leaky bucket":   func() weir.Strategy { return limiter.LeakyBucket(9) },
	} {
		keep := []any{}
		assert.Panics(t, func() {
			for range 2 {
				keep = append(keep, httplimit.New(of(), unnamed))
			}
		}, name)
	}
	fake := &weirtest.Fake{}
	second := httplimit.New(fake, unnamed)
	assert.Panics(t, func() { httplimit.New(fake, unnamed) })
	runtime.KeepAlive(first)
	runtime.KeepAlive(second)

	// Two unnamed policies in one guard have different names.
	assert.NotPanics(t, func() {
		httplimit.New(&weirtest.Fake{}, httplimit.Config{Extractor: httplimit.RemoteAddr(),
			Policies: []httplimit.Policy{
				{Limit: 1, Duration: time.Second}, {Limit: 5, Duration: time.Minute},
			}})
	})
}

// A guard that has been collected releases its default names to its successor.
func TestCollectedGuardReleasesItsDefaultNames(t *testing.T) {
	fake := &weirtest.Fake{}
	cfg := httplimit.Config{Extractor: httplimit.RemoteAddr(), Limit: 5, Duration: time.Minute}
	func() { httplimit.New(fake, cfg) }()
	assert.Eventually(t, func() (ok bool) {
		runtime.GC()
		defer func() { ok = recover() == nil }()
		httplimit.New(fake, cfg)
		return true
	}, 10*time.Second, time.Millisecond)
}

func TestPolicyKeyIsTheKeyThatIsCounted(t *testing.T) {
	limiter := newLimiter(t, at(noon))
	for _, p := range []httplimit.Policy{
		{Limit: 5, Duration: time.Minute}, {Name: "login", Limit: 5, Duration: time.Hour},
	} {
		cfg := httplimit.Config{Extractor: httplimit.RemoteAddr(), Policies: []httplimit.Policy{p},
			Now: at(noon)}
		guard := httplimit.New(limiter.FixedWindow(), cfg)(&hello{})
		for range 7 {
			guard.ServeHTTP(httptest.NewRecorder(), from("203.0.113.7:1"))
		}
		res, err := ops.Peek(t.Context(), limiter.FixedWindow(), &weir.Request{Key: p.Key("203.0.113.7"), Limit: p.Limit, Duration: p.Duration})
		require.NoError(t, err)
		assert.EqualValues(t, 5, res.TotalRequests)
		limiter = newLimiter(t, at(noon))
	}
}

func TestFailOpenDoesNotAdmitInvalidRequests(t *testing.T) {
	for _, err := range []error{weir.ErrScale, weir.ErrLimit, errors.ErrUnsupported} {
		cfg := hundred()
		cfg.FailOpen, cfg.Logger = true, slog.New(slog.DiscardHandler)
		_, ran := serve(weirtest.FailAll(fmt.Errorf("wrapped: %w", err)), cfg, from("203.0.113.7:1"))
		assert.Zero(t, ran, err)
	}
	cfg := hundred()
	cfg.FailOpen, cfg.Logger = true, slog.New(slog.DiscardHandler)
	_, ran := serve(neither{}, cfg, from("203.0.113.7:1"))
	assert.Zero(t, ran, "a strategy that breaks its contract")
}

func TestAFullTableHasAPolicyOfItsOwn(t *testing.T) {
	for admit, want := range map[bool]int{false: 503, true: 200} {
		for _, failOpen := range []bool{false, true} {
			clock := weirtest.NewClock(noon)
			var log strings.Builder
			cfg := hundred()
			cfg.AdmitFull, cfg.FailOpen, cfg.Now = admit, failOpen, clock.Now
			cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
			full := weirtest.FailAll(weir.ErrFull)
			cfg.Name = "p"
			guard := httplimit.New(full, cfg)(&hello{})
			for range 1000 {
				w := httptest.NewRecorder()
				guard.ServeHTTP(w, from("203.0.113.7:1"))
				require.Equal(t, want, w.Code)
				if want == 503 {
					require.Equal(t, "1", w.Header().Get("Retry-After"))
				}
			}
			assert.Equal(t, 1, strings.Count(log.String(), "\n"), "one line a second, not one a refusal")
			clock.Advance(time.Second)
			guard.ServeHTTP(httptest.NewRecorder(), from("203.0.113.7:1"))
			assert.Contains(t, log.String(), "not_logged=999")
		}
	}
}

// An exempt caller needs no bucket, so the table may be full.
func TestExemptCallersNeedNoBucket(t *testing.T) {
	limiter, err := weir.New(weir.Config{MaxBuckets: 1, Now: at(noon)})
	require.NoError(t, err)
	defer limiter.Close()
	stats, five := &httplimit.Stats{}, limiter.FixedWindow().Limit(5, time.Hour)
	cfg := httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Now: at(noon), Stats: stats,
		Logger: slog.New(slog.DiscardHandler),
		Skip:   func(r *http.Request) bool { return r.URL.Path == "/healthz" },
		LimitFunc: func(r *http.Request) *weir.Limit {
			if r.Header.Get("X-Plan") == "gold" {
				return nil
			}
			return five
		},
	}
	guard := httplimit.New(limiter.FixedWindow(), cfg)(&hello{})
	ask := func(r *http.Request) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		guard.ServeHTTP(w, r)
		return w
	}
	assert.Equal(t, 200, ask(from("203.0.113.1:1")).Code)
	assert.Equal(t, 503, ask(from("203.0.113.2:1")).Code, "the table is full")
	gold := ask(from("203.0.113.3:1", "X-Plan: gold"))
	assert.Equal(t, 200, gold.Code)
	assert.Empty(t, gold.Header()["Ratelimit-Policy"], "no limit, no fields")
	health := httptest.NewRequest(http.MethodGet, "/healthz", nil)
	health.RemoteAddr = "@"
	assert.Equal(t, 200, ask(health).Code, "skipped before the extractor")
	assert.EqualValues(t, 2, stats.Count(httplimit.Exempt))
	assert.Equal(t, 1, limiter.Stats().Buckets)
}

// Skip runs before the deny list, and OnDecision sees its decision.
func TestSkipPrecedesTheDenyList(t *testing.T) {
	list := httplimit.NewDenyList(httplimit.DenyListConfig{})
	require.NoError(t, list.Add(httplimit.DenyEntry{Key: "203.0.113.7"}))
	cfg := hundred()
	cfg.DenyList = list
	var seen []httplimit.Kind
	cfg.OnDecision = func(_ *http.Request, d httplimit.Decision) { seen = append(seen, d.Kind) }
	_, ran := serve(weirtest.DenyAll(), cfg, from("203.0.113.7:1"))
	assert.Zero(t, ran)
	cfg.Skip = func(*http.Request) bool { return true }
	w, ran := serve(weirtest.DenyAll(), cfg, from("203.0.113.7:1"))
	assert.Equal(t, 1, ran)
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Equal(t, []httplimit.Kind{httplimit.Listed, httplimit.Exempt}, seen)
}

func TestARequestThatCostsTooMuchSaysSo(t *testing.T) {
	limiter := newLimiter(t, at(noon))
	cfg := hundred()
	cfg.Limit = 5
	cfg.CostFunc = func(*http.Request) uint64 { return 6 }
	w, _ := serve(limiter.FixedWindow(), cfg, from("203.0.113.7:1"))
	assert.Equal(t, http.StatusTooManyRequests, w.Code)
	assert.Equal(t, `"5/1m";r=5`, w.Header().Get("RateLimit"))
	assert.Equal(t, "This request costs more than the policy ever admits.", problemOf(t, w)["detail"])
}

// A test can deny a caller behind the middleware, whatever the policy's name.
func TestDenyCallersBehindTheMiddleware(t *testing.T) {
	cfg := hundred()
	cfg.Policies = []httplimit.Policy{{Name: "daily", Limit: 1000, Duration: 24 * time.Hour}}
	for _, row := range []struct {
		s    weir.Strategy
		peer string
		want int
	}{
		{weirtest.DenyCallers("192.0.2.1", "2001:db8::/64"), "192.0.2.1:1", 429},
		{weirtest.DenyCallers("192.0.2.1", "2001:db8::/64"), "[2001:db8::7]:1", 429},
		{weirtest.DenyCallers("192.0.2.1"), "192.0.2.2:1", 200},
		{weirtest.DenyCallers("2.0.2.1", "1"), "192.0.2.1:1", 200},
		{weirtest.DenyKeys(cfg.Policies[0].Key("192.0.2.1")), "192.0.2.1:1", 429},
		{weirtest.DenyKeys("192.0.2.1"), "192.0.2.1:1", 429},
	} {
		w, _ := serve(row.s, cfg, from(row.peer))
		assert.Equal(t, row.want, w.Code)
	}
	res, err := weirtest.DenyCallers("x").Run(t.Context(),
		&weir.Request{Key: "x", Limit: 1, Duration: time.Second})
	require.NoError(t, err)
	assert.Equal(t, weir.Deny, res.State, "a key that is not joined is the caller")
}
