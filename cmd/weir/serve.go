package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/weirgo/weir"
	"github.com/weirgo/weir/cmd/weir/internal/live"
	"github.com/weirgo/weir/cmd/weir/internal/serve"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/metrics"
	weirprom "github.com/weirgo/weir/metrics/prometheus"
	"github.com/weirgo/weir/redislimit"
	"github.com/weirgo/weir/rules"
)

const serveLong = `Serve decides requests of Envoy's rate limit protocol by rules: the gRPC service
envoy.service.ratelimit.v3.RateLimitService at --grpc, and POST /json at --http, which also has
/healthcheck. It replaces envoyproxy/ratelimit, with the same rules and the same verdicts; "weir
rules --help" describes the rules.

Counts are kept in memory and are lost on a restart. With --redis, any number of servers share their
counts. With --instances as well, each server decides alone while Redis is unreachable, with its
part of each limit.

Serve loads the rules again when their files change, on SIGHUP, and on POST /-/reload. It keeps the
counts. If rules have a mistake, the old rules stay in force, and the log, the page at --admin and
the metrics show the reason. To replace a file, rename a new one to its name: a file that is being
overwritten may be read half-written, and half a file may be valid. Mounted ConfigMaps of Kubernetes
work as they are.

The page, the metrics at /metrics and /rlconfig are at --admin, a loopback address unless
--admin-remote is given. Requests that change something or read the state of a caller need
the token in --admin-token-file or $WEIR_ADMIN_TOKEN. "weir rules reload", "weir rules inspect" and
"weir rules reset" send such requests; so can curl:

  curl -X POST -H "Authorization: Bearer $TOKEN" localhost:6070/-/reload
  curl -H "Authorization: Bearer $TOKEN" \
    'localhost:6070/-/caller?domain=edge&descriptor=plan=free,user=ann'
  curl -X DELETE -H "Authorization: Bearer $TOKEN" \
    'localhost:6070/-/caller?domain=edge&descriptor=plan=free,user=ann'

The exit code is 2 if the rules have a mistake at the start.`

// serveFlags are the flags of weir serve.
type serveFlags struct {
	cfg                   serve.Config
	rules                 []string
	cert, key, clientCA   string
	adminToken            string
	redis, redisPrefix    string
	redisTimeout          time.Duration
	instances, maxBuckets int
	logFormat             string
}

func newServe() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve --rules DIR",
		Short: "Answer Envoy's rate limit protocol by rules",
		Long:  serveLong,
		Example: "  weir serve --rules config/\n" +
			"  weir serve --rules config/ --redis redis://127.0.0.1:6379 --instances 2",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringArrayVar(&f.rules, "rules", nil, "a `file` or directory of rules (repeatable)")
	flags.BoolVar(&f.cfg.MergeDomains, "merge-domains", false,
		"allow a domain to be in several files or documents")
	flags.StringVar(&f.cfg.GRPC, "grpc", "127.0.0.1:8081", "the `address` of the gRPC service")
	flags.StringVar(&f.cfg.HTTP, "http", "127.0.0.1:8080", "the `address` of /json and /healthcheck, or off")
	flags.StringVar(&f.cfg.Admin, "admin", "127.0.0.1:6070",
		"the `address` of the page and the metrics, or off")
	flags.BoolVar(&f.cfg.AdminRemote, "admin-remote", false,
		"allow --admin to be other than a loopback address")
	flags.StringVar(&f.adminToken, "admin-token-file", "",
		"the `file` with the admin token (default $WEIR_ADMIN_TOKEN)")
	flags.StringVar(&f.cert, "tls-cert", "", "the `file` with the certificate of the gRPC service")
	flags.StringVar(&f.key, "tls-key", "", "the `file` with its key")
	flags.StringVar(&f.clientCA, "tls-client-ca", "",
		"accept only clients with a certificate signed by an authority in this `file`")
	flags.BoolVar(&f.cfg.Shadow, "shadow", false,
		"admit every request; the statuses show what would have been denied")
	flags.BoolVar(&f.cfg.Quota, "quota", false, "treat every descriptor as if in quota mode")
	flags.BoolVar(&f.cfg.Answers.Headers, "response-headers", false,
		"add RateLimit-Limit, -Remaining, -Reset and Retry-After to responses")
	flags.BoolVar(&f.cfg.Answers.Metadata, "dynamic-metadata", false,
		"add the descriptors and the rules' metadata to responses")
	flags.StringVar(&f.redis, "redis", "",
		"count on this Redis, `redis://[user:password@]host[:port][/database]`")
	flags.StringVar(&f.redisPrefix, "redis-prefix", "weir:", "prefix of the keys on Redis")
	flags.DurationVar(&f.redisTimeout, "redis-timeout", fallback.DefaultTimeout,
		"how long a count may wait for Redis")
	flags.IntVar(&f.instances, "instances", 0,
		"number of servers that share the Redis: without Redis, each uses 1/instances of a limit "+
			"(0: none decides)")
	flags.IntVar(&f.maxBuckets, "max-buckets", 1<<20,
		"how many counters may be kept in memory at the same time")
	flags.DurationVar(&f.cfg.Drain, "drain", 30*time.Second,
		"how long requests in flight may take after SIGTERM")
	flags.StringVar(&f.logFormat, "log", "text", "the form of the log: text or json")
	if err := cmd.MarkFlagRequired("rules"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

func (f *serveFlags) run(cmd *cobra.Command) error {
	if err := f.complete(cmd); err != nil {
		return err
	}
	closeStore, err := f.setSource()
	if err != nil {
		return err
	}
	defer closeStore()
	s, err := serve.New(f.cfg)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, hangUpSignal)
	defer signal.Stop(hangup)
	go func() {
		for {
			select {
			case <-hangup:
				_ = s.Reload() // logs its error
			case <-ctx.Done():
				return
			}
		}
	}()
	if err := s.Run(ctx); err != nil {
		return failure{err}
	}
	return nil
}

