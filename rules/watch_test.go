package rules_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/testkit/slow"
	"github.com/weirgo/weir/rules"
)

// generation returns rules whose limits are named after n. Without its last line it is valid, too.
func generation(n int) string {
	text := "domain: d\ndescriptors:\n"
	for key := range 3 {
		text += fmt.Sprintf(
			"  - {key: k%d, rate_limit: {unit: year, requests_per_unit: 1000000, name: g%d}}\n", key, n,
		)
	}
	return text
}

// writer replaces the rules in a directory.
type writer struct {
	*testing.T
	dir string
	// bad counts the sets in force that are not a whole generation, late those that were not in force
	// within a second, failed the decisions that failed or mixed two generations.
	bad, late, failed atomic.Int64
	changes           atomic.Int64
	engine            *rules.Engine
}

func (w *writer) write(name, text string) {
	require.NoError(w, os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600))
}

// move renames a file.
func (w *writer) move(from, to string) {
	require.NoError(w, os.Rename(filepath.Join(w.dir, from), filepath.Join(w.dir, to)))
}

// byRename renames a new file to the name of the old one.
func (w *writer) byRename(n int) {
	w.write(".new", generation(n))
	w.move(".new", "rules.yaml")
}

// byLink replaces a link to a directory, as Kubernetes does in a ConfigMap.
func (w *writer) byLink(n int) {
	version := fmt.Sprintf("..v%d", n)
	require.NoError(w, os.Mkdir(filepath.Join(w.dir, version), 0o755))
	w.write(filepath.Join(version, "rules.yaml"), generation(n))
	old, _ := os.Readlink(filepath.Join(w.dir, "..data"))
	require.NoError(w, os.Symlink(version, filepath.Join(w.dir, "..tmp")))
	w.move("..tmp", "..data")
	if old != "" {
		require.NoError(w, os.RemoveAll(filepath.Join(w.dir, old)))
	}
	require.NoError(w, os.Symlink("..data/rules.yaml", filepath.Join(w.dir, "..link")))
	w.move("..link", "rules.yaml")
}

// inPlace overwrites the file with a part that is not valid, then with one that is, then as a
// whole.
func (w *writer) inPlace(n int) {
	text := generation(n)
	require.NoError(w, os.RemoveAll(filepath.Join(w.dir, "rules.yaml"))) // it may be a link
	w.write("rules.yaml", text[:len(text)/2])
	time.Sleep(150 * time.Millisecond)
	w.write("rules.yaml", text[:1+strings.LastIndexByte(text[:len(text)-1], '\n')])
	time.Sleep(150 * time.Millisecond)
	w.write("rules.yaml", text)
}

// broken leaves half of a file for a second.
func (w *writer) broken(n int) {
	w.write("rules.yaml", generation(n)[:80])
	time.Sleep(time.Second) // a look, in a bubble or in real time
	w.byRename(n)
}

// change is an onChange that counts sets that are not a whole generation.
func (w *writer) change(set *rules.Set, err error) {
	if err != nil {
		return
	}
	names := map[string]bool{}
	for r := range set.All() {
		names[r.Limit.Name] = true
	}
	if set.Len() != 3 || len(names) != 1 {
		w.bad.Add(1)
	}
	w.changes.Add(1)
	assert.NoError(w, w.engine.Swap(set))
}

// decide decides on requests until ctx ends.
func (w *writer) decide(ctx context.Context) {
	for ctx.Err() == nil {
		resp, err := w.engine.Decide(context.Background(),
			&rules.Request{Domain: "d", Descriptors: []rules.Descriptor{
				{Entries: []rules.Entry{{Key: "k0", Value: "a"}}},
				{Entries: []rules.Entry{{Key: "k1", Value: "a"}}}}})
		if err != nil || resp.Statuses[0].Rule == nil || resp.Statuses[1].Rule == nil ||
			resp.Statuses[0].Rule.Limit.Name != resp.Statuses[1].Rule.Limit.Name {
			w.failed.Add(1)
		}
		time.Sleep(11 * time.Millisecond) // the pace of the caller, in a bubble or in real time
	}
}

