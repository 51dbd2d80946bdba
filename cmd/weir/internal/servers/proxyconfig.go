package servers

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strings"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/proxy"
	"github.com/weirgo/weir/cmd/weir/internal/rule"
	"github.com/weirgo/weir/cmd/weir/internal/values"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/httplimit"
)

// ProxyConfig returns the Config of a weir proxy that gets these arguments and logs nothing.
func ProxyConfig(args []string) (proxy.Config, error) {
	var f proxyFlags
	cmd := f.command()
	if err := cmd.ParseFlags(args); err != nil {
		return proxy.Config{}, err
	}
	return f.config(cmd.Flags().Changed, io.Discard, io.Discard)
}

// config returns the Config for the flags; given reports whether a flag was set.
func (f *proxyFlags) config(
	given func(string) bool, stdout, stderr io.Writer,
) (proxy.Config, error) {
	cfg := proxy.Config{
		Listen:          f.listen,
		PreserveHost:    f.preserveHost,
		UpstreamTimeout: f.upstreamTimeout,
		SendTimeout:     f.sendTimeout,
		Drain:           f.drain,
		Forwarded:       f.forwarded,
		IPv6Bits:        f.ipv6Prefix,
		AddressPath:     f.addressPath,
		MaxDeny:         f.maxDeny,
		LogKey:          f.logKeys,

		NormalizePaths: f.normalizePaths,
		DrainDelay:     f.drainDelay,
		DenyFile:       f.denyFile,
		StateFile:      f.state,
		TLS:            proxy.TLS{Cert: f.tlsCert, Key: f.tlsKey},
		MaxConns:       f.maxConns, MaxConnsPerAddr: f.maxConnsPerIP,
		MaxInFlight: f.maxInFlight, MaxInFlightPerClient: f.maxInFlightPerClient,
		Bodies: proxy.Bodies{Max: f.maxBody, Rate: f.bodyRate},
	}
	limited := func(route string) bool { return strings.Contains(route, " limit=") }
	if len(f.limits)+len(f.rules.Paths) == 0 && !slices.ContainsFunc(f.routes, limited) {
		return cfg, errors.New("which limit? Give --limit, such as --limit 100/1m, or --rules FILE")
	}
	if err := f.rules.Exclude(given, notWithRules); err != nil {
		return cfg, err
	}
	cfg.Table.MaxBuckets, cfg.Table.Timeout, cfg.Table.SweepEvery = f.maxBuckets, f.keep, f.sweepEvery
	sets := []func(*proxy.Config) error{f.setNumbers, f.setTraffic, f.setAdmin, f.setRedis}
	for _, set := range sets {
		if err := set(&cfg); err != nil {
			return cfg, err
		}
	}
	if err := f.setGuard(&cfg, given); err != nil {
		return cfg, err
	}
	return cfg, f.setLogs(&cfg, stdout, stderr)
}

// setNumbers returns an error for numbers whose zero or negative value would select a default.
func (f *proxyFlags) setNumbers(*proxy.Config) error {
	switch {
	case f.ipv6Prefix < 1 || f.ipv6Prefix > 128:
		return fmt.Errorf("ipv6-prefix must be from 1 to 128, not %d", f.ipv6Prefix)
	case f.maxDeny <= 0:
		return fmt.Errorf("max-deny must be positive, not %d", f.maxDeny)
	case f.maxBuckets <= 0:
		return fmt.Errorf("max-buckets must be positive, not %d", f.maxBuckets)
	case f.keep <= 0 || f.sweepEvery <= 0:
		return errors.New("keep and sweep-every must be positive")
	case f.drain < 0 || f.drainDelay < 0 || f.upstreamTimeout < 0 || f.sendTimeout < 0 || f.jitter < 0:
		return errors.New(
			"drain, drain-delay, upstream-timeout, send-timeout and jitter must not be negative",
		)
	case f.maxKeys < 1:
		return fmt.Errorf("max-keys must be at least 1, not %d", f.maxKeys)
	case f.redis.instances < 1:
		return fmt.Errorf("instances must be at least 1, not %d", f.redis.instances)
	}
	return nil
}

// setTraffic sets the upstream, the limits and the lists.
func (f *proxyFlags) setTraffic(cfg *proxy.Config) (err error) {
	if f.upstream != "" {
		if cfg.Upstream, err = url.Parse(f.upstream); err != nil {
			return fmt.Errorf("upstream: want a URL such as http://127.0.0.1:9000")
		}
	}
	defaults := rule.Defaults{Strategy: f.strategy, Burst: f.burst, Queue: f.queue}
	for _, text := range f.limits {
		l, err := proxy.ParseLimit(text, defaults)
		if err != nil {
			return err
		}
		cfg.Limits = append(cfg.Limits, l)
	}
	for _, text := range f.routes {
		r, err := proxy.ParseRoute(text, defaults)
		if err != nil {
			return err
		}
		cfg.Routes = append(cfg.Routes, r)
	}
	cfg.Rules = proxy.Rules{Paths: f.rules.Paths, Loader: f.rules.Loader, Domain: f.rules.Choose}
	if cfg.By, err = proxy.ParseBy(f.by); err != nil {
		return err
	}
	for _, text := range f.deny {
		e, err := values.Entry(text)
		if err != nil {
			return fmt.Errorf("deny: %w", err)
		}
		cfg.Deny = append(cfg.Deny, e)
	}
	if f.penalty != "" {
		if cfg.Penalty, err = proxy.ParsePenalty(f.penalty); err != nil {
			return err
		}
	}
	if cfg.Allow, err = values.Prefixes("allow", f.allow); err != nil {
		return err
	}
	cfg.Trust, err = values.Prefixes("trust", f.trust)
	return err
}

