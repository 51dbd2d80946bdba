package echov4limit_test

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/adapters/echov4limit"
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

// serve starts a server that the routes are added to, and returns its URL.
func serve(t *testing.T, routes func(*echo.Echo)) string {
	e := echo.New()
	routes(e)
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	return server.URL
}

func hello(c echo.Context) error {
	if httplimit.IsBypassed(c.Request().Context()) {
		return c.String(http.StatusOK, "bypassed")
	}
	return c.String(http.StatusOK, "hello")
}

func get(t *testing.T, url string) (*http.Response, string) {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	defer func() { assert.NoError(t, resp.Body.Close()) }()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp, string(text)
}

// The budget belongs to the method and the route, not to the path.
func TestLimitPerRouteAndMethod(t *testing.T) {
	limiter, clock := newLimiter(t)
	guard := httplimit.NewGuard(limiter.FixedWindow(), httplimit.Config{
		Extractor: httplimit.Join(httplimit.RemoteAddr(), httplimit.Pattern()), Limit: 1,
		Duration: time.Minute,
		Now:      clock.Now,
	})
	url := serve(t, func(e *echo.Echo) {
		limit := echov4limit.New(guard)
		e.GET("/users/:id", hello, limit)
		e.HEAD("/users/:id", hello, limit)
		e.GET("/orders/:id", hello, limit)
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
	resp, err := http.Head(url + "/users/3")
	require.NoError(t, err)
	assert.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusOK, resp.StatusCode, "another method")
}

// The key may be what an earlier middleware has found out.
func TestKeyFromTheContext(t *testing.T) {
	limiter, clock := newLimiter(t)
	guard := httplimit.NewGuard(limiter.FixedWindow(), httplimit.Config{
		Extractor: httplimit.ExtractorFunc(func(r *http.Request) (string, error) {
			user, _ := echov4limit.Context(r).Get("user").(string)
			return user, nil
		}),
		Limit: 1, Duration: time.Minute, Now: clock.Now,
	})
	authenticate := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			c.Set("user", c.QueryParam("user"))
			return next(c)
		}
	}
	url := serve(t, func(e *echo.Echo) { e.GET("/", hello, authenticate, echov4limit.New(guard)) })
	for _, step := range []struct {
		user string
		want int
	}{
		{"alice", 200}, {"alice", 429}, {"bob", 200}, {"", 400},
	} {
		resp, _ := get(t, url+"?user="+step.user)
		assert.Equal(t, step.want, resp.StatusCode, step.user)
	}
	assert.Nil(t, echov4limit.Context(httptest.NewRequest(http.MethodGet, "/", nil)))
}

func TestStrategyThatCannotDecide(t *testing.T) {
	for open, want := range map[bool]int{true: http.StatusOK, false: http.StatusServiceUnavailable} {
		guard := httplimit.NewGuard(weirtest.FailAll(errors.New("down")), httplimit.Config{
			Extractor: httplimit.RemoteAddr(), Limit: 2, Duration: time.Minute, FailOpen: open,
			Logger: slog.New(slog.DiscardHandler),
		})
		resp, text := get(t, serve(t, func(e *echo.Echo) {
			e.Use(echov4limit.New(guard))
			e.GET("/", hello)
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
	url := serve(t, func(e *echo.Echo) {
		e.Use(echov4limit.New(guard))
		e.GET("/", hello)
		e.GET("/empty", func(c echo.Context) error { return c.NoContent(http.StatusNoContent) })
		e.GET("/broken", func(echo.Context) error { return errors.New("broken") })
		e.GET("/flushed", func(c echo.Context) error {
			c.Response().WriteHeader(http.StatusAccepted)
			return http.NewResponseController(c.Response()).Flush()
		})
		e.GET("/login", func(echo.Context) error {
			return echo.NewHTTPError(http.StatusUnauthorized, "wrong password")
		})
	})
	for _, step := range []struct {
		path string
		want int
		body string
	}{
		{"/", 200, "hello"}, {"/empty", 204, ""}, {"/nowhere", 404, "Not Found"},
		{"/broken", 500, "Internal Server Error"},
		{"/flushed", 202, ""}, {"/login", 401, "wrong password"},
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

// What runs around the guard sees a refusal's status.
func TestOuterMiddlewareSeesTheStatus(t *testing.T) {
	limiter, clock := newLimiter(t)
	guard := httplimit.NewGuard(limiter.FixedWindow(), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Limit: 1, Duration: time.Minute, Now: clock.Now,
	})
	seen := make(chan int, 1)
	url := serve(t, func(e *echo.Echo) {
		e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c echo.Context) error {
				err := next(c)
				seen <- written(c)
				return err
			}
		}, echov4limit.New(guard))
		e.GET("/", func(c echo.Context) error { return c.NoContent(http.StatusAccepted) })
	})
	for _, want := range []int{http.StatusAccepted, http.StatusTooManyRequests} {
		resp, _ := get(t, url)
		assert.Equal(t, want, resp.StatusCode)
		assert.Equal(t, want, <-seen)
	}
}

func TestNewWithoutAGuardPanics(t *testing.T) {
	assert.PanicsWithValue(t, "echov4limit: no guard", func() { echov4limit.New(nil) })
}
