package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// text returns a function that writes s.
func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

func contents(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(data)
}

// files returns the names in a directory.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// hasLocks reports whether the system has flock(2).
func hasLocks(t *testing.T) bool {
	f, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	defer f.Close()
	return tryLock(f) == nil
}

func TestReplace(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	require.NoError(t, Replace(name, text("first")))
	assert.Equal(t, "first", contents(t, name))
	require.NoError(t, os.WriteFile(name, []byte("a longer text"), 0o600))
	require.NoError(t, os.Chmod(name, 0o644))
	require.NoError(t, Replace(name, text("new")))
	assert.Equal(t, "new", contents(t, name))
	assert.Equal(t, []string{"file"}, files(t, dir))
	if runtime.GOOS != "windows" {
		info, err := os.Stat(name)
		require.NoError(t, err)
		assert.Equal(t, os.FileMode(0o600), info.Mode())
	}
}

func TestReplaceInTheWorkingDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, Replace("file", text("new")))
	assert.Equal(t, "new", contents(t, "file"))
	assert.Equal(t, []string{"file"}, files(t, "."))
}

// A writer that fails leaves the old file, and nothing else.
func TestReplaceKeepsTheOldFileIfWritingFails(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(name, []byte("old"), 0o600))
	failed := errors.New("disk full")
	err := Replace(name, func(w io.Writer) error {
		require.NoError(t, text("half")(w))
		return failed
	})
	require.ErrorIs(t, err, failed)
	assert.EqualError(t, err, name+" cannot be written: disk full")
	assert.Equal(t, "old", contents(t, name))
	assert.Equal(t, []string{"file"}, files(t, dir))
}

// The same holds if the file cannot be written to, or the temporary file is removed before the
// rename.
func TestReplaceKeepsTheOldFileIfTheSystemFails(t *testing.T) {
	for what, spoil := range map[string]func(f *os.File) error{
		"a closed file": (*os.File).Close,
		"a lost file":   func(f *os.File) error { return os.Remove(f.Name()) },
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			name := filepath.Join(dir, "file")
			require.NoError(t, os.WriteFile(name, []byte("old"), 0o600))
			err := Replace(name, func(w io.Writer) error {
				if err := spoil(w.(*os.File)); err != nil {
					t.Skip("Windows removes no open file")
				}
				return nil
			})
			assert.ErrorContains(t, err, name+" cannot be written: ")
			assert.Equal(t, "old", contents(t, name))
			assert.Equal(t, []string{"file"}, files(t, dir))
		})
	}
}

// Errors name the file and not the temporary one.
func TestReplaceErrorsNameTheFile(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "folder")
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "full"), 0o755))
	for _, name := range []string{folder, filepath.Join(dir, "missing", "file")} {
		err := Replace(name, text("new"))
		assert.ErrorContains(t, err, name+" cannot be written")
		assert.NotContains(t, err.Error(), tempInfix)
	}
	assert.ErrorIs(t, Replace(filepath.Join(dir, "missing", "file"), text("new")), os.ErrNotExist)
	assert.Equal(t, []string{"folder"}, files(t, dir))
}

// The temporary file of a writer that was killed is removed; files that only look like one are not.
func TestReplaceRemovesAbandonedFiles(t *testing.T) {
	dir := t.TempDir()
	others := []string{
		"other.saving-1", "file.saving-", "file.saving-1x", "file.saving-1.saving-2", "file.1",
		"x.file.saving-1",
	}
	for _, n := range append(others, "file.saving-1", "file.saving-234567890") {
		require.NoError(t, os.WriteFile(filepath.Join(dir, n), []byte("half"), 0o600))
		hour := time.Now().Add(-time.Hour)
		require.NoError(t, os.Chtimes(filepath.Join(dir, n), hour, hour))
	}
	require.NoError(t, Replace(filepath.Join(dir, "file"), text("new")))
	assert.ElementsMatch(t, append(others, "file"), files(t, dir))
}

// With locks an abandoned file is removed at once, and without them once it is a minute old.
func TestReplaceRemovesAYoungAbandonedFile(t *testing.T) {
	dir := t.TempDir()
	temp := filepath.Join(dir, "file.saving-1")
	require.NoError(t, os.WriteFile(temp, []byte("half"), 0o600))
	removeIfOld(temp)
	require.FileExists(t, temp)
	require.NoError(t, Replace(filepath.Join(dir, "file"), text("new")))
	if hasLocks(t) {
		assert.NoFileExists(t, temp)
	} else {
		assert.FileExists(t, temp)
	}
}

// A writer that has not written for long is not disturbed by another one.
func TestReplaceKeepsTheFilesOfLiveWriters(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	require.NoError(t, Replace(name, func(w io.Writer) error {
		if hasLocks(t) {
			hour := time.Now().Add(-time.Hour)
			require.NoError(t, os.Chtimes(w.(*os.File).Name(), hour, hour))
		}
		require.NoError(t, Replace(name, text("quick")))
		assert.Equal(t, "quick", contents(t, name))
		return text("slow")(w)
	}))
	assert.Equal(t, "slow", contents(t, name))
	assert.Equal(t, []string{"file"}, files(t, dir))
}

