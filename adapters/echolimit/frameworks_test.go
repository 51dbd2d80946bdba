package echolimit_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/adapters/echolimit"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/testkit/docblocks"
)

// The code of these tests is in docs/frameworks.md.
func TestDocsShowTheseTests(t *testing.T) {
	docblocks.CheckRows(t, "../../docs/frameworks.md", "Echo", "frameworks_test.go")
}

// admitted makes sure that a limit of 100 admits so many requests, and denies the next one, whose
// answer it returns.
func admitted(t *testing.T, url string, lines ...string) (*http.Response, string) {
	t.Helper()
	for range 100 {
		resp, _ := ask(t, url, lines...)
		require.Equal(t, http.StatusOK, resp.StatusCode)
	}
	resp, text := ask(t, url, lines...)
	require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	assert.NotEmpty(t, resp.Header.Get("Retry-After"))
	assert.Len(t, resp.Header["Ratelimit"], 1)
	return resp, text
}

// ask sends a request with these header lines, names and values in turn.
func ask(t *testing.T, url string, lines ...string) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	for i := 0; i < len(lines); i += 2 {
		req.Header.Add(lines[i], lines[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer func() { assert.NoError(t, resp.Body.Close()) }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(text)
}

func TestPerRoute(t *testing.T) {
	limiter, _ := newLimiter(t)
	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
	guard := httplimit.NewGuard(perClient, httplimit.Config{
		Extractor: httplimit.Join(httplimit.RemoteAddr(), httplimit.Pattern()),
	})
	url := serve(t, func(e *echo.Echo) {
		api := e.Group("/api", echolimit.New(guard))
		api.GET("/users/:id", hello)
		api.GET("/orders/:id", hello)
	})
	admitted(t, url+"/api/users/1")
	resp, _ := ask(t, url+"/api/users/2")
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode, "another path of the route")
	admitted(t, url+"/api/orders/1")
}

func TestPerUser(t *testing.T) {
	limiter, _ := newLimiter(t)
	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
	authenticate := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			c.Set("user", c.Request().Header.Get("X-User"))
			return next(c)
		}
	}
	url := serve(t, func(e *echo.Echo) {
		guard := httplimit.NewGuard(perClient, httplimit.Config{
			Extractor: httplimit.ExtractorFunc(func(r *http.Request) (string, error) {
				user, _ := echolimit.Context(r).Get("user").(string) // set by authenticate
				return user, nil                                     // empty: 400
			}),
		})
		e.Use(authenticate, echolimit.New(guard))
		e.GET("/", hello)
	})
	admitted(t, url, "X-User", "alice")
	resp, _ := ask(t, url, "X-User", "bob")
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	resp, _ = ask(t, url)
	assert.Equal(t, http.StatusBadRequest, resp.StatusCode, "nobody")
}

func TestBehindAProxy(t *testing.T) {
	limiter, _ := newLimiter(t)
	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
	url := serve(t, func(e *echo.Echo) {
		proxies := []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
		guard := httplimit.NewGuard(perClient, httplimit.Config{Extractor: httplimit.ClientIP(proxies)})
		e.Use(echolimit.New(guard))
		e.GET("/", hello)
	})
	admitted(t, url, "X-Forwarded-For", "203.0.113.1")
	resp, _ := ask(t, url, "X-Forwarded-For", "198.51.100.7, 203.0.113.1")
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode, "an address that the client claims")
	resp, _ = ask(t, url, "X-Forwarded-For", "203.0.113.2")
	assert.Equal(t, http.StatusOK, resp.StatusCode, "another client")
}

func TestOwnDenialBody(t *testing.T) {
	limiter, clock := newLimiter(t)
	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
	cfg := httplimit.Config{Extractor: httplimit.RemoteAddr(), Now: clock.Now}
	url := serve(t, func(e *echo.Echo) {
		cfg.Respond = echolimit.OnDenied(func(c *echo.Context, d httplimit.Decision) error {
			return c.JSON(d.Status, map[string]string{"error": "too many requests", "limit": d.Policy})
		})
		e.Use(echolimit.New(httplimit.NewGuard(perClient, cfg)))
		e.GET("/", hello)
	})
	resp, text := admitted(t, url)
	assert.JSONEq(t, `{"error": "too many requests", "limit": "100/1m"}`, text)
	assert.Contains(t, resp.Header.Get("Content-Type"), "application/json")
	assert.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
}

