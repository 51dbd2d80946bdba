package servercmd

import (
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
	"github.com/weirgo/weir/cmd/weir/internal/serve/proxy"
)

// processFlags are the flags of weir proxy for the process: its memory, logs, page and end.
type processFlags struct {
	accessLog, adminToken, pidFile string

	screen   screen.Terminal
	terminal bool // the standard output is one
}

func (f *processFlags) add(cmd *cobra.Command, cfg *proxy.Config) {
	flags := cmd.Flags()
	flags.IntVar(&cfg.Table.MaxBuckets, "max-buckets", 1<<20, maxBucketsText)
	flags.DurationVar(&cfg.Table.Timeout, "keep", time.Minute,
		"how long a bucket is kept after it expires")
	flags.DurationVar(&cfg.Table.SweepEvery, "sweep-every", 10*time.Second,
		"the time between two sweeps")
	flags.StringVar(&cfg.StateFile, "state", "", "keep the counts in this `file` over a restart")
	flags.DurationVar(&cfg.StateEvery, "state-every", time.Minute,
		"the time between two saves of them")
	cli.Section(cmd, "Counts in memory")
	flags.StringVar(&f.accessLog, "access-log", "text",
		"format of the access log and of the other log: text, json, or off")
	flags.BoolVar(&cfg.LogKey, "log-keys", false,
		"log the callers' keys, which may be secrets; addresses are always logged")
	flags.StringVar(&cfg.Admin.Addr, "admin", "127.0.0.1:8081",
		"the `address` of the page, the metrics and the health check, or off")
	flags.BoolVar(&cfg.Admin.Remote, "admin-remote", false,
		"allow --admin to be other than a loopback address; needs a token")
	flags.StringVar(&f.adminToken, "admin-token-file", "",
		"the `file` with the admin token (default $WEIR_ADMIN_TOKEN)")
	flags.StringSliceVar(&cfg.Admin.Hosts, "admin-host", nil,
		"host `names`, besides localhost, that --admin accepts in requests")
	flags.DurationVar(&cfg.DrainDelay, "drain-delay", 0,
		"how long to accept new connections after SIGTERM, while the health check fails")
	flags.DurationVar(&cfg.Drain, "drain", 30*time.Second,
		"how long requests in flight, WebSockets and streams may take after that")
	flags.StringVar(&f.pidFile, "pid-file", "",
		"write the number of the process that serves to this `file`, for SIGUSR2")
	cli.Section(cmd, "Log, page and end")
}

// setAdmin reads the token, if there is an admin address.
func (f *processFlags) setAdmin(cfg *proxy.Config) (err error) {
	if cfg.Admin.Addr == "off" || cfg.Admin.Addr == "" {
		cfg.Admin.Addr = ""
		return nil
	}
	cfg.Admin.Token, err = cli.AdminToken(f.adminToken)
	return err
}

// setLogs writes the access log to the standard output, for people if that is a terminal, and the
// other log to the standard error.
func (f *processFlags) setLogs(cfg *proxy.Config, stdout, stderr io.Writer) error {
	if err := oneOf("access-log", f.accessLog, "text", "json", "off"); err != nil {
		return err
	}
	cfg.Log = newLog(stderr, f.accessLog)
	switch {
	case f.accessLog == "text" && f.terminal:
		cfg.Access = slog.New(proxy.NewTerminal(stdout, f.screen))
	case f.accessLog != "off":
		cfg.Access = newLog(stdout, f.accessLog)
	}
	return nil
}

// foot returns a line of sums below what is written to the terminal, and the standard output and
// the standard error above it, as far as they are one.
func (f *processFlags) foot(stdout, stderr io.Writer) (foot *screen.Foot, out, errs io.Writer) {
	foot, out, errs = screen.NewFoot(stdout), stdout, stderr
	if !f.terminal {
		return foot, out, errs
	}
	if _, terminal := screen.Of(stderr); terminal {
		errs = foot.Above(stderr)
	}
	return foot, foot.Above(stdout), errs
}
