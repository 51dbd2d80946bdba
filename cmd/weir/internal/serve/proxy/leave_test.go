package proxy

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/testkit/slow"
)

// endless is an upstream that answers as soon as it has the header of a request, and never ends.
func endless(t *testing.T, answer string, reads bool) *url.URL {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var conns sync.WaitGroup
	t.Cleanup(func() {
		_ = l.Close()
		conns.Wait()
	})
	over := t.Context().Done()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer conn.Close()
				r := bufio.NewReader(conn)
				for line := ""; line != "\r\n"; {
					if line, err = r.ReadString('\n'); err != nil {
						return
					}
				}
				_, _ = io.WriteString(conn, answer)
				if reads {
					_, _ = io.Copy(io.Discard, r)
					return
				}
				<-over
			})
		}
	}()
	u, err := url.Parse("http://" + l.Addr().String())
	require.NoError(t, err)
	return u
}

// endlessHTTP2 is an upstream with HTTP/2 that reads no body.
func endlessHTTP2(t *testing.T) *url.URL {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "hello")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	s.Config.Protocols = protocols(true)
	s.Start()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	u, err := url.Parse("h2c://" + s.Listener.Addr().String())
	require.NoError(t, err)
	return u
}

// TestAClientThatLeavesHoldsNothing sends requests to upstreams that never end, and hangs up: each
// ends in the proxy, which then stops at once.
func TestAClientThatLeavesHoldsNothing(t *testing.T) {
	const (
		closing = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello"
		keeping = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello"
	)
	for _, row := range []struct {
		name, answer, request string
		clients               int
		reads                 bool // the upstream reads the body
	}{
		{"expects 100 and has sent the body", closing,
			"Content-Length: 10\r\nExpect: 100-continue\r\n\r\n0123456789", slow.N(2000, 4000, 8000), true},
		{"expects 100 and sends no body", closing,
			"Content-Length: 10\r\nExpect: 100-continue\r\n\r\n", slow.N(2000, 4000, 8000), true},
		{"expects 100 and has sent a chunked body", closing,
			"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n1\r\na\r\n0\r\n\r\n", 300, true},
		{"expects 100 for another body than the upstream reads", closing,
			"Content-Length: 10\r\nExpect: 100-continue\r\n\r\n0123456789", 300, false},
		{"expects 100, and the upstream keeps the connection", keeping,
			"Content-Length: 10\r\nExpect: 100-continue\r\n\r\n", 300, true},
		{"has no body", closing, "\r\n", 100, true},
		{"has sent a part of the body", closing, "Content-Length: 10\r\n\r\n012", 100, true},
		{"has sent a part of a chunk", closing, "Transfer-Encoding: chunked\r\n\r\n5\r\n012", 100, true},
		{"has sent a body that the upstream does not read", closing,
			"Content-Length: 1000\r\n\r\n" + strings.Repeat("0", 1000), 100, false},
		{"has sent a large body that the upstream does not read", closing,
			"Content-Length: 100000000\r\n\r\n" + strings.Repeat("0", 100_000_000), 2, false},
		{"has sent a large body that the upstream never answers", "",
			"Content-Length: 100000000\r\n\r\n" + strings.Repeat("0", 100_000_000), 2, false},
		{"has sent a large body that the upstream does not read, over HTTP/2", "HTTP/2",
			"Content-Length: 100000000\r\n\r\n" + strings.Repeat("0", 100_000_000), 2, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			cfg := config(t, "1000000/1d")
			if cfg.Upstream = endless(t, row.answer, row.reads); row.answer == "HTTP/2" {
				cfg.Upstream = endlessHTTP2(t)
			}
			cfg.MaxInFlight, cfg.Drain, cfg.UpstreamTimeout = 100, 3*time.Second, time.Second
			p := run(t, cfg)
			slots := make(chan struct{}, 50)
			var clients sync.WaitGroup
			for range row.clients {
				slots <- struct{}{}
				clients.Go(func() {
					defer func() { <-slots }()
					conn, err := net.Dial("tcp", p.front)
					if !assert.NoError(t, err) {
						return
					}
					defer conn.Close()
					_ = conn.SetDeadline(time.Now().Add(300 * time.Millisecond))
					_, _ = fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: a\r\n%s", row.request)
					_, _ = bufio.NewReader(conn).ReadString('o') // of hello, or of "100 Continue"
				})
			}
			clients.Wait()
			assert.Eventually(t, func() bool { return p.open.Load() == 0 }, 10*time.Second, time.Millisecond)
			start := time.Now()
			p.end(t)
			assert.Less(t, time.Since(start), cfg.Drain)
		})
	}
}

// TestTheProxyAnswersExpect sends a body after 100 Continue. The upstream does not see that the
// client waits, and a denied request gets no 100.
func TestTheProxyAnswersExpect(t *testing.T) {
	cfg := config(t, "1/1d")
	cfg.Upstream = upstreamOf(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%q %s", r.Header["Expect"], body)
	})
	s := serve(t, cfg)
	for _, want := range []string{"HTTP/1.1 100 Continue", "HTTP/1.1 429 Too Many Requests"} {
		conn := dial(t, s.addr(), "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n"+
			"Expect: 100-continue\r\n\r\n")
		r := bufio.NewReader(conn)
		line, err := r.ReadString('\n')
		require.NoError(t, err)
		require.Equal(t, want, strings.TrimSpace(line))
		if strings.Contains(want, "429") {
			continue
		}
		_, err = io.WriteString(conn, "hello")
		require.NoError(t, err)
		_, err = r.ReadString('\n')
		require.NoError(t, err)
		resp, err := http.ReadResponse(r, nil)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		assert.Equal(t, "[] hello", string(body))
	}
}

// TestAnUpstreamThatReadsNothingIsGivenUp checks that the client gets an answer, and that an
// upstream that reads slowly, or answers before it reads, has all the time it needs.
func TestAnUpstreamThatReadsNothingIsGivenUp(t *testing.T) {
	body := strings.Repeat("0", 20_000_000)
	cfg := config(t, "100/1d")
	cfg.UpstreamTimeout = 300 * time.Millisecond
	cfg.Upstream = endless(t, "", false)
	s := serve(t, cfg)
	resp, _ := send(t, "POST", s.front.URL, strings.NewReader(body))
	assert.Equal(t, http.StatusGatewayTimeout, resp.StatusCode)

	cfg.UpstreamTimeout = time.Second
	cfg.Upstream = upstreamOf(t, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		_ = http.NewResponseController(w).Flush()
		read := int64(0)
		for end := time.Now().Add(1300 * time.Millisecond); time.Now().Before(end); {
			n, _ := io.CopyN(io.Discard, r.Body, int64(len(body)/100))
			read += n
			time.Sleep(50 * time.Millisecond) // a slow reader takes real time
		}
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, "read ", read+n)
	})
	s = serve(t, cfg)
	resp, got := send(t, "POST", s.front.URL, strings.NewReader(body))
	assert.Equal(t, 200, resp.StatusCode)
	assert.Equal(t, fmt.Sprint("read ", len(body)), got)
}