func TestDenialThroughTheErrorHandler(t *testing.T) {
	limiter, clock := newLimiter(t)
	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
	cfg := httplimit.Config{Extractor: httplimit.RemoteAddr(), Now: clock.Now}
	url := serve(t, func(e *echo.Echo) {
		e.HTTPErrorHandler = func(c *echo.Context, err error) {
			var failure *echo.HTTPError
			if errors.As(err, &failure) {
				_ = c.JSON(failure.Code, map[string]string{"error": failure.Message})
			}
		}
		cfg.Respond = echolimit.OnDenied(func(_ *echo.Context, d httplimit.Decision) error {
			return echo.NewHTTPError(d.Status, "over the limit "+d.Policy)
		})
		e.Use(echolimit.New(httplimit.NewGuard(perClient, cfg)))
		e.GET("/", hello)
	})
	_, text := admitted(t, url)
	assert.JSONEq(t, `{"error": "over the limit 100/1m"}`, text)
}

// A client has at most two streams at a time, and a stream is in flight until it ends.
func TestStreams(t *testing.T) {
	limiter, _ := newLimiter(t)
	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
	end := make(chan bool)
	subscribe := func() <-chan string {
		events := make(chan string, 1)
		events <- "hello"
		go func() { <-end; close(events) }()
		return events
	}
	url := serve(t, func(e *echo.Echo) {
		guard := httplimit.NewGuard(perClient, httplimit.Config{
			Extractor:   httplimit.RemoteAddr(),
			Concurrency: httplimit.Policy{Strategy: limiter.InFlight().Limit(2)}, // streams at a time
		})
		e.GET("/events", func(c *echo.Context) error {
			c.Response().Header().Set("Content-Type", "text/event-stream")
			for event := range subscribe() {
				if _, err := fmt.Fprintf(c.Response(), "data: %s\n\n", event); err != nil {
					return err
				}
				if err := http.NewResponseController(c.Response()).Flush(); err != nil {
					return err
				}
			}
			return nil
		}, echolimit.New(guard))
	})
	var open []*http.Response
	for range 2 {
		resp, err := http.Get(url + "/events")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, resp.StatusCode)
		open = append(open, resp)
	}
	third, err := http.Get(url + "/events")
	require.NoError(t, err)
	assert.Equal(t, http.StatusTooManyRequests, third.StatusCode)
	assert.NoError(t, third.Body.Close())
	close(end)
	for _, resp := range open {
		text, err := io.ReadAll(resp.Body)
		assert.NoError(t, err)
		assert.Contains(t, string(text), "data:")
		assert.NoError(t, resp.Body.Close())
	}
	require.Eventually(t, func() bool {
		resp, _ := ask(t, url+"/events")
		return resp.StatusCode == http.StatusOK
	}, time.Minute, time.Millisecond)
}

// The store counts beside the guard of the other examples, on the same limiter.
func TestStoreBesideAGuard(t *testing.T) {
	limiter, clock := newLimiter(t)
	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
	httplimit.NewGuard(perClient, httplimit.Config{Extractor: httplimit.RemoteAddr(), Now: clock.Now})
	url := serve(t, func(e *echo.Echo) {
		e.IPExtractor = echo.ExtractIPDirect() // behind proxies: echo.ExtractIPFromXFFHeader
		e.Use(middleware.RateLimiter(echolimit.NewStore(perClient.Named("store"), httplimit.Config{})))
		e.GET("/", hello)
	})
	for range 100 {
		resp, _ := ask(t, url)
		require.Equal(t, http.StatusOK, resp.StatusCode)
	}
	resp, _ := ask(t, url)
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
}
