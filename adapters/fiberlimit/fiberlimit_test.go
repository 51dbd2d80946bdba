package fiberlimit_test

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/adapters/fiberlimit"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/testkit/doortest"
	"github.com/weirgo/weir/weirtest"
)

// serve starts an app that the routes are added to, and returns its URL.
func serve(t *testing.T, routes func(*fiber.App)) string {
	app := fiber.New()
	routes(app)
	return start(t, app)
}

func start(t *testing.T, app *fiber.App) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan error, 1)
	go func() { done <- app.Listener(listener, fiber.ListenConfig{DisableStartupMessage: true}) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		assert.NoError(t, app.Shutdown())
		assert.NoError(t, <-done)
	})
	return "http://" + listener.Addr().String()
}

func hello(c fiber.Ctx) error {
	if httplimit.IsBypassed(c.Context()) {
		return c.SendString("bypassed")
	}
	return c.SendString("hello")
}

// behind serves hello behind a guard.
func behind(t *testing.T) doortest.Serve {
	return func(guard *httplimit.Guard) string {
		return serve(t, func(app *fiber.App) {
			app.Use(fiberlimit.New(guard))
			app.Get("/", hello)
		})
	}
}

func TestDenialAndRecovery(t *testing.T) { doortest.CheckRecovery(t, behind(t)) }

func TestLimitPerRouteAndMethod(t *testing.T) {
	doortest.CheckRoutesAndMethods(t, http.MethodDelete, func(guard *httplimit.Guard) string {
		return serve(t, func(app *fiber.App) {
			limit := fiberlimit.New(guard)
			app.Get("/users/:id", limit, hello)
			app.Delete("/users/:id", limit, hello)
			app.Get("/orders/:id", limit, hello)
		})
	})
}

// The key may be what an earlier handler has found out.
func TestKeyFromTheContext(t *testing.T) {
	user := func(r *http.Request) string {
		return fiber.Locals[string](fiberlimit.Context(r), "user")
	}
	authenticate := func(c fiber.Ctx) error {
		fiber.Locals(c, "user", c.Query("user"))
		return c.Next()
	}
	doortest.CheckKeyOfTheContext(t, user, func(guard *httplimit.Guard) string {
		return serve(t, func(app *fiber.App) {
			app.Get("/", authenticate, fiberlimit.New(guard), hello)
		})
	})
	assert.Nil(t, fiberlimit.Context(httptest.NewRequest(http.MethodGet, "/", nil)))
}

// A header that is there twice has no one value to key by: the guard sees both lines.
func TestHeaderSentTwiceIsRefused(t *testing.T) {
	guard := httplimit.NewGuard(&weirtest.Fake{}, httplimit.Config{
		Extractor: httplimit.Headers("X-Api-Key"), Limit: 1, Duration: time.Minute,
	})
	url := serve(t, func(app *fiber.App) { app.Use(fiberlimit.New(guard)); app.Get("/", hello) })
	resp, _ := doortest.Get(t, url, "X-Api-Key", "alice")
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	resp, _ = doortest.Get(t, url, "X-Api-Key", "alice", "X-Api-Key", "bob")
	assert.Equal(t, http.StatusBadRequest, resp.StatusCode)
}

func TestStrategyThatCannotDecide(t *testing.T) { doortest.CheckUndecided(t, behind(t)) }

// Only failed logins count, and CountIf sees the status of every kind of answer.
func TestCountIfSeesTheStatus(t *testing.T) {
	doortest.CheckStatuses(t, func(guard *httplimit.Guard) string {
		return serve(t, func(app *fiber.App) {
			app.Use(fiberlimit.New(guard))
			app.Get("/", hello)
			app.Get("/empty", func(c fiber.Ctx) error { return c.SendStatus(http.StatusNoContent) })
			app.Get("/broken", func(fiber.Ctx) error { return errors.New("broken") })
			app.Get("/login", func(fiber.Ctx) error {
				return fiber.NewError(http.StatusUnauthorized, "wrong password")
			})
		})
	}, doortest.Page{Path: "/", Status: 200, Body: "hello"},
		doortest.Page{Path: "/empty", Status: 204},
		doortest.Page{Path: "/nowhere", Status: 404, Body: "Not Found"},
		doortest.Page{Path: "/broken", Status: 500, Body: "broken"},
		doortest.Page{Path: "/login", Status: 401, Body: "wrong password"})
}

func TestNewWithoutAGuardPanics(t *testing.T) {
	assert.PanicsWithValue(t, "fiberlimit: no guard", func() { fiberlimit.New(nil) })
}
