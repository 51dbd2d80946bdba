package weir_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/internal/core/atomicfile"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// saveInPlace is the control of SaveFile: it writes to the file itself.
func saveInPlace(l *weir.Limiter, name string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(l.Save(f), f.Close())
}

// filesIn returns the names in a directory.
func filesIn(t testing.TB, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// countIn returns the count of an ID in a saved file, read by a limiter of cfg.
func countIn(t testing.TB, cfg weir.Config, name, id string) uint64 {
	t.Helper()
	l := weir.MustNew(t, cfg)
	require.NoError(t, l.LoadFile(name))
	return weir.MustInspect(t, l, id, time.Hour.Milliseconds()).Count
}

func admitOne(t testing.TB, l *weir.Limiter, id string) {
	t.Helper()
	res := weir.MustCheck(t, l, id, time.Hour.Milliseconds(), 1_000_000)
	require.True(t, res.Allowed())
}

func TestSaveFileHoldsWhatSaveWrites(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "counts")
	l, snapshot := sample(t)
	require.NoError(t, l.SaveFile(name))
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	assert.Len(t, data, len(snapshot))
	if runtime.GOOS != "windows" {
		info, err := os.Stat(name)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode())
	}
	restored, _ := newLimiter(t, weir.Config{})
	require.NoError(t, restored.LoadFile(name))
	assert.Equal(t, l.Stats().Buckets, restored.Stats().Buckets)
	l.Close()
	require.NoError(t, l.SaveFile(name), "after Close")
	assert.Equal(t, []string{"counts"}, filesIn(t, dir))
}

