package live

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/weirgo/weir/rules"
)

// errUnchanged is returned by reload if the files have not changed.
var errUnchanged = errors.New("unchanged")

// reload loads the rules if their files have changed or if force is set. If the rules have a
// mistake, reload refuses all of them and the old rules stay in use.
func (r *Rules) reload(force bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	version, err := hashFiles(r.cfg.Paths)
	if err == nil && version == r.seen && !force {
		return errUnchanged
	}
	var set *rules.Set
	if err == nil {
		r.seen = version
		if set, err = r.load(); err == nil {
			// The file may have changed between the hash and the load. Then look again next time.
			if again, changed := hashFiles(r.cfg.Paths); changed != nil || again != version {
				r.seen = ""
			}
			err = r.swap(set)
		}
	}
	if err != nil {
		repeated := r.status.Err != nil && r.status.Err.Error() == err.Error()
		r.status.Err, r.status.Failed = err, time.Now()
		r.status.Failures++
		if !repeated {
			r.cfg.Log.Error("rules refused; the old ones stay in force", "version", Short(r.status.Version),
				"error", err)
		}
		return err
	}
	r.loaded(version, set)
	r.cfg.Log.Info("rules loaded", "version", Short(version), "rules", set.Len(), "domains",
		len(set.Domains()))
	return nil
}

// Short returns the first 12 characters of a version, for display.
func Short(version string) string { return version[:min(12, len(version))] }

// hashFiles hashes the names and contents of the files that the Loader reads.
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
		root, err := filepath.EvalSymlinks(root) // WalkDir does not follow a link, not even root
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
	debounce  = 100 * time.Millisecond // events within this time count as one change
	pollEvery = 5 * time.Second        // finds changes without an event, such as on network file systems
)

// Watch reloads the rules when their files change, until ctx ends.
func (r *Rules) Watch(ctx context.Context) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		r.cfg.Log.Warn("file events are not available; the rules are polled", "every", pollEvery,
			"error", err)
		r.follow(ctx, nil, nil, func() {})
		return
	}
	defer func() { _ = watcher.Close() }()
	r.follow(ctx, watcher.Events, watcher.Errors, func() { r.observe(watcher) })
}

// follow reloads the rules after events, and at intervals in case one was lost. It calls observe to
// update the watched directories.
func (r *Rules) follow(ctx context.Context, events <-chan fsnotify.Event, failures <-chan error,
	observe func()) {
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	var due <-chan time.Time
	observe()
	_ = r.reload(false) // the files may have changed since New; reload logs its error
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			due = time.After(debounce)
			continue
		case err := <-failures:
			r.cfg.Log.Warn("file events were lost; the rules are polled", "error", err)
			continue
		case <-due:
			due = nil
		case <-poll.C:
		}
		observe()           // there may be new directories, or a link may have changed
		_ = r.reload(false) // reload logs its error
	}
}

// observe watches the directories of the rules, their subdirectories, and the directories that
// contain the paths, since a link in them may be replaced. Watching a directory again has no
// effect.
func (r *Rules) observe(w *fsnotify.Watcher) {
	for _, root := range r.cfg.Paths {
		_ = w.Add(filepath.Dir(root)) // polling covers directories that cannot be watched
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
