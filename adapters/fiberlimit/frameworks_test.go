package fiberlimit_test

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/limiter"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/adapters/fiberlimit"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/testkit/docblocks"
	"github.com/weirgo/weir/internal/testkit/doortest"
	"github.com/weirgo/weir/weirtest"
)

// The code of these tests is in docs/http.md.
func TestDocsShowTheseTests(t *testing.T) {
	docblocks.CheckRows(t, "../../docs/http.md", "Fiber", "frameworks_test.go")
}

func TestPerRoute(t *testing.T) {
	limiter, _ := doortest.NewLimiter(t)
	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
	guard := httplimit.NewGuard(perClient, httplimit.Config{
		Extractor: httplimit.Join(httplimit.RemoteAddr(), httplimit.Pattern()),
	})
	url := serve(t, func(app *fiber.App) {
		api := app.Group("/api", fiberlimit.New(guard))
		api.Get("/users/:id", hello)
		api.Get("/orders/:id", hello)
	})
	doortest.CheckPerRoute(t, url)
}

func TestPerUser(t *testing.T) {
	limiter, _ := doortest.NewLimiter(t)
	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
	authenticate := func(c fiber.Ctx) error {
		fiber.Locals(c, "user", c.Get("X-User"))
		return c.Next()
	}
	url := serve(t, func(app *fiber.App) {
		guard := httplimit.NewGuard(perClient, httplimit.Config{
			Extractor: httplimit.ExtractorFunc(func(r *http.Request) (string, error) {
				// set by authenticate; empty: 400
				return fiber.Locals[string](fiberlimit.Context(r), "user"), nil
			}),
		})
		app.Use(authenticate, fiberlimit.New(guard))
		app.Get("/", hello)
	})
	doortest.CheckPerUser(t, url)
}

func TestBehindAProxy(t *testing.T) {
	limiter, _ := doortest.NewLimiter(t)
	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
	url := serve(t, func(app *fiber.App) {
		proxies := []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
		guard := httplimit.NewGuard(perClient, httplimit.Config{Extractor: httplimit.ClientIP(proxies)})
		app.Use(fiberlimit.New(guard))
		app.Get("/", hello)
	})
	doortest.CheckBehindAProxy(t, url)
}

func TestOwnDenialBody(t *testing.T) {
	limiter, clock := doortest.NewLimiter(t)
	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
	cfg := httplimit.Config{Extractor: httplimit.RemoteAddr(), Now: clock.Now}
	url := serve(t, func(app *fiber.App) {
		cfg.Respond = fiberlimit.OnDenied(func(c fiber.Ctx, d httplimit.Decision) error {
			return c.Status(d.Status).JSON(fiber.Map{"error": "too many requests", "limit": d.Policy})
		})
		app.Use(fiberlimit.New(httplimit.NewGuard(perClient, cfg)))
		app.Get("/", hello)
	})
	doortest.CheckOwnBody(t, url, `{"error": "too many requests", "limit": "100/1m"}`)
}

func TestDenialThroughTheErrorHandler(t *testing.T) {
	limiter, clock := doortest.NewLimiter(t)
	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
	cfg := httplimit.Config{Extractor: httplimit.RemoteAddr(), Now: clock.Now}
	app := fiber.New(fiber.Config{ErrorHandler: func(c fiber.Ctx, err error) error {
		var failure *fiber.Error
		if errors.As(err, &failure) {
			c.Status(failure.Code)
		}
		return c.JSON(fiber.Map{"error": err.Error()})
	}})
	cfg.Respond = fiberlimit.OnDenied(func(_ fiber.Ctx, d httplimit.Decision) error {
		return fiber.NewError(d.Status, "over the limit "+d.Policy)
	})
	app.Use(fiberlimit.New(httplimit.NewGuard(perClient, cfg)))
	app.Get("/", hello)
	url := start(t, app)
	_, text := doortest.Admitted(t, url)
	assert.JSONEq(t, `{"error": "over the limit 100/1m"}`, text)
}

// A client has at most two streams at a time, and a stream is in flight until it ends.
func TestStreams(t *testing.T) {
	limiter, _ := doortest.NewLimiter(t)
	perClient := limiter.SlidingWindow().Limit(100, time.Minute)
	subscribe, end := doortest.Streams()
	url := serve(t, func(app *fiber.App) {
		guard := httplimit.NewGuard(perClient, httplimit.Config{
			Extractor:   httplimit.RemoteAddr(),
			Concurrency: httplimit.Policy{Strategy: limiter.InFlight().Limit(2)}, // streams at a time
		})
		app.Get("/events", fiberlimit.New(guard), func(c fiber.Ctx) error {
			c.Set(fiber.HeaderContentType, "text/event-stream")
			return c.SendStreamWriter(func(w *bufio.Writer) {
				for event := range subscribe() {
					_, _ = fmt.Fprintf(w, "data: %s\n\n", event)
					if w.Flush() != nil {
						return // the client has left
					}
				}
			})
		})
	})
	doortest.CheckStreams(t, url, end)
}