// race replaces a file from several goroutines and reads it meanwhile. It returns the first error
// of a writer, or that a reader found a torn file.
func race(t *testing.T, replace func(name string, write func(io.Writer) error) error) error {
	t.Helper()
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	whole := map[string]bool{}
	write := func(writer int) func(io.Writer) error {
		part := strings.Repeat(fmt.Sprint(writer), 1000*(writer+1))
		return func(w io.Writer) error { return errors.Join(text(part)(w), text(part)(w)) }
	}
	for writer := range 6 {
		var b strings.Builder
		require.NoError(t, write(writer)(&b))
		whole[b.String()] = true
	}
	require.NoError(t, replace(name, write(0)))
	var g errgroup.Group
	for writer := range 6 {
		g.Go(func() error {
			for range 30 {
				if err := replace(name, write(writer)); err != nil {
					return err
				}
				data, err := os.ReadFile(name)
				if err != nil {
					return err
				}
				if !whole[string(data)] {
					return fmt.Errorf("torn: %d bytes", len(data))
				}
			}
			return nil
		})
	}
	err := g.Wait()
	if err == nil && len(files(t, dir)) > 1 {
		err = fmt.Errorf("left over: %q", files(t, dir))
	}
	return err
}

func TestConcurrentReplacesTearNothing(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows renames over no file that is open")
	}
	require.NoError(t, race(t, Replace))
}

// The controls share a temporary file, write in place, and remove the files of live writers.
func TestConcurrentReplacesControlsAreRejected(t *testing.T) {
	inPlace := func(name string, write func(io.Writer) error) error {
		f, err := os.Create(name)
		if err != nil {
			return err
		}
		return errors.Join(write(f), f.Close())
	}
	for what, replace := range map[string]func(name string, write func(io.Writer) error) error{
		"in place": inPlace,
		"one temporary file": func(name string, write func(io.Writer) error) error {
			if err := inPlace(name+".tmp", write); err != nil {
				return err
			}
			return os.Rename(name+".tmp", name)
		},
		"no lock": func(name string, write func(io.Writer) error) error {
			temps, err := filepath.Glob(name + ".saving-*")
			for _, temp := range temps {
				_ = os.Remove(temp)
			}
			return errors.Join(err, Replace(name, write))
		},
	} {
		t.Run(what, func(t *testing.T) {
			for range 20 {
				if race(t, replace) != nil {
					return
				}
			}
			t.Error("the control passed")
		})
	}
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	unlock, err := Lock(name)
	require.NoError(t, err)
	if hasLocks(t) || runtime.GOOS == "windows" {
		_, err = Lock(name)
		require.ErrorIs(t, err, ErrLocked)
		assert.ErrorContains(t, err, name+" is in use by another process")
	}
	other, err := Lock(filepath.Join(dir, "other"))
	require.NoError(t, err)
	other()
	unlock()
	assert.Empty(t, files(t, dir))

	require.NoError(t, os.WriteFile(name+".lock", nil, 0o600), "as after a kill")
	unlock, err = Lock(name)
	require.NoError(t, err)
	unlock()
	assert.Empty(t, files(t, dir))

	_, err = Lock(filepath.Join(dir, "missing", "file"))
	assert.ErrorContains(t, err, "its directory must exist")
}

// exclusion has several goroutines take and release a lock, and returns how often two held it.
func exclusion(t *testing.T, lock func(name string) (unlock func(), err error)) (twice int) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	var g errgroup.Group
	both := make(chan struct{}, 1) // full while the lock is held
	failures := make(chan struct{}, 10_000)
	for range 8 {
		g.Go(func() error {
			for n := 0; n < 100; {
				unlock, err := lock(name)
				if errors.Is(err, ErrLocked) {
					runtime.Gosched()
					continue
				}
				if err != nil {
					return err
				}
				n++
				select {
				case both <- struct{}{}:
					runtime.Gosched()
					<-both
				default:
					failures <- struct{}{}
				}
				unlock()
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	return len(failures)
}

func TestLockExcludes(t *testing.T) {
	if !hasLocks(t) {
		t.Skip("no flock")
	}
	assert.Zero(t, exclusion(t, Lock))
}

// The control's lock does not look whether the file that it has locked still has its name.
func TestLockControlThatLocksARemovedFileIsRejected(t *testing.T) {
	if !hasLocks(t) {
		t.Skip("no flock")
	}
	for range 20 {
		if exclusion(t, func(name string) (unlock func(), err error) {
			f, err := os.OpenFile(name+".lock", os.O_RDWR|os.O_CREATE, 0o600)
			if err != nil {
				return nil, err
			}
			runtime.Gosched()
			if err := tryLock(f); err != nil {
				_ = f.Close()
				return nil, err
			}
			return func() {
				_ = os.Remove(name + ".lock")
				_ = f.Close()
			}, nil
		}) > 0 {
			return
		}
	}
	t.Error("the control passed")
}
