package servercmd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/serve/envoy"
	"github.com/weirgo/weir/cmd/weir/internal/serve/live"
	"github.com/weirgo/weir/cmd/weir/internal/serve/onredis"
	"github.com/weirgo/weir/metrics"
	"github.com/weirgo/weir/metrics/weirprom"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/rules"
)

const serveLong = `Serve decides requests of Envoy's rate limit protocol by rules: the gRPC service
envoy.service.ratelimit.v3.RateLimitService at --grpc, and POST /json at --http, which also has
/healthcheck. It replaces envoyproxy/ratelimit, with the same rules and the same verdicts; "weir
rules --help" describes the rules. Its ports are those of that service; "weir proxy" listens on
8080 and 8081 too, so on one machine give one of them other addresses.

Counts are kept in memory and are lost on a restart. With --redis, any number of servers share their
counts; give that number by --instances. While Redis is unreachable, each server decides alone, with
its part of each limit. With --instances 0 no server decides then, and calls fail with the code
Unavailable. Give the password in $WEIR_REDIS_PASSWORD or a file: all users of a machine can
read the arguments of a process.

Serve loads --rules again when their files change, on SIGHUP, and on POST /-/reload. It keeps the
counts. If rules have a mistake, or a domain has no limit any more without "descriptors: []", the
old rules stay in force, and the log, the page at --admin and the metrics show the reason. A change
is in force within a second, and once the files have been the same for 200 ms; a file that takes
longer to write should be renamed to its name when it is whole. Mounted ConfigMaps of Kubernetes
work as they are.

With --xds the rules come from an xDS server instead of files, such as that of Envoy Gateway: the
resources ratelimit.config.ratelimit.v3.RateLimitConfig of an aggregated discovery service. The
server decides nothing and is not healthy before the first rules. A set with a mistake is refused as
a whole, and the xDS server gets the reason. While that server is away, the rules stay in force.

The page, the metrics at /metrics and /rlconfig are at --admin, a loopback address unless
--admin-remote is given. Requests that change something or read the state of a caller need
the token in --admin-token-file or $WEIR_ADMIN_TOKEN. "weir rules reload", "weir rules reset" and
"weir why" send such requests; so can curl:

  curl -X POST -H "Authorization: Bearer $TOKEN" localhost:6070/-/reload
  curl -H "Authorization: Bearer $TOKEN" \
    'localhost:6070/-/explain?domain=edge&descriptor=plan=free,user=ann'
  curl -X DELETE -H "Authorization: Bearer $TOKEN" \
    'localhost:6070/-/caller?domain=edge&descriptor=plan=free,user=ann'

The exit code is 2 if the rules have a mistake at the start.`

// serveFlags are the flags of weir serve.
type serveFlags struct {
	cfg        envoy.Config
	rules      []string
	tls        tlsFlags
	xds        xdsFlags
	adminToken string
	redis      redisFlags
	maxBuckets int
	logFormat  string
}

func newServe() *cobra.Command { return new(serveFlags).command() }

func (f *serveFlags) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve {--rules DIR | --xds ADDRESS}",
		Short: "Answer Envoy's rate limit protocol by rules",
		Long:  serveLong,
		Example: "  weir serve --rules config/\n" +
			"  weir serve --rules edge.yaml --grpc :8081 --redis redis://127.0.0.1:6379 --instances 2",
		Args: cli.None("--rules"),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	cli.Help(cmd)
	flags := cmd.Flags()
	flags.StringArrayVar(&f.rules, "rules", nil, "a `file` or directory of rules (repeatable)")
	cli.AddLoader(cmd, &f.cfg.Loader)
	f.xds.add(flags)
	cli.Section(cmd, "Rules")
	flags.StringVar(&f.cfg.GRPC, "grpc", "127.0.0.1:8081", "the `address` of the gRPC service")
	flags.StringVar(&f.cfg.HTTP, "http", "127.0.0.1:8080",
		"the `address` of /json and /healthcheck, or off")
	flags.StringVar(&f.cfg.Admin, "admin", "127.0.0.1:6070",
		"the `address` of the page and the metrics, or off")
	flags.BoolVar(&f.cfg.AdminRemote, "admin-remote", false,
		"allow --admin to be other than a loopback address")
	flags.StringVar(&f.adminToken, "admin-token-file", "",
		"the `file` with the admin token (default $WEIR_ADMIN_TOKEN)")
	cli.Section(cmd, "Addresses")
	f.tls.add(flags)
	flags.DurationVar(&f.cfg.Connections.MaxConnectionAge, "grpc-max-connection-age", 24*time.Hour,
		"how long a connection lasts; its client then connects again, perhaps to a newer server")
	flags.DurationVar(&f.cfg.Connections.MaxConnectionAgeGrace, "grpc-max-connection-age-grace",
		time.Hour,
		"how long calls may take after that")
	flags.DurationVar(&f.cfg.Connections.Time, "grpc-keepalive-time", 2*time.Hour,
		"how long a connection may be silent before the server pings the client")
	flags.DurationVar(&f.cfg.Connections.Timeout, "grpc-keepalive-timeout", 20*time.Second,
		"how long the server waits for the answer before it closes the connection")
	cli.Section(cmd, "Connections of the gRPC service")
	flags.BoolVar(&f.cfg.Engine.Shadow, "shadow", false,
		"admit every request; the statuses show what would have been denied")
	flags.BoolVar(&f.cfg.Engine.Quota, "quota", false, "treat every descriptor as if in quota mode")
	flags.BoolVar(&f.cfg.Engine.CountDenied, "count-denied", false,
		"count denied requests too, on all their limits, as Envoy's rate limit service does")
	flags.BoolVar(&f.cfg.Answers.Headers, "response-headers", false,
		"add RateLimit-Limit, -Remaining, -Reset and Retry-After to responses")
	names := &f.cfg.Answers.Names
	flags.StringVar(&names.Limit, "limit-header", envoy.DefaultHeaders.Limit,
		"the `name` of the first of these headers")
	flags.StringVar(&names.Remaining, "remaining-header", envoy.DefaultHeaders.Remaining,
		"the `name` of the second")
	flags.StringVar(&names.Reset, "reset-header", envoy.DefaultHeaders.Reset,
		"the `name` of the third")
	flags.BoolVar(&f.cfg.Answers.Metadata, "dynamic-metadata", false,
		"add the descriptors and the rules' metadata to responses")
	flags.IntVar(&f.cfg.MaxDescriptors, "max-descriptors", 100,
		"refuse requests with more descriptors, with InvalidArgument, and at /json 400")
	cli.Section(cmd, "Decisions and answers")
	f.redis.add(flags, " (0: none decides)")
	cli.Section(cmd, "Counts on Redis")
	flags.IntVar(&f.maxBuckets, "max-buckets", 1<<20, maxBucketsText)
	flags.DurationVar(&f.cfg.Drain, "drain", 30*time.Second,
		"how long requests in flight may take after SIGTERM")
	flags.StringVar(&f.logFormat, "log", "text", "the form of the log: text or json")
	cli.Section(cmd, "Process")
	return cmd
}

