package echolimit_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/labstack/echo/v5"
	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/adapters/echolimit"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/testkit/doortest"
)

// serve starts a server that the routes are added to, and returns its URL.
func serve(t *testing.T, routes func(*echo.Echo)) string {
	e := echo.New()
	routes(e)
	server := httptest.NewServer(e)
	t.Cleanup(server.Close)
	return server.URL
}

func hello(c *echo.Context) error { return c.String(http.StatusOK, "hello") }

// authenticate stores the user of the query.
func authenticate(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c *echo.Context) error {
		c.Set("user", c.QueryParam("user"))
		return next(c)
	}
}

var web = doortest.Web{
	Name: "echo", Package: "echolimit", Method: http.MethodHead,
	New: func(guard *httplimit.Guard) { echolimit.New(guard) },
	Own: echolimit.OnDenied(func(c *echo.Context, d httplimit.Decision) error {
		c.Response().Header().Set("Own", "own")
		return c.String(d.Status, "own")
	}),
	User: func(r *http.Request) string {
		user, _ := echolimit.Context(r).Get("user").(string)
		return user
	},
	Serve: func(t *testing.T, guard *httplimit.Guard, answer doortest.Answerer) string {
		return serve(t, func(e *echo.Echo) {
			e.Use(authenticate, echolimit.New(guard))
			e.Any("/", func(c *echo.Context) error {
				return c.String(answer(c.Request().Context(), c.Request().Header))
			})
			e.GET("/empty", func(c *echo.Context) error { return c.NoContent(http.StatusNoContent) })
			e.GET("/broken", func(*echo.Context) error { return errors.New("broken") })
			e.GET("/flushed", func(c *echo.Context) error {
				c.Response().WriteHeader(http.StatusAccepted)
				return http.NewResponseController(c.Response()).Flush()
			})
			e.GET("/login", func(*echo.Context) error {
				return echo.NewHTTPError(http.StatusUnauthorized, "wrong password")
			})
		})
	},
	Pages: []doortest.Page{
		{Path: "/", Status: 200, Body: "hello"},
		{Path: "/empty", Status: 204},
		{Path: "/nowhere", Status: 404, Body: "Not Found"},
		{Path: "/broken", Status: 500, Body: "Internal Server Error"},
		{Path: "/flushed", Status: 202},
		{Path: "/login", Status: 401, Body: "wrong password"},
	},
	Routes: func(t *testing.T, guard *httplimit.Guard) string {
		return serve(t, func(e *echo.Echo) {
			limit := echolimit.New(guard)
			e.GET("/users/:id", hello, limit)
			e.HEAD("/users/:id", hello, limit)
			e.GET("/orders/:id", hello, limit)
		})
	},
	Handler: func(guard *httplimit.Guard, handle http.HandlerFunc) http.Handler {
		e := echo.New()
		e.GET("/", func(c *echo.Context) error {
			handle(c.Response(), c.Request())
			return nil
		}, echolimit.New(guard))
		return e
	},
}

func TestTheDoorOfEcho(t *testing.T) { doortest.Run(t, "../..", web.Door()) }

func TestTheAdapter(t *testing.T) {
	web.Check(t)
	assert.Nil(t, echolimit.Context(httptest.NewRequest(http.MethodGet, "/", nil)))
}

// What runs around the guard sees a refusal's status.
func TestOuterMiddlewareSeesTheStatus(t *testing.T) {
	limiter, clock := doortest.NewLimiter(t)
	guard := httplimit.NewGuard(limiter.FixedWindow(), httplimit.Config{
		Extractor: httplimit.RemoteAddr(), Limit: 1, Duration: time.Minute, Now: clock.Now,
	})
	seen := make(chan int, 1)
	url := serve(t, func(e *echo.Echo) {
		e.Use(func(next echo.HandlerFunc) echo.HandlerFunc {
			return func(c *echo.Context) error {
				err := next(c)
				seen <- written(c)
				return err
			}
		}, echolimit.New(guard))
		e.GET("/", func(c *echo.Context) error { return c.NoContent(http.StatusAccepted) })
	})
	for _, want := range []int{http.StatusAccepted, http.StatusTooManyRequests} {
		resp, _ := doortest.Get(t, url)
		assert.Equal(t, want, resp.StatusCode)
		assert.Equal(t, want, <-seen)
	}
}
