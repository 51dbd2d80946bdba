// Package replay runs the requests of access logs through weir's limiters on the logs' own clock,
// and counts what the limits would have done.
//
// It reads the log once, on all cores: a block of lines becomes records, the callers are numbered,
// and the requests go to spools, each of which has its share of the callers. Then each spool hands
// its requests out in the order of time, and they are decided on. Memory is by callers, not by
// lines.
package replay

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
	"github.com/weirgo/weir/cmd/weir/internal/rule"
)

// Config says what to replay.
type Config struct {
	Files      []string  // Stdin is the standard input
	Stdin      io.Reader // read if a file is Stdin
	Format     accesslog.Format
	Rules      []rule.Rule
	RuleSet    *RuleSet // in the place of Rules; nil: none
	By         By
	IPv6Bits   int // how many bits of an IPv6 address make a key; 0: httplimit's default
	Filter     Filter
	MaxBuckets int      // of each rule's limiter
	Top        int      // how many callers a RuleResult names
	Suggest    *Suggest // nil: nothing is suggested

	// Progress is called now and then, not concurrently; nil: nobody asks.
	Progress func(Progress)

	parts  int // goroutines that decide; 0: one a core
	limits spoolLimits
}

// Progress is how far a replay has come.
type Progress struct {
	Bytes, Lines      uint64 // read
	Decided, Requests uint64 // Requests is 0 until all is read
}

// Result is what a replay found.
type Result struct {
	Files       []string
	By          By
	Empty       []string // files without a line
	Lines       uint64   // all: Requests, Filtered, Unkeyed and Unreadable.Count add up to it
	Requests    uint64   // decided on
	Uncounted   uint64   // of these, with a status that does not count
	Filtered    uint64   // left out by the filter
	Unkeyed     uint64   // requests without what callers are keyed by; no rule was asked about them
	Unreadable  Unreadable
	Filter      Filter
	IPv6Bits    int
	Coarse      bool // the log has whole seconds only, at least in places
	Callers     int
	First       time.Time // request
	Last        time.Time // request
	Timeline    *Timeline
	Rules       []RuleResult // in the order of Config.Rules; of a RuleSet, all together and then each
	Suggest     *Suggest
	Suggestions []Suggestion // by strategy, then by duration
	RuleSet     *RuleSet     // that was replayed; nil: Rules are limits
}

// RuleResult is what one rule would have done.
type RuleResult struct {
	Rule    rule.Rule
	Shadow  bool   // denials are those that there would be if the rule were not in shadow mode
	Matched uint64 // requests that it was about: all, unless it is one of a RuleSet
	Denied  uint64 // of these; the rest would have been admitted
	Met     int    // callers with a denial
	// of these Config.Top with the most denials, the most requests, the earliest denial, in this
	// order
	Worst []Caller
}

// Caller is one caller's share of a RuleResult.
type Caller struct {
	Name        string // any bytes
	Requests    uint64
	Denied      uint64
	FirstDenied time.Time
}

// run is a replay under way.
type run struct {
	cfg       Config
	specs     []spec
	parts     []*part
	callers   *callers
	described *described // of a RuleSet
	result    *Result
	first     stamp
	last      stamp
	bytes     uint64 // of files that are read
	decided   atomic.Uint64
}

// Run replays. It fails with an InputError if a file cannot be opened or has lines but no readable
// one, or if no request is left to decide on; with another error if reading fails midway or a
// limiter cannot decide. The order of the lines makes no difference to the Result.
func Run(cfg Config) (*Result, error) {
	r := &run{cfg: cfg, callers: newCallers(), first: math.MaxInt64, last: math.MinInt64,
		result: &Result{Files: cfg.Files, By: cfg.By, Filter: cfg.Filter, IPv6Bits: cfg.IPv6Bits,
			Suggest: cfg.Suggest, RuleSet: cfg.RuleSet}}
	r.setParts()
	defer func() {
		for _, p := range r.parts {
			p.close()
		}
	}()
	if err := r.read(); err != nil {
		return nil, err
	}
	if r.result.Requests == 0 {
		return nil, r.nothing()
	}
	if cfg.RuleSet != nil {
		if err := r.divide(); err != nil {
			return nil, err
		}
	}
	if err := r.decide(); err != nil {
		return nil, err
	}
	r.report()
	return r.result, nil
}

// The memory that sorting takes: the buffers of all parts together, of 16 bytes a request and two
// for each part, and the runs before they go to a file.
const (
	bufferedEvents = 1 << 20
	runSize        = 256 << 10
	inMemoryRuns   = 48 << 20
	maxParts       = 8
)

func (r *run) setParts() {
	n := r.cfg.parts
	if n == 0 {
		n = min(runtime.GOMAXPROCS(0), maxParts)
	}
	for _, l := range r.cfg.Rules {
		r.specs = append(r.specs, limitSpec(l, r.cfg.MaxBuckets, n))
	}
	if r.cfg.RuleSet != nil {
		r.specs = []spec{ruleSpec(r.cfg.RuleSet, r.cfg.MaxBuckets)}
	}
	for _, s := range r.specs {
		if s.shared {
			n = 1
		}
	}
	if r.cfg.limits.events == 0 {
		r.cfg.limits = spoolLimits{events: bufferedEvents / n / 2, run: runSize, inMemory: inMemoryRuns / n}
	}
	for range n {
		r.parts = append(r.parts, &part{spool: newSpool(r.cfg.limits)})
	}
}

// nothing says why no request is left.
func (r *run) nothing() error {
	res := r.result
	switch {
	case res.Unkeyed > 0:
		return &InputError{fmt.Errorf("none of the %d requests has a %s", res.Unkeyed, r.cfg.By)}
	case res.Filtered > 0:
		return &InputError{fmt.Errorf("none of the %d requests is one of those asked for", res.Filtered)}
	}
	return &InputError{fmt.Errorf("there is no request in the log: each file is empty")}
}

// decide decides on all requests, in one goroutine for each part.
func (r *run) decide() error {
	n := len(r.parts)
	errs := make([]error, n)
	var all sync.WaitGroup
	for i, p := range r.parts {
		p.callers = (len(r.callers.names) - i + n - 1) / n
		all.Go(func() { errs[i] = r.decidePart(p, i) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *run) decidePart(p *part, i int) error {
	name := func(caller uint32) string { return r.callers.names[int(caller)*len(r.parts)+i] }
	if d := r.described; d != nil {
		p.described = d
		name = func(code uint32) string { return d.names[code] }
	}
	if err := p.spool.close(); err != nil {
		return err
	}
	if err := p.prepare(r.specs, name); err != nil {
		return err
	}
	suggest := r.cfg.Suggest
	if suggest != nil {
		var err error
		if p.meters, err = openMeters(suggest, p.spool, p.callers); err != nil {
			return err
		}
	}
	err := p.decide(func(n int) {
		decided := r.decided.Add(uint64(n))
		if i == 0 && r.cfg.Progress != nil {
			r.cfg.Progress(Progress{Bytes: r.bytes, Lines: r.result.Lines, Decided: decided,
				Requests: r.result.Requests})
		}
	})
	if err == nil && suggest != nil {
		err = p.measure(suggest)
	}
	return err
}
