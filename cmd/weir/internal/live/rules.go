// Package live has the parts that the proxy and the decision server share: the rules, which are
// loaded again when their files change, with the decisions of each, the certificate, and the
// requests of the admin address.
package live

import (
	"context"
	"errors"
	"fmt"
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

	// AllowEmpty accepts a set without any limit from a server in place of one with limits. Files say
	// so themselves: see rules.Set.Lost.
	AllowEmpty bool

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
		set, err = cfg.Loader.LoadFiles(cfg.Paths...)
		if err == nil {
			err = r.use(set)
		}
		if err == nil && limits(set) == 0 {
			cfg.Log.Warn("no rule is a limit: every request is admitted", "rules", set.Len())
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
	if err := r.lost(set); err != nil {
		return err
	}
	r.Figures.follow(set) // before the engine uses it
	if err := r.Engine.Swap(set); err != nil {
		r.Figures.follow(r.Engine.Set())
		return err
	}
	s := &r.status
	s.Version, s.Loaded = set.Version(), time.Now()
	s.Rules, s.Warnings, s.Err = set.Len(), len(set.Warnings()), nil
	s.Successes++
	return nil
}

// Status returns the current Status.
func (r *Rules) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

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
	before := limits(r.Engine.Set())
	if err == nil {
		err = r.use(set)
	}
	if err != nil {
		r.refuse(err, before)
		return err
	}
	level := slog.LevelInfo
	if 2*limits(set) < before {
		level = slog.LevelWarn
	}
	r.cfg.Log.Log(context.Background(), level, "rules loaded", "version", Short(set.Version()),
		"rules", set.Len(), "domains", len(set.Domains()), "limits", limits(set), "limits_before", before)
	return nil
}

// refuse records why rules are not used, and logs a reason that is not that of the last load.
func (r *Rules) refuse(err error, before int) {
	repeated := r.known(nil, err)
	r.status.Err, r.status.Failed = err, time.Now()
	r.status.Failures++
	if repeated {
		return
	}
	level := slog.LevelError
	if errors.Is(err, errLost) {
		level = slog.LevelWarn
	}
	r.cfg.Log.Log(context.Background(), level, "rules refused; the old ones stay in force",
		"version", Short(r.status.Version), "limits_in_force", before, "error", err)
}

// errLost is the error of rules that take all limits away.
var errLost = errors.New("too few limits")

// lost returns an error if set takes all limits away and does not say that it means it: files those
// of a domain; a server, whose answer has all that there is, those of all domains.
func (r *Rules) lost(set *rules.Set) error {
	old := r.Engine.Set()
	if len(r.cfg.Paths) > 0 {
		if err := old.Lost(set); err != nil {
			return fmt.Errorf("%w: %w", errLost, err)
		}
		return nil
	}
	if n := limits(old); n > 0 && limits(set) == 0 && !r.cfg.AllowEmpty {
		return fmt.Errorf("%w: there is none, and %d before; to accept it, start with --xds-allow-empty",
			errLost, n)
	}
	return nil
}

// limits returns how many rules limit something.
func limits(set *rules.Set) (n int) {
	for _, of := range set.Limits() {
		n += of
	}
	return n
}

// Short returns the first 12 characters of a version, for display.
func Short(version string) string { return version[:min(12, len(version))] }
