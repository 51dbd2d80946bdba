package servercmd

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/proxy"
	"github.com/weirgo/weir/cmd/weir/internal/rule"
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
	cfg := f.cfg
	err := errors.Join(f.checkRules(given), f.checkNumbers(), f.setTraffic(&cfg), f.setLists(&cfg),
		f.setAdmin(&cfg), f.setRedis(&cfg), f.setGuard(&cfg, given), f.setLogs(&cfg, stdout, stderr))
	return cfg, err
}

// checkRules returns an error for limits beside rules.
func (f *proxyFlags) checkRules(given func(string) bool) error {
	if err := cli.Exclude("rules", given, notWithRules); err != nil {
		return err
	}
	limited := func(route string) bool { return strings.Contains(route, " limit=") }
	if i := slices.IndexFunc(f.routes, limited); i >= 0 && len(f.rules.Paths) > 0 {
		return &cli.FlagError{Flags: []string{"route", "rules"}, Item: i,
			Err: fmt.Errorf("--route %q has a limit, and --rules has those: leave out one of them",
				f.routes[i])}
	}
	return nil
}

// checkNumbers returns an error for each number that is out of its range, or whose zero would
// select a default.
func (f *proxyFlags) checkNumbers() error {
	cfg := &f.cfg
	var bits error
	if cfg.IPv6Bits < 1 || cfg.IPv6Bits > 128 {
		bits = cli.Wrong("ipv6-prefix", "must be from 1 to 128, not %d", cfg.IPv6Bits)
	}
	return errors.Join(bits,
		positive("max-deny", cfg.MaxDeny), positive("max-buckets", cfg.Table.MaxBuckets),
		positive("keep", cfg.Table.Timeout), positive("sweep-every", cfg.Table.SweepEvery),
		positive("state-every", cfg.StateEvery),
		positive("max-keys", cfg.Guard.MaxKeysPerClient),
		positive("instances", f.redis.cfg.Fallback.Instances),
		notNegative("drain", cfg.Drain), notNegative("drain-delay", cfg.DrainDelay),
		notNegative("upstream-timeout", cfg.UpstreamTimeout),
		notNegative("send-timeout", cfg.SendTimeout), notNegative("jitter", cfg.Guard.Jitter),
		notNegative("max-conns", cfg.MaxConns), notNegative("max-conns-per-ip", cfg.MaxConnsPerAddr),
		notNegative("max-in-flight", cfg.MaxInFlight),
		notNegative("max-in-flight-per-client", cfg.MaxInFlightPerClient),
		notNegative("max-body", cfg.Bodies.Max), notNegative("body-rate", cfg.Bodies.Rate),
		notNegative("redis-lease", cfg.Lease), notNegative("redis-denials", cfg.Denials),
		notNegative("redis-timeout", f.redis.cfg.Fallback.Timeout),
		notNegative("redis-probe", f.redis.cfg.Fallback.ProbeInterval),
	)
}

func positive[T int | time.Duration](flag string, value T) error {
	if value > 0 {
		return nil
	}
	return cli.Wrong(flag, "must be positive, not %v", value)
}

func notNegative[T int | int64 | time.Duration](flag string, value T) error {
	if value >= 0 {
		return nil
	}
	return cli.Wrong(flag, "must not be negative, but is %v", value)
}

