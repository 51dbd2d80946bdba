package pages

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/testkit/doortest"
	"github.com/weirgo/weir/weirtest"
)

type middleware = func(http.Handler) http.Handler

// Each serves "hello" at / behind the guard, "bypassed" if the request was let through undecided,
// and 401 at /login.
var servers = map[string]func(t *testing.T, guard middleware) (url string){
	"net/http": func(t *testing.T, guard middleware) string {
		mux := http.NewServeMux()
		mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, body(httplimit.IsBypassed(r.Context())))
		})
		mux.HandleFunc("/login", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) })
		return start(t, guard(mux))
	},
	"chi": func(t *testing.T, guard middleware) string {
		router := chi.NewRouter()
		router.Use(guard)
		router.Get("/", func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, body(httplimit.IsBypassed(r.Context())))
		})
		router.Get("/login", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) })
		return start(t, router)
	},
}

func body(bypassed bool) string {
	if bypassed {
		return "bypassed"
	}
	return "hello"
}

func start(t *testing.T, h http.Handler) string {
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.URL
}

// Two requests pass, and the third is denied with Retry-After.
func TestTheMiddlewareInEachFramework(t *testing.T) {
	for name, serve := range servers {
		t.Run(name, func(t *testing.T) {
			limiter, clock := doortest.NewLimiter(t)
			url := serve(t, httplimit.New(limiter.FixedWindow(), httplimit.Config{
				Extractor: httplimit.RemoteAddr(), Limit: 2, Duration: time.Minute, Now: clock.Now,
			}))
			for _, left := range []string{"1", "0"} {
				resp, text := doortest.Get(t, url+"/")
				assert.Equal(t, 200, resp.StatusCode)
				assert.Equal(t, "hello", text)
				assert.Equal(t, `"2/1m";r=`+left+`;t=45`, resp.Header.Get("RateLimit"))
				assert.Equal(t, `"2/1m";q=2;w=60`, resp.Header.Get("RateLimit-Policy"))
			}
			resp, text := doortest.Get(t, url+"/")
			assert.Equal(t, 429, resp.StatusCode)
			assert.Equal(t, "45", resp.Header.Get("Retry-After"))
			assert.Equal(t, `"2/1m";r=0;t=45`, resp.Header.Get("RateLimit"))
			assert.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
			assert.JSONEq(t,
				`{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded",
				"status":429,"detail":"The limit of this policy is used up.","violated-policies":["2/1m"]}`, text)

			clock.Advance(time.Minute)
			resp, _ = doortest.Get(t, url+"/")
			assert.Equal(t, 200, resp.StatusCode)
		})
	}
}

func TestAHandlerLearnsThatItWasLetThroughUndecided(t *testing.T) {
	for name, serve := range servers {
		t.Run(name, func(t *testing.T) {
			url := serve(t, httplimit.New(weirtest.FailAll(errors.New("down")), httplimit.Config{
				Extractor: httplimit.RemoteAddr(), Limit: 2, Duration: time.Minute, FailOpen: true,
				Logger: slog.New(slog.DiscardHandler),
			}))
			resp, text := doortest.Get(t, url+"/")
			assert.Equal(t, 200, resp.StatusCode)
			assert.Equal(t, "bypassed", text)
			assert.Equal(t, `"2/1m"`, resp.Header.Get("RateLimit-Bypassed"))
		})
	}
}

func TestCountIfSeesTheStatus(t *testing.T) {
	for name, serve := range servers {
		t.Run(name, func(t *testing.T) {
			status := make(chan int, 1)
			url := serve(t, httplimit.New(&weirtest.Fake{}, httplimit.Config{
				Extractor: httplimit.RemoteAddr(), Limit: 2, Duration: time.Minute,
				CountIf: func(s int) bool { status <- s; return true },
			}))
			for path, want := range map[string]int{"/": 200, "/login": 401, "/nowhere": 404} {
				if name == "net/http" && want == 404 {
					continue // "/" is everywhere
				}
				resp, _ := doortest.Get(t, url+path)
				assert.Equal(t, want, resp.StatusCode)
				assert.Equal(t, want, <-status, path)
			}
		})
	}
}

// In chi the matched route is known inside the route's own chain.
func TestPatternInChi(t *testing.T) {
	fake := &weirtest.Fake{}
	guard := httplimit.New(fake, httplimit.Config{
		Extractor: httplimit.Pattern(), Name: "route", Limit: 2, Duration: time.Minute,
	})
	router := chi.NewRouter()
	router.With(guard).Get("/users/{id}", func(http.ResponseWriter, *http.Request) {})
	doortest.Get(t, start(t, router)+"/users/7")
	require.Len(t, fake.Calls(), 1)
	assert.Equal(t, weir.JoinKey("route", "/users/{id}"), fake.Calls()[0].Request.Key)
}
