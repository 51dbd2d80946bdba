// Package replay runs the requests of access logs through weir's limiters, with the times of the
// log as the clock, and counts the requests that the limits would have denied.
//
// It reads the log once, on all cores: it parses blocks of lines into records, numbers the callers
// and stores each request in one of several spools, chosen by its caller. Then each spool returns
// its requests in order of time, and they are decided on. Memory grows with the number of requests,
// by 16 bytes each, and with that of callers. A Load takes twice that, and more for what is in
// flight at the same time.
package replay

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
	"github.com/weirgo/weir/cmd/weir/internal/rule"
)

// Config describes a replay.
type Config struct {
	Files      []string  // Stdin names the standard input
	Stdin      io.Reader // read if a file is Stdin
	Format     accesslog.Format
	Rules      []rule.Rule
	RuleSets   []*RuleSet // replayed instead of Rules; may be nil
	Compare    bool       // there are two Rules or two RuleSets, A and B
	Replicas   Replicas   // also replay what so many instances would have admitted
	By         By
	IPv6Bits   int            // bits of an IPv6 address in its key; 0 means httplimit's default
	Trust      []netip.Prefix // the proxies whose X-Forwarded-For is read, as for httplimit.ClientIP
	Filter     Filter
	MaxBuckets int      // of each rule's limiter
	Top        int      // callers in RuleResult.Worst
	Args       []string // the words of a command line that select and read the same requests
	Suggest    *Suggest // nil means no suggestions
	ByEndpoint bool     // suggest for each endpoint
	Force      bool     // make suggestions although there are doubts
	Routes     bool     // fill in RuleResult.Routes and Caller.Detail, not for a Follower

	// Overload is what Result.Load is to find; nil means none. Without it nothing needs durations,
	// and with it there are no rules, no Suggest and no Routes.
	Overload *Overload

	// Progress is called from time to time, never concurrently. It may be nil.
	Progress func(Progress)

	// Stop, when it is closed, ends the reading: the Result is of what was read by then, and the file
	// that was cut, and those that were not read, are in Result.Failed with ErrInterrupted. It may be
	// nil.
	Stop <-chan struct{}

	parts  int // goroutines that decide; 0 means one per core
	maxRun int // of a spool; 0 means maxRun
}

// Progress is the progress of a replay.
type Progress struct {
	Bytes, Lines      uint64 // read
	Decided, Requests uint64 // Requests is 0 until all files are read
}

// Result is what a replay found. All its text is UTF-8: of what a log has, other bytes are written
// \xHH. The JSON report has its fields under the names in their tags.
type Result struct {
	Config `json:"-"`
	Empty  []string  `json:"empty_files"` // files without a line
	Failed []Failure `json:"-"`
	// the sum of Requests, Filtered, Unkeyed and Unreadable.Count
	Lines     uint64 `json:"lines"`
	Requests  uint64 `json:"requests"`  // decided on
	Uncounted uint64 `json:"uncounted"` // requests whose status does not count
	Filtered  uint64 `json:"filtered"`  // left out by the filter
	// without the field that callers are keyed by; not decided on
	Unkeyed    uint64     `json:"unkeyed"`
	Unreadable Unreadable `json:"unreadable"`
	Coarse     bool       `json:"whole_seconds"` // some times of the log are whole seconds
	Callers    int        `json:"callers"`
	First      time.Time  `json:"first"` // time of the first request
	Last       time.Time  `json:"last"`  // time of the last request
	Timeline   *Timeline  `json:"-"`
	Apart      Apart      `json:"apart"` // of Requests
	// the requests that a Follower moved to another time; nil if the Result is not of one
	Moved *Moved `json:"moved,omitempty"`
	// the last minute of a Follower; likewise
	Minute *Minute `json:"last_minute,omitempty"`
	// with Config.ByEndpoint, in place of Suggestions; the most requested first
	Endpoints   []Endpoint   `json:"-"`
	Names       []string     `json:"-"` // of all endpoints, also those without a suggestion
	Suggestions []Suggestion `json:"-"` // sorted by strategy, then by duration

	// Rules are as in Config.Rules; for a RuleSet, the whole set, then each rule; then those of
	// Replicas.
	Rules []RuleResult `json:"-"`

	Compared *Comparison `json:"compared,omitempty"` // nil without Config.Compare
	Load     *Load       `json:"overload,omitempty"` // nil without Config.Overload

	// Doubts say why the callers are probably not the clients. Unread is set if the first of them is
	// that too many lines could not be read. Doubtful is set if there are some, unless Config.Force
	// is: then nothing is suggested.
	Doubts   []string `json:"doubts"`
	Unread   bool     `json:"-"`
	Doubtful bool     `json:"-"`
}

