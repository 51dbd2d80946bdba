// Package cli has what the programs of the tool share: how they run a command line, and the flags
// that several commands have.
package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime/debug"
	"slices"
	"strings"
	_ "time/tzdata" // limits by the calendar of a time zone, also where the system has no zones

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirgo/weir/internal/doors/similar"
	"github.com/weirgo/weir/rules"
)

// The exit codes.
const (
	ExitOK      = 0
	ExitFailure = 1
	ExitUsage   = 2
	ExitDoubt   = 3

	ExitInterrupted = 130 // as shells have it: 128 and the number of the signal
)

// Commands stand in the order of use, not of the alphabet.
func init() { cobra.EnableCommandSorting = false }

// Root returns the root command of a program, with the given commands.
func Root(short string, commands ...*cobra.Command) *cobra.Command {
	root := Group(&cobra.Command{
		Use:           "weir",
		Short:         short,
		Version:       version(),
		SilenceErrors: true, // Run prints them
		SilenceUsage:  true,
	}, commands...)
	root.SetVersionTemplate("weir {{.Version}}\n")
	root.SetFlagErrorFunc(meant)
	root.AddCommand(&cobra.Command{
		Use: "version", Short: "Print the version", Args: None(""),
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintln(cmd.OutOrStdout(), "weir", root.Version)
		},
	})
	return root
}

// Group returns a command that only holds others.
func Group(group *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	group.Args = known
	group.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	group.AddCommand(commands...)
	return group
}

// known refuses what is no command, and says which was probably meant.
func known(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	word := args[0]
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
		if slices.Contains(c.SuggestFor, word) {
			word = c.Name()
		}
	}
	return fmt.Errorf("unknown command %q for %q%s", args[0], cmd.CommandPath(),
		DidYouMean("", word, names))
}

// Files wants at least one file or directory of something.
func Files(of string) cobra.PositionalArgs {
	return func(_ *cobra.Command, paths []string) error {
		if len(paths) == 0 {
			return fmt.Errorf("which %s? Name a file or a directory", of)
		}
		return nil
	}
}

// None wants no arguments. instead says how a file is given.
func None(instead string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return nil
		case instead == "":
			return fmt.Errorf("%s takes no arguments, such as %q: leave it out", cmd.CommandPath(), args[0])
		}
		return fmt.Errorf("%s takes no arguments, such as %q: did you mean %s %s?",
			cmd.CommandPath(), args[0], instead, args[0])
	}
}

// meant adds to the error of an unknown flag which was probably meant.
func meant(cmd *cobra.Command, err error) error {
	unknown, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok || unknown.GetSpecifiedShortnames() != "" {
		return err
	}
	return fmt.Errorf("%w%s", err, MeantFlag(cmd.Flags(), "--", unknown.GetSpecifiedName()))
}

// MeantFlag is DidYouMean for the flags of a set but some.
func MeantFlag(flags *pflag.FlagSet, prefix, name string, but ...string) string {
	var names []string
	flags.VisitAll(func(f *pflag.Flag) {
		if !slices.Contains(but, f.Name) {
			names = append(names, f.Name)
		}
	})
	return DidYouMean(prefix, name, names)
}

// DidYouMean returns the end of an error about a word that is unknown: which of names was probably
// meant, behind a prefix, or nothing.
func DidYouMean(prefix, word string, names []string) string {
	name := similar.To(word, names)
	if name == "" {
		return ""
	}
	return "; did you mean " + prefix + name + "?"
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
	fmt.Fprintf(stderr, "weir: %s\n", described(err))
	if coded, ok := errors.AsType[coded](err); ok {
		return coded.code
	}
	_, inRules := errors.AsType[*rules.Problem](err)
	// the help helps with none of these
	if !inRules && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		fmt.Fprintf(stderr, "Try %q.\n", cmd.CommandPath()+" --help")
	}
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

// Interrupted returns err as the error of a command that was interrupted, and has printed what
// there was. It exits with ExitInterrupted.
func Interrupted(err error) error { return coded{err, ExitInterrupted} }

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
