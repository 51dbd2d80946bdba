package proxy

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/weirgo/weir/httplimit"
)

// echoService answers each message of a stream with one, and fails calls with FillUsername.
type echoService struct {
	testgrpc.UnimplementedTestServiceServer
}

func (echoService) UnaryCall(
	_ context.Context, r *testgrpc.SimpleRequest,
) (*testgrpc.SimpleResponse, error) {
	if r.FillUsername {
		return nil, grpcstatus.Error(codes.NotFound, "no such user")
	}
	return &testgrpc.SimpleResponse{Payload: r.Payload}, nil
}

func (echoService) FullDuplexCall(s testgrpc.TestService_FullDuplexCallServer) error {
	for {
		r, err := s.Recv()
		if err == io.EOF {
			return grpcstatus.Error(codes.DataLoss, "the end")
		} else if err != nil {
			return err
		}
		if err := s.Send(&testgrpc.StreamingOutputCallResponse{Payload: r.Payload}); err != nil {
			return err
		}
	}
}

// runGRPC runs a proxy in front of an echoService, and returns a client of it.
func runGRPC(t *testing.T, limit string) (running, testgrpc.TestServiceClient) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer()
	testgrpc.RegisterTestServiceServer(s, echoService{})
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	cfg := config(t, limit)
	cfg.Upstream = &url.URL{Scheme: "h2c", Host: l.Addr().String()}
	p := run(t, cfg)
	conn, err := grpc.NewClient(p.front, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return p, testgrpc.NewTestServiceClient(conn)
}

// TestGRPCPassesWithoutTLS calls a gRPC server through the proxy: messages in both directions and
// the statuses, which are trailers, arrive, and calls over the limit are Unavailable.
func TestGRPCPassesWithoutTLS(t *testing.T) {
	p, client := runGRPC(t, "3/1d")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	payload := &testgrpc.Payload{Body: []byte("message")}
	got, err := client.UnaryCall(ctx, &testgrpc.SimpleRequest{Payload: payload})
	require.NoError(t, err)
	assert.Equal(t, payload.Body, got.Payload.Body)
	_, err = client.UnaryCall(ctx, &testgrpc.SimpleRequest{FillUsername: true})
	assert.Equal(t, codes.NotFound, grpcstatus.Code(err), err)

	stream, err := client.FullDuplexCall(ctx)
	require.NoError(t, err)
	for range 3 {
		require.NoError(t, stream.Send(&testgrpc.StreamingOutputCallRequest{Payload: payload}))
		got, err := stream.Recv() // before the next is sent
		require.NoError(t, err)
		assert.Equal(t, payload.Body, got.Payload.Body)
	}
	require.NoError(t, stream.CloseSend())
	_, err = stream.Recv()
	assert.Equal(t, codes.DataLoss, grpcstatus.Code(err), err)

	_, err = client.UnaryCall(ctx, &testgrpc.SimpleRequest{Payload: payload})
	assert.Equal(t, codes.Unavailable, grpcstatus.Code(err), err)
	assert.ErrorContains(t, err, "429")
	p.end(t)
}

// TestGRPCStatusWithoutAMessage checks that the header of a response without a body ends the
// stream. Clients take another one for a failure of the server.
func TestGRPCStatusWithoutAMessage(t *testing.T) {
	p, client := runGRPC(t, "1000/1d")
	for range 50 {
		_, err := client.UnaryCall(t.Context(), &testgrpc.SimpleRequest{FillUsername: true})
		require.Equal(t, codes.NotFound, grpcstatus.Code(err), err)
	}
	p.end(t)
}

// TestHTTP2WithoutTLSOnEitherSide passes requests between clients and upstreams of both protocols.
func TestHTTP2WithoutTLSOnEitherSide(t *testing.T) {
	for _, upstream := range []*http.Protocols{protocols(false), http1()} {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			text, _ := io.ReadAll(r.Body)
			_, _ = fmt.Fprintf(w, "%d %s", r.ProtoMajor, text)
		}))
		s.Config.Protocols = upstream
		s.Start()
		defer s.Close()
		cfg, major := config(t, "2/1d"), 1
		cfg.Upstream = &url.URL{Scheme: "http", Host: s.Listener.Addr().String()}
		if upstream.UnencryptedHTTP2() {
			cfg.Upstream.Scheme, major = "h2c", 2
		}
		p := run(t, cfg)
		for _, client := range []*http.Protocols{protocols(false), http1(), http1()} {
			transport := &http.Transport{Protocols: client}
			r, err := http.NewRequest("POST", "http://"+p.front, strings.NewReader("message"))
			require.NoError(t, err)
			resp, err := transport.RoundTrip(r)
			require.NoError(t, err)
			text, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			assert.Equal(t, client.UnencryptedHTTP2(), resp.ProtoMajor == 2)
			if resp.StatusCode == http.StatusOK {
				assert.Equal(t, fmt.Sprint(major, " message"), string(text))
			}
			transport.CloseIdleConnections()
		}
		assert.EqualValues(t, 2, p.tally.count(httplimit.Admitted))
		assert.EqualValues(t, 1, p.tally.count(httplimit.Denied), "both protocols share the limit")
		p.end(t)
	}
}

// TestAConnectionHasAtMostAHundredStreams reads the setting that the server enforces.
func TestAConnectionHasAtMostAHundredStreams(t *testing.T) {
	p := run(t, config(t, "1/1d"))
	const noSettings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	conn := dial(t, p.front, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+noSettings)
	head := make([]byte, 9)
	_, err := io.ReadFull(conn, head)
	require.NoError(t, err)
	require.EqualValues(t, 4, head[3], "the type of SETTINGS")
	settings := make([]byte, int(head[1])<<8|int(head[2]))
	_, err = io.ReadFull(conn, settings)
	require.NoError(t, err)
	const maxConcurrentStreams = "\x00\x03"
	for pair := range slices.Chunk(settings, 6) {
		if string(pair[:2]) == maxConcurrentStreams {
			assert.EqualValues(t, 100, binary.BigEndian.Uint32(pair[2:]))
			settings = nil
		}
	}
	assert.Nil(t, settings, "no setting of the streams")
	require.NoError(t, conn.Close())
	p.end(t)
}
