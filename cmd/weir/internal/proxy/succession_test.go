package proxy

import (
	"context"
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

// TestASuccessorServesWhenItIsReady checks the order: it accepts no connection before, and reads the
// deny list, which the process before may have changed, afterwards.
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
