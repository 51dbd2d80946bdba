package httplimit_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/testkit/ops"
	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/weirtest"
)

// These tests specify the middleware. Time stands still at noon.
var noon = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)

func at(t time.Time) func() time.Time { return func() time.Time { return t } }

// answer returns an Answer with this Result for every request.
func answer(state weir.State, total uint64, expires time.Time) weirtest.Answer {
	return func(context.Context, *weir.Request, time.Time) (weir.Result, error) {
		return weir.Result{State: state, TotalRequests: total, ExpiresAt: expires}, nil
	}
}

func admitting(total uint64, left time.Duration) *weirtest.Fake {
	return &weirtest.Fake{Answer: answer(weir.Allow, total, noon.Add(left)), Now: at(noon)}
}

func denying(total uint64, left time.Duration) *weirtest.Fake {
	return &weirtest.Fake{Answer: answer(weir.Deny, total, noon.Add(left)), Now: at(noon)}
}

// hundred is a limit of 100 a minute by the peer's address, on a clock that stands at noon.
func hundred() httplimit.Config {
	return httplimit.Config{Extractor: httplimit.RemoteAddr(), Limit: 100, Duration: time.Minute,
		Now: at(noon)}
}

// hello is the guarded handler. It counts its calls.
type hello struct{ ran int }

func (h *hello) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	h.ran++
	_, _ = io.WriteString(w, "hello")
}

// serve sends one request through the middleware, and returns the response and the number of calls
// of the handler.
func serve(
	s weir.Strategy, cfg httplimit.Config, r *http.Request,
) (*httptest.ResponseRecorder, int) {
	h := &hello{}
	if cfg.Name == "" && cfg.Duration != 0 {
		cfg.Name = httplimit.DefaultName(cfg.Limit, cfg.Duration) // so that a test may use s twice
	}
	w := httptest.NewRecorder()
	httplimit.New(s, cfg)(h).ServeHTTP(w, r)
	return w, h.ran
}

func TestAnAdmittedRequestReachesTheHandlerOnce(t *testing.T) {
	fake := admitting(3, 30*time.Second)
	w, ran := serve(fake, hundred(), from("203.0.113.7:5000"))
	assert.Equal(t, 1, ran)
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Equal(t, "hello", w.Body.String())
	assert.Equal(t, http.Header{
		"Ratelimit-Policy": {`"100/1m";q=100;w=60`},
		"Ratelimit":        {`"100/1m";r=97;t=30`},
		"Content-Type":     {"text/plain; charset=utf-8"},
	}, w.Result().Header)
	require.Len(t, fake.Calls(), 1)
	assert.Equal(t, weir.Request{Key: weir.JoinKey("100/1m", "203.0.113.7"), Limit: 100,
		Duration: time.Minute}, fake.Calls()[0].Request)
}

func TestADeniedRequestIsAnswered429(t *testing.T) {
	w, ran := serve(denying(100, 12_001*time.Millisecond), hundred(), from("203.0.113.7:5000"))
	assert.Zero(t, ran)
	assert.Equal(t, http.StatusTooManyRequests, w.Code)
	assert.Equal(t, http.Header{
		"Ratelimit-Policy": {`"100/1m";q=100;w=60`},
		"Ratelimit":        {`"100/1m";r=0;t=13`},
		"Retry-After":      {"13"},
		"Cache-Control":    {"no-store"},
		"Content-Type":     {"application/problem+json"},
	}, w.Result().Header)
	assert.Equal(t, map[string]any{
		"type":              "https://iana.org/assignments/http-problem-types#quota-exceeded",
		"title":             "Quota Exceeded",
		"status":            float64(429),
		"detail":            "The limit of this policy is used up.",
		"violated-policies": []any{"100/1m"},
	}, problemOf(t, w))
}

func problemOf(t *testing.T, w *httptest.ResponseRecorder) (p map[string]any) {
	t.Helper()
	assert.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
	return p
}

func TestRetryAfterIsNeverTooEarlyAndAtLeastASecond(t *testing.T) {
	for left, want := range map[time.Duration]string{
		-time.Second: "1", 0: "1", 1: "1", time.Millisecond: "1", time.Second: "1", time.Second + 1: "2",
		59*time.Second + 1:   "60",
		365 * 24 * time.Hour: "31536000",
	} {
		w, _ := serve(denying(100, left), hundred(), from("203.0.113.7:5000"))
		assert.Equal(t, want, w.Header().Get("Retry-After"), left)
		assert.Equal(t, `"100/1m";r=0;t=`+want, w.Header().Get("RateLimit"), left)
	}
}

func TestADenialForGoodHasNoRetryAfter(t *testing.T) {
	for _, style := range []httplimit.HeaderStyle{
		httplimit.HeadersDraft, httplimit.HeadersLegacy, httplimit.HeadersOriginal, httplimit.HeadersNone,
	} {
		cfg := hundred()
		cfg.CostFunc = func(*http.Request) uint64 { return 101 }
		cfg.Headers, cfg.Jitter = style, time.Minute
		fake := &weirtest.Fake{Answer: answer(weir.Deny, 40, time.Time{})}
		w, ran := serve(fake, cfg, from("203.0.113.7:5000"))
		assert.Zero(t, ran)
		assert.Equal(t, http.StatusTooManyRequests, w.Code)
		for name := range w.Header() {
			assert.NotRegexp(t, "Retry|Reset|Expires", name)
		}
		assert.NotContains(t, w.Header().Get("RateLimit"), "t=")
		assert.Equal(t, uint64(101), fake.Calls()[0].Request.Cost)
	}
}