// setTraffic sets the upstream, the limits and their callers.
func (f *proxyFlags) setTraffic(cfg *proxy.Config) (err error) {
	if f.upstream != "" {
		cfg.Upstream, err = url.Parse(f.upstream)
		if err != nil {
			return cli.Wrong("upstream", "must be a URL such as http://127.0.0.1:9000, not %q", f.upstream)
		}
	}
	if err := oneOf("strategy", f.limit.Strategy, rule.Strategies...); err != nil {
		return err
	}
	parse := func(text string) (rule.Rule, error) { return proxy.ParseLimit(text, f.limit) }
	cfg.Limits, err = parsed("limit", f.limits, parse)
	if err != nil {
		return err
	}
	cfg.Try, err = parsed("try", f.tries, parse)
	if err != nil {
		return fmt.Errorf("--try: %w", err)
	}
	if slices.ContainsFunc(cfg.Try, func(l rule.Rule) bool { return l.Strategy == rule.Leaky }) {
		return &cli.FlagError{Flags: []string{"try"}, Err: errors.New("--try: a leaky bucket has " +
			"requests wait, and so cannot be tried beside a limit")}
	}
	cfg.Routes, err = parsed("route", f.routes, func(text string) (proxy.Route, error) {
		return proxy.ParseRoute(text, f.limit)
	})
	if err != nil {
		return err
	}
	if err := cmp.Or(checkTries(cfg), f.checkSizes(cfg)); err != nil {
		return err
	}
	cfg.Classes, err = parsed("class", f.classes, proxy.ParseClass)
	if err != nil {
		return of("--class", err)
	}
	cfg.Rules = f.rules
	cfg.By, err = proxy.ParseBy(f.by)
	if err != nil {
		return &cli.FlagError{Flags: []string{"by"}, Err: err}
	}
	return nil
}

// setLists sets who is refused, exempt and trusted, and with what.
func (f *proxyFlags) setLists(cfg *proxy.Config) error {
	var deny, penalty, allow, strip, pass, trust error
	cfg.Deny, deny = parsed("deny", f.deny, cli.Entry)
	if f.penalty != "" {
		cfg.Guard.Penalty, penalty = proxy.ParsePenalty(f.penalty)
		if penalty != nil {
			penalty = &cli.FlagError{Flags: []string{"penalty-box"}, Err: penalty}
		}
	}
	cfg.Allow, allow = cli.Prefixes("allow", f.allow)
	cfg.Strip, strip = parsed("strip", f.strip, fieldName)
	cfg.Pass, pass = parsed("pass", f.pass, fieldName)
	cfg.Trust, trust = cli.Prefixes("trust", f.trust)
	return errors.Join(of("--deny", deny), penalty, allow, of("--strip", strip), of("--pass", pass),
		trust)
}

// of returns err as one of a flag; nil for nil.
func of(flag string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", flag, err)
}

// fieldName returns the name of a header field, as it was given.
func fieldName(name string) (string, error) {
	if !headerName.MatchString(name) {
		return "", fmt.Errorf("%q cannot be the name of a header", name)
	}
	return name, nil
}

// checkTries returns an error for a --try that shows nothing: it is another one, or a --limit that
// no route has limits in place of.
func checkTries(cfg *proxy.Config) error {
	routed := slices.ContainsFunc(cfg.Routes, func(r proxy.Route) bool { return len(r.Limits) > 0 })
	for i, try := range cfg.Try {
		same := func(l rule.Rule) bool { return l.String() == try.String() }
		var of string
		switch {
		case slices.ContainsFunc(cfg.Try[:i], same):
			of = "try"
		case !routed && slices.ContainsFunc(cfg.Limits, same):
			of = "limit"
		default:
			continue
		}
		return &cli.FlagError{Flags: []string{"try"}, Item: i,
			Err: fmt.Errorf("--try %s is a --%s already: try another one", try, of)}
	}
	return nil
}

// checkSizes returns an error for a --burst or a --queue that no limit has.
func (f *proxyFlags) checkSizes(cfg *proxy.Config) error {
	limits := slices.Concat(cfg.Limits, cfg.Try)
	for _, route := range cfg.Routes {
		limits = append(limits, route.Limits...)
	}
	unused := func(flag string, size uint64, strategy string) error {
		is := func(l rule.Rule) bool { return l.Strategy == strategy }
		if size == 0 || len(limits) == 0 || slices.ContainsFunc(limits, is) {
			return nil
		}
		return cli.Wrong(flag, "is for the strategy %[1]s, which no limit has: give --strategy %[1]s, "+
			"or a limit such as 100/1m:%[1]s", strategy)
	}
	return cmp.Or(unused("burst", f.limit.Burst, rule.Token),
		unused("queue", f.limit.Queue, rule.Leaky))
}

