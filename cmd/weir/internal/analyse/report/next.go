package report

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/replay"
	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
	"github.com/weirgo/weir/internal/core/bounds"
)

// Step is a suggested next step and its command, which is empty if there is none.
type Step struct {
	What    string `json:"what"`
	Command string `json:"command,omitempty"`
}

// Next returns the commands that enforce what was replayed or replay what is suggested. Each
// decides on the same requests as the replay did; where no command does, the step says why. Nothing
// is proposed that denies nobody: then a last step finds which limits fit.
func Next(r *replay.Result) []Step {
	if r.Doubtful {
		return nil
	}
	if r.Load != nil {
		return loadSteps(r)
	}
	var steps []Step
	proposed := len(r.Suggestions) > 0 || r.Endpoints != nil
	for _, s := range r.RuleSets {
		name := "the rules"
		if len(r.RuleSets) > 1 {
			name += " of " + screen.Printable(s.Name)
		}
		if deniesNobody(r, s) {
			steps = append(steps, nothing(name))
			continue
		}
		proposed = true
		step := enforce(r, &replay.RuleResult{Set: s}, name+" in front of a server")
		steps = append(steps, step)
		if step.Command != "" {
			steps = append(steps, Step{"answer Envoy by " + name, shell([]string{"weir", "serve"}, s.Flags)})
		}
	}
	for i := range r.Rules {
		switch rr := &r.Rules[i]; {
		case rr.Set != nil || rr.Replicas > 0:
		case rr.Denied == 0:
			steps = append(steps, nothing(full(rr)))
		default:
			proposed = true
			steps = append(steps, enforce(r, rr, full(rr)))
		}
	}
	if len(steps) > 0 && !proposed && r.Moved == nil {
		steps = append(steps, Step{"see which limits fit",
			shell([]string{"weir", "replay", "--suggest"}, r.Args, filesRead(r))})
	}
	for _, all := range byStrategy(r) {
		steps = append(steps, try(r, all)...)
	}
	return steps
}

// deniesNobody reports whether a set of rules denies no request, nor would in shadow mode.
func deniesNobody(r *replay.Result, s *replay.RuleSet) bool {
	return !slices.ContainsFunc(r.Rules, func(rr replay.RuleResult) bool {
		return rr.Set == s && rr.Replicas == 0 && rr.Denied > 0
	})
}

// nothing returns the step of what denies nobody.
func nothing(name string) Step {
	return Step{"nobody would have been denied by " + name, ""}
}

// enforce returns the step that enforces a rule.
func enforce(r *replay.Result, rr *replay.RuleResult, name string) Step {
	command, why := Enforce(r, rr)
	if command == "" {
		return Step{"no command enforces " + name + ": " + why, ""}
	}
	return Step{"enforce " + name, command}
}

// Enforce returns the command line that enforces a rule, or the set that it is of, in front of a
// server. If there is none, it returns why.
func Enforce(r *replay.Result, rr *replay.RuleResult) (command, why string) {
	l := rr.Rule
	words := []string{"weir", "proxy", "--upstream", "http://127.0.0.1:9000"}
	switch f := &r.Filter; {
	case r.Doubtful:
		return "", "the callers are in doubt"
	case f.Statuses != nil:
		return "", "only requests with some statuses were replayed, and a limit cannot know the " +
			"status before"
	case rr.Set != nil && f.Routes != nil:
		return "", "only some methods and paths were replayed, and rules are for all"
	case rr.Set != nil:
		return shell(words, rr.Set.Flags, domainFlag(rr.Set), keyFlags(r)), ""
	}
	limit := l.Limit
	if l.Strategy != rule.Default && slices.Contains(rule.Strategies, l.Strategy) {
		limit += ":" + l.Strategy
	}
	if r.Filter.Routes == nil {
		words = append(words, "--limit", named(l.Name, limit))
	} else { // routes share a budget by its name, which has no spaces
		limit = named(cmp.Or(strings.Join(strings.Fields(l.Name), "-"), "selected"), limit)
		for _, pattern := range r.Filter.Routes.Patterns {
			words = append(words, "--route", pattern+" limit="+limit)
		}
	}
	if l.Burst > 0 {
		flag := map[bool]string{true: "--queue", false: "--burst"}[l.Strategy == rule.Leaky]
		words = append(words, flag, strconv.FormatUint(l.Burst, 10))
	}
	if c := r.Filter.CountIf; c != nil {
		words = append(words, "--count-if", c.Text)
	}
	return shell(words, keyFlags(r)), ""
}

// named returns a limit with its name, if it has one.
func named(name, limit string) string {
	if name == "" {
		return limit
	}
	return name + "=" + limit
}

// domainFlag returns the flag that chooses the domain, if the rules have several.
func domainFlag(s *replay.RuleSet) []string {
	described := slices.DeleteFunc(s.Set.Domains(), func(d string) bool {
		return s.Set.Describers(d) == nil
	})
	if len(described) > 1 {
		return []string{"--domain", s.Domain}
	}
	return nil
}

// keyFlags returns the flags of proxy that key callers as r does.
func keyFlags(r *replay.Result) (words []string) {
	switch r.By {
	case replay.ByIP:
	case replay.ByAgent:
		words = append(words, "--by", "header:User-Agent")
	default:
		words = append(words, "--by", string(r.By))
	}
	if r.IPv6Bits != 0 && r.IPv6Bits != 64 {
		words = append(words, "--ipv6-prefix", strconv.Itoa(r.IPv6Bits))
	}
	for _, p := range r.Trust {
		words = append(words, "--trust", p.String())
	}
	return words
}

// try returns the commands that replay the suggestions of one strategy and the command that
// enforces one of them.
func try(r *replay.Result, all []replay.Suggestion) []Step {
	words := []string{"weir", "replay"}
	var chosen rule.Rule
	for _, s := range all {
		if s.Limit == replay.NoLimit {
			continue
		}
		limit := fmt.Sprintf("%d/%s", s.Limit, durationText(s.Duration))
		words = append(words, "--limit", limit)
		if chosen.Limit == "" || s.Duration <= time.Minute {
			chosen = rule.Rule{Limit: limit, Strategy: s.Strategy, Burst: s.Burst}
		}
	}
	if chosen.Limit == "" {
		return nil
	}
	if s := all[0]; s.Strategy != rule.Default {
		words = append(words, "--strategy", s.Strategy)
		if s.Burst > 0 {
			words = append(words, "--burst", strconv.FormatUint(s.Burst, 10))
		}
	}
	name := strategyTitle(all[0].Strategy, all[0].Burst)
	return []Step{{"see whom the suggested limits deny, " + name, shell(words, r.Args, filesRead(r))},
		enforce(r, &replay.RuleResult{Rule: chosen}, "one of them, "+name)}
}

// durationText formats a duration as in a limit.
func durationText(d time.Duration) string {
	const day = 24 * time.Hour
	if d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	return bounds.Text(d)
}

// shell joins words for a shell, and quotes them where needed.
func shell(groups ...[]string) string {
	const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./:=,+@%"
	quoted := slices.Concat(groups...)
	for i, w := range quoted {
		if w == "" || strings.Trim(w, plain) != "" {
			quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return screen.Printable(strings.Join(quoted, " "))
}
