package fiberlimit_test

import (
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/limiter"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/adapters/fiberlimit"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/testkit/doortest"
	"github.com/weirgo/weir/weirtest"
)

// limited is an app behind Fiber's own limiter.
func limited(cfg limiter.Config) func(*fiber.App) {
	return func(app *fiber.App) { app.Use(limiter.New(cfg)); app.Get("/", hello) }
}

func byUser(c fiber.Ctx) string { return c.Query("user") }

func TestHandlerDenialAndRecovery(t *testing.T) {
	l, clock := doortest.NewLimiter(t)
	url := serve(t, limited(limiter.Config{
		Max: 2, Expiration: time.Minute, KeyGenerator: byUser,
		LimiterMiddleware: fiberlimit.Handler(l.FixedWindow(),
			httplimit.Config{Name: "api", Now: clock.Now}),
	}))
	for _, left := range []string{"1", "0"} {
		resp, text := doortest.Get(t, url+"?user=alice")
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		assert.Equal(t, "hello", text)
		assert.Equal(t, "2", resp.Header.Get("X-RateLimit-Limit"))
		assert.Equal(t, left, resp.Header.Get("X-RateLimit-Remaining"))
		assert.Equal(t, "45", resp.Header.Get("X-RateLimit-Reset"))
		assert.Empty(t, resp.Header.Get("RateLimit"))
	}
	resp, text := doortest.Get(t, url+"?user=alice")
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	assert.Equal(t, "Too Many Requests", text, "Fiber's own answer")
	assert.Equal(t, "45", resp.Header.Get("Retry-After"))
	resp, _ = doortest.Get(t, url+"?user=bob")
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	resp, _ = doortest.Get(t, url)
	assert.Equal(t, http.StatusBadRequest, resp.StatusCode, "no key")

	clock.Advance(45 * time.Second)
	resp, _ = doortest.Get(t, url+"?user=alice")
	assert.Equal(t, http.StatusOK, resp.StatusCode)
}

// Every field of Fiber's Config takes effect.
func TestHandlerGoesByFibersConfig(t *testing.T) {
	l, clock := doortest.NewLimiter(t)
	url := serve(t, func(app *fiber.App) {
		app.Use(limiter.New(limiter.Config{
			KeyGenerator: byUser,
			Next:         func(c fiber.Ctx) bool { return c.Query("user") == "root" },
			MaxFunc: func(c fiber.Ctx) int {
				return map[string]int{"alice": 1, "free": 0, "nobody": -1}[c.Query("user")]
			},
			ExpirationFunc: func(fiber.Ctx) time.Duration { return 30 * time.Second },
			LimitReached: func(c fiber.Ctx) error {
				return c.Status(http.StatusTeapot).SendString("short and stout")
			},
			SkipFailedRequests: true,
			DisableHeaders:     true,
			LimiterMiddleware: fiberlimit.Handler(l.FixedWindow(),
				httplimit.Config{Name: "api", Now: clock.Now}),
		}))
		app.Get("/", hello)
		app.Get("/fail", func(fiber.Ctx) error { return errors.New("failed") })
	})
	for _, step := range []struct {
		name string
		path string
		want int
	}{
		{"a failed request does not count", "/fail?user=alice", 500},
		{"the first that counts", "/?user=alice", 200},
		{"one too many", "/?user=alice", 418},
		{"a maximum of 0 is no limit", "/?user=free", 200},
		{"a negative one admits nothing", "/?user=nobody", 418},
		{"Next skips the limiter", "/?user=root", 200},
		{"and again", "/?user=root", 200},
	} {
		resp, text := doortest.Get(t, url+step.path)
		assert.Equal(t, step.want, resp.StatusCode, step.name)
		assert.Equal(t, step.want == http.StatusTeapot, text == "short and stout", step.name)
		assert.Empty(t, resp.Header.Get("X-RateLimit-Limit"), step.name)
		assert.Empty(t, resp.Header.Get("Retry-After"), step.name)
	}
	clock.Advance(15 * time.Second)
	resp, _ := doortest.Get(t, url+"?user=alice")
	assert.Equal(t, http.StatusOK, resp.StatusCode, "the expiration is 30 s")
}

func TestHandlerThatCannotDecide(t *testing.T) {
	for open, want := range map[bool]int{true: http.StatusOK, false: http.StatusServiceUnavailable} {
		resp, text := doortest.Get(t, serve(t, limited(limiter.Config{
			LimiterMiddleware: fiberlimit.Handler(weirtest.FailAll(errors.New("down")), httplimit.Config{
				Name: "api", FailOpen: open, Logger: slog.New(slog.DiscardHandler),
			}),
		})))
		assert.Equal(t, want, resp.StatusCode)
		assert.Equal(t, open, text == "hello", text)
	}
}

func TestHandlerInShadowModeDeniesNoRequest(t *testing.T) {
	l, clock := doortest.NewLimiter(t)
	decisions := make(chan httplimit.Decision, 3)
	url := serve(t, limited(limiter.Config{
		Max: 1,
		LimiterMiddleware: fiberlimit.Handler(l.FixedWindow(), httplimit.Config{
			Name: "api", Now: clock.Now, Shadow: true,
			OnDecision: func(_ *http.Request, d httplimit.Decision) { decisions <- d },
		}),
	}))
	for _, want := range []httplimit.Kind{httplimit.Admitted, httplimit.Denied} {
		resp, _ := doortest.Get(t, url)
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		assert.Empty(t, resp.Header.Get("X-RateLimit-Limit"))
		assert.Equal(t, want, (<-decisions).Kind)
	}
}

// New alone, without limiter.New around it, has the defaults too: 5 requests in a minute.
func TestHandlerHasFibersDefaults(t *testing.T) {
	l, clock := doortest.NewLimiter(t)
	handler := fiberlimit.Handler(l.FixedWindow(), httplimit.Config{Name: "api", Now: clock.Now})
	url := serve(t, func(app *fiber.App) { app.Use(handler.New(nil)); app.Get("/", hello) })
	for range 5 {
		resp, _ := doortest.Get(t, url)
		require.Equal(t, http.StatusOK, resp.StatusCode)
	}
	resp, _ := doortest.Get(t, url)
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	assert.Equal(t, "45", resp.Header.Get("Retry-After"))
}

func TestHandlerPanicsOnFieldsOfFiber(t *testing.T) {
	for name, cfg := range map[string]httplimit.Config{
		"Extractor": {Extractor: httplimit.RemoteAddr()},
		"Limit":     {Limit: 1},
		"CountIf":   {CountIf: func(int) bool { return true }},
		"Name":      {Name: ""},
	} {
		if name != "Name" {
			cfg.Name = "api"
		}
		func() {
			defer func() { assert.Contains(t, recover(), name) }()
			fiberlimit.Handler(&weirtest.Fake{}, cfg).New(nil)
		}()
	}
}

// What a limit on work in flight admits nobody would release: Concurrency does.
func TestHandlerRefusesWorkInFlight(t *testing.T) {
	doortest.RefusesInFlight(t, "", func(s weir.Strategy, cfg httplimit.Config) error {
		fiberlimit.Handler(s, httplimit.Config{Name: cfg.Name}).New(&limiter.Config{})
		return nil
	})
	l, _ := doortest.NewLimiter(t)
	assert.PanicsWithValue(t,
		"fiberlimit: the Strategy bounds work in flight: give it to Config.Concurrency", func() {
			fiberlimit.Handler(l.InFlight(), httplimit.Config{Name: "api"}).New(&limiter.Config{})
		})
}
