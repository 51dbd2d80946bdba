package replay

import (
	"cmp"
	"slices"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/endpoint"
)

// report adds up the results of the parts.
func (r *run) report() {
	res := r.result
	res.Callers = len(r.callers.names)
	res.First, res.Last = r.instant(r.first.nanoseconds()), r.instant(r.last.nanoseconds())
	res.Timeline = r.parts[0].timeline
	for i, p := range r.parts {
		if res.Apart.add(p.apart); i > 0 {
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
		res.Rules = append(res.Rules, rr)
	}
	if r.cfg.Compare {
		res.Compared = r.parts[0].compared
		res.Compared.finish(r.callers.names, r.described.place.names, r.cfg.Top)
	}
	r.suggest()
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

// suggest computes suggestions from the callers' peaks.
func (r *run) suggest() {
	s := r.cfg.Suggest
	if s == nil {
		return
	}
	if r.cfg.ByEndpoint {
		r.suggestByEndpoint(s)
		return
	}
	peaks := make([][]Peak, len(s.Strategies)*len(s.Durations))
	for i := range peaks {
		for _, p := range r.parts {
			peaks[i] = append(peaks[i], p.peaks[i]...)
		}
	}
	r.result.Suggestions = s.suggestions(peaks)
}

// Endpoint is a method and a path with its ids folded, and the limits that fit its callers.
type Endpoint struct {
	Name        string       `json:"endpoint"`
	Requests    uint64       `json:"requests"`
	Callers     int          `json:"callers"`
	Suggestions []Suggestion `json:"-"` // as in Result; nil for endpoint.Apart
}

// suggestByEndpoint computes suggestions from the peaks of the callers of each endpoint.
func (r *run) suggestByEndpoint(s *Suggest) {
	d, p := r.described, r.parts[0]
	peaks := make([][][]Peak, len(d.place.names)) // by endpoint, then by strategy and duration
	for i := range p.peaks {
		for pair, at := range d.pair {
			for len(peaks[at]) <= i {
				peaks[at] = append(peaks[at], nil)
			}
			peaks[at][i] = append(peaks[at][i], p.peaks[i][pair])
		}
	}
	for at, name := range d.place.names {
		one := Endpoint{Name: UTF8(name), Requests: d.place.requests[at], Callers: len(peaks[at][0])}
		if !endpoint.Apart(name) {
			one.Suggestions = s.suggestions(peaks[at])
		}
		r.result.Endpoints = append(r.result.Endpoints, one)
	}
	slices.SortFunc(r.result.Endpoints, func(a, b Endpoint) int {
		return cmp.Or(cmp.Compare(b.Requests, a.Requests), cmp.Compare(a.Name, b.Name))
	})
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
		caller := Caller{UTF8(r.callers.names[number]), r.callers.requests[number], c.denied,
			r.instant(c.first)}
		at, _ := slices.BinarySearchFunc(top, caller, worse)
		if top = slices.Insert(top, at, caller); len(top) > r.cfg.Top {
			top = top[:r.cfg.Top]
		}
	}
	return top
}

// worse sorts callers, the worst first.
func worse(a, b Caller) int {
	return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(b.Requests, a.Requests),
		a.FirstDenied.Compare(b.FirstDenied), cmp.Compare(a.Name, b.Name))
}
