package envoy

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/test/bufconn"
)

// TestConnectionsMoveToANewServer starts a second server behind one address. A client that is
// connected to the first one must use the second within the age of a connection, its jitter of a
// tenth, and the grace, and no call may fail. Without an age it stays: the control.
func TestConnectionsMoveToANewServer(t *testing.T) {
	const age, grace = 2 * time.Hour, 10 * time.Minute
	for _, limited := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			cfg := Config{}
			if limited {
				cfg.Connections = keepalive.ServerParameters{MaxConnectionAge: age,
					MaxConnectionAgeGrace: grace}
			}
			var servers []*bufconn.Listener
			for n := range 2 {
				s := &Server{cfg: cfg, service: serviceOf(t, generation(n)), health: health.NewServer()}
				s.newGRPC()
				l := bufconn.Listen(1 << 16)
				go func() { _ = s.grpc.Serve(l) }()
				defer s.grpc.Stop()
				servers = append(servers, l)
			}
			var current atomic.Int64
			conn, err := grpc.NewClient("passthrough:///both",
				grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
					return servers[current.Load()].DialContext(ctx)
				}))
			require.NoError(t, err)
			defer conn.Close()
			began, moved := time.Now(), false
			for n := 0; !moved && time.Since(began) < 2*age; n++ {
				resp, err := pb.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(),
					&pb.RateLimitRequest{
						Domain: "d", Descriptors: []*common.RateLimitDescriptor{descriptor("user", fmt.Sprint(n))}})
				require.NoError(t, err)
				moved = resp.Statuses[0].CurrentLimit.Name == "g1"
				current.Store(1) // the second server is there
				time.Sleep(time.Minute)
			}
			assert.Equal(t, limited, moved)
			if limited {
				assert.LessOrEqual(t, time.Since(began), age*11/10+grace)
			}
		})
	}
}
