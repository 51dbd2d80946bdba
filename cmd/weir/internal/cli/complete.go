package cli

import (
	"slices"

	"github.com/spf13/cobra"
)

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