func TestALimitOfZeroIsReportedAsAnyOther(t *testing.T) {
	limiter := newLimiter(t, at(noon))
	for style, want := range map[httplimit.HeaderStyle]http.Header{
		httplimit.HeadersDraft:  {"Ratelimit-Policy": {`"0/1m";q=0;w=60`}, "Ratelimit": {`"0/1m";r=0`}},
		httplimit.HeadersLegacy: {"X-Ratelimit-Limit": {"0"}, "X-Ratelimit-Remaining": {"0"}},
		httplimit.HeadersOriginal: {"Rate-Limiting-Total-Requests": {"0"},
			"Rate-Limiting-State": {"Deny"}},
	} {
		cfg := hundred()
		cfg.Limit, cfg.DenyAll, cfg.Headers = 0, true, style
		w, ran := serve(limiter.FixedWindow(), cfg, from("203.0.113.7:5000"))
		assert.Zero(t, ran)
		w.Header().Del("Cache-Control")
		w.Header().Del("Content-Type")
		assert.Equal(t, want, w.Header())
	}
}

// Every bin of 1 s must have less than twice the mean, which a uniform distribution satisfies by
// far.
func TestJitterOnlyAddsDelay(t *testing.T) {
	const clients, jitter = 10_000, 10
	cfg := hundred()
	cfg.Jitter = jitter * time.Second
	guard := httplimit.New(denying(100, 4500*time.Millisecond), cfg)(&hello{})
	bins := make(map[int]int)
	for range clients {
		w := httptest.NewRecorder()
		guard.ServeHTTP(w, from("203.0.113.7:5000"))
		seconds, err := strconv.Atoi(w.Header().Get("Retry-After"))
		require.NoError(t, err)
		require.True(t, 5 <= seconds && seconds <= 5+jitter, seconds)
		// Retry-After is not before t.
		require.Equal(t, `"100/1m";r=0;t=`+strconv.Itoa(seconds), w.Header().Get("RateLimit"))
		bins[seconds]++
	}
	assert.Len(t, bins, jitter+1)
	for seconds, n := range bins {
		assert.Less(t, n, 2*clients/(jitter+1), seconds)
	}
}

// A guard for all requests and one for a route send the fields of one limit, that which binds:
// those of a guard around it, or of a middleware that is no guard, are replaced, or stay, as a
// whole.
func TestLegacyHeadersOfNestedGuards(t *testing.T) {
	in := func(s int64) string { return strconv.FormatInt(noon.Unix()+s, 10) }
	const second = time.Second
	for name, row := range map[string]struct {
		outer, inner weir.Strategy
		want         [4]string // by the order of Fields
	}{
		"the outer binds":     {admitting(98, second), admitting(1, 2*second), [4]string{"200", "2", in(1)}},
		"the inner binds":     {admitting(1, second), admitting(98, 2*second), [4]string{"100", "2", in(2)}},
		"both have as much":   {admitting(98, second), admitting(98, 2*second), [4]string{"200", "2", in(1)}},
		"one less is enough":  {admitting(98, second), admitting(99, 2*second), [4]string{"100", "1", in(2)}},
		"the inner denies":    {admitting(99, second), denying(100, 2*second), [4]string{"100", "0", in(2), "2"}},
		"beside one used up":  {admitting(100, second), denying(100, 2*second), [4]string{"100", "0", in(2), "2"}},
		"nothing is left":     {admitting(100, second), admitting(100, 2*second), [4]string{"200", "0", in(1)}},
		"another middleware":  {nil, admitting(98, 2*second), [4]string{"100", "2", in(2)}},
		"which says a number": {nil, admitting(1, 2*second), [4]string{"7", "3", "soon", "9"}},
		"and the inner denies": {nil, denying(100, 2*second),
			[4]string{"100", "0", in(2), "2"}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := hundred()
			cfg.Headers = httplimit.HeadersLegacy
			w := httptest.NewRecorder()
			h := httplimit.New(row.inner, cfg)(&hello{})
			if row.outer != nil {
				cfg.Limit = 200
				h = httplimit.New(less(row.outer), cfg)(h)
			} else {
				for i, value := range []string{"7", "3", "soon", "9"} {
					w.Header().Set(httplimit.HeadersLegacy.Fields()[i], value)
				}
				if name == "another middleware" {
					w.Header().Set("X-RateLimit-Remaining", "many")
				}
			}
			h.ServeHTTP(w, from("203.0.113.7:5000"))
			for i, field := range httplimit.HeadersLegacy.Fields() {
				var want []string
				if row.want[i] != "" {
					want = []string{row.want[i]}
				}
				assert.Equal(t, want, w.Header()[field], field)
			}
		})
	}
}

// less is a Strategy of 200 that has counted 100 more than s, of 100.
func less(s weir.Strategy) weir.Strategy {
	fake := s.(*weirtest.Fake)
	answer := fake.Answer
	return &weirtest.Fake{Now: fake.Now, Answer: func(
		ctx context.Context, r *weir.Request, now time.Time) (weir.Result, error) {
		res, err := answer(ctx, r, now)
		res.TotalRequests += 100
		return res, err
	}}
}

