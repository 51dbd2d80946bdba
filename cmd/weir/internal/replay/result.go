package replay

import (
	"cmp"
	"slices"
	"time"
)

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

// worse sorts callers, the worst first.
func worse(a, b Caller) int {
	return cmp.Or(cmp.Compare(b.Denied, a.Denied), cmp.Compare(b.Requests, a.Requests),
		a.FirstDenied.Compare(b.FirstDenied), cmp.Compare(a.Name, b.Name))
}

// Apart counts requests that a limit is perhaps not for.
type Apart struct {
	Answered uint64 `json:"answered_429"` // requests that the server answered with 429
}

func (a *Apart) count(m marks) {
	a.Answered += uint64(m & answered / answered)
}

func (a *Apart) add(o Apart) { a.Answered += o.Answered }
