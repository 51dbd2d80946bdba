package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/weirtest"
)

// Only scripts of allowed origins can read a denial and its Retry-After.
func TestDenialsCanBeReadAcrossOrigins(t *testing.T) {
	const app = "https://app.example.com"
	for name, row := range map[string]struct {
		cors          httplimit.CORS
		origin        string
		allow, expose string
		credentials   string
	}{
		"not configured": {httplimit.CORS{}, app, "", "", ""},
		"an allowed origin": {httplimit.CORS{Origins: []string{app}}, app, app,
			"Retry-After, Ratelimit-Policy, Ratelimit", ""},
		"with credentials": {httplimit.CORS{Origins: []string{app}, Credentials: true}, app, app,
			"Retry-After, Ratelimit-Policy, Ratelimit", "true"},
		"every origin": {httplimit.CORS{Origins: []string{"*"}}, app, "*",
			"Retry-After, Ratelimit-Policy, Ratelimit", ""},
		"another origin":    {httplimit.CORS{Origins: []string{app}}, "https://evil.example", "", "", ""},
		"a prefix of it":    {httplimit.CORS{Origins: []string{app}}, app + ".evil.example", "", "", ""},
		"no origin: a curl": {httplimit.CORS{Origins: []string{app}}, "", "", "", ""},
	} {
		cfg := hundred()
		cfg.CORS = row.cors
		r := from("203.0.113.7:1")
		if row.origin != "" {
			r.Header.Set("Origin", row.origin)
		}
		w, _ := serve(denying(100, time.Minute), cfg, r)
		assert.Equal(t, http.StatusTooManyRequests, w.Code)
		assert.Equal(t, row.allow, w.Header().Get("Access-Control-Allow-Origin"), name)
		assert.Equal(t, row.expose, w.Header().Get("Access-Control-Expose-Headers"), name)
		assert.Equal(t, row.credentials, w.Header().Get("Access-Control-Allow-Credentials"), name)
		assert.Equal(t, len(row.cors.Origins) > 0, w.Header().Get("Vary") == "Origin", name)
	}
	// A CORS middleware around this one has already decided.
	cfg := hundred()
	cfg.CORS = httplimit.CORS{Origins: []string{"*"}}
	w := httptest.NewRecorder()
	w.Header().Set("Access-Control-Allow-Origin", app)
	httplimit.New(denying(100, time.Minute), cfg)(&hello{}).ServeHTTP(w,
		from("203.0.113.7:1", "Origin: "+app))
	assert.Equal(t, []string{app}, w.Header()["Access-Control-Allow-Origin"])

	cfg.CORS.Credentials = true
	assert.Panics(t, func() { httplimit.New(weirtest.DenyAll(), cfg) })
}

// A denial has one Retry-After, Cache-Control and Content-Type, whatever was set before.
func TestADenialReplacesFields(t *testing.T) {
	w := httptest.NewRecorder()
	want := http.Header{"Retry-After": {"60"}, "Cache-Control": {"no-store"},
		"Content-Type": {"application/problem+json"}}
	for name := range want {
		w.Header().Set(name, "before")
	}
	httplimit.New(denying(100, time.Minute), hundred())(&hello{}).ServeHTTP(w, from("203.0.113.7:1"))
	for name := range want {
		assert.Equal(t, want[name], w.Header()[name], name)
	}
}

func preflight(peer string) *http.Request {
	r := httptest.NewRequest(http.MethodOptions, "/", nil)
	r.RemoteAddr = peer
	r.Header.Set("Origin", "https://app.example.com")
	r.Header.Set("Access-Control-Request-Method", "PUT")
	return r
}

// Browsers send preflights without the header that has the key.
func TestPreflightsAreNotCounted(t *testing.T) {
	fake := weirtest.DenyAll()
	cfg := hundred()
	for _, e := range []httplimit.Extractor{httplimit.RemoteAddr(), httplimit.Headers("X-Api-Key")} {
		cfg.Extractor = e
		_, ran := serve(fake, cfg, preflight("203.0.113.7:1"))
		assert.Equal(t, 1, ran)
	}
	assert.Empty(t, fake.Calls())
	for _, name := range []string{"Origin", "Access-Control-Request-Method"} {
		cfg.Extractor = httplimit.RemoteAddr()
		r := preflight("203.0.113.7:1")
		r.Header.Del(name)
		_, ran := serve(fake, cfg, r)
		assert.Zero(t, ran, "an OPTIONS request without %s is no preflight", name)
	}
	r := preflight("203.0.113.7:1")
	r.Method = http.MethodPost
	_, ran := serve(fake, cfg, r)
	assert.Zero(t, ran, "nor is a POST")

	cfg.CountPreflights = true
	_, ran = serve(fake, cfg, preflight("203.0.113.7:1"))
	assert.Zero(t, ran)

	cfg.CountPreflights = false
	cfg.DenyList = httplimit.NewDenyList(httplimit.DenyListConfig{})
	require.NoError(t, cfg.DenyList.Add(httplimit.DenyEntry{Key: "203.0.113.7"}))
	w, ran := serve(fake, cfg, preflight("203.0.113.7:1"))
	assert.Zero(t, ran, "the deny list applies")
	assert.Equal(t, http.StatusForbidden, w.Code)
}
