package rules_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/rules"
	"github.com/weirgo/weir/weirtest"
)

// two admits two requests of an address in a minute.
const two = `
domain: web
descriptors: [{key: remote_address, rate_limit: {unit: minute, requests_per_unit: 2, name: address}}]
rate_limits: [{actions: [{remote_address: {}}]}]
`

func answers(h http.Handler, n int) (all []int) {
	for range n {
		all = append(all, get(h, "/").Code)
	}
	return all
}

// What a guard has besides its limits works with rules. httptest's requests are from 192.0.2.1.
func TestAGuardOfRulesHasWhatAGuardHas(t *testing.T) {
	status := func(code int) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
	}
	for name, check := range map[string]func(t *testing.T, w *world, cfg httplimit.Config){
		"deny list": func(t *testing.T, w *world, cfg httplimit.Config) {
			require.NoError(t, cfg.DenyList.Add(httplimit.DenyEntry{Key: "192.0.2.1"}))
			assert.Equal(t, []int{403}, answers(rules.Middleware(w.engine, cfg)(hello), 1))
		},
		"penalty": func(t *testing.T, w *world, cfg httplimit.Config) {
			limiter, err := weir.New(weir.Config{})
			require.NoError(t, err)
			defer limiter.Close()
			cfg.Penalty = httplimit.Penalty{Strategy: limiter.FixedWindow(), Denials: 2,
				Within: time.Hour, For: time.Minute}
			h := rules.Middleware(w.engine, cfg)(hello)
			assert.Equal(t, []int{200, 200, 429, 429, 429}, answers(h, 5))
			entry, listed := cfg.DenyList.Lookup("192.0.2.1", netip.MustParseAddr("192.0.2.1"))
			assert.True(t, listed)
			assert.Equal(t, w.now.Add(time.Minute), entry.Until)
		},
		"CountIf": func(t *testing.T, w *world, cfg httplimit.Config) {
			cfg.CountIf = func(status int) bool { return status == 401 }
			guard := rules.Middleware(w.engine, cfg)
			assert.Equal(t, []int{200, 200, 200, 200}, answers(guard(hello), 4))
			assert.Equal(t, []int{401, 401, 429}, answers(guard(status(401)), 3))
		},
		"CostFunc": func(t *testing.T, w *world, cfg httplimit.Config) {
			cfg.CostFunc = func(*http.Request) uint64 { return 2 }
			assert.Equal(t, []int{200, 429}, answers(rules.Middleware(w.engine, cfg)(hello), 2))
		},
		"Skip": func(t *testing.T, w *world, cfg httplimit.Config) {
			cfg.Skip = func(*http.Request) bool { return true }
			assert.Equal(t, []int{200, 200, 200}, answers(rules.Middleware(w.engine, cfg)(hello), 3))
		},
		"preflights": func(t *testing.T, w *world, cfg httplimit.Config) {
			h := rules.Middleware(w.engine, cfg)(hello)
			for range 3 {
				r, w := httptest.NewRequest(http.MethodOptions, "/", nil), httptest.NewRecorder()
				r.Header.Set("Origin", "https://a.example")
				r.Header.Set("Access-Control-Request-Method", "GET")
				h.ServeHTTP(w, r)
				assert.Equal(t, 200, w.Code)
			}
		},
		"CORS": func(t *testing.T, w *world, cfg httplimit.Config) {
			cfg.CORS.Origins = []string{"https://a.example"}
			h := rules.Middleware(w.engine, cfg)(hello)
			answers(h, 2)
			denied := get(h, "/", "Origin", "https://a.example")
			assert.Equal(t, "https://a.example", denied.Header().Get("Access-Control-Allow-Origin"))
		},
		"legacy headers": func(t *testing.T, w *world, cfg httplimit.Config) {
			cfg.Headers = httplimit.HeadersLegacy
			h := rules.Middleware(w.engine, cfg)(hello)
			assert.Equal(t, "1", get(h, "/").Header().Get("X-RateLimit-Remaining"))
			answers(h, 1)
			assert.Equal(t, "40", get(h, "/").Header().Get("X-RateLimit-Retry-After"))
		},
		"original headers": func(t *testing.T, w *world, cfg httplimit.Config) {
			cfg.Headers = httplimit.HeadersOriginal
			assert.Equal(t, "1", get(rules.Middleware(w.engine, cfg)(hello), "/").Header().
				Get("Rate-Limiting-Total-Requests"))
		},
		"no headers": func(t *testing.T, w *world, cfg httplimit.Config) {
			cfg.Headers = httplimit.HeadersNone
			assert.Empty(t, get(rules.Middleware(w.engine, cfg)(hello), "/").Header())
		},
		"jitter": func(t *testing.T, w *world, cfg httplimit.Config) {
			cfg.Jitter = 1000 * time.Hour
			h := rules.Middleware(w.engine, cfg)(hello)
			answers(h, 2)
			assert.Greater(t, len(get(h, "/").Header().Get("Retry-After")), 2)
		},
		"status": func(t *testing.T, w *world, cfg httplimit.Config) {
			cfg.DeniedStatus = 413
			assert.Equal(t, []int{200, 200, 413}, answers(rules.Middleware(w.engine, cfg)(hello), 3))
		},
		"Respond": func(t *testing.T, w *world, cfg httplimit.Config) {
			cfg.Respond = func(w http.ResponseWriter, _ *http.Request, d httplimit.Decision) {
				w.WriteHeader(d.Status)
				_, _ = w.Write([]byte(d.Policy))
			}
			h := rules.Middleware(w.engine, cfg)(hello)
			answers(h, 2)
			assert.Equal(t, "address", get(h, "/").Body.String())
		},
		"MaxInFlight": func(t *testing.T, w *world, cfg httplimit.Config) {
			cfg.MaxInFlight = 1
			h, inner := rules.Middleware(w.engine, cfg), 0
			h(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				inner = get(h(hello), "/").Code
			})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
			assert.Equal(t, 503, inner)
		},
		"Concurrency": func(t *testing.T, w *world, cfg httplimit.Config) {
			limiter, err := weir.New(weir.Config{})
			require.NoError(t, err)
			defer limiter.Close()
			cfg.Concurrency = httplimit.Policy{Strategy: limiter.InFlight().Limit(1)}
			guard := rules.NewGuard(rules.Decider{Engine: w.engine}, cfg)
			first := guard.Begin(httptest.NewRequest("GET", "/", nil))
			assert.True(t, first.Passes())
			second := guard.Begin(httptest.NewRequest("GET", "/", nil))
			assert.Equal(t, "in flight", second.Decision().Policy)
			second.End(0)
			first.End(0)
			assert.Equal(t, []int{200, 429}, answers(guard.Wrap(hello), 2), "a denial keeps no place")
			assert.Equal(t, []int{429}, answers(guard.Wrap(hello), 1))
			w.now = w.now.Add(time.Minute)
			assert.Equal(t, []int{200}, answers(guard.Wrap(hello), 1))
		},
		"policies beside them": func(t *testing.T, w *world, cfg httplimit.Config) {
			limiter, err := weir.New(weir.Config{Now: func() time.Time { return w.now }})
			require.NoError(t, err)
			defer limiter.Close()
			all := limiter.FixedWindow().Limit(3, time.Hour).Named("all")
			cfg.Extractor = httplimit.ExtractorFunc(func(*http.Request) (string, error) { return "all", nil })
			cfg.Policies = []httplimit.Policy{{Strategy: all}}
			h := rules.Middleware(w.engine, cfg)(hello)
			assert.Equal(t, `"all";r=2;t=40, "address";r=1;t=40`, get(h, "/").Header().Get("RateLimit"))
			assert.Equal(t, []int{200, 429, 429}, answers(h, 3))
			peeked, err := all.Peek(t.Context(), "all")
			require.NoError(t, err)
			assert.EqualValues(t, 2, peeked.TotalRequests, "what the rules deny takes nothing")
		},
		"shadow": func(t *testing.T, w *world, cfg httplimit.Config) {
			cfg.Shadow = true
			assert.Equal(t, []int{200, 200, 200}, answers(rules.Middleware(w.engine, cfg)(hello), 3))
			assert.EqualValues(t, 1, cfg.Stats.Count(httplimit.Denied))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, two, rules.Config{})
			var seen []httplimit.Decision
			cfg := httplimit.Config{
				DenyList: httplimit.NewDenyList(httplimit.DenyListConfig{Now: func() time.Time {
					return w.now
				}}),
				Stats: new(httplimit.Stats), Now: func() time.Time { return w.now },
				OnDecision: func(_ *http.Request, d httplimit.Decision) { seen = append(seen, d) },
				Logger:     slog.New(slog.NewTextHandler(new(bytes.Buffer), nil)),
			}
			check(t, w, cfg)
			total := uint64(0)
			for o := httplimit.Admitted; o <= httplimit.Exempt; o++ {
				total += cfg.Stats.Count(o)
			}
			assert.EqualValues(t, len(seen), total)
		})
	}
}

