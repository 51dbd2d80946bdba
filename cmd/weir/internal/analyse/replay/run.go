package replay

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// run is a replay in progress. Its methods that read the files, and those for descriptions, routes,
// details, suggestions and the load of a service, stand in the files of these.
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

// doubt sets the doubts of res.
func (r *run) doubt(res *Result) {
	res.Doubts, res.Unread = []string{}, false
	if unread := r.unreadLines(); unread != "" {
		res.Doubts, res.Unread = append(res.Doubts, unread), true
	}
	res.Doubts = append(res.Doubts, r.doubts()...)
	res.Doubtful = len(res.Doubts) > 0 && !r.cfg.Force
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

// report adds the results of the parts to r.result.
func (r *run) report() *Result {
	res := *r.result
	res.Callers = len(r.callers.names)
	res.First, res.Last = r.instant(r.first.nanoseconds()), r.instant(r.last.nanoseconds())
	res.Timeline = r.parts[0].timeline
	for i, p := range r.parts {
		res.Apart.add(p.apart)
		if i > 0 {
			res.Timeline.add(p.timeline)
		}
	}
	for i, rr := range r.results() {
		for n, p := range r.parts {
			rr.Denied += p.rows[i].denied
			rr.Met += p.rows[i].met
			rr.Apart.add(p.rows[i].apart)
			rr.Worst = r.worst(rr.Worst, p.rows[i].callers, n)
		}
		if r.cfg.Routes && (rr.Set == nil || rr.Limit == "") {
			rr.Routes = r.routesOf(r.onRoute, r.deniedByRoute(i))
		}
		res.Rules = append(res.Rules, rr)
	}
	if r.cfg.Compare {
		res.Compared = r.parts[0].compared
		res.Compared.finish(r.callers.names, r.routes.names, r.cfg.Top)
	}
	r.suggest(&res)
	return &res
}

// names returns the names of the two that are compared.
func (r *run) names() (names [2]string) {
	for i, s := range r.cfg.RuleSets {
		names[i] = s.Name
	}
	for i, l := range r.cfg.Rules {
		names[i] = l.String()
	}
	return names
}

// results returns a RuleResult without denials for each row.
func (r *run) results() []RuleResult {
	var all, whole []RuleResult
	for i, s := range r.cfg.RuleSets {
		name := "all rules"
		if len(r.cfg.RuleSets) > 1 {
			name += " of " + s.Name
		}
		rows := s.results(name)
		for k, n := range r.parts[0].deciders[i].(*ruleDecider).matched {
			rows[k].Matched = n
		}
		all, whole = append(all, rows...), append(whole, rows[0])
	}
	for _, rule := range r.cfg.Rules {
		all = append(all, RuleResult{Rule: rule, Worst: []Caller{}, Matched: r.result.Requests})
	}
	if r.cfg.Rules != nil {
		whole = all
	}
	if n := r.cfg.Replicas.N; n > 1 {
		for _, rr := range whole {
			rr.Replicas = n
			all = append(all, rr)
		}
	}
	return all
}

// instant returns ns as a time, in whole seconds if the log has only those: a stream chose the
// place within the second.
func (r *run) instant(ns int64) time.Time {
	t := time.Unix(0, ns).UTC()
	if r.result.Coarse {
		t = t.Truncate(time.Second)
	}
	return t
}

// worst adds the callers of part n to the top. It looks at every caller, so the counts and the
// order are exact.
func (r *run) worst(top []Caller, callers []callerDenials, n int) []Caller {
	for i, c := range callers {
		if c.denied == 0 || len(top) == r.cfg.Top &&
			(r.cfg.Top == 0 || c.denied < top[len(top)-1].Denied) {
			continue
		}
		number := i*len(r.parts) + n
		caller := Caller{Name: UTF8(r.callers.names[number]), Requests: r.callers.requests[number],
			Denied: c.denied, FirstDenied: r.instant(c.first)}
		if r.cfg.Routes {
			caller.number = number
		}
		at, _ := slices.BinarySearchFunc(top, caller, worse)
		top = slices.Insert(top, at, caller)
		if len(top) > r.cfg.Top {
			top = top[:r.cfg.Top]
		}
	}
	return top
}

// unreadLines returns a sentence that says which lines could not be read if they are too many.
func (r *run) unreadLines() string {
	blank := r.unread.blank()
	bad, lines := r.unread.Count-blank, r.lines-blank
	if lines < fewRequests || bad*maxUnread <= lines {
		return ""
	}
	return fmt.Sprintf("%d of %d lines could not be read: %s", bad, lines, r.unread.kinds())
}

// doubts returns sentences that say why the callers of a log are probably not its clients. Limits
// for such callers would deny the wrong requests.
func (r *run) doubts() (all []string) {
	res, callers := r.result, len(r.callers.names)
	if r.cfg.By == ByIP && res.Unkeyed > res.Requests && res.Unkeyed+res.Requests >= fewRequests {
		all = append(all, fmt.Sprintf("%d of %d requests have no address", res.Unkeyed,
			res.Unkeyed+res.Requests))
	}
	if res.Requests < fewRequests {
		return all
	}
	if names := r.callers.withoutAddress(); r.byAddress() && 2*names > callers {
		all = append(all, fmt.Sprintf("%d of %d callers are no addresses, such as %q", names, callers,
			r.callers.names[0]))
	}
	if r.byAddress() {
		all = append(all, r.inspected.doubts(len(r.cfg.Trust) > 0)...)
	}
	if callers == 1 && res.Filtered == 0 {
		all = append(all, "all requests have one caller")
	}
	if uint64(callers) == res.Requests && res.Filtered == 0 {
		all = append(all, "there are as many callers as lines")
	}
	return all
}

func (r *run) byAddress() bool { return r.cfg.By == ByIP || r.cfg.By == ByIPPath }

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

// A log of which more than one line in maxUnread could not be read says too little of its clients.
// A few per cent are garbage that clients send, lines that were cut, and messages among requests.
const maxUnread = 20
