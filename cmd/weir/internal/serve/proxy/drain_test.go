package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/testkit/slow"
)

// load sends POSTs on keep-alive connections until the server takes no more, and counts the
// requests that were sent and not answered.
type load struct {
	url            string
	protocols      *http.Protocols
	answered, lost atomic.Int64
	clients        sync.WaitGroup
	errors         sync.Map
}

func http1() *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(true)
	return p
}

// client sends a request each 100 ms.
func (l *load) client(ctx context.Context) {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		Protocols: l.protocols}
	defer transport.CloseIdleConnections()
	for ctx.Err() == nil {
		sent := false
		traced := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			WroteRequest: func(httptrace.WroteRequestInfo) { sent = true },
		})
		body := io.Reader(strings.NewReader("0123456789"))
		if l.protocols.HTTP1() {
			body = io.NopCloser(body) // or net/http would repeat requests
		}
		r, err := http.NewRequestWithContext(traced, http.MethodPost, l.url, body)
		if err != nil {
			panic(err)
		}
		r.ContentLength = 10
		resp, err := transport.RoundTrip(r)
		switch {
		case err == nil:
			_, err = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		case !sent && errors.As(err, new(*net.OpError)):
			return // refused
		}
		if err == nil && resp.StatusCode == http.StatusOK {
			l.answered.Add(1)
		} else if ctx.Err() == nil {
			l.lost.Add(1)
			l.errors.Store(err.Error(), true)
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// TestAStopLosesNoRequest stops proxies under load: 50 clients send 500 POSTs a second on
// keep-alive connections. Each request that was sent must be answered.
func TestAStopLosesNoRequest(t *testing.T) {
	cert := certificate(t, "127.0.0.1")
	for _, protocol := range []string{"HTTP/1", "HTTP/2", "HTTP/2 without TLS"} {
		t.Run(protocol, func(t *testing.T) {
			answered, lost := int64(0), int64(0)
			for range slow.N(2, 6, 20) {
				cfg := config(t, "1000000/1d")
				cfg.Upstream = upstreamOf(t, func(_ http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
				})
				if protocol == "HTTP/2" {
					cfg.TLS = cert
				}
				p := run(t, cfg)
				l := &load{url: "http://" + p.front, protocols: protocols(false)}
				switch protocol {
				case "HTTP/1":
					l.protocols = http1()
				case "HTTP/2":
					l.url = p.front // with its scheme
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				for range 50 {
					l.clients.Go(func() { l.client(ctx) })
				}
				require.Eventually(t, func() bool {
					return l.answered.Load() > 150
				}, time.Minute, time.Millisecond)
				p.end(t)
				l.clients.Wait()
				cancel()
				answered, lost = answered+l.answered.Load(), lost+l.lost.Load()
				l.errors.Range(func(err, _ any) bool { t.Log(err); return true })
			}
			t.Logf("%d answered, %d lost", answered, lost)
			assert.Zero(t, lost)
		})
	}
}

// TestAnAbruptStopLosesRequests is the negative control: the requests that are in flight when a
// server closes its connections are lost.
func TestAnAbruptStopLosesRequests(t *testing.T) {
	l := &load{protocols: http1()}
	inFlight, closed := make(chan struct{}, 1), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if l.answered.Load() > 100 {
			select {
			case inFlight <- struct{}{}:
			default:
			}
			<-closed
		}
	}))
	l.url = s.URL
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 50 {
		l.clients.Go(func() { l.client(ctx) })
	}
	select {
	case <-inFlight:
	case <-ctx.Done():
		require.NoError(t, ctx.Err(), "no request is in flight after a minute")
	}
	require.NoError(t, s.Config.Close())
	close(closed)
	l.clients.Wait()
	assert.NotZero(t, l.lost.Load())
}
