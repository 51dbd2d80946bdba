package proxy

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestStreamsAreNotHeldBack checks that a response sent in pieces arrives in pieces, with or
// without a Content-Length.
func TestStreamsAreNotHeldBack(t *testing.T) {
	for _, length := range []string{"", "10"} {
		next := make(chan struct{})
		cfg := config(t, "100/1d")
		cfg.Guard.CountIf = func(int) bool { return true } // wraps the ResponseWriter once more
		cfg.Upstream = upstreamOf(t, func(w http.ResponseWriter, _ *http.Request) {
			if length != "" {
				w.Header().Set("Content-Length", length)
			}
			for range 5 {
				_, _ = io.WriteString(w, "x\n")
				_ = http.NewResponseController(w).Flush()
				<-next
			}
		})
		s := serve(t, cfg)
		resp, err := http.Get(s.front.URL)
		require.NoError(t, err)
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		for range 5 {
			require.True(t, lines.Scan(), "the upstream goes on only when this line was read")
			next <- struct{}{}
		}
		assert.False(t, lines.Scan())
	}
}

// echoUpgrade is a server that switches protocols and then echoes its input.
func echoUpgrade(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "websocket" {
		http.Error(w, "upgrade", http.StatusUpgradeRequired)
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	_, _ = rw.WriteString(
		"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	_ = rw.Flush()
	_, _ = io.Copy(conn, rw)
}

// upgrade requests a WebSocket. It returns the connection if the upgrade succeeds, or else the
// status.
func upgrade(t testing.TB, addr string) (net.Conn, *bufio.Reader, int) {
	t.Helper()
	conn := dial(t, addr, "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\n"+
		"Upgrade: websocket\r\n\r\n")
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	require.NoError(t, err)
	return conn, r, resp.StatusCode
}

func talk(t testing.TB, conn net.Conn, r *bufio.Reader, text string) {
	t.Helper()
	_, err := io.WriteString(conn, text+"\n")
	require.NoError(t, err)
	line, err := r.ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, text+"\n", line)
}

func TestWebSocketsPass(t *testing.T) {
	for _, countIf := range []func(int) bool{nil, func(status int) bool { return status == 101 }} {
		cfg := config(t, "1/1d")
		cfg.Guard.CountIf = countIf
		log := jsonLog(&cfg.Access)
		cfg.Upstream = upstreamOf(t, echoUpgrade)
		s := serve(t, cfg)
		addr := s.addr()
		conn, r, code := upgrade(t, addr)
		require.Equal(t, 101, code)
		talk(t, conn, r, "hello")
		talk(t, conn, r, strings.Repeat("x", 100_000))
		require.NoError(t, conn.Close())
		refused, _, code := upgrade(t, addr)
		assert.Equal(t, 429, code, "the second one is over the limit")
		refused.Close()
		s.inFlight.Wait()
		assert.Contains(t, log.String(), `"status":101`)
	}
}
