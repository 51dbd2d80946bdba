package proxy

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir"
)

func newLimiter(t *testing.T) *weir.Limiter {
	l, err := weir.New(weir.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func TestStateIsSavedEveryMinute(t *testing.T) {
	name := filepath.Join(t.TempDir(), "state")
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t)
		s, err := openState(name, l, slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		stop := sync.OnceFunc((&Proxy{state: s}).keepState())
		defer stop()
		count := func() uint64 {
			f, err := os.Open(name)
			require.NoError(t, err)
			defer f.Close()
			from := newLimiter(t)
			require.NoError(t, from.Load(f))
			b, err := from.Inspect("a", time.Hour.Milliseconds())
			require.NoError(t, err)
			return b.Count
		}
		for want := range uint64(3) {
			assert.Equal(t, want, count())
			_, err := l.CheckRate("a", time.Hour.Milliseconds(), 10)
			require.NoError(t, err)
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		_, err = l.CheckRate("a", time.Hour.Milliseconds(), 10)
		require.NoError(t, err)
		stop()
		assert.Equal(t, uint64(4), count(), "and at the end")
	})
}

// TestBadStateIsKept checks that an invalid file is reported and kept until it is moved away.
func TestBadStateIsKept(t *testing.T) {
	name := filepath.Join(t.TempDir(), "state")
	require.NoError(t, os.WriteFile(name, []byte("not a snapshot"), 0o600))
	var said bytes.Buffer
	s, err := openState(name, newLimiter(t), slog.New(slog.NewTextHandler(&said, nil)))
	require.NoError(t, err)
	require.ErrorIs(t, s.bad, weir.ErrSnapshot)
	(&Proxy{state: s}).keepState()()
	assert.Contains(t, said.String(), "state not loaded")
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	assert.Equal(t, "not a snapshot", string(text))

	require.NoError(t, os.Rename(name, name+".bad"))
	require.NoError(t, s.save())
	_, err = openState(name, newLimiter(t), slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	assert.NoError(t, s.bad)
}

func TestUnwritableStateIsAnErrorAtTheStart(t *testing.T) {
	_, err := New(func() Config {
		cfg := config(t, "1/1d")
		cfg.StateFile = filepath.Join(t.TempDir(), "no such directory", "state")
		return cfg
	}())
	assert.ErrorContains(t, err, "state: ")
}

// TestReplaceFileErrors checks that errors name the file and not the temporary one.
func TestReplaceFileErrors(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "folder")
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "full"), 0o755))
	for _, name := range []string{folder, filepath.Join(dir, "missing", "file")} {
		err := replaceFile(name, func(io.Writer) error { return nil })
		assert.ErrorContains(t, err, name+" cannot be written")
		assert.NotRegexp(t, `\.[0-9]`, strings.ReplaceAll(err.Error(), dir, ""))
	}
}

func TestReplaceFileKeepsTheOldOneIfWritingFails(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(name, []byte("old"), 0o644))
	failed := errors.New("disk full")
	err := replaceFile(name, func(w io.Writer) error {
		_, _ = io.WriteString(w, "half")
		return failed
	})
	assert.ErrorIs(t, err, failed)
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	assert.Equal(t, "old", string(text))
	files, err := filepath.Glob(name + "*")
	require.NoError(t, err)
	assert.Len(t, files, 1)
}
