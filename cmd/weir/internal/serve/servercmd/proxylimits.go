package servercmd

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
	"github.com/weirgo/weir/cmd/weir/internal/serve/proxy"
	"github.com/weirgo/weir/httplimit"
)

// limitFlags are the flags of weir proxy that say the limits.
type limitFlags struct {
	limits, tries, routes []string
	limit                 rule.Defaults
	rules                 cli.Rules
	countIf               []string
	fail, onFull          string
}

// notWithRules are the flags that say a limit themselves, or how one counts on Redis.
var notWithRules = []string{"limit", "strategy", "burst", "queue", "redis-lease", "redis-denials"}

func (f *limitFlags) add(cmd *cobra.Command, cfg *proxy.Config) {
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.limits, "limit", "l", nil,
		"a limit, `[NAME=]COUNT/DURATION[:STRATEGY]`, COUNT/UNIT@ZONE, or tiers separated by commas "+
			"(repeatable)")
	flags.StringVarP(&f.limit.Strategy, "strategy", "s", rule.Default,
		"how to count: fixed, sliding, log, token or leaky")
	flags.Uint64Var(&f.limit.Burst, "burst", 0, "size of the token bucket (default the limit)")
	flags.Uint64Var(&f.limit.Queue, "queue", 0,
		"depth of the leaky bucket's queue (default the limit)")
	flags.StringArrayVar(&f.routes, "route", nil,
		"`PATTERN [cost=N] [limit=LIMIT]`: a cost or a limit for a part of the traffic (repeatable)")
	f.rules.Add(cmd)
	flags.StringArrayVar(&f.tries, "try", nil,
		"count by this `limit` too, deny nobody by it, and show whom it would deny (repeatable)")
	flags.StringSliceVar(&f.countIf, "count-if", nil,
		"count only requests answered with these `statuses`: 401, 4xx")
	flags.StringVar(&f.fail, "fail", "closed",
		"requests on which the limiter cannot decide: open (admit) or closed (503)")
	flags.StringVar(&f.onFull, "on-full", "refuse",
		"new callers while the table is full: refuse (503) or admit")
	flags.BoolVar(&cfg.Guard.Shadow, "shadow", false,
		"decide, report and count, but let every request pass")
	cli.Section(cmd, "Limits")
}

// checkRules returns an error for limits beside rules.
func (f *limitFlags) checkRules(given func(string) bool) error {
	if err := cli.Exclude("rules", given, notWithRules); err != nil {
		return err
	}
	limited := func(route string) bool { return strings.Contains(route, " limit=") }
	if i := slices.IndexFunc(f.routes, limited); i >= 0 && len(f.rules.Paths) > 0 {
		return &cli.FlagError{Flags: []string{"route", "rules"}, Item: i,
			Err: fmt.Errorf("--route %q has a limit, and --rules has those: leave out one of them",
				f.routes[i])}
	}
	return nil
}

// set sets the limits.
func (f *limitFlags) set(cfg *proxy.Config) (err error) {
	if err := oneOf("strategy", f.limit.Strategy, rule.Strategies...); err != nil {
		return err
	}
	parse := func(text string) (rule.Rule, error) { return proxy.ParseLimit(text, f.limit) }
	cfg.Limits, err = parsed("limit", f.limits, parse)
	if err != nil {
		return err
	}
	cfg.Try, err = parsed("try", f.tries, parse)
	if err != nil {
		return fmt.Errorf("--try: %w", err)
	}
	if slices.ContainsFunc(cfg.Try, func(l rule.Rule) bool { return l.Strategy == rule.Leaky }) {
		return &cli.FlagError{Flags: []string{"try"}, Err: errors.New("--try: a leaky bucket has " +
			"requests wait, and so cannot be tried beside a limit")}
	}
	cfg.Routes, err = parsed("route", f.routes, func(text string) (proxy.Route, error) {
		return proxy.ParseRoute(text, f.limit)
	})
	if err != nil {
		return err
	}
	if err := cmp.Or(checkTries(cfg), f.checkSizes(cfg)); err != nil {
		return err
	}
	cfg.Rules = f.rules
	return nil
}

// setGuard sets which answers count, and what becomes of requests that are not decided.
func (f *limitFlags) setGuard(guard *httplimit.Config) (err error) {
	err = cmp.Or(oneOf("on-full", f.onFull, proxy.FullPolicies...),
		oneOf("fail", f.fail, "open", "closed"))
	if err != nil {
		return err
	}
	guard.FailOpen, guard.AdmitFull = f.fail == "open", f.onFull == "admit"
	guard.CountIf, err = cli.Statuses(f.countIf)
	if err != nil {
		return &cli.FlagError{Flags: []string{"count-if"}, Err: fmt.Errorf("--count-if: %w", err)}
	}
	return nil
}

// checkTries returns an error for a --try that shows nothing: it is another one, or a --limit that
// no route has limits in place of.
func checkTries(cfg *proxy.Config) error {
	routed := slices.ContainsFunc(cfg.Routes, func(r proxy.Route) bool { return len(r.Limits) > 0 })
	for i, try := range cfg.Try {
		same := func(l rule.Rule) bool { return l.String() == try.String() }
		var of string
		switch {
		case slices.ContainsFunc(cfg.Try[:i], same):
			of = "try"
		case !routed && slices.ContainsFunc(cfg.Limits, same):
			of = "limit"
		default:
			continue
		}
		return &cli.FlagError{Flags: []string{"try"}, Item: i,
			Err: fmt.Errorf("--try %s is a --%s already: try another one", try, of)}
	}
	return nil
}

// checkSizes returns an error for a --burst or a --queue that no limit has.
func (f *limitFlags) checkSizes(cfg *proxy.Config) error {
	limits := slices.Concat(cfg.Limits, cfg.Try)
	for _, route := range cfg.Routes {
		limits = append(limits, route.Limits...)
	}
	unused := func(flag string, size uint64, strategy string) error {
		is := func(l rule.Rule) bool { return l.Strategy == strategy }
		if size == 0 || len(limits) == 0 || slices.ContainsFunc(limits, is) {
			return nil
		}
		return cli.Wrong(flag, "is for the strategy %[1]s, which no limit has: give --strategy %[1]s, "+
			"or a limit such as 100/1m:%[1]s", strategy)
	}
	return cmp.Or(unused("burst", f.limit.Burst, rule.Token),
		unused("queue", f.limit.Queue, rule.Leaky))
}