func (f *serveFlags) run(cmd *cobra.Command) error {
	if err := f.complete(cmd); err != nil {
		return err
	}
	closeStore, err := f.setStrategies()
	if err != nil {
		return err
	}
	defer closeStore()
	s, err := envoy.New(f.cfg)
	if errors.As(err, new(*net.OpError)) {
		return cli.Failure(err) // cannot listen
	}
	if err != nil {
		return err
	}
	return runUntilSignal(cmd.Context(), s.Run, s.Reload)
}

// headerName matches the names that a header field may have (RFC 9110, 5.6.2).
var headerName = regexp.MustCompile("^[-!#$%&'*+.^_`|~0-9A-Za-z]+$")

// complete checks the flags and sets the rest of the configuration.
func (f *serveFlags) complete(cmd *cobra.Command) error {
	f.cfg.Paths = f.rules
	switch {
	case len(f.rules) == 0 && f.xds.addr == "":
		return errors.New("which rules? Give a file or a directory by --rules, or an xDS server by --xds")
	case len(f.rules) > 0 && f.xds.addr != "":
		return errors.New("--rules and --xds exclude each other: leave out one of them")
	}
	for _, addr := range []*string{&f.cfg.HTTP, &f.cfg.Admin} {
		if *addr == "off" {
			*addr = ""
		}
	}
	if err := oneOf("log", f.logFormat, "text", "json"); err != nil {
		return err
	}
	f.cfg.Log = newLog(cmd.ErrOrStderr(), f.logFormat)
	if cmd.Flags().Changed("instances") && f.redis.cfg.URL == "" {
		return errors.New("--instances needs --redis, through which they share counts")
	}
	if n := f.redis.cfg.Fallback.Instances; n < 0 {
		return fmt.Errorf("--instances must be at least 0, not %d", n)
	}
	if f.maxBuckets <= 0 {
		return fmt.Errorf("--max-buckets must be positive, not %d", f.maxBuckets)
	}
	if n := f.cfg.MaxDescriptors; n <= 0 {
		return fmt.Errorf("--max-descriptors must be positive, not %d", n)
	}
	for _, name := range []string{"limit-header", "remaining-header", "reset-header"} {
		flag := cmd.Flags().Lookup(name)
		switch {
		case flag.Changed && !f.cfg.Answers.Headers:
			return fmt.Errorf("--%s needs --response-headers", name)
		case !headerName.MatchString(flag.Value.String()):
			return fmt.Errorf("--%s: %q cannot be the name of a header", name, flag.Value)
		}
	}
	var err error
	f.cfg.AdminToken, err = cli.AdminToken(f.adminToken)
	if err != nil {
		return err
	}
	if err := f.tls.set(&f.cfg); err != nil {
		return err
	}
	return f.xds.set(&f.cfg)
}

// setStrategies chooses where to count: in memory, on Redis, or on both.
func (f *serveFlags) setStrategies() (closeStore func(), err error) {
	limiter, err := weir.New(weir.Config{MaxBuckets: f.maxBuckets})
	if err != nil {
		return nil, err
	}
	local := rules.StrategiesOf(limiter)
	f.cfg.Engine.Strategies = local
	f.cfg.Metrics = []prometheus.Collector{weirprom.New("", metrics.Limiter(limiter.Stats))}
	if f.redis.cfg.URL == "" {
		return func() { _ = limiter.Close() }, nil
	}
	if err := f.redis.setPasswords(); err != nil {
		return nil, err
	}
	calls := weirprom.NewCalls("", func(err error) string { return redislimit.Classify(err).String() })
	f.redis.cfg.OnCall = calls.OnCall
	store, err := onredis.Open(f.redis.cfg, f.cfg.Log)
	if err != nil {
		return nil, err
	}
	f.cfg.Metrics = append(f.cfg.Metrics, calls, store)
	f.cfg.Engine.Strategies = rules.StrategiesOf(store)
	meanwhile := "no decisions"
	if f.redis.cfg.Fallback.Instances > 0 {
		meanwhile = "local"
		f.cfg.Engine.Strategies = store.Strategies(local)
		f.cfg.Deciding = func() []live.Deciding { return live.DecidingOf(store, meanwhile) }
	}
	f.cfg.Started = func(ctx context.Context) { store.Ping(ctx, meanwhile) }
	return func() { _, _ = store.Close(), limiter.Close() }, nil
}