// parsed returns what the values of a flag mean, or the error of the first that parse refuses.
func parsed[T any](flag string, texts []string, parse func(string) (T, error)) ([]T, error) {
	var list []T
	for i, text := range texts {
		one, err := parse(text)
		if err != nil {
			return nil, &cli.FlagError{Flags: []string{flag}, Item: i, Err: err}
		}
		list = append(list, one)
	}
	return list, nil
}

// setGuard sets the responses of the middleware.
func (f *proxyFlags) setGuard(cfg *proxy.Config, given func(string) bool) (err error) {
	if err := f.checkGuard(); err != nil {
		return err
	}
	guard := &cfg.Guard
	guard.Headers = httplimit.HeaderStyle(slices.Index(proxy.HeaderStyles, f.headers))
	if f.mochiweb {
		original := httplimit.Mochiweb()
		guard.Respond = original.Respond
		if !given("headers") {
			guard.Headers = original.Headers
		}
		if !given("status") {
			guard.DeniedStatus = original.DeniedStatus
		}
	}
	if f.deniedPage != "" {
		cfg.DeniedPage, err = proxy.NewDeniedPage(f.deniedPage)
		if err != nil {
			return &cli.FlagError{Flags: []string{"denied-page"}, Err: err}
		}
		guard.Respond = cfg.DeniedPage.Respond
	}
	guard.FailOpen, guard.LogKeys = f.fail == "open", cfg.LogKey
	guard.AdmitFull = f.onFull == "admit"
	guard.CountIf, err = cli.Statuses(f.countIf)
	if err != nil {
		return &cli.FlagError{Flags: []string{"count-if"}, Err: fmt.Errorf("--count-if: %w", err)}
	}
	return nil
}

func (f *proxyFlags) checkGuard() error {
	guard := &f.cfg.Guard
	switch {
	case guard.DeniedStatus < 400 || guard.DeniedStatus > 599:
		return cli.Wrong("status", "must be from 400 to 599, not %d", guard.DeniedStatus)
	case f.mochiweb && f.deniedPage != "":
		return cli.Excluded("mochiweb", "denied-page")
	case guard.CORS.Credentials && slices.Contains(guard.CORS.Origins, "*"):
		return cli.Wrong("cors-credentials", "needs named origins: browsers send no cookies to *")
	}
	return cmp.Or(oneOf("headers", f.headers, proxy.HeaderStyles...),
		oneOf("on-full", f.onFull, proxy.FullPolicies...), oneOf("fail", f.fail, "open", "closed"))
}

// setAdmin reads the token, if there is an admin address.
func (f *proxyFlags) setAdmin(cfg *proxy.Config) (err error) {
	if cfg.Admin.Addr == "off" || cfg.Admin.Addr == "" {
		cfg.Admin.Addr = ""
		return nil
	}
	cfg.Admin.Token, err = cli.AdminToken(f.adminToken)
	return err
}

func (f *proxyFlags) setRedis(cfg *proxy.Config) error {
	if err := oneOf("on-redis-failure", f.onFail, proxy.OnFailNames...); err != nil {
		return err
	}
	if f.redis.cfg.URL == "" && f.redis.cfg.Fallback.Instances > 1 {
		return cli.Wrong("instances", "needs --redis, through which they share a limit")
	}
	err := f.redis.setPasswords()
	cfg.Redis = f.redis.cfg
	cfg.Redis.Fallback.OnFail = fallback.OnFail(slices.Index(proxy.OnFailNames, f.onFail))
	return err
}

// setLogs writes the access log to the standard output, for people if that is a terminal, and the
// other log to the standard error.
func (f *proxyFlags) setLogs(cfg *proxy.Config, stdout, stderr io.Writer) error {
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
