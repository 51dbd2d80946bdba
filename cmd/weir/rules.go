package main

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
	"github.com/weirgo/weir/rules"
)

const rulesLong = `Rules are limits in YAML, in the format of Envoy's rate limit service:

  domain: edge
  descriptors:
    - key: plan
      value: free
      descriptors:
        - key: user
          rate_limit: {unit: minute, requests_per_unit: 20}

A PATH is a file or a directory. Of a directory, all *.yaml and *.yml files are read, also those in
its subdirectories, except entries whose names begin with a dot. A file may have several documents,
each for one domain.

A rule counts in fixed windows unless the metadata of its descriptor names another algorithm, or
that of the whole document, beside its domain, or --algorithm for all that name none:

  metadata: {weir: {algorithm: token_bucket, burst: 50}}

The algorithms are fixed_window, sliding_window, sliding_log and token_bucket. A rate_limit may have
a unit_multiplier: unit minute and unit_multiplier 5 make windows of five minutes.

The domain's rate_limits make descriptors from HTTP requests; they may be in another document.
A request without descriptors is not limited:

  rate_limits:
    - actions: [{path: {}}, {remote_address: {}}]

weir proxy, weir serve and Go programs use the same rules, and weir replay reports what they would
have denied in an access log.`

func newRules() *cobra.Command {
	group := cli.Group(&cobra.Command{
		Use:   "rules",
		Short: "Check, explain, test and compare limits that are written as rules",
		Long:  rulesLong,
	}, newRulesLint(), newRulesExplain(), newRulesTest(), newRulesDiff(), newRulesSchema(),
		newRulesReset(), newRulesReload())
	known := group.Args
	group.Args = func(cmd *cobra.Command, args []string) error {
		err := known(cmd, args)
		if err == nil {
			return nil
		}
		if _, missing := os.Stat(args[0]); missing == nil {
			return fmt.Errorf("%w; did you mean %s lint %s?", err, cmd.CommandPath(), args[0])
		}
		return err
	}
	return group
}

func newRulesLint() *cobra.Command {
	var loader rules.Loader
	var lint linted
	cmd := &cobra.Command{
		Use:        "lint PATH...",
		SuggestFor: []string{"check", "validate", "verify"},
		Short:      "Print every mistake in rules, with its file, line and column",
		Long: `Lint prints every mistake in rules as FILE:LINE:COLUMN: MESSAGE, and the line below it. It warns of
what can be loaded but is probably a mistake: a rule that no request reaches, since an earlier one
has all its values or no descriptor of the rate_limits matches it, rate_limits without a rule, a
domain without one, a limit of 0, a key at the wrong level.

The exit code is 1 if there are mistakes, if a domain limits nothing, since no rule of it can be
reached (not with --allow-unreached), and with --strict also if there are other warnings.`,
		Example: "  weir rules lint limits.yaml\n  weir rules lint --envoy --merge-domains config/",
		Args:    cli.Files("rules"),
		RunE: func(cmd *cobra.Command, paths []string) error {
			set, found := loader.CheckFiles(paths...)
			return lint.print(cmd, set, found)
		},
	}
	cmd.Flags().BoolVar(&loader.Envoy, "envoy", false,
		"also warn of what Envoy's service would refuse or understand differently")
	cmd.Flags().BoolVar(&lint.strict, "strict", false, "exit with 1 also if there are warnings")
	cmd.Flags().BoolVar(&lint.unreached, "allow-unreached", false,
		"exit with 0 also if no rule of a domain can be reached")
	cli.AddLoader(cmd, &loader)
	return cmd
}

// linted is what lint takes for a failure beside mistakes.
type linted struct {
	strict    bool // warnings are
	unreached bool // a domain that limits nothing is none
}

// print prints the problems that lint found.
func (l linted) print(cmd *cobra.Command, set *rules.Set, found []*rules.Problem) error {
	mistakes, nothing := 0, false
	for _, p := range found {
		fmt.Fprintln(cmd.OutOrStdout(), cli.Problem(p))
		if !p.Warning {
			mistakes++
		}
		nothing = nothing || p.LimitsNothing
	}
	warnings := len(found) - mistakes
	switch {
	case mistakes > 0:
		return cli.Failure(errors.New(count(mistakes, "mistake")))
	case l.strict && warnings > 0:
		return cli.Failure(errors.New(count(warnings, "warning")))
	case nothing && !l.unreached:
		return cli.Failure(errors.New("no rule of a domain can be reached, so it limits nothing; " +
			"--allow-unreached takes that for no failure"))
	}
	summary := count(set.Len(), "rule") + " in " + count(len(set.Domains()), "domain")
	if warnings > 0 {
		summary += ", " + count(warnings, "warning")
	}
	fmt.Fprintln(cmd.ErrOrStderr(), summary)
	return nil
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func newRulesDiff() *cobra.Command {
	var loader rules.Loader
	cmd := &cobra.Command{
		Use:   "diff OLD NEW",
		Short: "Print the changes between two versions of rules",
		Long: `Diff compares two files or directories of rules. It prints a line for each change: the rule,
what changes, whether the rule keeps its counters, and which rule now limits the requests that
another limited before. "weir replay --rules OLD --compare NEW access.log" prints how many requests
only one of them would have denied, and whose.

The exit code is 1 if there are changes.`,
		Example: "  weir rules diff limits.yaml limits.new.yaml",
		Args: func(_ *cobra.Command, paths []string) error {
			if len(paths) != 2 {
				return fmt.Errorf("want two files or directories of rules, OLD and NEW, not %d", len(paths))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, paths []string) error {
			old, err := loader.LoadFiles(paths[0])
			if err != nil {
				return err
			}
			next, err := loader.LoadFiles(paths[1])
			if err != nil {
				return err
			}
			changes := old.Diff(next)
			for _, c := range changes {
				fmt.Fprintln(cmd.OutOrStdout(), screen.Printable(c.String()))
			}
			if len(changes) > 0 {
				return cli.Failure(errors.New(count(len(changes), "change")))
			}
			return nil
		},
	}
	cli.AddLoader(cmd, &loader)
	return cmd
}

// rulesSchema is the JSON Schema (draft 2020-12) of one document of a rules file. It accepts the
// documents that rules.Load accepts without a warning, as far as a schema can express that.
//
//go:embed rules.schema.json
var rulesSchema []byte

func newRulesSchema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of rules, for editors",
		Long: `Schema prints the JSON Schema of a rules file. Editors that support the YAML language server
use it if the file begins with

  # yaml-language-server: $schema=rules.schema.json`,
		Example: "  weir rules schema > rules.schema.json",
		Args:    cli.None(""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(rulesSchema)
			return err
		},
	}
}

// domainOf returns the requested domain, or the only one if none is requested.
func domainOf(set *rules.Set, asked string) (string, error) {
	domains := set.Domains()
	switch {
	case asked != "":
		return asked, nil
	case len(domains) == 1:
		return domains[0], nil
	}
	return "", fmt.Errorf("which domain? Give --domain: there are %s", strings.Join(domains, ", "))
}
