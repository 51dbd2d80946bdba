package serve

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/weirgo/weir/rules"
)

// Status is what is known of the rules.
type Status struct {
	Version  string // of the rules that are in force: a hash of their files
	Loaded   time.Time
	Rules    int
	Domains  []string
	Warnings int

	Successes, Failures uint64 // loads
	Err                 error  // of the last load; nil if it went well
	Failed              time.Time
}

// reloader loads the rules again when their files change.
type reloader struct {
	loader rules.Loader
	paths  []string
	swap   func(*rules.Set) error
	log    *slog.Logger

	mu     sync.Mutex
	seen   string // guarded by mu, as all below: the hash of the files when they were last read
	status Status
}

// ErrUnchanged is returned by reload if the files are as they were.
var errUnchanged = errors.New("unchanged")

// first loads the rules that the server begins with.
func (l *reloader) first() (*rules.Set, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	version, err := hashFiles(l.paths)
	if err != nil {
		return nil, err
	}
	set, err := l.loader.LoadFiles(l.paths...)
	if err != nil {
		return nil, err
	}
	l.seen = version
	l.loaded(version, set)
	return set, nil
}

func (l *reloader) loaded(version string, set *rules.Set) {
	s := &l.status
	s.Version, s.Loaded, s.Rules, s.Domains, s.Warnings = version, time.Now(), set.Len(), set.Domains(), len(set.Warnings())
	s.Successes++
	s.Err = nil
}

// reload loads the rules, if their files have changed or force is set. Rules with a mistake are refused as a whole: the
// old ones stay in force.
func (l *reloader) reload(force bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	version, err := hashFiles(l.paths)
	if err == nil && version == l.seen && !force {
		return errUnchanged
	}
	var set *rules.Set
	if err == nil {
		l.seen = version
		if set, err = l.loader.LoadFiles(l.paths...); err == nil {
			// What was read must be what was hashed: a file that changed in between is looked at again.
			if again, changed := hashFiles(l.paths); changed != nil || again != version {
				l.seen = ""
			}
			err = l.swap(set)
		}
	}
	if err != nil {
		repeated := l.status.Err != nil && l.status.Err.Error() == err.Error()
		l.status.Err, l.status.Failed = err, time.Now()
		l.status.Failures++
		if !repeated {
			l.log.Error("rules refused; the old ones stay in force", "version", short(l.status.Version), "error", err)
		}
		return err
	}
	l.loaded(version, set)
	l.log.Info("rules loaded", "version", short(version), "rules", set.Len(), "domains", len(set.Domains()))
	return nil
}

func (l *reloader) current() Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status
}

func short(version string) string { return version[:min(12, len(version))] }

// hashFiles hashes the names and contents of the files that the Loader would read.
func hashFiles(paths []string) (string, error) {
	h := sha256.New()
	add := func(name string) error {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(h, "%d:%s%d:", len(name), name, len(data))
		h.Write(data)
		return nil
	}
	for _, root := range paths {
		info, err := os.Stat(root)
		if err != nil {
			return "", err
		}
		if !info.IsDir() {
			if err := add(root); err != nil {
				return "", err
			}
			continue
		}
		root, err := filepath.EvalSymlinks(root) // WalkDir follows no link, not even this one
		if err != nil {
			return "", err
		}
		err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
			switch ext := filepath.Ext(name); {
			case err != nil:
				return err
			case name != root && strings.HasPrefix(d.Name(), "."):
				if d.IsDir() {
					return fs.SkipDir
				}
				return nil
			case !d.IsDir() && (ext == ".yaml" || ext == ".yml"):
				if info, err := os.Stat(name); err == nil && info.IsDir() {
					return nil // the Loader refuses it
				}
				return add(name)
			}
			return nil
		})
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

const (
	debounce  = 100 * time.Millisecond // events that follow each other so closely are one change
	pollEvery = 5 * time.Second        // for changes without an event, as on network file systems
)

// watch reloads the rules when their files change, until ctx ends.
func (l *reloader) watch(ctx context.Context) {
	events := make(<-chan fsnotify.Event)
	failures := make(<-chan error)
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		l.log.Warn("file events are not available; the rules are polled", "every", pollEvery, "error", err)
	} else {
		defer func() { _ = watcher.Close() }()
		events, failures = watcher.Events, watcher.Errors
	}
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	var due <-chan time.Time
	l.observe(watcher)
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			due = time.After(debounce)
			continue
		case err := <-failures:
			l.log.Warn("file events were lost; the rules are polled", "error", err)
			continue
		case <-due:
			due = nil
		case <-poll.C:
		}
		l.observe(watcher)  // directories may be new, or a link may lead elsewhere
		_ = l.reload(false) // it has logged its error
	}
}

// observe watches the directories that the rules are in: those that the paths lead to, those below, and those that hold
// the paths, in which a link may be replaced. Watching a directory twice is once.
func (l *reloader) observe(w *fsnotify.Watcher) {
	if w == nil {
		return
	}
	for _, root := range l.paths {
		_ = w.Add(filepath.Dir(root)) // what cannot be watched is polled
		resolved, err := filepath.EvalSymlinks(root)
		if err != nil {
			continue
		}
		info, err := os.Stat(resolved)
		if err != nil {
			continue
		}
		if !info.IsDir() {
			_ = w.Add(filepath.Dir(resolved))
			continue
		}
		_ = filepath.WalkDir(resolved, func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				_ = w.Add(name)
			}
			return nil
		})
	}
}
