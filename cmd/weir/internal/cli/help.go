package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// section is the annotation of a flag with the title that it stands below in the help.
const section = "section"

// Section puts the flags of cmd that are in no section yet into one.
func Section(cmd *cobra.Command, title string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Annotations[section] == nil {
			_ = cmd.Flags().SetAnnotation(f.Name, section, []string{title}) // f exists
		}
	})
}

// SectionOf returns the title of the section of a flag.
func SectionOf(f *pflag.Flag) string {
	if of := f.Annotations[section]; of != nil {
		return of[0]
	}
	return "Flags"
}

const (
	helpWidth    = 100 // columns
	helpExamples = 2   // that stand before the flags
)

// Help has cmd print its help so that what one needs first comes first: the usage, what it is for,
// two examples, and the flags by their sections. The other examples and the rest of cmd.Long
// follow.
func Help(cmd *cobra.Command) {
	cmd.Flags().SortFlags = false
	cmd.SetUsageFunc(func(cmd *cobra.Command) error {
		printUsage(cmd.OutOrStderr(), cmd)
		return nil
	})
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		out := cmd.OutOrStdout()
		printUsage(out, cmd)
		_, examples := examplesOf(cmd)
		if _, rest, _ := strings.Cut(cmd.Long, "\n\n"); rest != "" {
			fmt.Fprintf(out, "\n%s\n", rest)
		}
		if examples != "" {
			fmt.Fprintf(out, "\nMore examples:\n%s\n", examples)
		}
	})
}

func printUsage(out io.Writer, cmd *cobra.Command) {
	purpose, _, _ := strings.Cut(cmd.Long, "\n\n")
	first, _ := examplesOf(cmd)
	fmt.Fprintf(out, "Usage:\n  %s\n\n%s\n\nExamples:\n%s\n", cmd.UseLine(), purpose, first)
	var titles []string
	sections := map[string]*pflag.FlagSet{}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		title := SectionOf(f)
		if sections[title] == nil {
			titles = append(titles, title)
			sections[title] = pflag.NewFlagSet("", pflag.ContinueOnError)
			sections[title].SortFlags = false
		}
		sections[title].AddFlag(f)
	})
	for _, title := range titles {
		fmt.Fprintf(out, "\n%s:\n%s", title, sections[title].FlagUsagesWrapped(helpWidth))
	}
}

// examplesOf returns the examples that stand before the flags, and the others.
func examplesOf(cmd *cobra.Command) (first, others string) {
	lines := strings.SplitAfter(cmd.Example, "\n")
	n := 0
	for i := range lines {
		if i == 0 || !strings.HasSuffix(lines[i-1], "\\\n") { // it is not the end of the one before
			n++
		}
		if n > helpExamples {
			return strings.TrimSuffix(strings.Join(lines[:i], ""), "\n"), strings.Join(lines[i:], "")
		}
	}
	return cmd.Example, ""
}