func TestLegacyHeaders(t *testing.T) {
	cfg := hundred()
	cfg.Headers = httplimit.HeadersLegacy
	end := strconv.FormatInt(noon.Unix()+31, 10)

	w, _ := serve(admitting(3, 30_001*time.Millisecond), cfg, from("203.0.113.7:5000"))
	assert.Equal(t, "100", w.Header().Get("X-RateLimit-Limit"))
	assert.Equal(t, "97", w.Header().Get("X-RateLimit-Remaining"))
	assert.Equal(t, end, w.Header().Get("X-RateLimit-Reset"))
	assert.Empty(t, w.Header().Get("X-Ratelimit-Retry-After"))
	assert.Empty(t, w.Header().Get("RateLimit"))

	w, _ = serve(denying(100, 30_001*time.Millisecond), cfg, from("203.0.113.7:5000"))
	assert.Equal(t, http.StatusTooManyRequests, w.Code)
	assert.Equal(t, "0", w.Header().Get("X-RateLimit-Remaining"))
	assert.Equal(t, end, w.Header().Get("X-RateLimit-Reset"))
	assert.Equal(t, "31", w.Header().Get("X-Ratelimit-Retry-After"))
	assert.Equal(t, "31", w.Header().Get("Retry-After"))
}

func TestOriginalHeaders(t *testing.T) {
	cfg := hundred()
	cfg.Headers = httplimit.HeadersOriginal
	w, _ := serve(admitting(3, 30*time.Second), cfg, from("203.0.113.7:5000"))
	assert.Equal(t, "3", w.Header().Get("Rate-Limiting-Total-Requests"))
	assert.Equal(t, "Allow", w.Header().Get("Rate-Limiting-State"))
	assert.Equal(t, "2026-11-20T12:00:30Z", w.Header().Get("Rate-Limiting-Expires-At"))

	w, _ = serve(denying(100, 30_001*time.Millisecond), cfg, from("203.0.113.7:5000"))
	assert.Equal(t, http.StatusTooManyRequests, w.Code)
	assert.Equal(t, "100", w.Header().Get("Rate-Limiting-Total-Requests"))
	assert.Equal(t, "Deny", w.Header().Get("Rate-Limiting-State"))
	// Times are rounded up to a whole second.
	assert.Equal(t, "2026-11-20T12:00:31Z", w.Header().Get("Rate-Limiting-Expires-At"))
	assert.Equal(t, "31", w.Header().Get("Retry-After"))
}

func TestHeadersNoneSendsOnlyRetryAfter(t *testing.T) {
	cfg := hundred()
	cfg.Headers = httplimit.HeadersNone
	w, _ := serve(admitting(3, 30*time.Second), cfg, from("203.0.113.7:5000"))
	assert.Equal(t, http.Header{"Content-Type": {"text/plain; charset=utf-8"}}, w.Result().Header)
	w, _ = serve(denying(100, 30*time.Second), cfg, from("203.0.113.7:5000"))
	assert.Equal(t, "30", w.Header().Get("Retry-After"))
	assert.NotContains(t, w.Header(), "Ratelimit")
}

func TestMochiwebRespondsLikeTheErlangOriginal(t *testing.T) {
	cfg := httplimit.Mochiweb()
	cfg.Extractor, cfg.Limit, cfg.Duration, cfg.Now = httplimit.RemoteAddr(), 500, 30*time.Second,
		at(noon)
	w, ran := serve(denying(500, 12*time.Second), cfg, from("203.0.113.7:5000"))
	assert.Zero(t, ran)
	assert.Equal(t, http.StatusRequestEntityTooLarge, w.Code)
	assert.Equal(t, "text/html", w.Header().Get("Content-Type"))
	assert.Equal(t, "12", w.Header().Get("Retry-After"))
	assert.Contains(t, w.Body.String(), "<h1>Request Entity Too Large</h1>")
	assert.NotContains(t, w.Header(), "Ratelimit")
}

func TestSeveralPoliciesAreReportedTogether(t *testing.T) {
	cfg := hundred()
	cfg.Name, cfg.Limit, cfg.Duration = "burst", 10, time.Second
	daily := admitting(588, 10*time.Hour)
	cfg.Policies = []httplimit.Policy{{Name: "daily", Limit: 1000, Duration: 24 * time.Hour,
		Strategy: daily}}
	var seen httplimit.Decision
	cfg.OnDecision = func(_ *http.Request, d httplimit.Decision) { seen = d }

	w, ran := serve(admitting(1, time.Second), cfg, from("203.0.113.7:5000"))
	assert.Equal(t, 1, ran)
	assert.Equal(t, `"burst";q=10;w=1, "daily";q=1000;w=86400`, w.Header().Get("RateLimit-Policy"))
	assert.Equal(t, `"burst";r=9;t=1, "daily";r=412;t=36000`, w.Header().Get("RateLimit"))
	assert.Equal(t, "burst", seen.Policy) // the policy with the least remaining
	assert.Equal(t, weir.JoinKey("daily", "203.0.113.7"), daily.Calls()[0].Request.Key)
}

