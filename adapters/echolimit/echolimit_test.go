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

func hello(c *echo.Context) error {
	if httplimit.IsBypassed(c.Request().Context()) {
		return c.String(http.StatusOK, "bypassed")
	}
	return c.String(http.StatusOK, "hello")
}

// behind serves hello behind a guard.
func behind(t *testing.T) doortest.Serve {
	return func(guard *httplimit.Guard) string {
		return serve(t, func(e *echo.Echo) {
			e.Use(echolimit.New(guard))
			e.GET("/", hello)
		})
	}
}

func TestDenialAndRecovery(t *testing.T) { doortest.CheckRecovery(t, behind(t)) }

func TestLimitPerRouteAndMethod(t *testing.T) {
	doortest.CheckRoutesAndMethods(t, http.MethodHead, func(guard *httplimit.Guard) string {
		return serve(t, func(e *echo.Echo) {
			limit := echolimit.New(guard)
			e.GET("/users/:id", hello, limit)
			e.HEAD("/users/:id", hello, limit)
			e.GET("/orders/:id", hello, limit)
		})
	})
}

// The key may be what an earlier handler has found out.
func TestKeyFromTheContext(t *testing.T) {
	user := func(r *http.Request) string {
		user, _ := echolimit.Context(r).Get("user").(string)
		return user
	}
	authenticate := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c *echo.Context) error {
			c.Set("user", c.QueryParam("user"))
			return next(c)
		}
	}
	doortest.CheckKeyOfTheContext(t, user, func(guard *httplimit.Guard) string {
		return serve(t, func(e *echo.Echo) {
			e.GET("/", hello, authenticate, echolimit.New(guard))
		})
	})
	assert.Nil(t, echolimit.Context(httptest.NewRequest(http.MethodGet, "/", nil)))
}

func TestStrategyThatCannotDecide(t *testing.T) { doortest.CheckUndecided(t, behind(t)) }

// Only failed logins count, and CountIf sees the status of every kind of answer.
func TestCountIfSeesTheStatus(t *testing.T) {
	doortest.CheckStatuses(t, func(guard *httplimit.Guard) string {
		return serve(t, func(e *echo.Echo) {
			e.Use(echolimit.New(guard))
			e.GET("/", hello)
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
	}, doortest.Page{Path: "/", Status: 200, Body: "hello"},
		doortest.Page{Path: "/empty", Status: 204},
		doortest.Page{Path: "/nowhere", Status: 404, Body: "Not Found"},
		doortest.Page{Path: "/broken", Status: 500, Body: "Internal Server Error"},
		doortest.Page{Path: "/flushed", Status: 202},
		doortest.Page{Path: "/login", Status: 401, Body: "wrong password"})
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

func TestNewWithoutAGuardPanics(t *testing.T) {
	assert.PanicsWithValue(t, "echolimit: no guard", func() { echolimit.New(nil) })
}
