// Package live has the parts that the proxy and the decision server share: the rules, which are
// loaded again when their files change, with the decisions of each, the certificate, and the
// requests of the admin address.
package live

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
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

// The handlers below show and change the counts of a client. The servers put them behind a Gate.

// ServeReload loads the rules again. It answers with their version, or with 422 and the mistakes.
func (r *Rules) ServeReload(w http.ResponseWriter, _ *http.Request) {
	if err := r.Reload(); err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	s := r.Status()
	WriteJSON(w, map[string]any{"version": s.Version, "rules": s.Rules})
}

// named returns the domain and the text of the descriptor that a request names: by these two, or as
// the page shows them, "DOMAIN: DESCRIPTOR", by its key or its ID.
func (r *Rules) named(req *http.Request) (domain, text string, err error) {
	domain, text = req.FormValue("domain"), req.FormValue("descriptor")
	if text != "" {
		return domain, text, nil
	}
	text = req.FormValue("key")
	if id := req.FormValue("id"); id != "" {
		text, err = KeyOf(id)
	}
	for _, d := range r.Engine.Set().Domains() {
		if rest, ok := strings.CutPrefix(text, d+": "); ok {
			return d, rest, err
		}
	}
	return domain, text, err
}

// caller parses the descriptor that a request names; if all is set there may be none. The domain
// may be omitted if there is only one.
func (r *Rules) caller(
	w http.ResponseWriter, req *http.Request, all bool,
) (domain string, entries []rules.Entry, ok bool) {
	domain, text, err := r.named(req)
	if err == nil && (text != "" || !all) {
		entries, err = rules.ParseEntries(text)
		key := req.FormValue("key")
		if _, notAddr := cli.Prefix(key); notAddr == nil && req.FormValue("descriptor") == "" {
			err = fmt.Errorf("%q names no caller: rules count descriptors, such as "+
				"-d remote_address=%s", key, key)
		}
	}
	if domains := r.Engine.Set().Domains(); domain == "" && len(domains) == 1 {
		domain = domains[0]
	}
	if err == nil && domain == "" {
		err = errors.New("want ?domain=DOMAIN&descriptor=KEY=VALUE,…")
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return "", nil, false
	}
	return domain, entries, true
}

