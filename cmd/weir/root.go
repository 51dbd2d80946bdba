package main

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

// newRoot returns the root command. Each subcommand has its own file and is added here.
func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "weir",
		Short:         "See what a rate limit does to real traffic, and set one",
		Args:          cobra.NoArgs,
		Version:       version(),
		SilenceErrors: true, // run prints them
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("weir {{.Version}}\n")
	root.AddCommand(newReplay(), newProxy(), newRules(), newServe(), &cobra.Command{
		Use: "version", Short: "Print the version", Args: cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintln(cmd.OutOrStdout(), "weir", root.Version)
		},
	})
	complete(root)
	return root
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
