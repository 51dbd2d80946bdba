package envoy

import (
	"context"
	"crypto/tls"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weirgo/weir/rules"
)

// XDSConfig names an xDS server.
type XDSConfig struct {
	Addr   string
	Node   string      // the name of this process for the server
	TLS    *tls.Config // nil means no TLS
	Loader rules.Loader
	Log    *slog.Logger
}

const (
	// firstWait is the time before a second attempt to reach the server. It doubles up to lastWait.
	firstWait = time.Second
	lastWait  = 30 * time.Second

	// maxMessage bounds the rules, which arrive in one message.
	maxMessage = 64 << 20

	// xdsPingEvery is how long the server may be silent. A server of grpc-go refuses more frequent
	// pings.
	xdsPingEvery = 5 * time.Minute
)

// XDSClient receives rules from an xDS server, such as that of Envoy Gateway: the resources
// RateLimitConfig of an aggregated discovery service, state of the world.
type XDSClient struct {
	cfg   XDSConfig
	conn  *grpc.ClientConn
	waits waits
}

// NewXDS returns an XDSClient. It connects in Run.
func NewXDS(cfg XDSConfig) (*XDSClient, error) {
	creds := insecure.NewCredentials()
	if cfg.TLS != nil {
		creds = credentials.NewTLS(cfg.TLS)
	}
	conn, err := grpc.NewClient(cfg.Addr, grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: xdsPingEvery}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: firstWait, Multiplier: 1.6, Jitter: 0.2,
				MaxDelay: lastWait},
			MinConnectTimeout: 5 * time.Second,
		}))
	if err != nil {
		return nil, err
	}
	return &XDSClient{cfg: cfg, conn: conn}, nil
}

// Run calls accept with each set of rules that the server sends, or with the error of a set with a
// mistake, until ctx ends. If accept returns an error the server gets it, and the rules of accept
// stay as they are. After a failure Run connects again. It closes the XDSClient.
func (c *XDSClient) Run(ctx context.Context, accept func(*rules.Set, error) error) {
	defer func() { _ = c.conn.Close() }()
	for {
		err := c.stream(ctx, accept)
		if ctx.Err() != nil {
			return
		}
		wait := c.waits.next()
		c.cfg.Log.Warn("no stream of rules; the old ones stay in force", "xds", c.cfg.Addr, "error", err,
			"again_in", wait.Round(time.Millisecond))
		if !sleep(ctx, wait) {
			return
		}
	}
}

// stream receives rules until the stream fails.
func (c *XDSClient) stream(ctx context.Context, accept func(*rules.Set, error) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(c.conn).StreamAggregatedResources(ctx)
	if err != nil {
		return err
	}
	// The first request names no version, even if rules of an earlier stream are in force: a server
	// that has started again may count its versions from the beginning, and would not send its rules.
	next, version, refused := &discovery.DiscoveryRequest{}, "", false
	for {
		next.TypeUrl, next.Node = typeURL, &core.Node{Id: c.cfg.Node}
		if err := stream.Send(next); err != nil {
			_, err = stream.Recv() // the cause
			return err
		}
		resp, err := stream.Recv()
		if err != nil {
			return err
		}
		next = &discovery.DiscoveryRequest{ResponseNonce: resp.GetNonce()}
		if err := accept(c.load(resp.GetResources())); err != nil {
			next.ErrorDetail = &status.Status{Code: int32(codes.InvalidArgument), Message: detail(err)}
			// A server may answer a refusal by rules with the same mistake, at once and for ever, also as
			// another version. The first refusal is sent at once: a correction may follow it.
			if refused && !sleep(ctx, c.waits.next()) {
				return ctx.Err()
			}
			refused = true
		} else {
			version, refused, c.waits = resp.GetVersionInfo(), false, 0
		}
		next.VersionInfo = version
	}
}

// detail returns the text of err for the server, which needs valid UTF-8 of a bounded length.
func detail(err error) string {
	text := err.Error()
	return strings.ToValidUTF8(text[:min(len(text), 4096)], "")
}

// load makes rules of resources.
func (c *XDSClient) load(resources []*anypb.Any) (*rules.Set, error) {
	list, err := files(resources)
	if err != nil {
		return nil, err
	}
	return c.cfg.Loader.Parse(list...)
}

// waits is the time before the next attempt, without jitter; 0 means firstWait.
type waits time.Duration

// next returns the time before the next attempt, which doubles. It is random by a fifth, so that
// many processes do not return at once to a server that restarts.
func (w *waits) next() time.Duration {
	wait := max(time.Duration(*w), firstWait)
	*w = waits(min(2*wait, lastWait))
	return time.Duration(float64(wait) * (0.8 + 0.4*rand.Float64()))
}

// sleep waits for d, and reports whether ctx is still valid.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