func TestDenialByOnePolicyIsRefundedToTheOthers(t *testing.T) {
	burst := admitting(4, time.Second)
	daily := denying(1000, 10*time.Hour)
	monthly := denying(5000, 20*time.Hour)
	cfg := httplimit.Config{
		Extractor: httplimit.RemoteAddr(),
		Now:       at(noon),
		Policies: []httplimit.Policy{
			{Name: "burst", Limit: 10, Duration: time.Second, Strategy: burst},
			{Name: "daily", Limit: 1000, Duration: 24 * time.Hour, Strategy: daily},
			{Name: "monthly", Limit: 5000, Duration: 30 * 24 * time.Hour, Strategy: monthly},
		},
	}
	w, ran := serve(weirtest.DenyAll(), cfg, from("203.0.113.7:5000"))
	assert.Zero(t, ran)
	assert.Equal(t, []string{"Run", "Refund"}, methods(burst))
	// the refund gets the Result of the Run
	assert.Equal(t, burst.Calls()[0].Result, burst.Calls()[1].Result)
	assert.Equal(t, []string{"Run"}, methods(daily))
	assert.Equal(t, []string{"Peek"}, methods(monthly))
	// Only violated policies have t, and Retry-After is their latest.
	assert.Equal(t, `"burst";r=7, "daily";r=0;t=36000, "monthly";r=0;t=72000`,
		w.Header().Get("RateLimit"))
	assert.Equal(t, "72000", w.Header().Get("Retry-After"))
	assert.Equal(t, []any{"daily", "monthly"}, problemOf(t, w)["violated-policies"])
}

func methods(f *weirtest.Fake) (names []string) {
	for _, c := range f.Calls() {
		names = append(names, c.Method)
	}
	return names
}

func TestMiddlewaresOnOneRouteComposeOuterFirst(t *testing.T) {
	for style, names := range map[httplimit.HeaderStyle][]string{
		httplimit.HeadersDraft:  {"RateLimit-Policy", "RateLimit"},
		httplimit.HeadersLegacy: {"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"},
		httplimit.HeadersOriginal: {"Rate-Limiting-Total-Requests", "Rate-Limiting-State",
			"Rate-Limiting-Expires-At"},
	} {
		outer, inner := admitting(1, time.Second), denying(5, 9*time.Second)
		site, login := hundred(), hundred()
		site.Headers, login.Headers = style, style
		login.Limit = 5
		h := &hello{}
		w := httptest.NewRecorder()
		httplimit.New(outer, site)(httplimit.New(inner, login)(h)).ServeHTTP(w, from("203.0.113.7:5000"))
		assert.Zero(t, h.ran)
		assert.Equal(t, []string{"Run"}, methods(outer))
		assert.Equal(t, "9", w.Header().Get("Retry-After"))
		for _, name := range names {
			lines := 2
			if style == httplimit.HeadersLegacy {
				lines = 1
			}
			assert.Len(t, w.Header().Values(name), lines, name)
		}
		if style == httplimit.HeadersDraft {
			assert.Equal(t, []string{`"100/1m";r=99;t=1`, `"5/1m";r=0;t=9`}, w.Header().Values("RateLimit"))
		}

		// If the outer one denies, the inner one is not called.
		outer, inner = denying(100, time.Second), admitting(1, time.Second)
		httplimit.New(outer, site)(httplimit.New(inner, login)(h)).ServeHTTP(httptest.NewRecorder(),
			from("203.0.113.7:5000"))
		assert.Empty(t, inner.Calls())
	}
}

func TestHandlersMayAppendToFields(t *testing.T) {
	guard := httplimit.New(admitting(1, time.Second), hundred())(
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["Ratelimit-Policy"][0] += `, "mine";q=1`
			w.Header().Add("RateLimit-Policy", `"more";q=2`)
			w.Header().Add("RateLimit", `"more";r=2`)
		}))
	for range 3 {
		w := httptest.NewRecorder()
		guard.ServeHTTP(w, from("203.0.113.7:5000"))
		assert.Equal(t, []string{`"100/1m";q=100;w=60, "mine";q=1`, `"more";q=2`},
			w.Header().Values("RateLimit-Policy"))
		assert.Equal(t, []string{`"100/1m";r=99;t=1`, `"more";r=2`}, w.Header().Values("RateLimit"))
	}
}

func TestPolicyNames(t *testing.T) {
	for _, row := range []struct {
		limit    uint64
		duration time.Duration
		want     string
	}{
		{100, time.Minute, `"100/1m";q=100;w=60`},
		{5, time.Hour, `"5/1h";q=5;w=3600`},
		{5, 90 * time.Minute, `"5/1h30m";q=5;w=5400`},
		{7, 24 * time.Hour, `"7/24h";q=7;w=86400`},
		{1, 61 * time.Second, `"1/1m1s";q=1;w=61`},
		{0, time.Second, `"0/1s";q=0;w=1`},
		// the draft has no fractions of a second, so w is omitted
		{10, 250 * time.Millisecond, `"10/250ms";q=10`},
		{10, 1500 * time.Millisecond, `"10/1.5s";q=10`}, // likewise
		{math.MaxUint64, time.Second, `"18446744073709551615/1s";q=999999999999999;w=1`},
	} {
		cfg := hundred()
		cfg.Limit, cfg.Duration, cfg.DenyAll = row.limit, row.duration, row.limit == 0
		w, _ := serve(admitting(0, time.Second), cfg, from("203.0.113.7:5000"))
		assert.Equal(t, row.want, w.Header().Get("RateLimit-Policy"))
	}
	cfg := hundred()
	cfg.Name = `say "hi" \o/`
	w, _ := serve(denying(0, time.Second), cfg, from("203.0.113.7:5000"))
	assert.Equal(t, `"say \"hi\" \\o/";q=100;w=60`, w.Header().Get("RateLimit-Policy"))
	assert.Equal(t, []any{cfg.Name}, problemOf(t, w)["violated-policies"])
}

