package echolimit_test

import (
	"errors"
	"fmt"
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
	"github.com/weirgo/weir/internal/testkit/doortest"
)

// The code of these tests is in docs/http.md.
func TestDocsShowTheseTests(t *testing.T) {
	docblocks.CheckRows(t, "../../docs/http.md", "Echo", "frameworks_test.go")
	docblocks.Check(t, "../../docs/http.md", "### Limiters of the frameworks",
		"frameworks_test.go", "../fiberlimit/frameworks_test.go")
}

func TestPerRoute(t *testing.T) {
	limiter, _ := doortest.NewLimiter(t)
	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
	guard := httplimit.NewGuard(perClient, httplimit.Config{
		Extractor: httplimit.Join(httplimit.RemoteAddr(), httplimit.Pattern()),
	})
	url := serve(t, func(e *echo.Echo) {
		api := e.Group("/api", echolimit.New(guard))
		api.GET("/users/:id", hello)
		api.GET("/orders/:id", hello)
	})
	doortest.CheckPerRoute(t, url)
}

func TestPerUser(t *testing.T) {
	limiter, _ := doortest.NewLimiter(t)
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
	doortest.CheckPerUser(t, url)
}

func TestBehindAProxy(t *testing.T) {
	limiter, _ := doortest.NewLimiter(t)
	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
	url := serve(t, func(e *echo.Echo) {
		proxies := []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
		guard := httplimit.NewGuard(perClient, httplimit.Config{Extractor: httplimit.ClientIP(proxies)})
		e.Use(echolimit.New(guard))
		e.GET("/", hello)
	})
	doortest.CheckBehindAProxy(t, url)
}

func TestOwnDenialBody(t *testing.T) {
	limiter, clock := doortest.NewLimiter(t)
	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
	cfg := httplimit.Config{Extractor: httplimit.RemoteAddr(), Now: clock.Now}
	url := serve(t, func(e *echo.Echo) {
		cfg.Respond = echolimit.OnDenied(func(c *echo.Context, d httplimit.Decision) error {
			return c.JSON(d.Status, map[string]string{"error": "too many requests", "limit": d.Policy})
		})
		e.Use(echolimit.New(httplimit.NewGuard(perClient, cfg)))
		e.GET("/", hello)
	})
	doortest.CheckOwnBody(t, url, `{"error": "too many requests", "limit": "100/1m"}`)
}

func TestDenialThroughTheErrorHandler(t *testing.T) {
	limiter, clock := doortest.NewLimiter(t)
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
	_, text := doortest.Admitted(t, url)
	assert.JSONEq(t, `{"error": "over the limit 100/1m"}`, text)
}

// A client has at most two streams at a time, and a stream is in flight until it ends.
func TestStreams(t *testing.T) {
	limiter, _ := doortest.NewLimiter(t)
	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
	subscribe, end := doortest.Streams()
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
	doortest.CheckStreams(t, url, end)
}

// The store counts beside the guard of the other examples, on the same limiter.
func TestStoreBesideAGuard(t *testing.T) {
	limiter, clock := doortest.NewLimiter(t)
	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
	httplimit.NewGuard(perClient, httplimit.Config{Extractor: httplimit.RemoteAddr(), Now: clock.Now})
	url := serve(t, func(e *echo.Echo) {
		e.IPExtractor = echo.ExtractIPDirect() // behind proxies: echo.ExtractIPFromXFFHeader
		e.Use(middleware.RateLimiter(echolimit.NewStore(perClient.Named("store"), httplimit.Config{})))
		e.GET("/", hello)
	})
	for range 100 {
		resp, _ := doortest.Get(t, url)
		require.Equal(t, http.StatusOK, resp.StatusCode)
	}
	resp, _ := doortest.Get(t, url)
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
}