// ServeExplain answers with the cli.Explained of a descriptor, and counts nothing. The denials may
// be nil.
func (r *Rules) ServeExplain(w http.ResponseWriter, req *http.Request, denials *Denials) {
	domain, entries, ok := r.caller(w, req, false)
	if !ok {
		return
	}
	resp, err := r.Engine.Decide(req.Context(), &rules.Request{
		Domain: domain, Descriptors: []rules.Descriptor{{Entries: entries, HasHits: true}},
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	name, now := rules.FormatEntries(entries), time.Now()
	answer := cli.Explained{
		Name: screen.Printable(name), Now: now.UnixMilli(),
		Shadow: r.cfg.Engine.Shadow,
		Steps:  screen.Lines(r.Engine.Set().Explain(domain, entries)),
	}
	if s := &resp.Statuses[0]; s.Rule != nil {
		held := cli.Held{Name: screen.Printable(s.Rule.Path), Limit: s.Rule.Limit.String(),
			Counting: s.Rule.Limit.Algorithm.String(), AtOnce: s.Rule.Limit.AtOnce(),
			Left: s.Remaining}
		if !s.Rule.Limit.Unlimited {
			most := cmp.Or(s.Rule.Limit.Burst, uint64(s.Rule.Limit.Requests))
			held.Used = most - min(most, held.Left)
		}
		switch {
		case s.Reason == rules.Shadowed: // it passes
		case s.Rule.Limit.Requests == 0 && !s.Rule.Limit.Unlimited:
			held.Never = true
		case s.Reason == rules.Over || held.Left == 0:
			held.Passes = now.Add(time.Duration(s.ResetSeconds()) * time.Second).UnixMilli()
		}
		answer.Limits = []cli.Held{held}
	}
	if denials != nil {
		denials.Explain(&answer, domain+": "+name)
	}
	answer.Tell()
	WriteJSON(w, answer)
}

// ServeReset deletes the count of a descriptor.
func (r *Rules) ServeReset(w http.ResponseWriter, req *http.Request) {
	domain, entries, ok := r.caller(w, req, false)
	if !ok {
		return
	}
	found, err := r.Engine.Reset(req.Context(), domain, entries)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		http.Error(w, err.Error(), http.StatusNotImplemented)
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case !found:
		http.Error(w, "No rule limits this descriptor.", http.StatusNotFound)
	default:
		r.cfg.Log.Info("caller reset", "domain", domain, "descriptor", rules.FormatEntries(entries))
		WriteJSON(w, map[string]any{"reset": true})
	}
}

// ServeResetAll deletes the counts of the descriptors that begin with a descriptor, as
// rules.Engine.ResetAll does; without one, all of the domain. It answers with a cli.Progress on a
// line every second, and ends if the client disconnects.
func (r *Rules) ServeResetAll(w http.ResponseWriter, req *http.Request) {
	domain, entries, ok := r.caller(w, req, true)
	if !ok {
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	lines, last := json.NewEncoder(w), time.Now()
	end := cli.Progress{Done: true}
	n, err := r.Engine.ResetAll(req.Context(), domain, entries, func(seen, reset int) {
		end.Seen = seen
		if time.Since(last) >= time.Second {
			last = time.Now()
			_ = lines.Encode(cli.Progress{Seen: seen, Reset: reset}) // an error ends the request's context
			_ = http.NewResponseController(w).Flush()
		}
	})
	end.Reset = n
	if err != nil {
		end.Done, end.Error = false, err.Error()
	}
	r.cfg.Log.Info("callers reset", "domain", domain,
		"descriptor", rules.FormatEntries(entries), "counts", n, "error", end.Error)
	_ = lines.Encode(end)
}

// Register registers the metrics of the loads of the rules, whose names begin with prefix.
func (r *Rules) Register(to prometheus.Registerer, prefix string) {
	to.MustRegister(
		Gauge(prefix+"_loaded_timestamp_seconds", "When the rules in force were loaded.",
			func() float64 { return float64(r.Status().Loaded.UnixMilli()) / 1e3 }),
		Counter(prefix+"_load_success_total", "Rules loaded.",
			func() float64 { return float64(r.Status().Successes) }),
		Counter(prefix+"_load_error_total", "Rules refused.",
			func() float64 { return float64(r.Status().Failures) }),
		Gauge(prefix+"_refused", "1 if the last rules were refused and older ones are in force.",
			func() float64 { return OneIf(r.Status().Err != nil) }),
	)
}

// Shown returns the part of the page about the rules of a domain, or of all if it is empty: those
// with the most hits over their limits come first, and of equal ones those with the most hits.
func (r *Rules) Shown(domain string) *RulesShown {
	s := r.Status()
	out := &RulesShown{
		Domain: screen.Printable(domain), Version: Short(s.Version), Loaded: s.Loaded.UnixMilli(),
		Loads: s.Successes, Refused: s.Failures, Warnings: s.Warnings,
	}
	if s.Err != nil {
		out.Error, out.Failed = screen.Lines(s.Err.Error()), s.Failed.UnixMilli()
	}
	figures := maps.Collect(r.Figures.All())
	maps.DeleteFunc(figures, func(of *rules.Rule, _ Figure) bool {
		return domain != "" && of.Domain != domain
	})
	out.Count = len(figures)
	top := slices.SortedFunc(maps.Keys(figures), func(a, b *rules.Rule) int {
		return cmp.Or(cmp.Compare(figures[b].Over, figures[a].Over),
			cmp.Compare(figures[b].Hits, figures[a].Hits),
			strings.Compare(a.Domain+a.Path, b.Domain+b.Path))
	})
	for _, of := range top[:min(len(top), maxRulesShown)] {
		name, f := of.Path, figures[of]
		if domain == "" {
			name = of.Domain + ": " + of.Path
		}
		out.Top = append(out.Top, RuleShown{
			screen.Printable(name), of.Limit.String(), of.Limit.Algorithm.String(), of.Limit.AtOnce(),
			f.Hits, f.Within, f.Near, f.Over, f.Shadowed, f.Lost,
		})
	}
	return out
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