func TestWithoutAKeyTheAnswerIs400(t *testing.T) {
	fake := &weirtest.Fake{}
	cfg := hundred()
	cfg.FailOpen = true // must not bypass the extractor
	for name, e := range map[string]httplimit.Extractor{
		"none":                            httplimit.Headers("X-Api-Key"),
		"an error":                        failing(errors.New("boom")),
		"empty":                           constant(""),
		"too long":                        constant(strings.Repeat("k", 1025)),
		"too long with the policy's name": constant(strings.Repeat("k", 1020)),
	} {
		cfg.Extractor = e
		w, ran := serve(fake, cfg, from("203.0.113.7:5000"))
		assert.Zero(t, ran, name)
		assert.Equal(t, http.StatusBadRequest, w.Code, name)
		assert.Equal(t, "about:blank", problemOf(t, w)["type"], name)
	}
	assert.Empty(t, fake.Calls())

	cfg.Extractor = constant("k") // the Strategy rejects the key
	w, ran := serve(weirtest.FailAll(weir.ErrID), cfg, from("203.0.113.7:5000"))
	assert.Zero(t, ran)
	assert.Equal(t, http.StatusBadRequest, w.Code)
}

func TestALimiterThatCannotDecideFailsClosed(t *testing.T) {
	var seen httplimit.Decision
	cfg := hundred()
	cfg.Logger = slog.New(slog.DiscardHandler)
	cfg.OnDecision = func(_ *http.Request, d httplimit.Decision) { seen = d }
	w, ran := serve(weirtest.FailAll(weir.ErrFull), cfg, from("203.0.113.7:5000"))
	assert.Zero(t, ran)
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.Equal(t, "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
		problemOf(t, w)["type"])
	assert.Equal(t, httplimit.Failed, seen.Kind)
	assert.ErrorIs(t, seen.Err, weir.ErrFull)
	assert.Equal(t, "203.0.113.7", seen.Key)

	w, ran = serve(neither{}, cfg, from("203.0.113.7:5000"))
	assert.Zero(t, ran)
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
}

// neither returns neither a Result nor an error, which the interface forbids.
type neither struct{}

func (neither) Run(context.Context, *weir.Request) (*weir.Result, error) { return nil, nil }

var errDown = errors.New("the store is down")

func TestFailOpenMarksAndCountsRequests(t *testing.T) {
	cfg := hundred()
	cfg.FailOpen, cfg.Stats, cfg.Logger = true, &httplimit.Stats{}, slog.New(slog.DiscardHandler)
	var bypassed bool
	guard := httplimit.New(weirtest.Sequence(weirtest.Fail(errDown), weirtest.Allow), cfg)(
		http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			bypassed = httplimit.IsBypassed(r.Context())
		}))

	w := httptest.NewRecorder()
	guard.ServeHTTP(w, from("203.0.113.7:5000"))
	assert.Equal(t, http.StatusOK, w.Code)
	assert.True(t, bypassed)
	assert.Equal(t, `"100/1m"`, w.Header().Get("RateLimit-Bypassed"))
	assert.Equal(t, uint64(1), cfg.Stats.Count(httplimit.Bypassed))

	w = httptest.NewRecorder()
	guard.ServeHTTP(w, from("203.0.113.7:5000"))
	assert.False(t, bypassed)
	assert.Empty(t, w.Header().Get("RateLimit-Bypassed"))
	assert.Equal(t, uint64(1), cfg.Stats.Count(httplimit.Admitted))
}

func TestFailOpenRespectsOtherPolicies(t *testing.T) {
	cfg := hundred()
	cfg.FailOpen, cfg.Logger = true, slog.New(slog.DiscardHandler)
	cfg.Policies = []httplimit.Policy{{Name: "daily", Limit: 5, Duration: 24 * time.Hour,
		Strategy: denying(5, time.Hour)}}
	w, ran := serve(weirtest.FailAll(errDown), cfg, from("203.0.113.7:5000"))
	assert.Zero(t, ran)
	assert.Equal(t, http.StatusTooManyRequests, w.Code)
	assert.Equal(t, `"daily";r=0;t=3600`, w.Header().Get("RateLimit"))

	cfg.Policies[0].Strategy = forecasting(1, noon.Add(7*time.Second), nil)
	w, ran = serve(weirtest.FailAll(errDown), cfg, from("203.0.113.7:5000"))
	assert.Equal(t, 1, ran)
	assert.Equal(t, `"daily";r=4;t=7`, w.Header().Get("RateLimit"))
	assert.Equal(t, `"100/1m"`, w.Header().Get("RateLimit-Bypassed"))
}

