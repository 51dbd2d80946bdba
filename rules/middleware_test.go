package rules_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
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

const guarded = `
domain: web
descriptors:
  - {key: remote_address, rate_limit: {unit: minute, requests_per_unit: 3, name: address}}
  - {key: path, value: /login, rate_limit: {unit: hour, requests_per_unit: 2}}
  - {key: path, value: /shadow, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 0}}
---
domain: web
rate_limits:
  - actions: [{remote_address: {}}]
  - actions: [{path: {}}]
`

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusOK)
})

// get sends a request with a header, which names and values in turn give, and returns the response.
func get(h http.Handler, url string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", url, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestMiddleware(t *testing.T) {
	w := newWorld(t, guarded, rules.Config{})
	h := rules.Middleware(w.engine, httplimit.Config{})(hello)

	first := get(h, "/login?x=1")
	assert.Equal(t, 200, first.Code)
	assert.Equal(t, `"address";q=3;w=60, "path=/login";q=2;w=3600`,
		first.Header().Get("RateLimit-Policy"))
	assert.Equal(t, `"address";r=2;t=40, "path=/login";r=1;t=40`, first.Header().Get("RateLimit"))

	assert.Equal(t, 200, get(h, "/login?x=2").Code)
	denied := get(h, "/login?x=3")
	assert.Equal(t, 429, denied.Code)
	assert.Equal(t, "40", denied.Header().Get("Retry-After"))
	assert.Equal(t, `"address";r=1, "path=/login";r=0;t=40`, denied.Header().Get("RateLimit"),
		"the address was not charged")
	assert.Equal(t, "no-store", denied.Header().Get("Cache-Control"))
	assert.Equal(t, "application/problem+json", denied.Header().Get("Content-Type"))
	var problem map[string]any
	require.NoError(t, json.Unmarshal(denied.Body.Bytes(), &problem))
	assert.Equal(t, []any{"path=/login"}, problem["violated-policies"])

	shadowed := get(h, "/shadow")
	assert.Equal(t, 200, shadowed.Code)
	assert.NotContains(t, shadowed.Header().Get("RateLimit"), "shadow")
}

// TestMiddlewareAnswersAsHTTPLimit compares every response with that of httplimit at the same
// limit.
func TestMiddlewareAnswersAsHTTPLimit(t *testing.T) {
	w := newWorld(t, guarded, rules.Config{})
	limiter, err := weir.New(weir.Config{Now: func() time.Time { return w.now }})
	require.NoError(t, err)
	defer limiter.Close()
	theirs := httplimit.New(limiter.FixedWindow(), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Name: "address", Limit: 3, Duration: time.Minute,
		Now: func() time.Time { return w.now },
	})(hello)
	ours := rules.NewGuard(rules.Decider{Engine: w.engine,
		Describers: []describe.Describer{describe.By(describe.RemoteAddress())}}, httplimit.Config{}).Wrap(hello)
	for range 8 {
		a, b := get(theirs, "/"), get(ours, "/")
		assert.Equal(t, a.Code, b.Code)
		assert.Equal(t, a.Header(), b.Header())
		assert.Equal(t, a.Body.String(), b.Body.String())
		w.now = w.now.Add(7 * time.Second)
	}
}

func TestGuardFollowsSwaps(t *testing.T) {
	w := newWorld(t, guarded, rules.Config{})
	h := rules.NewGuard(rules.Decider{Engine: w.engine, Domain: "web"}, httplimit.Config{}).Wrap(hello)
	get(h, "/")
	require.NoError(t, w.engine.Swap(load(t, `
domain: web
descriptors: [{key: who, descriptors: [{key: remote_address, rate_limit: {unit: minute, requests_per_unit: 1}}]}]
rate_limits: [{actions: [{generic_key: {descriptor_key: who, descriptor_value: any}}, {remote_address: {}}]}]
`)))
	assert.Equal(t, `"who,remote_address";r=0;t=40`, get(h, "/").Header().Get("RateLimit"))
	assert.Equal(t, 429, get(h, "/").Code)
}

// swapping is a context that swaps the rules when an action reads a value of it.
type swapping struct {
	context.Context
	swap func()
}

func (c swapping) Value(key any) any {
	c.swap()
	return c.Context.Value(key)
}

// A request is described and decided by the same rules, also if Swap comes between: each of the two
// sets denies it, and the descriptors of one have no limit in the other.
func TestGuardDecidesByTheRulesThatDescribed(t *testing.T) {
	const none = "rate_limit: {unit: hour, requests_per_unit: 0}"
	w := newWorld(t, `
domain: web
descriptors: [{key: user, `+none+`}]
rate_limits: [{actions: [{context_value: {name: user}}]}]
`, rules.Config{})
	next := load(t, `
domain: web
descriptors: [{key: path, `+none+`}]
rate_limits: [{actions: [{path: {}}]}]
`)
	swaps := 0
	ctx := swapping{describe.WithValue(t.Context(), "user", "ann"), func() {
		require.NoError(t, w.engine.Swap(next))
		swaps++
	}}
	h := rules.NewGuard(rules.Decider{Engine: w.engine, Domain: "web"}, httplimit.Config{}).Wrap(hello)
	for range 2 {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest("GET", "/", nil).WithContext(ctx))
		assert.Equal(t, 429, rec.Code)
	}
	assert.Positive(t, swaps)
	assert.Same(t, next, w.engine.Set())
}

