package main

import (
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
	"github.com/weirgo/weir/cmd/weir/internal/proxy"
	"github.com/weirgo/weir/cmd/weir/internal/rule"
)

// values are those that the shell offers for a flag, by its name.
var values = map[string][]string{
	"access-log": {"text", "json", "off"},
	"by": {"ip", "header:", "host", "user", "path", "pattern", "agent", "ip+path",
		"ip+pattern"},
	"fail":             {"open", "closed"},
	"format":           accesslog.Formats(),
	"log":              {"text", "json"},
	"headers":          slices.Sorted(maps.Keys(proxy.HeaderStyles)),
	"on-full":          slices.Sorted(maps.Keys(proxy.FullPolicies)),
	"on-redis-failure": {"local", "open", "closed"},
	"output":           outputs,
	"strategy":         rule.Strategies,
}

// complete has the shell offer the values of the flags of cmd and of its subcommands.
func complete(cmd *cobra.Command) {
	for name, all := range values {
		if flag := cmd.Flags().Lookup(name); flag != nil && flag.Value.Type() != "bool" {
			offered := slices.DeleteFunc(slices.Clone(all), func(value string) bool {
				return name == "by" && !strings.Contains(flag.Usage, strings.TrimSuffix(value, ":"))
			})
			// It fails for a flag that does not exist, or has a function already.
			_ = cmd.RegisterFlagCompletionFunc(name,
				cobra.FixedCompletions(offered, cobra.ShellCompDirectiveNoFileComp))
		}
	}
	for _, sub := range cmd.Commands() {
		complete(sub)
	}
}
