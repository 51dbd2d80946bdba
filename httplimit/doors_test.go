package httplimit_test

import (
	"net/http/httptest"
	"testing"

	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/doortest"
)

func TestTheDoorOfNew(t *testing.T) {
	doortest.Run(t, "..", doortest.Door{
		Name: "New",
		Open: func(t *testing.T, s *doortest.Setup) func(...string) doortest.Answer {
			l := doortest.Limiter(t)
			srv := httptest.NewServer(httplimit.New(s.Limit(l), s.Guard(l))(s.Handler()))
			t.Cleanup(srv.Close)
			return doortest.Send(t, srv.URL)
		},
	})
}