func TestLoadFileErrors(t *testing.T) {
	dir := t.TempDir()
	l, snapshot := sample(t)
	err := l.LoadFile(filepath.Join(dir, "missing"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	assert.ErrorContains(t, err, filepath.Join(dir, "missing"))

	name := filepath.Join(dir, "counts")
	require.NoError(t, os.WriteFile(name, snapshot[:len(snapshot)-1], 0o600))
	err = l.LoadFile(name)
	require.ErrorIs(t, err, weir.ErrSnapshot)
	assert.NotErrorIs(t, err, fs.ErrNotExist)
	assert.ErrorContains(t, err, name)

	require.NoError(t, os.WriteFile(name, snapshot, 0o600))
	small, _ := newLimiter(t, weir.Config{MaxBuckets: 1})
	require.ErrorIs(t, small.LoadFile(name), weir.ErrFull)
	small.Close()
	require.ErrorIs(t, small.LoadFile(name), weir.ErrClosed)
}

// A failed save leaves the previous file, and no other.
func TestFailedSaveFileKeepsThePreviousFile(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "counts")
	l, snapshot := sample(t)
	require.NoError(t, l.SaveFile(name))
	for n := 0; n < len(snapshot); n += 997 {
		err := atomicfile.Replace(name, func(w io.Writer) error { // as SaveFile does
			return l.Save(io.MultiWriter(w, &failingWriter{n}))
		})
		require.ErrorIs(t, err, errUnreadable)
		require.Equal(t, []string{"counts"}, filesIn(t, dir))
		restored, _ := newLimiter(t, weir.Config{})
		require.NoError(t, restored.LoadFile(name))
	}
	missing := filepath.Join(dir, "missing", "counts")
	assert.ErrorContains(t, l.SaveFile(missing), missing+" cannot be written")
}

// wholeFile saves and loads one file concurrently, from two limiters. It returns the first error.
func wholeFile(t *testing.T, save func(l *weir.Limiter, name string) error) error {
	dir := t.TempDir()
	name := filepath.Join(dir, "counts")
	var g errgroup.Group
	_, snapshot := sample(t)
	require.NoError(t, os.WriteFile(name, snapshot, 0o600))
	for range 2 {
		l, _ := sample(t)
		for range 2 {
			g.Go(func() error {
				for i := range 15 {
					if err := save(l, name); err != nil {
						return err
					}
					if _, err := l.CheckRate(fmt.Sprint(i), time.Hour.Milliseconds(), 100); err != nil {
						return err
					}
				}
				return nil
			})
		}
		g.Go(func() error {
			for range 60 {
				if err := l.LoadFile(name); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := g.Wait()
	if err == nil {
		assert.Equal(t, []string{"counts"}, filesIn(t, dir))
	}
	return err
}

func TestConcurrentSaveFileAndLoadFileNeverTear(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows renames over no file that is open")
	}
	require.NoError(t, wholeFile(t, (*weir.Limiter).SaveFile))
}

func TestConcurrentSaveFileControlInPlaceIsRejected(t *testing.T) {
	rejected(t, func() bool { return errors.Is(wholeFile(t, saveInPlace), weir.ErrSnapshot) })
}

// staleFile saves in the background while it counts hits, saves, and reads the file. It reports
// whether a file was older than a save that had returned.
func staleFile(t *testing.T, save func(l *weir.Limiter, name string) error) (stale bool) {
	name := filepath.Join(t.TempDir(), "counts")
	l, clock := newLimiter(t, weir.Config{})
	var done atomic.Bool
	var g errgroup.Group
	g.Go(func() error {
		for !done.Load() {
			if err := save(l, name); err != nil {
				return err
			}
		}
		return nil
	})
	for n := uint64(1); n <= 30 && !stale; n++ {
		admitOne(t, l, "hit")
		require.NoError(t, save(l, name))
		runtime.Gosched() // an older save may end now
		stale = countIn(t, weir.Config{Now: clock.Now}, name, "hit") < n
	}
	done.Store(true)
	require.NoError(t, g.Wait())
	return stale
}

// A save that has returned is not replaced by one that began earlier.
func TestSaveFileIsNotReplacedByAnEarlierOne(t *testing.T) {
	assert.False(t, staleFile(t, (*weir.Limiter).SaveFile))
}

// The control's saves do not wait for each other.
func TestSaveFileControlWithoutTheMutexIsRejected(t *testing.T) {
	rejected(t, func() bool {
		return staleFile(t, func(l *weir.Limiter, name string) error {
			return atomicfile.Replace(name, l.Save)
		})
	})
}

// checkpoint runs Checkpoint in a bubble. failed collects the errors that it reports, and ended its
// result.
type checkpoint struct {
	l      *weir.Limiter
	name   string
	cancel context.CancelFunc
	failed []error
	ended  chan error
}

func startCheckpoint(t *testing.T, dir string, interval time.Duration) *checkpoint {
	l := weir.MustNew(t, weir.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	c := &checkpoint{l: l, name: filepath.Join(dir, "counts"), cancel: cancel,
		ended: make(chan error, 1)}
	go func() {
		c.ended <- l.Checkpoint(ctx, c.name, interval, func(err error) {
			c.failed = append(c.failed, err)
		})
	}()
	return c
}

// count returns what the file has counted.
func (c *checkpoint) count(t *testing.T) uint64 {
	synctest.Wait()
	return countIn(t, weir.Config{}, c.name, "a")
}

func TestCheckpointSavesEveryIntervalAndAtTheEnd(t *testing.T) {
	for what, end := range map[string]func(c *checkpoint){
		"ctx ends": func(c *checkpoint) { c.cancel() },
		"Close":    func(c *checkpoint) { c.l.Close() },
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				c := startCheckpoint(t, dir, 10*time.Second)
				time.Sleep(10*time.Second - 1)
				require.Empty(t, filesIn(t, dir), "not yet")
				time.Sleep(1)
				for want := range uint64(5) {
					require.Equal(t, want, c.count(t))
					admitOne(t, c.l, "a")
					time.Sleep(10*time.Second - 1)
					require.Equal(t, want, c.count(t), "not yet")
					time.Sleep(1)
				}
				time.Sleep(time.Second)
				admitOne(t, c.l, "a")
				end(c)
				require.NoError(t, <-c.ended)
				assert.Equal(t, uint64(6), c.count(t), "at the end")
				assert.Empty(t, c.failed)
				assert.Equal(t, []string{"counts"}, filesIn(t, dir))
			})
		})
	}
}

// A failed save does not end Checkpoint, and each is reported once: the last one is returned.
func TestCheckpointGoesOnAfterAFailedSave(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	synctest.Test(t, func(t *testing.T) {
		c := startCheckpoint(t, dir, time.Minute)
		admitOne(t, c.l, "a")
		time.Sleep(2*time.Minute + 1)
		synctest.Wait()
		require.Len(t, c.failed, 2)
		assert.ErrorIs(t, c.failed[1], fs.ErrNotExist)
		require.NoError(t, os.Mkdir(dir, 0o700))
		time.Sleep(time.Minute)
		assert.Equal(t, uint64(1), c.count(t))
		require.NoError(t, os.RemoveAll(dir))
		c.cancel()
		assert.ErrorIs(t, <-c.ended, fs.ErrNotExist)
		assert.Len(t, c.failed, 2)
	})
}

func TestCheckpointEdges(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := startCheckpoint(t, dir, -1)
		time.Sleep(time.Minute - 1)
		require.Empty(t, filesIn(t, dir), "the interval is a minute")
		time.Sleep(1)
		synctest.Wait()
		require.Equal(t, []string{"counts"}, filesIn(t, dir))
		c.cancel()
		require.NoError(t, <-c.ended)

		admitOne(t, c.l, "a")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, c.l.Checkpoint(ended, c.name, time.Hour, nil), "a ctx that has ended")
		assert.Equal(t, uint64(1), c.count(t))

		missing := filepath.Join(dir, "missing", "counts")
		timeout, cancel := context.WithTimeout(t.Context(), 150*time.Minute)
		defer cancel()
		err := c.l.Checkpoint(timeout, missing, time.Hour, nil)
		assert.ErrorIs(t, err, fs.ErrNotExist, "without failed, only the last error is known")
	})
}

