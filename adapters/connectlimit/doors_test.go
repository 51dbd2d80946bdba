package connectlimit_test

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"connectrpc.com/connect"

	"github.com/weirgo/weir/adapters/connectlimit"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/doors/rpclimit"
	"github.com/weirgo/weir/internal/testkit/doortest"
)

func TestTheDoorOfConnect(t *testing.T) {
	doortest.Run(t, "../..", doortest.Door{
		Name:  "connect",
		Lacks: doortest.NotInRPC,
		Open: func(t *testing.T, s *doortest.Setup) func(...string) doortest.Answer {
			l := doortest.Limiter(t)
			cfg := s.Guard(l)
			cfg.Respond = nil
			limit := connectlimit.NewServer(s.Limit(l), cfg)
			if s.Own {
				limit.OnDenied = func(context.Context, httplimit.Decision) error {
					err := connect.NewError(connect.CodeResourceExhausted, errors.New("own"))
					err.Meta().Set("Own", "own")
					return err
				}
			}
			server := serve(t, func(_ context.Context, header http.Header) error {
				if s.Serve(header) == http.StatusUnauthorized {
					return connect.NewError(connect.CodeUnauthenticated, errors.New("who?"))
				}
				return nil
			}, limit)
			return func(header ...string) doortest.Answer {
				sent := http.Header{}
				for i := 0; i < len(header); i += 2 {
					sent.Set(header[i], header[i+1])
				}
				a := unary(t, server, sent)
				return doortest.Answer{Status: rpclimit.Code(a.code()).HTTPStatus(), Header: a.header}
			}
		},
	})
}
