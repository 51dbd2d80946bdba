package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weirgo/weir/cmd/weir/internal/rulestest"
	"github.com/weirgo/weir/rules"
)

// testFlags are the flags of weir rules test.
type testFlags struct {
	loader  rules.Loader
	tests   []string
	verbose bool
}

func newRulesTest() *cobra.Command {
	var f testFlags
	cmd := &cobra.Command{
		Use:   "test PATH... --tests FILE",
		Short: "Run a file of requests, and of the rules and verdicts that they should get",
		Long: `Test asks the rules for each request of a file of tests, and compares what they decide with what the file expects:

  domain: edge
  tests:
    - name: the free plan has 20 requests a minute
      descriptor: plan=free,user=ann
      after: 20              # such requests before; 0 if left out
      rule: plan=free,user   # path or name of the rule, or none
      verdict: OVER_LIMIT    # or OK
    - name: internal traffic is not limited
      request: {descriptors: [{entries: [{key: plan, value: internal}]}]}
      rule: none

A test has a descriptor, a list of descriptors with a list of rules, or a request as Envoy's service takes it at /json.
What a test does not mention is not compared. Each test begins without counts, and takes no time.

The exit code is 0, or 1 if a test fails.`,
		Example: "  weir rules test limits.yaml --tests limits.tests.yaml",
		Args:    cobra.MinimumNArgs(1),
		RunE:    f.run,
	}
	cmd.Flags().StringArrayVar(&f.tests, "tests", nil, "a `file` of tests (repeatable)")
	cmd.Flags().BoolVarP(&f.verbose, "verbose", "v", false, "name the tests that pass, too")
	mergeFlag(cmd, &f.loader)
	if err := cmd.MarkFlagRequired("tests"); err != nil {
		panic(err) // the flag is defined above
	}
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
		return failure{fmt.Errorf("%d of %s failed", failed, count(ran, "test"))}
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s passed\n", count(ran, "test"))
	return nil
}

func (f *testFlags) print(cmd *cobra.Command, file string, t rulestest.Test, failures []string) {
	out := cmd.OutOrStdout()
	if f.verbose && len(failures) == 0 {
		fmt.Fprintf(out, "pass: %s\n", printable(t.Name))
	}
	for _, why := range failures {
		fmt.Fprintln(out, printable(fmt.Sprintf("%s:%d: %s: %s", file, t.Line, t.Name, why)))
	}
}