// complete checks the flags and sets the rest of the configuration.
func (f *serveFlags) complete(cmd *cobra.Command) error {
	f.cfg.Paths = f.rules
	for _, addr := range []*string{&f.cfg.HTTP, &f.cfg.Admin} {
		if *addr == "off" {
			*addr = ""
		}
	}
	switch f.logFormat {
	case "text":
		f.cfg.Log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	case "json":
		f.cfg.Log = slog.New(slog.NewJSONHandler(cmd.ErrOrStderr(), nil))
	default:
		return fmt.Errorf("log is text or json, not %q", f.logFormat)
	}
	if f.instances != 0 && f.redis == "" {
		return errors.New("instances share counts only through Redis: also give --redis")
	}
	if f.instances < 0 || f.maxBuckets <= 0 {
		return errors.New("instances must not be negative, and max-buckets must be positive")
	}
	if err := f.setToken(); err != nil {
		return err
	}
	return f.setTLS()
}

// minToken is the length of the shortest admin token. 16 random characters cannot be guessed.
const minToken = 16

func (f *serveFlags) setToken() (err error) {
	if f.cfg.AdminToken, err = secret("token", f.adminToken, "WEIR_ADMIN_TOKEN"); err != nil {
		return err
	}
	if n := len(f.cfg.AdminToken); n > 0 && n < minToken {
		return fmt.Errorf("the admin token is %d bytes long: it needs %d", n, minToken)
	}
	return nil
}

func (f *serveFlags) setTLS() error {
	if f.cert == "" && f.key == "" {
		if f.clientCA != "" {
			return errors.New("--tls-client-ca needs --tls-cert and --tls-key")
		}
		return nil
	}
	certificate, err := latestCertificate(f.cert, f.key, f.cfg.Log)
	if err != nil {
		return err
	}
	f.cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate}
	if f.clientCA == "" {
		return nil
	}
	text, err := os.ReadFile(f.clientCA)
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return fmt.Errorf("there is no certificate in %s", f.clientCA)
	}
	f.cfg.TLS.ClientCAs, f.cfg.TLS.ClientAuth = pool, tls.RequireAndVerifyClientCert
	return nil
}

// latestCertificate returns a GetCertificate that reads the files for each connection, so that a
// renewed certificate is used. If they cannot be read, the last one stays in use: a renewal may
// have replaced only one of them.
func latestCertificate(cert, key string, log *slog.Logger) (
	get func(*tls.ClientHelloInfo) (*tls.Certificate, error), err error,
) {
	first, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	var latest atomic.Pointer[tls.Certificate]
	latest.Store(&first)
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			log.Error("the certificate cannot be read; the old one is kept", "error", err.Error())
			return latest.Load(), nil
		}
		latest.Store(&pair)
		return &pair, nil
	}, nil
}

// setSource chooses where to count: in memory, on Redis, or on both.
func (f *serveFlags) setSource() (closeStore func(), err error) {
	limiter, err := weir.New(weir.Config{MaxBuckets: f.maxBuckets})
	if err != nil {
		return nil, err
	}
	local := rules.SourceOf(limiter)
	f.cfg.Source = local
	f.cfg.Metrics = []prometheus.Collector{weirprom.New("", metrics.Limiter(limiter.Stats))}
	if f.redis == "" {
		return func() { _ = limiter.Close() }, nil
	}
	options, err := redislimit.ParseURL(f.redis)
	if err != nil {
		return nil, err
	}
	client := redis.NewClient(options)
	calls := weirprom.NewCalls("", func(err error) string { return redislimit.Classify(err).String() })
	store, err := redislimit.New(client,
		redislimit.Config{Prefix: f.redisPrefix, Timeout: f.redisTimeout, OnCall: calls.OnCall})
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	remote := rules.SourceOf(store)
	f.cfg.Source = remote
	f.cfg.Metrics = append(f.cfg.Metrics, calls)
	if f.instances > 0 {
		made := new(live.Fallbacks)
		f.cfg.Source = live.Hybrid(remote, local,
			fallback.Config{Instances: f.instances, Timeout: f.redisTimeout}, f.cfg.Log, made.Add)
		f.cfg.Metrics = append(f.cfg.Metrics, made)
	}
	return func() { _, _ = client.Close(), limiter.Close() }, nil
}
