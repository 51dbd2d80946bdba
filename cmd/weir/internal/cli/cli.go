// Package cli has what the programs of the tool share: how they run a command line, and the flags
// that several commands have.
package cli

import (
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"
	_ "time/tzdata" // limits by the calendar of a time zone, also where the system has no zones

	"github.com/spf13/cobra"

	"github.com/weirgo/weir/cmd/weir/internal/report"
)

// The exit codes.
const (
	ExitOK      = 0
	ExitFailure = 1
	ExitUsage   = 2
	ExitDoubt   = 3
)

// Root returns the root command of a program, with the given commands.
func Root(short string, commands ...*cobra.Command) *cobra.Command {
	root := &cobra.Command{
		Use:           "weir",
		Short:         short,
		Args:          cobra.NoArgs,
		Version:       version(),
		SilenceErrors: true, // Run prints them
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("weir {{.Version}}\n")
	root.AddCommand(append(commands, &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintln(cmd.OutOrStdout(), "weir", root.Version)
		},
	})...)
	return root
}

// Run runs the command line args and returns the exit code.
func Run(root *cobra.Command, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteC()
	if err == nil {
		return ExitOK
	}
	fmt.Fprintf(stderr, "weir: %s\n", Printable(err.Error())) // err may quote a hostile log
	if coded, ok := errors.AsType[coded](err); ok {
		return coded.code
	}
	fmt.Fprintf(stderr, "Try %q.\n", cmd.CommandPath()+" --help")
	return ExitUsage
}

// coded is an error with an exit code. All others exit with ExitUsage.
type coded struct {
	error
	code int
}

func (c coded) Unwrap() error { return c.error }

// Failure returns err as the error of a command with correct arguments and input, which exits with
// ExitFailure; nil for nil.
func Failure(err error) error {
	if err == nil {
		return nil
	}
	return coded{err, ExitFailure}
}

// Doubt returns err as the error of a command whose input was read, but whose result is probably
// not what was asked for. It exits with ExitDoubt.
func Doubt(err error) error { return coded{err, ExitDoubt} }

// Printable applies report.Printable to each line.
func Printable(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = report.Printable(lines[i])
	}
	return strings.Join(lines, "\n")
}

// Usage prints the usage of a command within 100 columns. It is for cobra's SetUsageFunc.
func Usage(cmd *cobra.Command) error {
	_, err := fmt.Fprintf(cmd.OutOrStderr(), "Usage:\n  %s\n\nExamples:\n%s\n\nFlags:\n%s",
		cmd.UseLine(), cmd.Example, cmd.LocalFlags().FlagUsagesWrapped(100))
	return err
}

// version returns the version of the binary and of Go.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	parts := []string{info.Main.Version}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" &&
			!strings.Contains(info.Main.Version, s.Value[:min(12, len(s.Value))]):
			parts = append(parts, s.Value[:min(12, len(s.Value))])
		case s.Key == "vcs.modified" && s.Value == "true" &&
			!strings.Contains(info.Main.Version, "dirty"):
			parts = append(parts, "modified")
		}
	}
	return strings.Join(append(parts, info.GoVersion), " ")
}

// Complete has the shell offer values of the flags of cmd and of its subcommands, by the name of
// the flag.
func Complete(cmd *cobra.Command, values map[string][]string) {
	for name, all := range values {
		if flag := cmd.Flags().Lookup(name); flag != nil && flag.Value.Type() != "bool" {
			// It fails for a flag that does not exist, or has a function already.
			_ = cmd.RegisterFlagCompletionFunc(name,
				cobra.FixedCompletions(slices.Clone(all), cobra.ShellCompDirectiveNoFileComp))
		}
	}
	for _, sub := range cmd.Commands() {
		Complete(sub, values)
	}
}
