package servercmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/spf13/pflag"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/serve/proxy"
)

// fixed are the settings that a running process keeps: they name its sockets, its files and what
// guards them, the memory of its counts, and Redis. A new process takes them.
var fixed = []string{"listen", "tls-cert", "tls-key", "admin", "admin-remote", "admin-token-file",
	"rules", "domain", "algorithm", "merge-domains", "deny-file", "max-deny", "max-buckets", "keep",
	"sweep-every", "state", "state-every", "pid-file", "redis", "redis-password-file",
	"redis-sentinel-password-file", "redis-prefix", "redis-timeout", "redis-probe", "redis-lease",
	"redis-denials", "on-redis-failure", "instances"}

// reloader has a running proxy follow the file that it was started with.
type reloader struct {
	proxy *proxy.Proxy
	file  string         // empty: none
	given []*pflag.Flag  // of the command line, which comes before the file
	flags *pflag.FlagSet // in force
	cfg   proxy.Config   // the one that the process was started with
	log   *formats       // of cfg.Log
	// by which a configuration of the same process makes its logs
	make func(f *proxyFlags, given func(string) bool) (proxy.Config, error)
}

// reload reads all files again. It logs what fails.
func (r *reloader) reload() error {
	defer r.proxy.Warn()
	err := r.proxy.Reload()
	if r.file == "" {
		return err
	}
	changed, failed := r.reconfigure()
	switch {
	case failed != nil:
		for problem := range strings.Lines(failed.Error()) {
			r.cfg.Log.Error("the settings stay as they are", "file", r.file, "error",
				strings.TrimSuffix(problem, "\n"))
		}
	case changed:
		r.cfg.Log.Info("settings changed", "file", r.file)
	}
	return errors.Join(err, failed)
}

// reconfigure has the proxy follow the file, and reports whether something has changed. An error,
// which joins one for each mistake, leaves everything as it was.
func (r *reloader) reconfigure() (changed bool, err error) {
	f := new(proxyFlags)
	cmd := f.command()
	for _, flag := range r.given {
		if err := copyFlag(cmd.Flags().Lookup(flag.Name), flag); err != nil {
			return false, err
		}
	}
	read, err := readConfig(cmd, r.file)
	if err != nil {
		return false, err
	}
	var kept []string
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		was := r.flags.Lookup(flag.Name)
		differs := flag.Value.String() != was.Value.String()
		if differs && slices.Contains(fixed, flag.Name) {
			kept = append(kept, flag.Name)
		}
		changed = changed || differs || flag.Changed != was.Changed // a default may not be in force
	})
	if !changed {
		return false, nil
	}
	cfg, err := r.make(f, cmd.Flags().Changed)
	if len(kept) > 0 {
		err = errors.Join(err, fmt.Errorf("%s cannot be changed without a restart: %s",
			strings.Join(kept, ", "), restart))
	}
	if err != nil {
		return false, read.located(err)
	}
	had, has := valuesOf(r.flags), valuesOf(cmd.Flags())
	if err := cli.CheckCut(r.file, "values", had, has, "", read.text); err != nil {
		return false, err
	}
	format := cfg.Log.Handler()
	if err := r.proxy.Reconfigure(cfg); err != nil {
		return false, read.located(err)
	}
	r.log.set(format)
	r.flags = cmd.Flags()
	return true, nil
}

// restart says how a process takes what it cannot change.
const restart = "send SIGUSR2, or restart it"

// formats is a slog.Handler whose format changes while it is used. It is safe for concurrent use.
type formats struct{ now atomic.Pointer[slog.Handler] }

func newFormats(h slog.Handler) *formats {
	f := new(formats)
	f.set(h)
	return f
}

func (f *formats) set(h slog.Handler) { f.now.Store(&h) }

// Enabled implements slog.Handler.
func (f *formats) Enabled(ctx context.Context, l slog.Level) bool {
	return (*f.now.Load()).Enabled(ctx, l)
}

// Handle implements slog.Handler.
func (f *formats) Handle(ctx context.Context, r slog.Record) error {
	return (*f.now.Load()).Handle(ctx, r)
}

// WithAttrs implements slog.Handler. The logger that it is for keeps the format.
func (f *formats) WithAttrs(attrs []slog.Attr) slog.Handler {
	return (*f.now.Load()).WithAttrs(attrs)
}

// WithGroup implements slog.Handler. The logger that it is for keeps the format.
func (f *formats) WithGroup(name string) slog.Handler { return (*f.now.Load()).WithGroup(name) }