func TestGuardThatCannotDecide(t *testing.T) {
	var log bytes.Buffer
	var errs []error
	broken, err := rules.New(load(t, guarded), rules.Config{})
	require.NoError(t, err)
	broken.Close()
	cfg := httplimit.Config{
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
		OnDecision: func(_ *http.Request, d httplimit.Decision) {
			assert.Equal(t, "address", d.Policy)
			errs = append(errs, d.Err)
		},
	}
	closed := get(rules.Middleware(broken, cfg)(hello), "/")
	assert.Equal(t, 503, closed.Code)
	assert.Equal(t, "application/problem+json", closed.Header().Get("Content-Type"))
	cfg.FailOpen = true
	open := get(rules.Middleware(broken, cfg)(hello), "/")
	assert.Equal(t, 200, open.Code)
	assert.Equal(t, `"address"`, open.Header().Get("RateLimit-Bypassed"))
	require.Len(t, errs, 2)
	assert.True(t, errors.Is(errs[0], weir.ErrClosed))
	assert.Contains(t, log.String(), "the limiter failed")
}

func TestRequestsWithoutDescriptorsPass(t *testing.T) {
	w := newWorld(t,
		"domain: web\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 0}}]\n",
		rules.Config{})
	answer := get(rules.Middleware(w.engine, httplimit.Config{})(hello), "/")
	assert.Equal(t, 200, answer.Code)
	assert.Empty(t, answer.Header())
}

// TestSpellingsOfAPathAreOne uses spellings that a server treats as the same path.
func TestSpellingsOfAPathAreOne(t *testing.T) {
	w := newWorld(t, guarded, rules.Config{})
	h := rules.Middleware(w.engine, httplimit.Config{})(hello)
	for i, spelling := range []string{"/login", "/%6Cogin", "/l%6fgin?x", "/%6c%6f%67%69%6e", "/LOGIN",
		"/login/",
		"/x/..;/login", "/x/../login", "//login", "/%256cogin", "//x/login", "/login;a=b"} {
		assert.Equal(t, i >= 2, get(h, spelling).Code == 429, spelling)
	}
}

// TestEveryReadingOfAPathIsHeldToItsRule has paths that servers read as paths of different rules.
func TestEveryReadingOfAPathIsHeldToItsRule(t *testing.T) {
	const text = `
domain: web
descriptors:
  - {key: path, rate_limit: {unit: hour, requests_per_unit: 1, name: any}}
  - {key: path, value: /search/*, rate_limit: {unit: hour, requests_per_unit: 1, name: search}}
  - {key: path, value: /Case, rate_limit: {unit: hour, requests_per_unit: 1, name: case}}
---
domain: web
rate_limits: [{actions: [{path: {}}]}]
`
	for path, want := range map[string][]string{
		"/a":                  {"any path=/a"},
		"/A/":                 {"any path=/a"},
		"/search/x":           {"search path=/search/x"},
		"/search/../foo":      {"any path=/foo", "search path=/search/../foo"},
		"/search/..;/foo":     {"any path=/foo", "search path=/search/..;/foo"},
		"/projects/a%2Fb":     {"any path=/projects/a/b"},
		"/files/a%20b//c;v=1": {"any path=/files/a%20b/c"},
		"/x;%2F..%2Fy":        {"any path=/x", "any path=/y"},
		"/Case":               {"any path=/case", "case path=/Case"},
	} {
		w := newWorld(t, text, rules.Config{})
		set := w.engine.Set()
		var got []string
		for _, d := range set.RequestOf("web", httptest.NewRequest("GET", path, nil),
			httplimit.IP{}).Descriptors {
			rule := set.Match("web", d.Entries)
			got = append(got, rule.Name()+" "+rules.FormatEntries(d.Entries))
		}
		assert.ElementsMatch(t, want, got, path)
		h := rules.Middleware(w.engine, httplimit.Config{})(hello)
		assert.Equal(t, 200, get(h, path).Code, path)
		assert.Equal(t, 429, get(h, path).Code, path)
	}
	w := newWorld(t, text, rules.Config{})
	hostile := strings.Repeat("//a;b/%252e%252e%253b/%2f..", 20)
	assert.Equal(t, 400, get(rules.Middleware(w.engine, httplimit.Config{})(hello), hostile).Code)
}

// TestShadowSendsNoFields checks that a shadow engine sends no RateLimit fields, which could make
// clients wait.
func TestShadowSendsNoFields(t *testing.T) {
	w := newWorld(t, guarded, rules.Config{Shadow: true})
	shadowed := 0
	h := rules.NewGuard(rules.Decider{Engine: w.engine,
		OnResponse: func(_ *http.Request, resp *rules.Response) {
			if resp.Shadowed {
				shadowed++
			}
		}}, httplimit.Config{}).Wrap(hello)
	for range 5 {
		answer := get(h, "/")
		assert.Equal(t, 200, answer.Code)
		assert.Empty(t, answer.Header())
	}
	assert.Equal(t, 2, shadowed)
}