// A Decision names the rule, its algorithm and the part that decided.
func TestADecisionNamesTheRule(t *testing.T) {
	w := newWorld(t, two, rules.Config{})
	var seen []httplimit.Decision
	h := rules.Middleware(w.engine, httplimit.Config{Now: func() time.Time { return w.now },
		OnDecision: func(_ *http.Request, d httplimit.Decision) { seen = append(seen, d) }})(hello)
	answers(h, 3)
	expires := w.now.Truncate(time.Minute).Add(time.Minute)
	assert.True(t, seen[2].Result.ExpiresAt.Equal(expires))
	seen[2].Result.ExpiresAt = time.Time{}
	assert.Equal(t, httplimit.Decision{
		Kind: httplimit.Denied, Key: "192.0.2.1", Policy: "address", Strategy: "fixed window",
		Source: "local", Limit: 2, Duration: time.Minute, Cost: 1, Status: 429,
		Result: weir.Result{TotalRequests: 2}, RetryAfter: expires.Sub(w.now),
	}, seen[2])
}

// AdmitFull, FailOpen and shadow mode say what passes undecided.
func TestAGuardOfRulesFailsAsAGuardDoes(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	open := httplimit.Config{FailOpen: true}
	for name, row := range map[string]struct {
		err    error
		ctx    context.Context
		cfg    httplimit.Config
		shadow bool
		want   httplimit.Kind
		code   int
	}{
		"full":                  {weir.ErrFull, t.Context(), httplimit.Config{}, false, httplimit.Failed, 503},
		"full, open":            {weir.ErrFull, t.Context(), open, false, httplimit.Failed, 503},
		"full, admitted":        {weir.ErrFull, t.Context(), httplimit.Config{AdmitFull: true}, false, httplimit.Bypassed, 200},
		"full, shadow mode":     {weir.ErrFull, t.Context(), httplimit.Config{}, true, httplimit.Failed, 200},
		"down":                  {errors.New("down"), t.Context(), httplimit.Config{}, false, httplimit.Failed, 503},
		"down, open":            {errors.New("down"), t.Context(), open, false, httplimit.Bypassed, 200},
		"down, shadow mode":     {errors.New("down"), t.Context(), httplimit.Config{}, true, httplimit.Failed, 200},
		"interrupted, open":     {context.Canceled, t.Context(), open, false, httplimit.Bypassed, 200},
		"disconnected, open":    {context.Canceled, gone, open, false, httplimit.Canceled, 503},
		"a mistake, open":       {weir.ErrLimit, t.Context(), open, false, httplimit.Failed, 503},
		"a bad key, never open": {weir.ErrID, t.Context(), open, false, httplimit.NoKey, 400},
	} {
		t.Run(name, func(t *testing.T) {
			engine, err := rules.New(load(t, two), rules.Config{Shadow: row.shadow,
				Strategies: func(rules.Method) (weir.Strategy, error) { return weirtest.FailAll(row.err), nil },
			})
			require.NoError(t, err)
			row.cfg.Logger = slog.New(slog.DiscardHandler)
			guard := rules.NewGuard(rules.Decider{Engine: engine}, row.cfg)
			r := httptest.NewRequestWithContext(row.ctx, "GET", "/", nil)
			ticket := guard.Begin(r)
			defer ticket.End(0)
			assert.Equal(t, row.want, ticket.Decision().Kind)
			assert.Equal(t, row.want == httplimit.Bypassed, httplimit.IsBypassed(ticket.Context()))
			answer := httptest.NewRecorder()
			guard.Wrap(hello).ServeHTTP(answer, r)
			assert.Equal(t, row.code, answer.Code)
		})
	}
}

