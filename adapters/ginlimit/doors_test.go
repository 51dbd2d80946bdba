package ginlimit_test

import (
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/weirgo/weir/adapters/ginlimit"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/testkit/doortest"
)

func TestTheDoorOfGin(t *testing.T) {
	doortest.Run(t, "../..", doortest.Door{
		Name: "gin",
		Open: func(t *testing.T, s *doortest.Setup) func(...string) doortest.Answer {
			l, engine := doortest.Limiter(t), gin.New()
			cfg := s.Guard(l)
			if s.Own {
				cfg.Respond = ginlimit.OnDenied(func(c *gin.Context, d httplimit.Decision) error {
					c.Header("Own", "own")
					c.String(d.Status, "own")
					return nil
				})
			}
			engine.Use(ginlimit.New(httplimit.NewGuard(s.Limit(l), cfg)))
			engine.Any("/", func(c *gin.Context) { c.String(s.Serve(c.Request.Header), "") })
			return doortest.Through(t, engine)
		},
	})
}