// RuleResult counts what one rule would have denied.
type RuleResult struct {
	rule.Rule
	Set      *RuleSet `json:"-"`                  // that the rule is of; nil if it is a limit
	Replicas int      `json:"replicas,omitempty"` // how many instances decided; 0 means one
	Apart    Apart    `json:"denied_apart"`       // of Denied
	// requests that the rule applies to: all, except for a rule of a RuleSet
	Matched uint64 `json:"matched"`
	Denied  uint64 `json:"denied"`         // of the matched requests
	Met     int    `json:"callers_denied"` // callers with at least one denial

	// Shadow is set if Denied counts requests that the rule would deny if it were not in shadow mode.
	Shadow bool `json:"shadow,omitempty"`

	// Worst are the Config.Top callers with the most denials; ties go to the most requests, then to
	// the earliest denial.
	Worst []Caller `json:"worst"`

	// Routes are the Config.Top routes with the most denials, with Config.Routes. A rule of a set has
	// none: the whole set has them.
	Routes []Route `json:"routes,omitempty"`
}

// Admitted returns how many of the matched requests the rule would have admitted.
func (r *RuleResult) Admitted() uint64 { return r.Matched - r.Denied }

// Caller is one caller's part of a RuleResult.
type Caller struct {
	Name        string    `json:"caller"`
	Requests    uint64    `json:"requests"`
	Denied      uint64    `json:"denied"`
	FirstDenied time.Time `json:"first_denied"`
	*Detail               // nil without Config.Routes

	number int // until details, with Config.Routes
}

// run is a replay in progress.
type run struct {
	cfg       Config
	specs     []spec
	parts     []*part
	callers   *callers
	routes    *routeTable
	described *described // nil unless Config.describes
	result    *Result
	first     stamp
	last      stamp
	bytes     uint64 // of all files read so far
	decided   atomic.Uint64
	lines     uint64     // of the files that are in the result
	unread    Unreadable // of these lines
	inspected inspection
}

// Run replays the logs. A file that cannot be opened or read to its end, or none of whose lines can
// be read, is in Result.Failed. If that is so for all files that are not empty, Run returns the
// first error: an InputError unless reading failed midway. It returns an InputError if no requests
// are left to decide on, and another error if a limiter cannot decide. The Result does not depend
// on the order of the lines.
func Run(cfg Config) (*Result, error) {
	r := newRun(cfg)
	defer r.close()
	if err := r.read(); err != nil {
		return nil, err
	}
	if failed := r.result.Failed; len(failed) > 0 && !slices.ContainsFunc(failed, Failure.cut) &&
		len(failed)+len(r.result.Empty) == len(cfg.Files) {
		return nil, failed[0].Err
	}
	if r.result.Requests == 0 {
		return nil, r.nothing()
	}
	if cfg.describes() {
		r.divide()
	}
	r.doubt(r.result)
	if r.result.Doubtful {
		r.cfg.Suggest = nil
	}
	if cfg.Overload != nil {
		return r.result, r.measure(r.result)
	}
	if cfg.namesRoutes() {
		r.rankRoutes()
	}
	if err := r.decide(); err != nil {
		return nil, err
	}
	res := r.report()
	if cfg.Routes {
		return res, r.details(res)
	}
	return res, nil
}

// doubt sets the doubts of res.
func (r *run) doubt(res *Result) {
	res.Doubts, res.Unread = []string{}, false
	if unread := r.unreadLines(); unread != "" {
		res.Doubts, res.Unread = append(res.Doubts, unread), true
	}
	res.Doubts = append(res.Doubts, r.doubts()...)
	res.Doubtful = len(res.Doubts) > 0 && !r.cfg.Force
}

const maxParts = 8