func TestFibersOwnLimiter(t *testing.T) {
	weirLimiter, _ := doortest.NewLimiter(t)
	url := serve(t, func(app *fiber.App) {
		app.Use(limiter.New(limiter.Config{
			Max:        100,
			Expiration: time.Minute,
			LimiterMiddleware: fiberlimit.Handler(weirLimiter.SlidingWindow(),
				httplimit.Config{Name: "api"}),
		}))
		app.Get("/", hello)
	})
	for range 100 {
		resp, _ := doortest.Get(t, url)
		require.Equal(t, http.StatusOK, resp.StatusCode)
	}
	resp, _ := doortest.Get(t, url)
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
}

// A Respond that answers by the fiber.Ctx keeps the fields, as it does in other frameworks.
func TestRespondByTheContextKeepsTheFields(t *testing.T) {
	weirLimiter, clock := doortest.NewLimiter(t)
	cfg := httplimit.Config{Extractor: httplimit.RemoteAddr(), Now: clock.Now}
	cfg.Respond = func(_ http.ResponseWriter, r *http.Request, d httplimit.Decision) {
		_ = fiberlimit.Context(r).Status(d.Status).JSON(fiber.Map{"error": "too many requests"})
	}
	url := serve(t, func(app *fiber.App) {
		perClient := weirLimiter.SlidingWindow().Limit(100, time.Minute)
		app.Use(fiberlimit.New(httplimit.NewGuard(perClient, cfg)))
		app.Get("/", hello)
	})
	resp, text := doortest.Admitted(t, url)
	assert.JSONEq(t, `{"error": "too many requests"}`, text)
	assert.Equal(t, []string{"no-store"}, resp.Header["Cache-Control"])
	assert.Len(t, resp.Header["Retry-After"], 1)
}

// A stream is no longer in flight once its client has hung up.
func TestAStreamEndsWithItsClient(t *testing.T) {
	guard := httplimit.NewGuard(&weirtest.Fake{},
		httplimit.Config{Extractor: httplimit.RemoteAddr(), MaxInFlight: 1})
	url := serve(t, func(app *fiber.App) {
		app.Get("/", fiberlimit.New(guard), func(c fiber.Ctx) error {
			return c.SendStreamWriter(func(w *bufio.Writer) {
				for {
					_, _ = w.WriteString("hello")
					if w.Flush() != nil {
						return
					}
				}
			})
		})
	})
	resp, err := http.Get(url)
	require.NoError(t, err)
	busy, err := http.Get(url)
	require.NoError(t, err)
	assert.Equal(t, http.StatusServiceUnavailable, busy.StatusCode)
	require.NoError(t, busy.Body.Close())
	require.NoError(t, resp.Body.Close())
	require.Eventually(t, func() bool {
		resp, err := http.Get(url)
		return assert.NoError(t, err) && assert.NoError(t, resp.Body.Close()) &&
			resp.StatusCode == http.StatusOK
	}, time.Minute, time.Millisecond)
}

// A guard for a group counts by the route that will match.
func TestPatternOfAGroup(t *testing.T) {
	for _, cfg := range []fiber.Config{{}, {CaseSensitive: true, StrictRouting: true}} {
		var pattern string
		guard := httplimit.NewGuard(&weirtest.Fake{}, httplimit.Config{
			Extractor: httplimit.ExtractorFunc(func(r *http.Request) (string, error) {
				pattern = r.Pattern
				return "all", nil
			}),
			Limit: 1, Duration: time.Minute,
		})
		limit := fiberlimit.New(guard)
		app := fiber.New(cfg)
		app.Get("/before", limit, hello)
		app.Get("/api/early", hello)
		app.Use("/api", limit)
		api := app.Group("/api")
		api.Get("/Users/:id?", hello)
		api.Post("/users/:id", hello)
		api.Get("/files/*", hello)
		api.Use("/files", hello)
		api.Get("/", hello)
		sub := fiber.New(cfg)
		sub.Get("/orders/:id", hello)
		app.Use("/api/sub", sub)
		url := start(t, app)
		for path, want := range map[string]string{
			"/before": "GET /before", "/api/Users/1": "GET /api/Users/:id?",
			"/api/Users":     "GET /api/Users/:id?",
			"/api/files/a/b": "GET /api/files/*", "/api/nowhere": "",
			"/api/sub/orders/7": "GET /api/sub/orders/:id",
			"/api/early":        "none",
		} {
			pattern = "none"
			_, _ = doortest.Get(t, url+path)
			assert.Equal(t, want, pattern, path)
			if !cfg.CaseSensitive && strings.HasPrefix(want, "GET") {
				_, _ = doortest.Get(t, url+strings.ToUpper(path)+"/")
				assert.Equal(t, want, pattern, path)
			}
		}
		app.Get("/api/late", hello)
		app.RebuildTree()
		_, _ = doortest.Get(t, url+"/api/late")
		assert.Equal(t, "GET /api/late", pattern)
	}
}
