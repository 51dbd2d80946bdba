package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weirgo/weir/cmd/weir/internal/check/rulestest"
	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
	"github.com/weirgo/weir/rules"
)

type testFlags struct {
	loader  rules.Loader
	tests   []string
	verbose bool
}

func newRulesTest() *cobra.Command {
	var f testFlags
	cmd := &cobra.Command{
		Use:   "test PATH... --tests FILE",
		Short: "Run tests: requests with the rules and verdicts expected for them",
		Long: `Test decides on each request in a file of tests by the rules, and compares the rule and the
verdict with the expected ones:

  domain: edge
  tests:
    - name: the free plan has 20 requests a minute
      descriptor: plan=free,user=ann
      after: 20              # number of such requests sent before; default 0
      rule: plan=free,user   # path or name of the rule, or none
      verdict: OVER_LIMIT    # or OK
    - name: internal traffic is not limited
      request: {descriptors: [{entries: [{key: plan, value: internal}]}]}
      rule: none

    - name: a login is limited by its address
      http: {method: POST, path: /login, headers: {Plan: free}, address: 192.0.2.7}
      rule: path=/login*,remote_address
    - name: and so is a line of the log
      line: '192.0.2.7 - - [21/Nov/2026:10:00:00 +0000] "POST /login HTTP/1.1" 401 0'
      rules: [remote_address, 'path=/login*,remote_address']

A test has a descriptor, a list of descriptors with a list of rules, a request as Envoy's service
accepts it at /json, or an HTTP request, by its parts or as a line of an access log, of which the
domain's rate_limits make descriptors. The one rule expected of an HTTP request is that of one of
its descriptors. Only the fields given are compared. Each test starts with empty counters, and its
clock stands still.

The exit code is 1 if a test fails.`,
		Example: "  weir rules test limits.yaml --tests limits.tests.yaml",
		Args:    cli.Files("rules"),
		RunE:    f.run,
	}
	cmd.Flags().StringArrayVar(&f.tests, "tests", nil, "a `file` of tests (repeatable)")
	cmd.Flags().BoolVarP(&f.verbose, "verbose", "v", false,
		"also print the names of the tests that pass")
	cli.AddLoader(cmd, &f.loader)
	cobra.CheckErr(cmd.MarkFlagRequired("tests"))
	return cmd
}

func (f *testFlags) run(cmd *cobra.Command, paths []string) error {
	set, err := f.loader.LoadFiles(paths...)
	if err != nil {
		return err
	}
	ran, failed := 0, 0
	for _, name := range f.tests {
		tests, err := rulestest.ReadFile(name)
		if err != nil {
			return err
		}
		for _, t := range tests {
			ran++
			failures, err := t.Run(cmd.Context(), set)
			if err != nil {
				return fmt.Errorf("%s:%d: %s: %w", name, t.Line, t.Name, err)
			}
			f.print(cmd, name, t, failures)
			failed += min(1, len(failures))
		}
	}
	if ran == 0 {
		return errors.New("there are no tests")
	}
	if failed > 0 {
		return cli.Failure(fmt.Errorf("%d of %s failed", failed, count(ran, "test")))
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s passed\n", count(ran, "test"))
	return nil
}

func (f *testFlags) print(cmd *cobra.Command, file string, t rulestest.Test, failures []string) {
	out := cmd.OutOrStdout()
	if f.verbose && len(failures) == 0 {
		fmt.Fprintf(out, "pass: %s\n", screen.Lines(t.Name))
	}
	for _, why := range failures {
		fmt.Fprintln(out, screen.Lines(fmt.Sprintf("%s:%d: %s: %s", file, t.Line, t.Name, why)))
	}
}