func newRun(cfg Config) *run {
	r := &run{cfg: cfg, callers: newCallers(), routes: newRouteTable(),
		first: math.MaxInt64, last: math.MinInt64,
		result: &Result{Config: cfg, Empty: []string{}, Doubts: []string{},
			Unreadable: Unreadable{Examples: []Example{}}}}
	r.result.Files = nil
	for _, name := range cfg.Files {
		r.result.Files = append(r.result.Files, UTF8(name))
	}
	n := cmp.Or(cfg.parts, min(runtime.GOMAXPROCS(0), maxParts))
	if cfg.Overload != nil {
		r.result.Load = &Load{Busiest: []CallerLoad{}, Refused: []CallerLoad{}}
	}
	if cfg.describes() || cfg.Compare || cfg.Overload != nil {
		n = 1 // callers share counters, a Comparison or a service
	}
	for _, l := range cfg.Rules {
		r.specs = append(r.specs, limitSpec(l, cfg.MaxBuckets, n))
	}
	for i, s := range cfg.RuleSets {
		r.specs = append(r.specs, ruleSpec(s, i, cfg.MaxBuckets))
	}
	if cfg.Replicas.N > 1 {
		for _, s := range r.specs {
			r.specs = append(r.specs, cfg.Replicas.on(s))
		}
	}
	for range n {
		r.parts = append(r.parts, &part{spool: &spool{most: cmp.Or(cfg.maxRun, maxRun)}})
	}
	return r
}

func (r *run) close() {
	for _, p := range r.parts {
		p.close()
	}
}

// nothing returns an error that says why no requests are left.
func (r *run) nothing() error {
	err := errors.New("there is no request in the log: each file is empty")
	switch res := r.result; {
	case res.Load != nil && res.Load.Untimed > 0:
		err = fmt.Errorf("none of the %d requests has a duration: log $request_time (nginx) or %%D "+
			"(Apache) and give --log-format, or name its key with --map duration=KEY",
			res.Load.Untimed)
	case res.Unkeyed == 1:
		err = fmt.Errorf("the only request has no %s", r.cfg.By)
	case res.Unkeyed > 0:
		article := "a"
		if strings.IndexByte("ai", r.cfg.By[0]) >= 0 {
			article = "an"
		}
		err = fmt.Errorf("none of the %d requests has %s %s", res.Unkeyed, article, r.cfg.By)
	case res.Filtered == 1:
		err = errors.New("the only request is not one of those asked for")
	case res.Filtered > 0:
		err = fmt.Errorf("none of the %d requests is one of those asked for", res.Filtered)
	}
	return &InputError{err}
}

// decide decides on all requests, with one goroutine per part.
func (r *run) decide() error {
	n := len(r.parts)
	var all errgroup.Group
	for i, p := range r.parts {
		p.callers = (len(r.callers.names) - i + n - 1) / n
		all.Go(func() error { return r.decidePart(p, i) })
	}
	return all.Wait()
}

// prepare prepares p, part i, to decide on the whole log.
func (r *run) prepare(p *part, i int) error {
	name := func(caller uint32) string { return r.callers.names[int(caller)*len(r.parts)+i] }
	if d := r.described; d != nil {
		p.owners = d.owners
		name = func(code uint32) string { return d.names[code] }
	}
	return p.prepare(r.specs, name, r.first.nanoseconds(), r.last.nanoseconds())
}

func (r *run) decidePart(p *part, i int) error {
	metered := p.callers
	if d := r.described; d != nil {
		p.metered = d.owners
		if d.pairs != nil {
			p.metered, metered = d.pairs, len(d.pair)
		}
	}
	p.spool.sort()
	if err := r.prepare(p, i); err != nil {
		return err
	}
	suggest := r.cfg.Suggest
	if suggest != nil {
		p.openMeters(suggest, metered)
	}
	if r.cfg.Compare {
		p.compared = &Comparison{Names: r.names()}
	}
	err := p.decide(func(n int) {
		decided := r.decided.Add(uint64(n))
		if i == 0 && r.cfg.Progress != nil {
			r.cfg.Progress(Progress{Bytes: r.bytes, Lines: r.result.Lines, Decided: decided,
				Requests: r.result.Requests})
		}
	})
	if err == nil && suggest != nil {
		p.meters = nil
		searchPeaks(suggest, p.openMetered, p.peaks)
	}
	return err
}
