package live

import (
	"context"
	"errors"
	"time"

	"github.com/weirgo/weir/rules"
)

// Reload loads the rules again, whether or not their files have changed.
func (r *Rules) Reload() error {
	if len(r.cfg.Paths) == 0 {
		err := errors.New("the rules come from a server, which sends them when they change")
		r.cfg.Log.Warn("rules not loaded again", "error", err)
		return err
	}
	r.mu.Lock() // before the files are read: Watch may not accept newer ones meanwhile
	defer r.mu.Unlock()
	return r.accept(r.cfg.Loader.LoadFiles(r.cfg.Paths...))
}

// Watch loads the rules when their files change, until ctx ends.
func (r *Rules) Watch(ctx context.Context) {
	r.cfg.Loader.Watch(ctx, r.cfg.Paths, func(set *rules.Set, err error) {
		_ = r.Accept(set, err) // accept logs its error
	})
}

// Accept makes set the current rules. If it cannot be used or err is not nil, the old rules stay in
// force, and Accept returns why. The result of the last load is no change.
func (r *Rules) Accept(set *rules.Set, err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known(set, err) {
		return err
	}
	return r.accept(set, err)
}

// known reports whether the last load had this result.
func (r *Rules) known(set *rules.Set, err error) bool {
	if err != nil || r.status.Err != nil {
		return err != nil && r.status.Err != nil && err.Error() == r.status.Err.Error()
	}
	return set.Version() == r.status.Version
}

// accept is Accept with mu held.
func (r *Rules) accept(set *rules.Set, err error) error {
	if err == nil {
		err = r.use(set)
	}
	if err != nil {
		repeated := r.known(nil, err)
		r.status.Err, r.status.Failed = err, time.Now()
		r.status.Failures++
		if !repeated {
			r.cfg.Log.Error("rules refused; the old ones stay in force",
				"version", Short(r.status.Version), "error", err)
		}
		return err
	}
	r.cfg.Log.Info("rules loaded", "version", Short(set.Version()), "rules", set.Len(),
		"domains", len(set.Domains()))
	return nil
}

// Short returns the first 12 characters of a version, for display.
func Short(version string) string { return version[:min(12, len(version))] }