// saverDir is the environment variable with the directory in which this test binary saves until it
// is killed; saverInPlace makes it the control. Its limiter has saverIDs buckets.
const (
	saverDir     = "WEIR_TEST_SAVER_DIR"
	saverInPlace = "WEIR_TEST_SAVER_IN_PLACE"
	saverIDs     = 1000
)

// This is no test but the process that TestKilledSaver kills.
func TestSaverProcess(t *testing.T) {
	dir := os.Getenv(saverDir)
	if dir == "" {
		t.Skip("run by TestKilledSaverLeavesAWholeFile")
	}
	save := (*weir.Limiter).SaveFile
	if os.Getenv(saverInPlace) != "" {
		save = saveInPlace
	}
	l, _ := newLimiter(t, weir.Config{})
	for i := range saverIDs {
		admitOne(t, l, fmt.Sprint(strings.Repeat("long", 250), i)) // a save takes several writes
	}
	for {
		require.NoError(t, save(l, filepath.Join(dir, "counts")))
		fmt.Println("saved")
	}
}

// killSaver kills a process while it saves into dir.
func killSaver(t *testing.T, dir string, after int, env ...string) {
	t.Helper()
	slow.Native(t)
	test, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(test, "-test.run=^TestSaverProcess$")
	cmd.Env = append(os.Environ(), append(env, saverDir+"="+dir)...)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer cmd.Process.Kill() // in case it does not save
	lines := bufio.NewScanner(out)
	for range after {
		require.True(t, lines.Scan(), "the process saves")
	}
	time.Sleep(time.Duration(after) * 300 * time.Microsecond) // somewhere in the next save
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait() // it was killed
}

// A process that is killed while it saves leaves a whole file, and the next save removes what else
// it has left.
func TestKilledSaverLeavesAWholeFile(t *testing.T) {
	if runtime.GOOS == "js" {
		t.Skip("no processes")
	}
	dir := t.TempDir()
	name := filepath.Join(dir, "counts")
	l, _ := newLimiter(t, weir.Config{})
	cut := 0 // saves that were cut off
	for n := 0; n < slow.N(2, 12, 300) || cut == 0; n++ {
		require.Less(t, n, 400)
		killSaver(t, dir, 1+n%5)
		require.NoError(t, l.LoadFile(name))
		require.Equal(t, saverIDs, l.Stats().Buckets)
		if runtime.GOOS != "windows" { // there it may be a minute old
			require.LessOrEqual(t, len(filesIn(t, dir)), 2, "%q", filesIn(t, dir))
		}
		cut += len(filesIn(t, dir)) - 1
	}
	require.NoError(t, l.SaveFile(name))
	if runtime.GOOS != "windows" {
		assert.Equal(t, []string{"counts"}, filesIn(t, dir))
	}
}

func TestKilledSaverControlInPlaceIsRejected(t *testing.T) {
	if runtime.GOOS == "js" {
		t.Skip("no processes")
	}
	n := 0
	rejected(t, func() bool {
		dir := t.TempDir()
		n++
		killSaver(t, dir, 1+n%5, saverInPlace+"=1")
		l, _ := newLimiter(t, weir.Config{})
		return errors.Is(l.LoadFile(filepath.Join(dir, "counts")), weir.ErrSnapshot)
	})
}
