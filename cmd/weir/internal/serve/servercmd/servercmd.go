// Package servercmd has the commands of the tool that serve: weir proxy and weir serve.
package servercmd

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
	"github.com/weirgo/weir/cmd/weir/internal/serve/proxy"
)

// Root returns the root command of weir-server.
func Root() *cobra.Command {
	root := cli.Root("The commands weir proxy and weir serve", newProxy(), newServe())
	cli.Complete(root, map[string][]string{
		"access-log":       {"text", "json", "off"},
		"by":               {"ip", "header:", "host", "user", "path", "pattern", "ip+pattern"},
		"fail":             {"open", "closed"},
		"headers":          slices.Sorted(slices.Values(proxy.HeaderStyles)),
		"log":              {"text", "json"},
		"on-full":          slices.Sorted(slices.Values(proxy.FullPolicies)),
		"on-redis-failure": proxy.OnFailNames,
		"strategy":         rule.Strategies,
	})
	return root
}

// maxBucketsText describes --max-buckets.
const maxBucketsText = "how many buckets may be kept in memory at the same time, of about 73 " +
	"bytes each"

// oneOf returns an error if the value of a flag is none of choices, of which there are several.
func oneOf(flag, value string, choices ...string) error {
	if slices.Contains(choices, value) {
		return nil
	}
	last := len(choices) - 1
	return cli.Wrong(flag, "must be %s or %s, not %q", strings.Join(choices[:last], ", "),
		choices[last], value)
}

// newLog returns a log on w, in JSON or else as text.
func newLog(w io.Writer, format string) *slog.Logger {
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, nil))
	}
	return slog.New(slog.NewTextHandler(w, nil))
}

// runUntilSignal runs a server until SIGTERM or SIGINT; a second signal ends the process at once.
// On SIGHUP it calls reload, which logs its error.
func runUntilSignal(
	ctx context.Context, run func(context.Context) error, reload func() error,
) error {
	defer onSignal(syscall.SIGHUP, reload)()
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop)
	go leaveRoom(ctx)
	return cli.Failure(run(ctx))
}

// onSignal calls f on each signal, until the returned function is called. f logs its error.
func onSignal(sig os.Signal, f func() error) (stop func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, sig)
	go func() {
		for range signals {
			_ = f()
		}
	}()
	return func() { signal.Stop(signals) }
}
