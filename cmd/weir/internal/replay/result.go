package replay

import (
	"cmp"
	"slices"
	"time"
)

// report adds up the results of the parts.
func (r *run) report() {
	res := r.result
	res.Callers = len(r.callers.names)
	res.First, res.Last = r.instant(r.first.nanoseconds()), r.instant(r.last.nanoseconds())
	res.Timeline = r.parts[0].timeline
	for _, p := range r.parts[1:] {
		res.Timeline.add(p.timeline)
	}
	for i, rr := range r.results() {
		for n, p := range r.parts {
			rr.Denied += p.rows[i].denied
			rr.Met += p.rows[i].met
			rr.Worst = r.worst(rr.Worst, p.rows[i].callers, n)
		}
		res.Rules = append(res.Rules, rr)
	}
	r.suggest()
}

// results returns a RuleResult without denials for each row.
func (r *run) results() []RuleResult {
	if s := r.cfg.RuleSet; s != nil {
		all := s.results()
		for i, n := range r.parts[0].judges[0].(*ruleJudge).matched {
			all[i].Matched = n
		}
		return all
	}
	var all []RuleResult
	for _, rule := range r.cfg.Rules {
		all = append(all, RuleResult{Rule: rule, Matched: r.result.Requests})
	}
	return all
}

// suggest computes suggestions from the callers' peaks.
func (r *run) suggest() {
	s := r.cfg.Suggest
	if s == nil {
		return
	}
	for i, strategy := range s.Strategies {
		for k, d := range s.Durations {
			var peaks []uint64
			for _, p := range r.parts {
				peaks = append(peaks, p.peaks[i*len(s.Durations)+k]...)
			}
			r.result.Suggestions = append(r.result.Suggestions, s.suggestion(strategy, d, peaks))
		}
	}
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
func (r *run) worst(top []Caller, callers []encounters, n int) []Caller {
	for i, c := range callers {
		if c.denied == 0 || len(top) == r.cfg.Top && (r.cfg.Top == 0 || c.denied < top[len(top)-1].Denied) {
			continue
		}
		number := i*len(r.parts) + n
		caller := Caller{r.callers.names[number], r.callers.requests[number], c.denied, r.instant(c.first)}
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