func TestGuardsThatCannotBe(t *testing.T) {
	several := newWorld(t, two+"---\n{domain: other, descriptors: []}\n", rules.Config{})
	for want, make := range map[string]func(){
		"rules: a Decider needs an Engine": func() { rules.NewGuard(rules.Decider{}, httplimit.Config{}) },
		"rules: a Decider needs a Domain if the rules have several": func() {
			rules.Middleware(several.engine, httplimit.Config{})
		},
		`httplimit: policy "100/1m" has no Strategy`: func() {
			rules.NewGuard(rules.Decider{Engine: several.engine, Domain: "web"},
				httplimit.Config{Limit: 100, Duration: time.Minute})
		},
	} {
		assert.PanicsWithValue(t, want, make)
	}
}

// Rules in shadow mode refuse nothing, and take nothing from the limits beside them: these hold.
func TestShadowRulesLeaveOtherLimits(t *testing.T) {
	w := newWorld(t, two, rules.Config{Shadow: true})
	limiter, err := weir.New(weir.Config{})
	require.NoError(t, err)
	defer limiter.Close()
	h := rules.Middleware(w.engine, httplimit.Config{Extractor: httplimit.RemoteAddr(),
		Policies: []httplimit.Policy{{Name: "four", Strategy: limiter.FixedWindow(), Limit: 4,
			Duration: 24 * time.Hour}}})(hello)
	assert.Equal(t, []int{200, 200, 200, 200, 429, 429}, answers(h, 6))
}
