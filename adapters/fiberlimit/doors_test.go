package fiberlimit_test

import (
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v3"

	"github.com/weirgo/weir/adapters/fiberlimit"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/testkit/doortest"
)

func TestTheDoorOfFiber(t *testing.T) {
	doortest.Run(t, "../..", doortest.Door{
		Name: "fiber",
		Open: func(t *testing.T, s *doortest.Setup) func(...string) doortest.Answer {
			l := doortest.Limiter(t)
			cfg := s.Guard(l)
			if s.Own {
				cfg.Respond = fiberlimit.OnDenied(func(c fiber.Ctx, d httplimit.Decision) error {
					c.Set("Own", "own")
					return c.SendStatus(d.Status)
				})
			}
			url := serve(t, func(app *fiber.App) {
				app.Use(fiberlimit.New(httplimit.NewGuard(s.Limit(l), cfg)))
				app.All("/", func(c fiber.Ctx) error {
					header := http.Header{}
					for name, values := range c.GetReqHeaders() {
						header[name] = values
					}
					return c.SendStatus(s.Serve(header))
				})
			})
			return doortest.Send(t, url)
		},
	})
}
