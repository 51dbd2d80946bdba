package proxy

import (
	"crypto/tls"
	"encoding/binary"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/httplimit"
)

// flood is an upstream whose response, or WebSocket, has no end.
func flood(w http.ResponseWriter, r *http.Request) {
	piece := make([]byte, 32<<10)
	switch r.URL.Path {
	case "/chat":
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = rw.WriteString(
			"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		)
		_ = rw.Flush()
		for err == nil {
			_, err = conn.Write(piece)
		}
	case "/flood":
		for err := error(nil); err == nil; {
			_, err = w.Write(piece)
		}
	case "/events":
		_ = http.NewResponseController(w).Flush()
		time.Sleep(600 * time.Millisecond) // longer than SendTimeout
		_, _ = io.WriteString(w, "event")
	}
}

// holdStream asks for a response without an end over HTTP/2, and reads none of it.
func holdStream(t *testing.T, url string) {
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
		Protocols: protocols(false)}
	t.Cleanup(transport.CloseIdleConnections)
	r, err := http.NewRequest("GET", url+"/flood", nil)
	require.NoError(t, err)
	resp, err := transport.RoundTrip(r)
	require.NoError(t, err)
	require.Equal(t, 2, resp.ProtoMajor)
	t.Cleanup(func() { _ = resp.Body.Close() })
}

// TestSlowReadersKeepNobodyOut has as many clients that read nothing as requests may be in flight.
func TestSlowReadersKeepNobodyOut(t *testing.T) {
	const bound = 4
	cert := certificate(t, "127.0.0.1")
	for name, hold := range map[string]func(t *testing.T, p running){
		"HTTP/1": func(t *testing.T, p running) {
			dial(t, p.front, "GET /flood HTTP/1.1\r\nHost: a\r\n\r\n")
		},
		"WebSocket": func(t *testing.T, p running) {
			conn, _, code := upgrade(t, p.front)
			require.Equal(t, 101, code)
			t.Cleanup(func() { _ = conn.Close() })
		},
		"HTTP/2":             func(t *testing.T, p running) { holdStream(t, p.front) },
		"HTTP/2 without TLS": func(t *testing.T, p running) { holdStream(t, "http://"+p.front) },
	} {
		t.Run(name, func(t *testing.T) {
			cfg := config(t, "1000/1d")
			cfg.Upstream = upstreamOf(t, flood)
			cfg.MaxInFlight, cfg.SendTimeout = bound, 200*time.Millisecond
			if name == "HTTP/2" {
				cfg.TLS = cert
			}
			p := run(t, cfg)
			for range bound {
				hold(t, p)
			}
			assert.Eventually(t, func() bool { return p.open.Load() == 0 }, 20*time.Second, time.Millisecond)
			p.end(t)
		})
	}
}

// TestTheLastPieceIsBoundedToo makes two requests over HTTP/2 and takes nothing of their responses:
// of one from the upstream, and of a denial, which net/http sends when the handlers have returned.
// Both streams end.
func TestTheLastPieceIsBoundedToo(t *testing.T) {
	cfg := config(t, "1/1d")
	cfg.Upstream = upstreamOf(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "piece")
	})
	cfg.SendTimeout = 200 * time.Millisecond
	p := run(t, cfg)
	conn := dial(t, p.front, "")
	require.NoError(t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	const settings, window = "\x00\x00\x06\x04\x00\x00\x00\x00\x00", "\x00\x04\x00\x00\x00\x00" // of 0 bytes
	const acknowledged = "\x00\x00\x00\x04\x01\x00\x00\x00\x00"
	const first, second = "\x00\x00\x06\x01\x05\x00\x00\x00\x01", "\x00\x00\x06\x01\x05\x00\x00\x00\x03"
	const get = "\x82\x84\x86\x41\x01a" // http://a/
	_, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+settings+window+acknowledged+
		first+get+second+get)
	require.NoError(t, err)
	const data, resetStream = 0, 3
	for open := 2; open > 0; {
		head := make([]byte, 9)
		_, err = io.ReadFull(conn, head)
		require.NoError(t, err, "a stream has not ended")
		require.NotEqualValues(t, data, head[3], "the client has no room for it")
		if head[3] == resetStream {
			open--
		}
		_, err = io.CopyN(io.Discard, conn, int64(binary.BigEndian.Uint32(head)>>8))
		require.NoError(t, err)
	}
	assert.EqualValues(t, 1, p.tally.count(httplimit.Denied))
	require.NoError(t, conn.Close())
	p.end(t)
}

// TestAStreamWithoutDataIsNotSlow has an event after three times the time that a client may take.
func TestAStreamWithoutDataIsNotSlow(t *testing.T) {
	cert := certificate(t, "127.0.0.1")
	for _, files := range []TLS{{}, cert} {
		cfg := config(t, "1000/1d")
		cfg.Upstream = upstreamOf(t, flood)
		cfg.SendTimeout, cfg.TLS = 200*time.Millisecond, files
		p := run(t, cfg)
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
			ForceAttemptHTTP2: true}
		defer transport.CloseIdleConnections()
		url := p.front
		if files == (TLS{}) {
			url = "http://" + p.front
		}
		r, err := http.NewRequest("GET", url+"/events", nil)
		require.NoError(t, err)
		resp, err := transport.RoundTrip(r)
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Equal(t, "event", string(text))
		require.NoError(t, resp.Body.Close())
		p.end(t)
	}
}
