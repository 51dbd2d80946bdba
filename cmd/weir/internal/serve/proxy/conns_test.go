package proxy

import (
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// stalling is a listener whose connections stall after the first bytes, as on a machine that is
// busy.
type stalling struct {
	net.Listener
	d time.Duration
}

func (s stalling) Accept() (net.Conn, error) {
	c, err := s.Listener.Accept()
	return &stalled{Conn: c, d: s.d}, err
}

type stalled struct {
	net.Conn
	d time.Duration
}

func (s *stalled) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	time.Sleep(s.d) // the deadline of a socket passes in real time
	s.d = 0
	return n, err
}

// A request that has come whole is served, though the time for its header ends while it is read.
// The control is a listener without conns: net/http answers 400 by itself.
func TestAValidRequestIsServedThoughItsTimeEnds(t *testing.T) {
	const timeout = 50 * time.Millisecond
	for name, row := range map[string]struct {
		of   func(net.Listener) net.Listener
		want int
	}{
		"the proxy's": {func(l net.Listener) net.Listener { return newConns(l, connBounds{}) }, 204},
		"control":     {func(l net.Listener) net.Listener { return l }, 400},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			s := &http.Server{ReadHeaderTimeout: timeout, Protocols: protocols(true),
				Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) })}
			t.Cleanup(func() { _ = s.Close() })
			go func() { _ = s.Serve(stalling{row.of(l), 2 * timeout}) }()
			conn := dial(t, l.Addr().String(), "GET /a/path HTTP/1.1\r\nHost: a\r\n\r\n")
			assert.Equal(t, row.want, response(t, conn).StatusCode)
		})
	}
}

// Only the first bytes of a connection begin the time anew: a client that sends a byte now and then
// is cut off.
func TestOnlyTheFirstBytesBeginTheTimeAnew(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	cs := newConns(l, connBounds{})
	t.Cleanup(func() { _ = cs.Close() })
	dial(t, l.Addr().String(), "GE")
	c, err := cs.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	_, err = c.Read(make([]byte, 1))
	require.NoError(t, err)
	require.NoError(t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err = c.Read(make([]byte, 1))
	require.NoError(t, err)
	from := time.Now()
	_, err = c.Read(make([]byte, 1))
	assert.ErrorIs(t, err, os.ErrDeadlineExceeded)
	assert.Less(t, time.Since(from), headerTimeout/2)
}
