package echov4limit_test

import (
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/weirgo/weir/adapters/echov4limit"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/testkit/doortest"
)

func TestTheDoorOfEchoV4(t *testing.T) {
	doortest.Run(t, "../..", doortest.Door{
		Name: "echo v4",
		Open: func(t *testing.T, s *doortest.Setup) func(...string) doortest.Answer {
			l, e := doortest.Limiter(t), echo.New()
			cfg := s.Guard(l)
			if s.Own {
				cfg.Respond = echov4limit.OnDenied(func(c echo.Context, d httplimit.Decision) error {
					c.Response().Header().Set("Own", "own")
					return c.String(d.Status, "own")
				})
			}
			e.Use(echov4limit.New(httplimit.NewGuard(s.Limit(l), cfg)))
			e.Any("/", func(c echo.Context) error { return c.String(s.Serve(c.Request().Header), "") })
			return doortest.Through(t, e)
		},
	})
}
