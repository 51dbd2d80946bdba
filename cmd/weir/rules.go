package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirgo/weir/cmd/weir/internal/report"
	"github.com/weirgo/weir/rules"
)

const rulesLong = `Rules are limits in YAML, in the form that Envoy's rate limit service reads:

  domain: edge
  descriptors:
    - key: plan
      value: free
      descriptors:
        - key: user
          rate_limit: {unit: minute, requests_per_unit: 20}

A PATH is a file, or a directory whose *.yaml and *.yml files are read, and those of the directories below it; entries
whose names begin with a dot are ignored. Every document of a file is read; each is of one domain.

A rule counts in fixed windows, unless its descriptor says otherwise in its metadata:

  metadata: {weir: {algorithm: token_bucket, burst: 50}}

The algorithms are fixed_window, sliding_window, sliding_log and token_bucket. A rate_limit may have a unit_multiplier:
unit minute and unit_multiplier 5 make windows of five minutes.

HTTP requests are described by the domain's rate_limits, which may be in a document of their own; there is no limit for a
request without descriptors:

  rate_limits:
    - actions: [{path: {}}, {remote_address: {}}]

The same rules limit in weir proxy, in weir serve and in a Go program, and weir replay says what they would have done to an
access log.`

func newRules() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rules",
		Short: "Check, explain, test and compare limits that are written as rules",
		Long:  rulesLong,
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newRulesLint(), newRulesExplain(), newRulesTest(), newRulesDiff(), newRulesSchema(),
		newRulesInspect(), newRulesReset(), newRulesReload())
	return cmd
}

// mergeFlag adds --merge-domains.
func mergeFlag(cmd *cobra.Command, to *rules.Loader) {
	cmd.Flags().BoolVar(&to.MergeDomains, "merge-domains", false,
		"allow a domain to be in several files or documents")
}

func newRulesLint() *cobra.Command {
	var loader rules.Loader
	var strict bool
	cmd := &cobra.Command{
		Use:   "lint PATH...",
		Short: "Print every mistake in rules, with its file, line and column",
		Long: `Lint prints every mistake in rules as FILE:LINE:COLUMN: MESSAGE, and warnings of what is surely a mistake although the
rules can be used: a rule that no request reaches, a limit of 0, a key at the wrong level.

The exit code is 0, or 1 if there are mistakes.`,
		Example: "  weir rules lint limits.yaml\n  weir rules lint --envoy --merge-domains config/",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, paths []string) error {
			set, found := loader.CheckFiles(paths...)
			return printProblems(cmd, set, found, strict)
		},
	}
	cmd.Flags().BoolVar(&loader.Envoy, "envoy", false,
		"also warn of what Envoy's service would refuse or read otherwise")
	cmd.Flags().BoolVar(&strict, "strict", false, "exit with 1 if there are warnings, too")
	mergeFlag(cmd, &loader)
	return cmd
}

// printProblems prints what lint found.
func printProblems(cmd *cobra.Command, set *rules.Set, found []*rules.Problem, strict bool) error {
	mistakes := 0
	for _, p := range found {
		fmt.Fprintln(cmd.OutOrStdout(), report.Printable(p.Error()))
		if !p.Warning {
			mistakes++
		}
	}
	warnings := len(found) - mistakes
	switch {
	case mistakes > 0:
		return failure{errors.New(count(mistakes, "mistake"))}
	case strict && warnings > 0:
		return failure{errors.New(count(warnings, "warning"))}
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s in %s\n", count(set.Len(), "rule"),
		count(len(set.Domains()), "domain"))
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
		Short: "Print what changes from some rules to others, and for whom",
		Long: `Diff compares two files or directories of rules. It prints a line for each change: which rule, what changes, whether its
counters go on, and what becomes of the requests that it was or will be for.

The exit code is 0 if nothing changes, and 1 if something does.`,
		Example: "  weir rules diff limits.yaml limits.new.yaml",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, paths []string) error {
			old, err := loader.LoadFiles(paths[0])
			if err != nil {
				return err
			}
			next, err := loader.LoadFiles(paths[1])
			if err != nil {
				return err
			}
			changes := rules.Diff(old, next)
			for _, c := range changes {
				fmt.Fprintln(cmd.OutOrStdout(), report.Printable(c.String()))
			}
			if len(changes) > 0 {
				return failure{errors.New(count(len(changes), "change"))}
			}
			return nil
		},
	}
	mergeFlag(cmd, &loader)
	return cmd
}

func newRulesSchema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of rules, for editors",
		Long: `Schema prints the JSON Schema of a rules file. Editors that know YAML's language server use it if the file begins with

  # yaml-language-server: $schema=rules.schema.json`,
		Example: "  weir rules schema > rules.schema.json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(rules.Schema())
			return err
		},
	}
}

// domainOf returns the domain that was asked for, or the only one.
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
