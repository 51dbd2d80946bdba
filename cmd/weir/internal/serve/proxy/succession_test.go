package proxy

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/core/atomicfile"
)

// staged is a Succession whose process before and after are the test.
type staged struct {
	alone
	succeeds bool
	ready    func() error
	leave    chan struct{}
}

func (s *staged) Succeeds() bool         { return s.succeeds }
func (s *staged) Leave() <-chan struct{} { return s.leave }
func (s *staged) Ready() error {
	if s.ready == nil {
		return nil
	}
	return s.ready()
}

// TestASuccessorThatCannotCount has a state file that cannot be opened: before it takes over, the
// process ends and the one before goes on; afterwards it serves, since nobody else does.
func TestASuccessorThatCannotCount(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "states")
	cfg := config(t, "100/1d")
	cfg.StateFile = filepath.Join(dir, "state")
	next := &staged{succeeds: true, ready: func() error { t.Error("it takes over"); return nil }}
	cfg.Succession = next
	p, err := New(cfg)
	require.NoError(t, err)
	assert.ErrorContains(t, p.Run(t.Context()), "state: ")

	require.NoError(t, os.Mkdir(dir, 0o700))
	unlock, err := atomicfile.Lock(cfg.StateFile)
	require.NoError(t, err)
	next.ready = func() error {
		unlock()
		return os.RemoveAll(dir)
	}
	r := run(t, cfg)
	resp, err := http.Get("http://" + r.front)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	r.end(t)
}

// TestASuccessorServesWhenItIsReady checks the order: it accepts no connection before, and reads
// the deny list, which the process before may have changed, afterwards.
func TestASuccessorServesWhenItIsReady(t *testing.T) {
	cfg := config(t, "100/1d")
	cfg.DenyFile = filepath.Join(t.TempDir(), "deny")
	var p *Proxy
	cfg.Succession = &staged{succeeds: true, ready: func() error {
		assert.Nil(t, p.conns.Load())
		return os.WriteFile(cfg.DenyFile, []byte("192.0.2.7\n# end\n"), 0o600)
	}}
	p, err := New(cfg)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	require.NoError(t, p.Run(ctx))
	assert.Len(t, p.denied.Added(), 1)
}

// TestWhoLeavesTakesNoNewRequests has connections without a request while another process takes
// over: that which has sent nothing is closed before the counts are let go, and the request of that
// which has sent a part of it is served and counted.
func TestWhoLeavesTakesNoNewRequests(t *testing.T) {
	next := &staged{leave: make(chan struct{})}
	cfg := config(t, "100/1d")
	cfg.Succession, cfg.Drain = next, 20*time.Second
	cfg.StateFile = filepath.Join(t.TempDir(), "state")
	r := run(t, cfg)
	open := func(text string) net.Conn {
		conn, err := net.Dial("tcp", r.front)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		require.NoError(t, conn.SetDeadline(time.Now().Add(15*time.Second)))
		_, err = io.WriteString(conn, text)
		require.NoError(t, err)
		return conn
	}
	silent, part, slow := open(""), open("GET / HTTP/1.1\r\n"), open("GET / HTTP/1.1\r\n")
	require.Eventually(t, func() bool {
		cs := r.conns.Load()
		cs.mu.Lock()
		defer cs.mu.Unlock()
		begun := 0
		for _, c := range cs.withoutRequest() {
			if c.begun.Load() {
				begun++
			}
		}
		return cs.open == 3 && begun == 2
	}, 10*time.Second, time.Millisecond)
	close(next.leave)
	_, err := silent.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	_, err = atomicfile.Lock(cfg.StateFile)
	require.ErrorIs(t, err, atomicfile.ErrLocked)
	_, err = io.WriteString(part, "Host: a\r\n\r\n")
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(part), nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	_, err = slow.Read(make([]byte, 1))
	require.Error(t, err)
	require.NoError(t, <-r.done)
}
