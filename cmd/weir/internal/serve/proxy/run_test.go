package proxy

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// running is a Proxy whose Run is in progress.
type running struct {
	*Proxy
	front, back string // addresses
	stop        context.CancelFunc
	done        chan error
}

// addresses is a slog.Handler that records the addresses a Proxy serves on.
type addresses struct {
	slog.Handler
	heard chan [2]string
}

func (a addresses) Handle(_ context.Context, r slog.Record) error {
	if r.Message != "serving" {
		return nil
	}
	var at [2]string
	r.Attrs(func(x slog.Attr) bool {
		switch x.Key {
		case "listen":
			at[0] = strings.TrimPrefix(x.Value.String(), "http://")
		case "admin":
			at[1] = strings.TrimSuffix(strings.TrimPrefix(x.Value.String(), "http://"), "/-/")
		}
		return true
	})
	a.heard <- at
	return nil
}

func run(t testing.TB, cfg Config) running {
	t.Helper()
	heard := make(chan [2]string, 1)
	cfg.Log = slog.New(addresses{slog.NewTextHandler(io.Discard, nil), heard})
	cfg.Admin.Addr = "127.0.0.1:0"
	p, err := New(cfg)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	r := running{Proxy: p, stop: stop, done: make(chan error, 1)}
	go func() { r.done <- p.Run(ctx) }()
	t.Cleanup(stop)
	select {
	case at := <-heard:
		r.front, r.back = at[0], at[1]
	case err := <-r.done:
		t.Fatal(err)
	}
	return r
}

// end stops the proxy, which finishes its requests.
func (r running) end(t testing.TB) {
	t.Helper()
	r.stop()
	assert.NoError(t, <-r.done)
}

func TestRequestsInFlightFinish(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	cfg := config(t, "100/1d")
	cfg.Upstream = upstreamOf(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/chat" {
			echoUpgrade(w, r)
			return
		}
		close(arrived)
		<-release
		_, _ = io.WriteString(w, "whole")
	})
	p := run(t, cfg)
	got := make(chan string, 1)
	go func() {
		resp, err := http.Get("http://" + p.front)
		if err != nil {
			got <- err.Error()
			return
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		got <- string(body)
	}()
	<-arrived
	conn, r, code := upgrade(t, p.front)
	require.Equal(t, 101, code)

	p.stop()
	require.Eventually(t, func() bool {
		c, err := net.Dial("tcp", p.front)
		if err == nil {
			c.Close()
		}
		return err != nil
	}, 5*time.Second, time.Millisecond, "no new connections are taken")
	assert.Equal(t, 503, status(t, "GET", "http://"+p.back+"/-/healthz"), "the health check fails")
	talk(t, conn, r, "the WebSocket goes on")
	close(release)
	assert.Equal(t, "whole", <-got)
	select {
	case err := <-p.done:
		t.Fatalf("ended (%v) while a WebSocket was open", err)
	default:
	}
	require.NoError(t, conn.Close())
	assert.NoError(t, <-p.done)
}

func TestDrainTimeout(t *testing.T) {
	cfg := config(t, "100/1d")
	cfg.Drain = 50 * time.Millisecond
	cfg.Upstream = upstreamOf(t, echoUpgrade)
	p := run(t, cfg)
	conn, r, code := upgrade(t, p.front)
	require.Equal(t, 101, code)
	talk(t, conn, r, "hello")
	p.stop()
	assert.ErrorContains(t, <-p.done, "1 requests were still in flight after 50ms")
	_, err := r.ReadByte()
	assert.Error(t, err)
	conn.Close()
}

func TestAddressInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	for _, set := range []func(*Config){
		func(c *Config) { c.Listen = l.Addr().String() },
		func(c *Config) { c.Admin.Addr = l.Addr().String() },
	} {
		cfg := config(t, "1/1d")
		set(&cfg)
		p, err := New(cfg)
		require.NoError(t, err)
		assert.ErrorContains(t, p.Run(t.Context()), "address already in use")
	}
}