func TestFailClosedRefundsOtherPolicies(t *testing.T) {
	burst := admitting(1, time.Second)
	cfg := hundred()
	cfg.Logger = slog.New(slog.DiscardHandler)
	cfg.OnDecision = func(_ *http.Request, d httplimit.Decision) {
		assert.Equal(t, "daily", d.Policy)
		assert.ErrorIs(t, d.Err, weir.ErrFull)
	}
	cfg.Policies = []httplimit.Policy{{Name: "daily", Limit: 5, Duration: 24 * time.Hour,
		Strategy: weirtest.FailAll(weir.ErrFull)}}
	w, ran := serve(burst, cfg, from("203.0.113.7:5000"))
	assert.Zero(t, ran)
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.Equal(t, []string{"Run", "Refund"}, methods(burst))
	assert.Equal(t, `"100/1m";r=100`, w.Header().Get("RateLimit"), "t is not when the request passes")
	assert.Equal(t, "1", w.Header().Get("Retry-After"))

	burst.Err = errDown // of its Refund: not why the request is refused
	w, _ = serve(burst, cfg, from("203.0.113.7:5000"))
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.Equal(t, "1", w.Header().Get("Retry-After"))
}

func TestCanceledRequestIsNotAdmitted(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	cfg := hundred()
	cfg.FailOpen, cfg.Stats = true, &httplimit.Stats{}
	// A cancellation is not logged as a failure.
	cfg.Logger = slog.New(slog.NewTextHandler(failingWriter{t}, nil))
	_, ran := serve(&weirtest.Fake{Answer: weirtest.Hang}, cfg,
		from("203.0.113.7:5000").WithContext(ctx))
	assert.Zero(t, ran)
	assert.Equal(t, uint64(1), cfg.Stats.Count(httplimit.Canceled))

	cfg.Policies = []httplimit.Policy{{Name: "daily", Limit: 5, Duration: 24 * time.Hour,
		Strategy: &weirtest.Fake{Answer: weirtest.Hang}}}
	cfg.OnDecision = func(_ *http.Request, d httplimit.Decision) {
		assert.Equal(t, "daily", d.Policy)
		assert.ErrorIs(t, d.Err, context.Canceled)
	}
	_, ran = serve(admitting(1, time.Second), cfg, from("203.0.113.7:5000").WithContext(ctx))
	assert.Zero(t, ran)
	assert.Equal(t, uint64(2), cfg.Stats.Count(httplimit.Canceled))
}

type failingWriter struct{ t *testing.T }

func (w failingWriter) Write(p []byte) (int, error) {
	w.t.Errorf("logged: %s", p)
	return len(p), nil
}

func TestShadowModeDecidesAndReportsAndNeverDenies(t *testing.T) {
	list := httplimit.NewDenyList(httplimit.DenyListConfig{})
	cfg := hundred()
	cfg.Shadow, cfg.Stats, cfg.DenyList = true, &httplimit.Stats{}, list
	cfg.Logger = slog.New(slog.DiscardHandler)
	cfg.Penalty = httplimit.Penalty{Strategy: weirtest.DenyAll(), Denials: 1, Within: time.Minute,
		For: time.Hour}
	var seen httplimit.Decision
	cfg.OnDecision = func(_ *http.Request, d httplimit.Decision) { seen = d }

	w, ran := serve(denying(100, 9*time.Second), cfg, from("203.0.113.7:5000"))
	assert.Equal(t, 1, ran)
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Equal(t, http.Header{"Content-Type": {"text/plain; charset=utf-8"}}, w.Result().Header,
		"fields could make a client wait")
	assert.Equal(t, httplimit.Denied, seen.Kind)
	assert.True(t, seen.Shadow)
	assert.Equal(t, http.StatusTooManyRequests, seen.Status)
	assert.Zero(t, list.Len()) // shadow mode must not change a list shared with other middlewares

	for outcome, req := range map[httplimit.Kind]*http.Request{
		httplimit.NoKey:  from("@"),
		httplimit.Failed: from("203.0.113.7:5000"),
		httplimit.Listed: from("198.51.100.1:5000"),
	} {
		require.NoError(t, list.Add(httplimit.DenyEntry{Key: "198.51.100.1"}))
		w, ran := serve(weirtest.FailAll(weir.ErrFull), cfg, req)
		assert.Equal(t, 1, ran, outcome)
		assert.Equal(t, http.StatusOK, w.Code, outcome)
		assert.Equal(t, outcome, seen.Kind)
		assert.Equal(t, uint64(1), cfg.Stats.Count(outcome))
	}
}

// refundCtx returns s, whose refunds fail once their context is done, as of a remote store.
func refundCtx(s weir.Strategy) weir.Strategy {
	return ops.Through(s, func(ctx context.Context, op *weir.Op, next func()) {
		if err := ctx.Err(); err != nil && op.Verb == weir.OpReturn {
			op.Err = err
			return
		}
		next()
	})
}

func TestRefundAfterTheClientLeft(t *testing.T) {
	fake := admitting(1, time.Minute)
	cfg := hundred()
	cfg.CountIf = func(int) bool { return false }
	ctx, hangUp := context.WithCancel(context.Background())
	guard := httplimit.New(refundCtx(fake),
		cfg)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		hangUp()
	}))
	guard.ServeHTTP(httptest.NewRecorder(), from("203.0.113.7:5000").WithContext(ctx))
	assert.Equal(t, []string{"Run", "Refund"}, methods(fake))
}

