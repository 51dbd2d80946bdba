package httplimit_test

import (
	"testing"

	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/testkit/doortest"
)

func TestTheDoorOfNew(t *testing.T) {
	doortest.Run(t, "..", doortest.Door{
		Name: "New",
		Open: func(t *testing.T, s *doortest.Setup) func(...string) doortest.Answer {
			l := doortest.Limiter(t)
			return doortest.Through(t, httplimit.New(s.Limit(l), s.Guard(l))(s.Handler()))
		},
	})
}