// swaps changes rules that watch follows, under load.
func swaps(
	t *testing.T, times int, watch func(context.Context, []string, func(*rules.Set, error)),
) *writer {
	w := &writer{T: t, dir: t.TempDir()}
	w.byRename(0)
	synctest.Test(t, func(t *testing.T) {
		set, err := rules.LoadFiles(w.dir)
		require.NoError(t, err)
		w.engine, err = rules.New(set, rules.Config{})
		require.NoError(t, err)
		defer w.engine.Close()
		ctx, stop := context.WithCancel(t.Context())
		go watch(ctx, []string{w.dir}, w.change)
		for range 4 {
			go w.decide(ctx)
		}
		time.Sleep(time.Second)
		ways := []func(int){w.byRename, w.inPlace, w.byLink, w.byLink, w.inPlace, w.broken}
		for n := 1; n <= times; n++ {
			ways[n%len(ways)](n)
			time.Sleep(time.Second)
			r := w.engine.Set().Match("d", []rules.Entry{{Key: "k2", Value: "a"}})
			if r == nil || r.Limit.Name != fmt.Sprint("g", n) {
				w.late.Add(1)
			}
		}
		stop()
		time.Sleep(time.Second) // the bubble fails if a goroutine is left
	})
	return w
}

// openFiles returns the number of open files, or 0 where it is not known.
func openFiles() int {
	list, _ := os.ReadDir("/proc/self/fd")
	return len(list)
}

// TestWatch replaces rules 200 times or more: by renaming a file, by replacing a link, and in
// place, with states in between that are half-written. Each generation must be in force within a
// second, and nothing else ever.
func TestWatch(t *testing.T) {
	before := openFiles()
	times := slow.N(200, 1000, 5000)
	w := swaps(t, times, rules.Watch)
	assert.Zero(t, w.bad.Load(), "sets that are not a whole generation")
	assert.Zero(t, w.late.Load(), "generations that are not in force after a second")
	assert.Zero(t, w.failed.Load(), "decisions that failed or mixed generations")
	assert.EqualValues(t, times+1, w.changes.Load(), "each generation is loaded once")
	assert.LessOrEqual(t, openFiles(), before, "open files")
}

// TestWatchControl: a watcher that loads what it sees takes half-written rules into force.
func TestWatchControl(t *testing.T) {
	w := swaps(t, 12, func(ctx context.Context, paths []string, onChange func(*rules.Set, error)) {
		for ctx.Err() == nil {
			onChange(rules.LoadFiles(paths...))
			time.Sleep(20 * time.Millisecond)
		}
	})
	assert.Positive(t, w.bad.Load())
}

// TestWatchReportsAMistakeOnce also counts a file that cannot be read as a mistake, and the same
// rules as a change after it.
func TestWatchReportsAMistakeOnce(t *testing.T) {
	w := &writer{T: t, dir: t.TempDir()}
	w.byRename(0)
	synctest.Test(t, func(t *testing.T) {
		var got []string
		ctx, stop := context.WithCancel(t.Context())
		go rules.Watch(ctx, []string{filepath.Join(w.dir, "rules.yaml")},
			func(set *rules.Set, err error) {
				if err != nil {
					got = append(got, "mistake")
					return
				}
				got = append(got, set.Version()[:4])
			})
		version := func() string {
			set, err := rules.LoadFiles(filepath.Join(w.dir, "rules.yaml"))
			require.NoError(t, err)
			return set.Version()[:4]
		}
		first := version()
		time.Sleep(time.Minute)
		w.write("rules.yaml", "domain: [")
		time.Sleep(time.Minute)
		w.move("rules.yaml", "away.yaml")
		time.Sleep(time.Minute)
		w.byRename(0)
		time.Sleep(time.Minute)
		w.byRename(1)
		time.Sleep(time.Minute)
		stop()
		synctest.Wait()
		assert.Equal(t, []string{first, "mistake", "mistake", first, version()}, got)
		assert.NotEqual(t, first, version())
	})
}
