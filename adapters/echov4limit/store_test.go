package echov4limit_test

import (
	"net/http"
	"testing"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/adapters/echov4limit"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/testkit/doortest"
)

// withStore is Echo's own rate limiter on store, which limits by the user in the query.
func withStore(store middleware.RateLimiterStore) func(*echo.Echo) {
	return func(e *echo.Echo) {
		e.Use(middleware.RateLimiterWithConfig(middleware.RateLimiterConfig{
			Store:               store,
			IdentifierExtractor: func(c echo.Context) (string, error) { return c.QueryParam("user"), nil },
			DenyHandler: func(c echo.Context, _ string, err error) error {
				if err != nil {
					return echo.NewHTTPError(http.StatusServiceUnavailable, err.Error())
				}
				return middleware.ErrRateLimitExceeded
			},
		}))
		e.GET("/", hello)
	}
}

func TestStore(t *testing.T) {
	doortest.Stores{
		New: func(s weir.Strategy, cfg httplimit.Config) doortest.Store { return echov4limit.NewStore(s, cfg) },
		Serve: func(t *testing.T, s doortest.Store) string {
			return serve(t, withStore(s.(*echov4limit.Store)))
		},
		Denied: assertDenialFields,
	}.Check(t)
}
