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

func hello(c fiber.Ctx) error { return c.SendString("hello") }

var web = doortest.Web{
	Name: "fiber", Package: "fiberlimit", Method: http.MethodDelete,
	New: func(guard *httplimit.Guard) { fiberlimit.New(guard) },
	Own: fiberlimit.OnDenied(func(c fiber.Ctx, d httplimit.Decision) error {
		c.Set("Own", "own")
		return c.SendStatus(d.Status)
	}),
	User: func(r *http.Request) string { return fiber.Locals[string](fiberlimit.Context(r), "user") },
	Serve: func(t *testing.T, guard *httplimit.Guard, answer doortest.Answerer) string {
		return serve(t, func(app *fiber.App) {
			app.Use(func(c fiber.Ctx) error {
				fiber.Locals(c, "user", c.Query("user"))
				return c.Next()
			}, fiberlimit.New(guard))
			app.All("/", func(c fiber.Ctx) error {
				status, text := answer(c.Context(), c.GetReqHeaders())
				return c.Status(status).SendString(text)
			})
			app.Get("/empty", func(c fiber.Ctx) error { return c.SendStatus(http.StatusNoContent) })
			app.Get("/broken", func(fiber.Ctx) error { return errors.New("broken") })
			app.Get("/login", func(fiber.Ctx) error {
				return fiber.NewError(http.StatusUnauthorized, "wrong password")
			})
		})
	},
	Pages: []doortest.Page{
		{Path: "/", Status: 200, Body: "hello"},
		{Path: "/empty", Status: 204},
		{Path: "/nowhere", Status: 404, Body: "Not Found"},
		{Path: "/broken", Status: 500, Body: "broken"},
		{Path: "/login", Status: 401, Body: "wrong password"},
	},
	Routes: func(t *testing.T, guard *httplimit.Guard) string {
		return serve(t, func(app *fiber.App) {
			limit := fiberlimit.New(guard)
			app.Get("/users/:id", limit, hello)
			app.Delete("/users/:id", limit, hello)
			app.Get("/orders/:id", limit, hello)
		})
	},
}

func TestTheDoorOfFiber(t *testing.T) { doortest.Run(t, "../..", web.Door()) }

func TestTheAdapter(t *testing.T) {
	web.Check(t)
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