func TestARefundThatFailsIsLogged(t *testing.T) {
	var log strings.Builder
	fake := admitting(1, time.Minute)
	fake.Err = errors.New("boom")
	cfg := hundred()
	cfg.CountIf, cfg.Logger = func(int) bool { return false }, slog.New(slog.NewTextHandler(&log, nil))
	w, _ := serve(fake, cfg, from("203.0.113.7:5000"))
	assert.Equal(t, http.StatusOK, w.Code)
	assert.Contains(t, log.String(), `error="refund: boom"`)
}

// The middleware calls the Run of a type that embeds a strategy of weir and overrides Run.
func TestOverriddenRunIsCalled(t *testing.T) {
	limiter := newLimiter(t, at(noon))
	counting := &countingRun{WindowCounter: limiter.FixedWindow()}
	_, ran := serve(counting, hundred(), from("203.0.113.7:5000"))
	assert.Equal(t, 1, ran)
	assert.Equal(t, 1, counting.runs)
}

type countingRun struct {
	*weir.WindowCounter
	runs int
}

func (s *countingRun) Run(ctx context.Context, r *weir.Request) (*weir.Result, error) {
	s.runs++
	return s.WindowCounter.Run(ctx, r)
}

func TestAPanicInTheHandlerPassesThroughAndCounts(t *testing.T) {
	for _, countIf := range []func(int) bool{nil, func(int) bool { return false }} {
		fake := admitting(1, time.Minute)
		cfg := hundred()
		cfg.CountIf = countIf
		abort := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			panic(http.ErrAbortHandler)
		})
		guard := httplimit.New(fake, cfg)(abort)
		assert.PanicsWithValue(t, http.ErrAbortHandler,
			func() { guard.ServeHTTP(httptest.NewRecorder(), from("203.0.113.7:5000")) })
		assert.Equal(t, []string{"Run"}, methods(fake))
	}
}

func TestOnDecisionSeesEachRequestOnceBeforeTheAnswer(t *testing.T) {
	var seen []httplimit.Decision
	cfg := hundred()
	w := httptest.NewRecorder()
	cfg.OnDecision = func(_ *http.Request, d httplimit.Decision) {
		assert.Empty(t, w.Header())
		seen = append(seen, d)
	}
	httplimit.New(denying(100, time.Second), cfg)(&hello{}).ServeHTTP(w, from("203.0.113.7:5000"))
	assert.Equal(t, []httplimit.Decision{{
		Kind: httplimit.Denied, Key: "203.0.113.7", Policy: "100/1m", Limit: 100,
		Duration: time.Minute,
		Cost:     1, Status: 429, RetryAfter: time.Second,
		Strategy: "weirtest.Fake", Source: "strategy",
		Result: weir.Result{State: weir.Deny, TotalRequests: 100, ExpiresAt: noon.Add(time.Second)},
	}}, seen)
}

func TestRespondReplacesTheResponse(t *testing.T) {
	cfg := hundred()
	cfg.DeniedStatus = http.StatusServiceUnavailable
	cfg.Respond = func(w http.ResponseWriter, _ *http.Request, d httplimit.Decision) {
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(d.Status)
		_, _ = io.WriteString(w, d.Policy+": slow down, "+w.Header().Get("Retry-After")+" s")
	}
	w, _ := serve(denying(100, 7*time.Second), cfg, from("203.0.113.7:5000"))
	assert.Equal(t, http.StatusServiceUnavailable, w.Code)
	assert.Equal(t, "100/1m: slow down, 7 s", w.Body.String())
	assert.Equal(t, "no-store", w.Header().Get("Cache-Control"))
}

