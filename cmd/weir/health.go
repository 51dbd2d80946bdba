package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
)

// healthWithin bounds a health check.
const healthWithin = 2 * time.Second

func newHealth() *cobra.Command {
	var f adminFlags
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Say whether a running proxy is healthy, as a health check of a container",
		Long: `Health asks weir proxy whether it serves. It fails with 1 if there is no answer within two seconds,
and from SIGTERM on, while the proxy finishes its requests. It needs no token.`,
		Example: "  weir health\n  weir health --admin 127.0.0.1:9081",
		Args:    cli.None(""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return cli.Failure(f.checkHealth(cmd.Context(), cmd.OutOrStdout()))
		},
	}
	cmd.Flags().StringVar(&f.at, "admin", proxyAdmin, "the admin `address` of the proxy, or its URL")
	cli.Help(cmd)
	return cmd
}
