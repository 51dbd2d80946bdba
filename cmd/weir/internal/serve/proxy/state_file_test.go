package proxy

import (
	"bytes"
	"context"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
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
	s, err := openState(name, time.Minute, l, log)
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

// A file that cannot be loaded is kept under another name, and the counts are saved all the same.
func TestBadStateIsSetAside(t *testing.T) {
	const hour = 3_600_000
	ahead := func(by time.Duration) string {
		l, err := weir.New(weir.Config{Now: func() time.Time { return time.Now().Add(by) }})
		require.NoError(t, err)
		defer l.Close()
		_, err = l.CheckRate("a", hour, 10)
		require.NoError(t, err)
		var b strings.Builder
		require.NoError(t, l.Save(&b))
		return b.String()
	}
	for _, row := range []struct {
		name, file string
		aside      bool
	}{
		{"no snapshot", "not a snapshot", true},
		{"an empty file", "", true},
		{"cut", ahead(0)[:20], true},
		{"of a clock an hour ahead", ahead(time.Hour), true},
		{"of a clock ten years ahead", ahead(87_600 * time.Hour), true},
		{"of a clock a little ahead", ahead(30 * time.Second), false},
		{"of a clock a week behind", ahead(-168 * time.Hour), false},
	} {
		name := filepath.Join(t.TempDir(), "state")
		var said bytes.Buffer
		for i := 1; i <= 2; i++ {
			require.NoError(t, os.WriteFile(name, []byte(row.file), 0o600))
			l := newLimiter(t)
			s := open(t, name, l, slog.New(slog.NewTextHandler(&said, nil)))
			stop := background(context.Background(), s.run)
			_, err := l.CheckRate("b", hour, 10)
			require.NoError(t, err)
			stop()
			s.unlock()
			from := newLimiter(t)
			require.NoError(t, from.LoadFile(name), row.name)
			b, err := from.Inspect("b", hour)
			require.NoError(t, err)
			assert.EqualValues(t, 1, b.Count, "%s: it is saved", row.name)
			kept := name + ".bad-" + strconv.Itoa(i)
			if !row.aside {
				assert.NoFileExists(t, kept, row.name)
				continue
			}
			text, err := os.ReadFile(kept)
			require.NoError(t, err, row.name)
			assert.Equal(t, row.file, string(text), row.name)
			assert.Contains(t, said.String(), "level=WARN", row.name)
			assert.Contains(t, said.String(), "kept="+kept, row.name)
		}
	}
}

// A process that is killed loses the counts of one interval.
func TestStateIsSavedAtEachInterval(t *testing.T) {
	name := filepath.Join(t.TempDir(), "state")
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(t)
		s := open(t, name, l, silent)
		defer s.unlock()
		s.every = time.Second
		defer background(context.Background(), s.run)()
		_, err := l.CheckRate("a", time.Hour.Milliseconds(), 10)
		require.NoError(t, err)
		time.Sleep(time.Second)
		synctest.Wait()
		from := newLimiter(t)
		require.NoError(t, from.LoadFile(name))
		b, err := from.Inspect("a", time.Hour.Milliseconds())
		require.NoError(t, err)
		assert.EqualValues(t, 1, b.Count)
	})
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

// TestARestartForgetsWhatIsInFlight loads the state of a process with requests in flight: the one
// that follows would not see them end. Rates stay as they are.
func TestARestartForgetsWhatIsInFlight(t *testing.T) {
	byRules, _ := rulesConfig(t, placesText)
	for name, cfg := range map[string]Config{"limits": perClient(t, "4/1d"), "rules": byRules} {
		t.Run(name, func(t *testing.T) {
			own := perClient(t)
			cfg.Trust, cfg.Upstream = own.Trust, own.Upstream
			full := func() served {
				s := serve(t, cfg)
				for range eachClient {
					code, end := openStream(t, s.front.URL, "192.0.2.1")
					require.Equal(t, 200, code)
					t.Cleanup(end)
				}
				require.Equal(t, 429, status(t, "GET", s.front.URL, "X-Forwarded-For", "192.0.2.1"))
				return s
			}
			first := full()
			cfg.StateFile = filepath.Join(t.TempDir(), "state")
			require.NoError(t, first.limiter.SaveFile(cfg.StateFile))
			second := full()
			if name == "limits" {
				x := explained(t, second, url.Values{"key": {"192.0.2.1"}})
				assert.EqualValues(t, 4, x.Limits[1].Used, "of both")
			}
		})
	}
}