// setGuard sets the responses of the middleware.
func (f *proxyFlags) setGuard(cfg *proxy.Config, given func(string) bool) (err error) {
	guard := httplimit.Config{DeniedStatus: f.status}
	if f.mochiweb {
		guard = httplimit.Mochiweb()
	}
	if err := f.checkGuard(); err != nil {
		return err
	}
	if !f.mochiweb || given("headers") {
		guard.Headers = proxy.HeaderStyles[f.headers]
	}
	if !f.mochiweb || given("status") {
		guard.DeniedStatus = f.status
	}
	if f.deniedPage != "" {
		if cfg.DeniedPage, err = proxy.NewDeniedPage(f.deniedPage); err != nil {
			return err
		}
		guard.Respond = cfg.DeniedPage.Respond
	}
	guard.FailOpen, guard.Shadow, guard.Jitter, guard.LogKeys = f.fail == "open", f.shadow, f.jitter,
		f.logKeys
	guard.OnFull = proxy.FullPolicies[f.onFull]
	guard.MaxKeysPerClient = f.maxKeys
	guard.CORS = httplimit.CORS{Origins: f.corsOrigins, Credentials: f.corsCredentials}
	guard.CountPreflights = f.countPreflights
	guard.CountIf, err = values.Statuses(f.countIf)
	cfg.Guard = guard
	return err
}

func (f *proxyFlags) checkGuard() error {
	if _, ok := proxy.HeaderStyles[f.headers]; !ok {
		return fmt.Errorf("headers are draft, legacy, original or none, not %q", f.headers)
	}
	if _, ok := proxy.FullPolicies[f.onFull]; !ok {
		return fmt.Errorf("on-full is refuse or admit, not %q", f.onFull)
	}
	switch {
	case f.status < 400 || f.status > 599:
		return fmt.Errorf("status must be from 400 to 599, not %d", f.status)
	case f.fail != "open" && f.fail != "closed":
		return fmt.Errorf("fail is open or closed, not %q", f.fail)
	case f.mochiweb && f.deniedPage != "":
		return errors.New("mochiweb and denied-page are two answers: choose one")
	case f.corsCredentials && slices.Contains(f.corsOrigins, "*"):
		return errors.New("cors-credentials needs named origins: browsers send no cookies to *")
	}
	return nil
}

func (f *proxyFlags) setAdmin(cfg *proxy.Config) error {
	if f.admin == "off" || f.admin == "" {
		return nil
	}
	token, err := cli.AdminToken(f.adminToken)
	if err != nil {
		return err
	}
	cfg.Admin = proxy.Admin{Addr: f.admin, Remote: f.adminRemote, Token: token, Hosts: f.adminHosts}
	return nil
}

func (f *proxyFlags) setRedis(cfg *proxy.Config) error {
	onFail, ok := map[string]fallback.OnFail{
		"local": fallback.FailLocal, "open": fallback.FailOpen, "closed": fallback.FailClosed,
	}[f.onFail]
	if !ok {
		return fmt.Errorf("on-redis-failure is local, open or closed, not %q", f.onFail)
	}
	if f.redis.url == "" && f.redis.instances > 1 {
		return errors.New("instances share a limit only through Redis: also give --redis")
	}
	password, err := f.redis.password()
	if err != nil {
		return err
	}
	cfg.Redis = proxy.Redis{
		URL:      f.redis.url,
		Password: password,
		Prefix:   f.redis.prefix,
		Fallback: fallback.Config{
			OnFail: onFail, Instances: f.redis.instances, Timeout: f.redis.timeout,
			ProbeInterval: f.redisProbe,
		},
		Lease: f.redisLease, Denials: f.redisDenials,
	}
	return nil
}

// setLogs writes the access log to the standard output and the other log to the standard error.
func (f *proxyFlags) setLogs(cfg *proxy.Config, stdout, stderr io.Writer) error {
	text := func(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }
	switch f.accessLog {
	case "text":
		cfg.Access, cfg.Log = text(stdout), text(stderr)
	case "json":
		cfg.Access, cfg.Log = slog.New(slog.NewJSONHandler(stdout, nil)),
			slog.New(slog.NewJSONHandler(stderr, nil))
	case "off":
		cfg.Log = text(stderr)
	default:
		return fmt.Errorf("access-log is text, json or off, not %q", f.accessLog)
	}
	return nil
}
