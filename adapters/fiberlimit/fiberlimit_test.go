package fiberlimit_test

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gofiber/fiber/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/adapters/fiberlimit"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/weirtest"
)

// newLimiter returns a limiter on a clock that stands at 15 s past a minute.
func newLimiter(t *testing.T) (*weir.Limiter, *weirtest.Clock) {
	clock := weirtest.NewClock(time.Date(2026, 11, 20, 12, 0, 15, 0, time.UTC))
	limiter, err := weir.New(weir.Config{Now: clock.Now})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, limiter.Close()) })
	return limiter, clock
}

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

// get sends a request with these header lines, names and values in turn.
func get(t *testing.T, url string, lines ...string) (*http.Response, string) {
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

func TestDenialAndRecovery(t *testing.T) {
	limiter, clock := newLimiter(t)
	guard := httplimit.NewGuard(limiter.FixedWindow(), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Limit: 2, Duration: time.Minute, Now: clock.Now,
	})
	url := serve(t, func(app *fiber.App) { app.Use(fiberlimit.New(guard)); app.Get("/", hello) })
	for _, left := range []string{"1", "0"} {
		resp, text := get(t, url)
		assert.Equal(t, http.StatusOK, resp.StatusCode)
		assert.Equal(t, "hello", text)
		assert.Equal(t, `"2/1m";q=2;w=60`, resp.Header.Get("RateLimit-Policy"))
		assert.Equal(t, `"2/1m";r=`+left+`;t=45`, resp.Header.Get("RateLimit"))
	}
	resp, text := get(t, url)
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	assert.Equal(t, "45", resp.Header.Get("Retry-After"))
	assert.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
	assert.Contains(t, text, "quota-exceeded")
	assert.NotContains(t, text, "hello", "the handler ran")

	clock.Advance(45 * time.Second)
	resp, text = get(t, url)
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Equal(t, "hello", text)
}

// The budget belongs to the method and the route, not to the path.
func TestLimitPerRouteAndMethod(t *testing.T) {
	limiter, clock := newLimiter(t)
	guard := httplimit.NewGuard(limiter.FixedWindow(), httplimit.Config{
		Extractor: httplimit.Join(httplimit.RemoteAddr(), httplimit.Pattern()), Limit: 1,
		Duration: time.Minute,
		Now:      clock.Now,
	})
	limit := fiberlimit.New(guard)
	url := serve(t, func(app *fiber.App) {
		app.Get("/users/:id", limit, hello)
		app.Delete("/users/:id", limit, hello)
		app.Get("/orders/:id", limit, hello)
	})
	for _, step := range []struct {
		path string
		want int
	}{
		{"/users/1", 200}, {"/users/2", 429}, {"/orders/1", 200}, {"/nowhere", 404},
	} {
		resp, _ := get(t, url+step.path)
		assert.Equal(t, step.want, resp.StatusCode, step.path)
	}
	req, err := http.NewRequest(http.MethodDelete, url+"/users/3", http.NoBody)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	assert.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusOK, resp.StatusCode, "another method")
}

// The key may be what an earlier handler has found out.
func TestKeyFromTheContext(t *testing.T) {
	limiter, clock := newLimiter(t)
	guard := httplimit.NewGuard(limiter.FixedWindow(), httplimit.Config{
		Extractor: httplimit.ExtractorFunc(func(r *http.Request) (string, error) {
			return fiber.Locals[string](fiberlimit.Context(r), "user"), nil
		}),
		Limit: 1, Duration: time.Minute, Now: clock.Now,
	})
	authenticate := func(c fiber.Ctx) error {
		fiber.Locals(c, "user", c.Query("user"))
		return c.Next()
	}
	url := serve(t, func(app *fiber.App) { app.Get("/", authenticate, fiberlimit.New(guard), hello) })
	for _, step := range []struct {
		user string
		want int
	}{
		{"alice", 200}, {"alice", 429}, {"bob", 200}, {"", 400},
	} {
		resp, _ := get(t, url+"?user="+step.user)
		assert.Equal(t, step.want, resp.StatusCode, step.user)
	}
	assert.Nil(t, fiberlimit.Context(httptest.NewRequest(http.MethodGet, "/", nil)))
}

// A header that is there twice has no one value to key by: the guard sees both lines.
func TestHeaderSentTwiceIsRefused(t *testing.T) {
	guard := httplimit.NewGuard(&weirtest.Fake{}, httplimit.Config{
		Extractor: httplimit.Headers("X-Api-Key"), Limit: 1, Duration: time.Minute,
	})
	url := serve(t, func(app *fiber.App) { app.Use(fiberlimit.New(guard)); app.Get("/", hello) })
	resp, _ := get(t, url, "X-Api-Key", "alice")
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	resp, _ = get(t, url, "X-Api-Key", "alice", "X-Api-Key", "bob")
	assert.Equal(t, http.StatusBadRequest, resp.StatusCode)
}

func TestStrategyThatCannotDecide(t *testing.T) {
	for open, want := range map[bool]int{true: http.StatusOK, false: http.StatusServiceUnavailable} {
		guard := httplimit.NewGuard(weirtest.FailAll(errors.New("down")), httplimit.Config{
			Extractor: httplimit.RemoteAddr(), Limit: 2, Duration: time.Minute, FailOpen: open,
			Logger: slog.New(slog.DiscardHandler),
		})
		resp, text := get(t, serve(t, func(app *fiber.App) {
			app.Use(fiberlimit.New(guard))
			app.Get("/", hello)
		}))
		assert.Equal(t, want, resp.StatusCode)
		assert.Equal(t, open, text == "bypassed", text)
	}
}

// Only failed logins count, and CountIf sees the status of every kind of answer, errors included;
// the client gets the error handler's answer with the guard's fields.
func TestCountIfSeesTheStatus(t *testing.T) {
	limiter, clock := newLimiter(t)
	statuses := make(chan int, 1)
	guard := httplimit.NewGuard(limiter.FixedWindow(), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Limit: 1, Duration: time.Minute, Now: clock.Now,
		CountIf: func(status int) bool { statuses <- status; return status == http.StatusUnauthorized },
	})
	url := serve(t, func(app *fiber.App) {
		app.Use(fiberlimit.New(guard))
		app.Get("/", hello)
		app.Get("/empty", func(c fiber.Ctx) error { return c.SendStatus(http.StatusNoContent) })
		app.Get("/broken", func(fiber.Ctx) error { return errors.New("broken") })
		app.Get("/login", func(fiber.Ctx) error {
			return fiber.NewError(http.StatusUnauthorized, "wrong password")
		})
	})
	for _, step := range []struct {
		path string
		want int
		body string
	}{
		{"/", 200, "hello"}, {"/empty", 204, ""}, {"/nowhere", 404, "Not Found"},
		{"/broken", 500, "broken"},
		{"/login", 401, "wrong password"},
	} {
		resp, text := get(t, url+step.path)
		assert.Equal(t, step.want, resp.StatusCode, step.path)
		assert.Contains(t, text, step.body, step.path)
		assert.NotEmpty(t, resp.Header.Get("RateLimit"), step.path)
		assert.Equal(t, step.want, <-statuses, step.path)
	}
	resp, _ := get(t, url+"/login")
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode,
		"the second attempt after a failed one")
}

func TestNewWithoutAGuardPanics(t *testing.T) {
	assert.PanicsWithValue(t, "fiberlimit: no guard", func() { fiberlimit.New(nil) })
}
