package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/replay"
	"github.com/weirgo/weir/cmd/weir/internal/rule"
)

// Step is a suggested next step and its command.
type Step struct{ What, Command string }

// Next returns the commands that enforce what was replayed or replay what is suggested.
func Next(r *replay.Result) []Step {
	var steps []Step
	if r.Doubtful {
		return nil
	}
	if r.RuleSet != nil {
		return []Step{
			{"enforce the rules in front of a server", Enforce(r, rule.Rule{})},
			{"answer Envoy by them", shell(ruleFlags([]string{"weir", "serve"}, r.RuleSet))},
		}
	}
	for i := range r.Rules {
		steps = append(steps, Step{"enforce " + full(&r.Rules[i]), Enforce(r, r.Rules[i].Rule)})
	}
	for i := 0; i < len(r.Suggestions); {
		n := 1
		for i+n < len(r.Suggestions) && r.Suggestions[i+n].Strategy == r.Suggestions[i].Strategy {
			n++
		}
		steps = append(steps, try(r, r.Suggestions[i:i+n])...)
		i += n
	}
	return steps
}

// ruleFlags appends the flags with the files of rules.
func ruleFlags(words []string, s *replay.RuleSet) []string {
	for _, path := range s.Paths {
		words = append(words, "--rules", path)
	}
	return words
}

// Enforce returns the command line that enforces a rule, or the set s, in front of a server.
func Enforce(r *replay.Result, l rule.Rule) string {
	if s := r.RuleSet; s != nil {
		words := ruleFlags([]string{"weir", "proxy", "--upstream", "http://127.0.0.1:9000"}, s)
		described := slices.DeleteFunc(s.Set.Domains(), func(d string) bool {
			return s.Set.Descriptors(d) == nil
		})
		if len(described) > 1 {
			words = append(words, "--domain", s.Domain)
		}
		return shell(words)
	}
	limit := l.Limit
	if l.Strategy != rule.Fixed && l.Strategy != rule.Tiers {
		limit += ":" + l.Strategy
	}
	if l.Name != "" {
		limit = l.Name + "=" + limit
	}
	words := []string{"weir", "proxy", "--upstream", "http://127.0.0.1:9000", "--limit", limit}
	if l.Burst > 0 {
		flag := map[bool]string{true: "--queue", false: "--burst"}[l.Strategy == rule.Leaky]
		words = append(words, flag, strconv.FormatUint(l.Burst, 10))
	}
	if c := r.Filter.CountIf; c != nil {
		words = append(words, "--count-if", c.Text)
	}
	return shell(append(words, keyFlags(r)...))
}

// keyFlags returns the flags of replay and proxy that key callers as r does.
func keyFlags(r *replay.Result) []string {
	var words []string
	if r.By != replay.ByIP {
		words = append(words, "--by", string(r.By))
	}
	if r.IPv6Bits != 0 && r.IPv6Bits != 64 {
		words = append(words, "--ipv6-prefix", strconv.Itoa(r.IPv6Bits))
	}
	return words
}

// try returns the commands that replay the suggestions of one strategy and the command that
// enforces one of them.
func try(r *replay.Result, all []replay.Suggestion) []Step {
	words := []string{"weir", "replay"}
	enforce := ""
	for _, s := range all {
		if s.Limit == replay.NoLimit {
			continue
		}
		words = append(words, "--limit", limitText(s))
		if enforce == "" || s.Duration <= time.Minute {
			enforce = Enforce(r, rule.Rule{Limit: limitText(s), Strategy: s.Strategy, Burst: s.Burst})
		}
	}
	if enforce == "" {
		return nil
	}
	if s := all[0]; s.Strategy != rule.Fixed {
		words = append(words, "--strategy", s.Strategy)
		if s.Burst > 0 {
			words = append(words, "--burst", strconv.FormatUint(s.Burst, 10))
		}
	}
	if c := r.Filter.CountIf; c != nil {
		words = append(words, "--count-if", c.Text)
	}
	words = append(append(words, keyFlags(r)...), r.Files...)
	name := strategyTitle(all[0].Strategy, all[0].Burst)
	return []Step{{"see whom the suggested limits deny, " + name, shell(words)},
		{"enforce one of them, " + name, enforce}}
}

// limitText formats a suggestion as a limit.
func limitText(s replay.Suggestion) string {
	return fmt.Sprintf("%d/%s", s.Limit, durationText(s.Duration))
}

// durationText formats a duration as in a limit.
func durationText(d time.Duration) string {
	const day = 24 * time.Hour
	if d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// shell quotes words for a shell where needed.
func shell(words []string) string {
	const plain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./:=,+@%"
	quoted := make([]string, len(words))
	for i, w := range words {
		if quoted[i] = w; w == "" || strings.Trim(w, plain) != "" {
			quoted[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return Printable(strings.Join(quoted, " "))
}
