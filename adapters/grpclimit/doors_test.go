package grpclimit_test

import (
	"context"
	"net/http"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirgo/weir/adapters/grpclimit"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/doors/rpclimit"
	"github.com/weirgo/weir/internal/testkit/doortest"
)

// headerOf returns metadata by the keys of an http.Header.
func headerOf(all ...metadata.MD) http.Header {
	header := http.Header{}
	for _, md := range all {
		for name, values := range md {
			for _, v := range values {
				header.Add(name, v)
			}
		}
	}
	return header
}

func TestTheDoorOfGRPC(t *testing.T) {
	doortest.Run(t, "../..", doortest.Door{
		Name:  "grpc",
		Lacks: doortest.NotInRPC,
		Open: func(t *testing.T, s *doortest.Setup) func(...string) doortest.Answer {
			l := doortest.Limiter(t)
			cfg := s.Guard(l)
			cfg.Respond = nil
			server := grpclimit.NewServer(s.Limit(l), cfg)
			if s.Own {
				server.OnDenied = func(ctx context.Context, _ httplimit.Decision) error {
					_ = grpc.SetTrailer(ctx, metadata.Pairs("own", "own"))
					return status.Error(codes.ResourceExhausted, "own")
				}
			}
			client := dial(t, serve(t, service{check: func(ctx context.Context) error {
				md, _ := metadata.FromIncomingContext(ctx)
				if s.Serve(headerOf(md)) == http.StatusUnauthorized {
					return status.Error(codes.Unauthenticated, "who?")
				}
				return nil
			}}, server))
			return func(header ...string) doortest.Answer {
				a := check(t, client, header...)
				return doortest.Answer{Status: rpclimit.Code(a.code()).HTTPStatus(),
					Header: headerOf(a.header, a.trailer)}
			}
		},
	})
}
