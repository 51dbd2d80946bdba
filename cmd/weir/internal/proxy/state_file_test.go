package proxy

import (
	"bytes"
	"context"
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
	"github.com/weirgo/weir/internal/core/atomicfile"
)

func newLimiter(t *testing.T) *weir.Limiter {
	l, err := weir.New(weir.Config{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func open(t *testing.T, name string, l *weir.Limiter, log *slog.Logger) *stateFile {
	t.Helper()
	s, err := openState(name, l, log)
	require.NoError(t, err)
	return s
}

var silent = slog.New(slog.DiscardHandler)

func TestStateIsSavedEveryMinute(t *testing.T) {
	name := filepath.Join(t.TempDir(), "state")
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t)
		s := open(t, name, l, silent)
		defer s.unlock()
		stop := sync.OnceFunc(background(context.Background(), s.run))
		defer stop()
		count := func() uint64 {
			from := newLimiter(t)
			require.NoError(t, from.LoadFile(name))
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
		_, err := l.CheckRate("a", time.Hour.Milliseconds(), 10)
		require.NoError(t, err)
		stop()
		assert.Equal(t, uint64(4), count(), "and at the end")
	})
}

// TestBadStateIsKept checks that an invalid file is reported and kept until it is moved away.
func TestBadStateIsKept(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "state")
	require.NoError(t, os.WriteFile(name, []byte("not a snapshot"), 0o600))
	var said bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		s := open(t, name, newLimiter(t), slog.New(slog.NewTextHandler(&said, nil)))
		defer s.unlock()
		require.ErrorIs(t, s.bad, weir.ErrSnapshot)
		stop := background(context.Background(), s.run)
		time.Sleep(10 * time.Minute)
		stop()
		assert.Contains(t, said.String(), "state not loaded")
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		assert.Equal(t, "not a snapshot", string(text))

		stop = background(context.Background(), s.run)
		require.NoError(t, os.Rename(name, filepath.Join(dir, "bad")))
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Contains(t, said.String(), "state is saved again")
		require.NoError(t, newLimiter(t).LoadFile(name))
		require.NoError(t, os.Remove(name))
		stop()
		assert.FileExists(t, name, "and at the end")
	})
}

// TestBadStateMovedAwayBeforeTheEnd checks that the counts are saved at the end if the invalid file
// was moved away since the last look.
func TestBadStateMovedAwayBeforeTheEnd(t *testing.T) {
	name := filepath.Join(t.TempDir(), "state")
	require.NoError(t, os.WriteFile(name, []byte("not a snapshot"), 0o600))
	s := open(t, name, newLimiter(t), silent)
	defer s.unlock()
	stop := background(context.Background(), s.run)
	require.NoError(t, os.Remove(name))
	stop()
	assert.NoError(t, newLimiter(t).LoadFile(name))
}

// TestFailedSaveIsReported checks that a failed save is logged and the next one tried.
func TestFailedSaveIsReported(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	require.NoError(t, os.Mkdir(dir, 0o700))
	name := filepath.Join(dir, "state")
	var said bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		s := open(t, name, newLimiter(t), slog.New(slog.NewTextHandler(&said, nil)))
		defer s.unlock()
		stop := background(context.Background(), s.run)
		require.NoError(t, os.RemoveAll(dir))
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, 1, strings.Count(said.String(), "state not saved"))
		require.NoError(t, os.Mkdir(dir, 0o700))
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.NoError(t, newLimiter(t).LoadFile(name))
		require.NoError(t, os.RemoveAll(dir))
		stop()
		assert.Equal(t, 2, strings.Count(said.String(), "state not saved"), "also the last one, once")
	})
}

func TestUnwritableStateIsAnErrorAtTheStart(t *testing.T) {
	_, err := New(func() Config {
		cfg := config(t, "1/1d")
		cfg.StateFile = filepath.Join(t.TempDir(), "no such directory", "state")
		return cfg
	}())
	assert.ErrorContains(t, err, "state: ")
	assert.ErrorContains(t, err, "its directory must exist")
}

// TestStateInUseIsAnErrorAtTheStart checks that a second proxy on one file is refused and leaves
// the file as it is, and that closing the first one unlocks it.
func TestStateInUseIsAnErrorAtTheStart(t *testing.T) {
	name := filepath.Join(t.TempDir(), "state")
	cfg := config(t, "1/1d")
	cfg.StateFile = name
	first, err := New(cfg)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(name, []byte("kept"), 0o600))
	_, err = New(cfg)
	require.ErrorIs(t, err, atomicfile.ErrLocked)
	assert.ErrorContains(t, err, "state: "+name+" is in use by another process")
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	assert.Equal(t, "kept", string(text))

	require.NoError(t, first.close())
	second, err := New(cfg)
	require.NoError(t, err)
	require.NoError(t, second.close())
}
