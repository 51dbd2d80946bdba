package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/endpoint"
	"github.com/weirgo/weir/cmd/weir/internal/analyse/replay"
	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
	"github.com/weirgo/weir/rules"
)

// algorithms are the names of strategies in rules.
var algorithms = map[string]string{rule.Fixed: "fixed_window", rule.Sliding: "sliding_window",
	rule.Log: "sliding_log", rule.Token: "token_bucket"}

// writeRules writes the limits that are suggested for a minute, of the first strategy, as rules.
func (f *replayFlags) writeRules(r *replay.Result) error {
	var limits []endpoint.Limit
	for _, e := range r.Endpoints {
		for _, s := range e.Suggestions {
			if s.Strategy == f.strategies[0] && s.Duration == time.Minute && s.Limit != replay.NoLimit {
				limits = append(limits, endpoint.Limit{Name: e.Name, Requests: uint64(s.Limit),
					Algorithm: algorithms[s.Strategy], Burst: s.Burst})
			}
		}
	}
	if len(limits) == 0 {
		return fmt.Errorf("--rules-out: no endpoint has %d callers or more", endpoint.MinCallers)
	}
	action, key := callerAction(r)
	comment := fmt.Sprintf("The least limits for a minute that deny a request to at most %s of the "+
		"callers of an endpoint,\nby weir replay, from %s of %s to %s.\n%s\n", f.denyAtMost,
		screen.Printable(strings.Join(r.Files, ", ")), r.First.Format(time.RFC3339),
		r.Last.Format(time.RFC3339), strings.ReplaceAll(endpoint.How, ". ", ".\n"))
	text, err := endpoint.Rules(comment, limits, r.Names, action, key)
	if err != nil {
		return err
	}
	return os.WriteFile(f.rulesOut, text, 0o644)
}

// callerAction returns the action of rules that keys callers as r does, and the key of its entry.
func callerAction(r *replay.Result) (action map[string]any, key string) {
	switch r.By {
	case replay.ByUser:
		return map[string]any{"context_value": map[string]any{"name": "user"}}, "user"
	case replay.ByAgent:
		return map[string]any{"request_headers": map[string]any{"header_name": "user-agent",
			"descriptor_key": "agent"}}, "agent"
	}
	return map[string]any{"masked_remote_address": map[string]any{"v6_prefix_mask_len": r.IPv6Bits}},
		"masked_remote_address"
}

func ruleSet(f *cli.Rules) (*replay.RuleSet, error) {
	set, err := f.Loader.LoadFiles(f.Paths...)
	if err != nil {
		return nil, err
	}
	domain, err := f.Choose(set)
	if err == nil {
		err = cli.RefuseInFlight(set, domain, "the unit in_flight cannot be replayed, since a log does "+
			"not say which requests were in flight; replay a copy of the file without the rule")
	}
	if err != nil {
		return nil, err
	}
	var words []string
	for _, path := range f.Paths {
		words = append(words, "--rules", path)
	}
	if f.Loader.MergeDomains {
		words = append(words, "--merge-domains")
	}
	if f.Loader.Algorithm != rules.FixedWindow {
		words = append(words, "--algorithm", f.Loader.Algorithm.String())
	}
	name := strings.Join(f.Paths, ", ")
	return &replay.RuleSet{Set: set, Name: name, Domain: domain, Flags: words}, nil
}
