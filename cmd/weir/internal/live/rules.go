// Package live holds the current rules of the proxy and of the decision server. It loads them,
// reloads them when their files change, and counts the decisions of each rule.
package live

import (
	"log/slog"
	"sync"
	"time"

	"github.com/weirgo/weir/rules"
)

// Config names the rules and how they count. Paths must be set.
type Config struct {
	Paths  []string // files and directories
	Loader rules.Loader
	Engine rules.Config

	// Check returns an error for valid rules that cannot be used here. Nil accepts all rules.
	Check func(*rules.Set) error

	Log *slog.Logger // nil means no log
}

// Rules holds the current rules. It is safe for concurrent use.
type Rules struct {
	Engine  *rules.Engine
	Figures *Figures

	cfg    Config
	mu     sync.Mutex
	seen   string // guarded by mu, like status: the hash of the files when they were last read
	status Status
}

// Status describes the current rules and the last load.
type Status struct {
	Version  string // of the current rules: a hash of their files
	Loaded   time.Time
	Rules    int
	Domains  []string
	Warnings int

	Successes, Failures uint64 // loads
	Err                 error  // of the last load; nil if it succeeded
	Failed              time.Time
}

// New loads rules. It fails if they have a mistake, since there are no older rules to use.
func New(cfg Config) (*Rules, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	r := &Rules{cfg: cfg, Figures: newFigures(cfg.Engine)}
	version, err := hashFiles(cfg.Paths)
	if err != nil {
		return nil, err
	}
	set, err := r.load()
	if err != nil {
		return nil, err
	}
	if r.Engine, err = rules.New(set, cfg.Engine); err != nil {
		return nil, err
	}
	r.Figures.follow(set)
	r.seen = version
	r.loaded(version, set)
	return r, nil
}

func (r *Rules) load() (*rules.Set, error) {
	set, err := r.cfg.Loader.LoadFiles(r.cfg.Paths...)
	if err == nil && r.cfg.Check != nil {
		err = r.cfg.Check(set)
	}
	return set, err
}

// swap makes set the current rules.
func (r *Rules) swap(set *rules.Set) error {
	r.Figures.follow(set) // before the engine uses it
	err := r.Engine.Swap(set)
	if err != nil {
		r.Figures.follow(r.Engine.Set())
	}
	return err
}

func (r *Rules) loaded(version string, set *rules.Set) {
	s := &r.status
	s.Version, s.Loaded, s.Rules, s.Domains, s.Warnings = version, time.Now(), set.Len(), set.Domains(),
		len(set.Warnings())
	s.Successes++
	s.Err = nil
}

// Reload loads the rules again, whether or not their files have changed.
func (r *Rules) Reload() error { return r.reload(true) }

// Status returns the current Status.
func (r *Rules) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}
