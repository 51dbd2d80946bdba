// Package live has the parts that the proxy and the decision server share: the rules, which are
// loaded again when their files change, with the decisions of each, the certificate, and the
// requests of the admin address.
package live

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/weirgo/weir/rules"
)

// Config names the rules and how they count.
type Config struct {
	Paths  []string // files and directories; none if the rules come from elsewhere, by Accept
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
	status Status // guarded by mu
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

// New loads the rules in Paths. It fails if they have a mistake, since there are no older rules to
// use. Without Paths there are no rules before Accept.
func New(cfg Config) (*Rules, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	set, err := cfg.Loader.Parse()
	if err != nil {
		return nil, err
	}
	engine, err := rules.New(set, cfg.Engine)
	if err != nil {
		return nil, err
	}
	r := &Rules{cfg: cfg, Engine: engine, Figures: newFigures(cfg.Engine)}
	if len(cfg.Paths) > 0 {
		if set, err = cfg.Loader.LoadFiles(cfg.Paths...); err == nil {
			err = r.use(set)
		}
	}
	if err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	return r, nil
}

// use makes set the current rules.
func (r *Rules) use(set *rules.Set) error {
	if r.cfg.Check != nil {
		if err := r.cfg.Check(set); err != nil {
			return err
		}
	}
	r.Figures.follow(set) // before the engine uses it
	if err := r.Engine.Swap(set); err != nil {
		r.Figures.follow(r.Engine.Set())
		return err
	}
	r.status.loaded(set)
	return nil
}

func (s *Status) loaded(set *rules.Set) {
	s.Version, s.Loaded = set.Version(), time.Now()
	s.Rules, s.Domains, s.Warnings = set.Len(), set.Domains(), len(set.Warnings())
	s.Successes++
	s.Err = nil
}

// Status returns the current Status.
func (r *Rules) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}