func TestLogLinesCannotBeForged(t *testing.T) {
	rng := rand.New(rand.NewPCG(42, 4))
	evil := []string{"bob", "\r\n", "\n", "level=INFO", `"`, "\x1b[2J", "\u2028", "\u202e", "\xff",
		"\x00",
		`\`, "é", "\x7f", "\u0085"}
	var log strings.Builder
	down := &failWith{}
	guards := make(map[bool]http.Handler)
	clock := weirtest.NewClock(noon)
	for _, logKeys := range []bool{false, true} {
		guards[logKeys] = httplimit.New(down, httplimit.Config{Extractor: httplimit.Headers("X-User"),
			Name: "one", Limit: 1, Duration: time.Second, Now: clock.Now,
			LogKeys: logKeys, Logger: slog.New(plainHandler{&log})})(&hello{})
	}
	keys := 100_000
	if slow.Race {
		keys /= 20
	}
	for i := range keys {
		key := "k"
		for range rng.IntN(6) {
			key += evil[rng.IntN(len(evil))]
		}
		key += "k"
		log.Reset()
		clock.Advance(time.Second) // at most one line is logged each second
		logKeys := i%2 == 0
		down.err = errors.New("no room for " + key)
		guards[logKeys].ServeHTTP(httptest.NewRecorder(),
			&http.Request{Header: http.Header{"X-User": {key}}})
		line := log.String()
		require.Equal(t, 1, strings.Count(line, "\n"), line)
		require.Empty(t, strings.Trim(line, printable+"\n"), "%q", line)
		require.Equal(t, logKeys, strings.Contains(line, "key="+strconv.QuoteToASCII(key)), line)
		require.Equal(t, !logKeys, strings.Contains(line, "key=hmac:"), line)
	}
}

// failWith is a Strategy that fails with err.
type failWith struct{ err error }

func (s *failWith) Run(context.Context, *weir.Request) (*weir.Result, error) { return nil, s.err }

const printable = " !\"#$%&'()*+,-./0123456789:;<=>?@" +
	"ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~"

// plainHandler is a slog.Handler that escapes nothing.
type plainHandler struct{ w io.Writer }

func (plainHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h plainHandler) WithAttrs([]slog.Attr) slog.Handler     { return h }
func (h plainHandler) WithGroup(string) slog.Handler          { return h }
func (h plainHandler) Handle(_ context.Context, r slog.Record) error {
	_, _ = io.WriteString(h.w, r.Message)
	r.Attrs(func(a slog.Attr) bool {
		_, _ = io.WriteString(h.w, " "+a.Key+"="+a.Value.String())
		return true
	})
	_, err := io.WriteString(h.w, "\n")
	return err
}

func TestNewPanicsOnAMistakeInTheProgram(t *testing.T) {
	good := hundred()
	list := httplimit.NewDenyList(httplimit.DenyListConfig{})
	assert.NotPanics(t, func() { httplimit.New(noRefund{}, good) })
	for name, mistake := range map[string]func(c *httplimit.Config) weir.Strategy{
		"no Strategy":  func(*httplimit.Config) weir.Strategy { return nil },
		"no Extractor": func(c *httplimit.Config) weir.Strategy { c.Extractor = nil; return noRefund{} },
		"no limit":     func(c *httplimit.Config) weir.Strategy { c.Duration = 0; return noRefund{} },
		"half a ms": func(c *httplimit.Config) weir.Strategy {
			c.Duration = time.Millisecond / 2
			return noRefund{}
		},
		"1.5 ms": func(c *httplimit.Config) weir.Strategy {
			c.Duration = 3 * time.Millisecond / 2
			return noRefund{}
		},
		"over a year": func(c *httplimit.Config) weir.Strategy {
			c.Duration = 365*24*time.Hour + 1e6
			return noRefund{}
		},
		"negative": func(c *httplimit.Config) weir.Strategy {
			c.Duration = -time.Second
			return noRefund{}
		},
		"a long name": func(c *httplimit.Config) weir.Strategy {
			c.Name = strings.Repeat("n", 65)
			return noRefund{}
		},
		"a name not ASCII": func(c *httplimit.Config) weir.Strategy { c.Name = "año"; return noRefund{} },
		"a name with CR": func(c *httplimit.Config) weir.Strategy {
			c.Name = "a\r\nb"
			return noRefund{}
		},
		"a limit, and numbers": func(*httplimit.Config) weir.Strategy {
			return new(weirtest.Fake).Limit(100, time.Minute)
		},
		"CountIf without refunds": func(c *httplimit.Config) weir.Strategy {
			c.CountIf = func(int) bool { return true }
			return noRefund{}
		},
		"two policies without refunds": func(c *httplimit.Config) weir.Strategy {
			c.Policies = []httplimit.Policy{{Limit: 1, Duration: time.Second}}
			return noRefund{}
		},
		"two policies of one name": func(c *httplimit.Config) weir.Strategy {
			c.Policies = []httplimit.Policy{{Limit: 100, Duration: time.Minute}}
			return &weirtest.Fake{}
		},
		"an invalid status": func(c *httplimit.Config) weir.Strategy {
			c.DeniedStatus = 200
			return noRefund{}
		},
		"an invalid style": func(c *httplimit.Config) weir.Strategy { c.Headers = 4; return noRefund{} },
		"negative jitter":  func(c *httplimit.Config) weir.Strategy { c.Jitter = -1; return noRefund{} },
		"a penalty without a list": func(c *httplimit.Config) weir.Strategy {
			c.Penalty = httplimit.Penalty{Strategy: noRefund{}, Denials: 1, Within: time.Second,
				For: time.Second}
			return noRefund{}
		},
		"a penalty without a strategy": func(c *httplimit.Config) weir.Strategy {
			c.DenyList, c.Penalty = list,
				httplimit.Penalty{Denials: 1, Within: time.Second, For: time.Second}
			return noRefund{}
		},
		"a penalty without a period": func(c *httplimit.Config) weir.Strategy {
			c.DenyList, c.Penalty = list, httplimit.Penalty{Strategy: noRefund{}, Denials: 1,
				For: time.Second}
			return noRefund{}
		},
	} {
		cfg := good
		s := mistake(&cfg)
		assert.Panics(t, func() { httplimit.New(s, cfg) }, name)
	}
	assert.Panics(t, func() { httplimit.New(noRefund{}, good)(nil) })
}

// noRefund is a Strategy that is no Counter.
type noRefund struct{}

func (noRefund) Run(_ context.Context, r *weir.Request) (*weir.Result, error) {
	return &weir.Result{State: weir.Allow, TotalRequests: 1, ExpiresAt: noon.Add(r.Duration)}, nil
}

func TestKindsHaveNames(t *testing.T) {
	var stats httplimit.Stats
	for o := httplimit.Admitted; o <= httplimit.Exempt; o++ {
		assert.NotContains(t, o.String(), "Kind")
	}
	assert.Equal(t, "Kind(9)", httplimit.Kind(9).String())
	assert.Zero(t, stats.Count(httplimit.Kind(9)))
}
