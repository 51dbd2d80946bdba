// Package replay runs the requests of access logs through weir's limiters on the logs' own clock, and counts what the
// limits would have done.
package replay

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
	"github.com/weirgo/weir/cmd/weir/internal/rule"
)

// Config says what to replay.
type Config struct {
	Files      []string  // Stdin is the standard input
	Stdin      io.Reader // read if a file is Stdin
	Rules      []rule.Rule
	By         By
	Reorder    time.Duration // how far out of order a log may be
	MaxBuckets int           // of each rule's limiter

	// Progress is called now and then with the bytes and lines read so far; nil: nobody asks.
	Progress func(bytes int64, lines uint64)
}

// Result is what came of it.
type Result struct {
	Files      []string
	By         By
	Reorder    time.Duration
	Lines      uint64 // all of them: Requests, Unkeyed and Unreadable.Count add up to it
	Requests   uint64 // those decided on
	Unkeyed    uint64 // requests without what By tells callers apart by; no rule was asked about them
	Unreadable Unreadable
	Late       uint64        // requests that came out of order by more than Reorder; each was decided on when its line came
	LateBy     time.Duration // the most that one of them was behind
	Coarse     bool          // the log tells whole seconds only, at least in places
	Callers    int
	First      time.Time // request
	Last       time.Time // request
	Timeline   *Timeline
	Rules      []RuleResult // in the order of Config.Rules
}

// RuleResult is what one rule would have done. The requests it would have admitted are the rest.
type RuleResult struct {
	Rule   rule.Rule
	Denied uint64
	Met    int      // callers who met a denial
	Worst  []Caller // of these the ten with the most denials, the most requests, the earliest denial, in this order
}

// Caller is one caller's part in a RuleResult.
type Caller struct {
	Name        string // any bytes
	Requests    uint64
	Denied      uint64
	FirstDenied time.Time
}

// worst is how many callers a RuleResult names.
const worst = 10

// run is a replay under way.
type run struct {
	cfg      Config
	clock    clock
	judges   []*judge
	callers  *callers
	timeline *growing
	order    *reorder
	sources  []*source
	result   *Result
	first    int64
	last     int64
	key      []byte
}

// Run replays. It fails with an InputError if a file cannot be opened or has no readable line, or if no request has a
// key; with another error if reading fails midway or a limiter cannot decide. Its memory is bounded by the callers, and
// its time is one pass over the lines.
func Run(cfg Config) (*Result, error) {
	r := &run{
		cfg:      cfg,
		callers:  newCallers(),
		timeline: newGrowing(1 + len(cfg.Rules)),
		result:   &Result{Files: cfg.Files, By: cfg.By, Reorder: cfg.Reorder},
	}
	r.order = newReorder(cfg.Reorder, r.decide)
	defer r.close()
	for _, rule := range cfg.Rules {
		j, err := newJudge(rule, &r.clock, cfg.MaxBuckets)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", rule, err)
		}
		r.judges = append(r.judges, j)
	}
	if err := r.read(); err != nil {
		return nil, err
	}
	if r.result.Requests == 0 {
		return nil, &InputError{fmt.Errorf("none of the %d requests has a %s", r.result.Unkeyed, cfg.By)}
	}
	r.report()
	return r.result, nil
}

func (r *run) close() {
	for _, s := range r.sources {
		s.close()
	}
	for _, j := range r.judges {
		j.limiter.Close()
	}
}

// progressEvery is the number of requests between two calls of Progress.
const progressEvery = 1 << 13

func (r *run) read() error {
	for _, name := range r.cfg.Files {
		s, err := open(name, r.cfg.Stdin, &r.result.Unreadable)
		if err != nil {
			return err
		}
		r.sources = append(r.sources, s)
	}
	in, err := newMerged(r.sources)
	if err != nil {
		return err
	}
	for n := 1; ; n++ {
		e, err := in.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = r.take(e)
		}
		if err != nil {
			return err
		}
		if n%progressEvery == 0 {
			r.progress()
		}
	}
	r.progress()
	return r.order.close()
}

// take puts a request in order.
func (r *run) take(e *accesslog.Entry) error {
	key := r.cfg.By.key(e, r.key)
	if r.cfg.By == ByIPPath && key != nil {
		r.key = key
	}
	if len(key) == 0 {
		r.result.Unkeyed++
		return nil
	}
	caller, err := r.callers.number(key)
	if err != nil {
		return err
	}
	r.result.Coarse = r.result.Coarse || e.Coarse
	return r.order.add(e.Start, e.Coarse, caller)
}

// decide asks every rule about a request. It is called in the order of time.
func (r *run) decide(ns int64, caller uint32) error {
	if r.result.Requests == 0 {
		r.first = ns
	}
	r.last = ns
	r.clock.set(ns)
	r.result.Requests++
	r.callers.requests[caller]++
	bin := r.timeline.bin(ns)
	r.timeline.rows[0][bin]++
	name := r.callers.names[caller]
	for i, j := range r.judges {
		ok, err := j.admit(caller, name, ns)
		if err != nil {
			return fmt.Errorf("%s: %w", r.cfg.Rules[i], err)
		}
		if !ok {
			r.timeline.rows[1+i][bin]++
		}
	}
	return nil
}

func (r *run) progress() {
	var bytes int64
	r.result.Lines = 0
	for _, s := range r.sources {
		bytes += s.raw.n
		r.result.Lines += s.number
	}
	if r.cfg.Progress != nil {
		r.cfg.Progress(bytes, r.result.Lines)
	}
}

func (r *run) report() {
	res := r.result
	res.Callers = len(r.callers.names)
	res.First, res.Last = r.instant(r.first), r.instant(r.last)
	res.Late, res.LateBy = r.order.late, time.Duration(min(r.order.lateBy, math.MaxInt64/int64(time.Second)))*time.Second
	res.Timeline = r.timeline.timeline()
	for i, j := range r.judges {
		res.Rules = append(res.Rules, RuleResult{
			Rule: r.cfg.Rules[i], Denied: j.denied, Met: int(j.met), Worst: r.worst(j),
		})
	}
}

// instant returns ns as a time, no finer than the log tells it: within its second a request's place was made up.
func (r *run) instant(ns int64) time.Time {
	t := time.Unix(0, ns).UTC()
	if r.result.Coarse {
		t = t.Truncate(time.Second)
	}
	return t
}

// worst names the callers who met the most denials. All are looked at: the counts are exact, and so is the order.
func (r *run) worst(j *judge) []Caller {
	var top []Caller
	for n, c := range j.callers {
		if c.denied == 0 || len(top) == worst && c.denied < top[worst-1].Denied {
			continue
		}
		caller := Caller{r.callers.names[n], r.callers.requests[n], c.denied, r.instant(c.first)}
		i, _ := slices.BinarySearchFunc(top, caller, worse)
		if top = slices.Insert(top, i, caller); len(top) > worst {
			top = top[:worst]
		}
	}
	return top
}

// worse sorts the worst first.
func worse(a, b Caller) int {
	return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(b.Requests, a.Requests),
		a.FirstDenied.Compare(b.FirstDenied), cmp.Compare(a.Name, b.Name))
}
