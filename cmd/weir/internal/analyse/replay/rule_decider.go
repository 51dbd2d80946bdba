package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
	"github.com/weirgo/weir/rules"
)

// RuleSet is rules to replay, in place of limits.
type RuleSet struct {
	Set    *rules.Set
	Name   string // the files
	Domain string
	Flags  []string // the words of a command line that load Set
}

// ruleDecider decides by rules, with an engine on the clock of the log. Its first row counts the
// requests that the set of rules denies. The others count, for each rule in order, the requests
// that the rule denies or, in shadow mode, would deny.
type ruleDecider struct {
	logLimiter
	engine  *rules.Engine
	index   int // of its descriptors in a description
	names   func(code uint32) string
	rows    map[*rules.Rule]int
	matched []uint64 // requests, indexed by row
	req     rules.Request
	resp    rules.Response
}

// ruleSpec creates the one decider of a set of rules.
func ruleSpec(s *RuleSet, index, maxBuckets int) spec {
	return spec{rows: 1 + len(s.list()),
		open: func(names func(uint32) string, _ int) (decider, error) {
			d := &ruleDecider{names: names, index: index, rows: make(map[*rules.Rule]int),
				req: rules.Request{Domain: s.Domain}}
			for i, r := range s.list() {
				d.rows[r] = 1 + i
			}
			d.matched = make([]uint64, 1+len(d.rows))
			err := d.open(maxBuckets)
			if err != nil {
				return nil, err
			}
			d.engine, err = rules.New(s.Set,
				rules.Config{Strategies: rules.StrategiesOf(d.limiter), Now: d.now})
			if err != nil {
				d.close()
				return nil, err
			}
			return d, nil
		}}
}

// list returns the rules of the domain.
func (s *RuleSet) list() []*rules.Rule {
	return slices.DeleteFunc(slices.Collect(s.Set.All()), func(r *rules.Rule) bool {
		return r.Domain != s.Domain
	})
}

func (d *ruleDecider) decide(h hit, denied []bool) error {
	d.ns.Store(h.ns)
	rest := description(d.names(h.code))
	rest.text() // skips the caller
	rest.text() // and the place
	for range d.index + 1 {
		rest.read(&d.req)
	}
	d.matched[0]++
	if len(d.req.Descriptors) == 0 {
		return nil
	}
	err := d.engine.DecideInto(context.Background(), &d.req, &d.resp)
	err = errors.Join(err, d.resp.Lost)
	if err != nil {
		return fmt.Errorf("rules: %w", d.explain(err, "give a larger --max-buckets"))
	}
	d.decided()
	denied[0] = !d.resp.Allowed()
	d.seen(denied)
	return nil
}

// seen records the decisions of the rules that matched. If two descriptors of a request match the
// same rule, that is one request.
func (d *ruleDecider) seen(denied []bool) {
	for i := range d.resp.Statuses {
		s := &d.resp.Statuses[i]
		if s.Rule == nil {
			continue
		}
		row := d.rows[s.Rule]
		again := slices.ContainsFunc(d.resp.Statuses[:i], func(o rules.Status) bool {
			return o.Rule == s.Rule
		})
		if !again {
			d.matched[row]++
		}
		denied[row] = denied[row] || s.Reason == rules.Shadowed || s.Reason == rules.Over && denied[0]
	}
}

// strategyOf maps the algorithms of rules to the names of strategies on the command line.
var strategyOf = map[rules.Algorithm]string{
	rules.FixedWindow: rule.Fixed, rules.SlidingWindow: rule.Sliding, rules.SlidingLog: rule.Log,
	rules.TokenBucket: rule.Token,
}

// results returns a RuleResult without denials for each row. name is that of the whole set.
func (s *RuleSet) results(name string) []RuleResult {
	all := []RuleResult{{Rule: rule.Rule{Name: name}, Set: s, Worst: []Caller{}}}
	for _, r := range s.list() {
		rr := RuleResult{Set: s, Worst: []Caller{}, Shadow: r.Shadow,
			Rule: rule.Rule{Name: r.Path, Limit: "unlimited"}}
		if !r.Limit.Unlimited {
			rate := rules.Limit{Requests: r.Limit.Requests, Unit: r.Limit.Unit,
				Multiplier: r.Limit.Multiplier, Calendar: r.Limit.Calendar}
			rr.Rule.Limit, rr.Rule.Strategy, rr.Rule.Burst = rate.String(), strategyOf[r.Limit.Algorithm],
				r.Limit.Burst
			if r.Limit.Calendar != (rules.Calendar{}) {
				rr.Rule.Strategy = rule.Calendar
			}
			rr.Rule.Tiers = []weir.Tier{{Limit: uint64(r.Limit.Requests), Duration: r.Limit.Period()}}
		}
		all = append(all, rr)
	}
	return all
}
