package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirgo/weir/cmd/weir/internal/proxy"
	"github.com/weirgo/weir/cmd/weir/internal/rule"
	"github.com/weirgo/weir/fallback"
)

const proxyLong = `Proxy passes requests on to an upstream, as far as a limit admits them: a caller who is over it gets 429, with the time
after which it is worth to come again. Without --upstream a built-in page takes the place of the upstream.

A limit is [NAME=]COUNT/DURATION[:STRATEGY]: 100/1m, burst=10/1s:token, daily=10000/1d. Give --limit several times, and a
request passes if all of them admit it; one that is denied takes nothing from any. Tiers, 1000/1s,5000/10s,7000/15s, do the
same in one decision. The strategies are

  fixed    a counter for each window of time, aligned to the clock
  sliding  the counter of the window before weighted by how much of it is still in sight, plus the current one
  log      the time of each request admitted: the exact rolling window
  token    a bucket that holds --burst tokens and gets COUNT new ones per DURATION
  leaky    a queue that is --queue deep and lets COUNT requests out per DURATION, evenly; requests wait in it,
           and not on Redis

Callers are told apart --by ip, header:NAME, host, user (of Basic authorization), path or pattern (the --route), joined by
plus signs: ip+path. Who can choose the key has as many budgets as he likes: header and user are for what has been checked
by the time a request comes here, and path alone limits a path, not a caller. Behind another proxy, --trust its address, or
else it is the only caller there is. IPv6 callers are told apart by their first --ipv6-prefix bits.

A --route is a pattern of Go's http.ServeMux with a cost, or with a limit that takes the place of --limit for it:
  --route 'GET /search cost=5' --route 'POST /login limit=5/1m'

With --redis, any number of proxies hold the limits together. When Redis cannot be reached each goes on by itself, from
what was spent, with one --instances-th of each limit, and what it admitted is charged to Redis when it is back.

The page at --admin shows what happens, the keys of those who are denied among it, and changes the deny list. It has an
address of its own, loopback by default; on any other it takes --admin-remote and a token, in a file or in
$WEIR_ADMIN_TOKEN. Where others use the machine, or keys are secrets, give it a token there too.

On SIGTERM and SIGINT no new requests are taken, and those in flight have --drain to finish. A second signal ends it at once.
The access log goes to the standard output, everything else to the standard error.`

const proxyExample = `  weir proxy --limit 10/10s
  weir proxy --listen 127.0.0.1:8080 --upstream http://127.0.0.1:9000 --limit 100/1m --by ip
  weir proxy --upstream http://127.0.0.1:9000 --limit burst=10/1s:token --limit daily=10000/1d --by header:X-Api-Key
  weir proxy --upstream http://127.0.0.1:9000 --limit 100/1m --redis redis://127.0.0.1:6379 --instances 2`

// proxyFlags are the flags of weir proxy.
type proxyFlags struct {
	listen, upstream         string
	preserveHost             bool
	upstreamTimeout, drain   time.Duration
	limits, routes           []string
	strategy                 string
	burst, queue             uint64
	by                       string
	trust                    []string
	forwarded                bool
	ipv6Prefix               int
	headers, fail            string
	status                   int
	mochiweb                 bool
	deniedPage               string
	shadow                   bool
	jitter                   time.Duration
	countIf                  []string
	deny                     []string
	maxDeny                  int
	penalty                  string
	maxBuckets               int
	keep, sweepEvery         time.Duration
	accessLog                string
	logKeys                  bool
	admin, adminToken        string
	adminRemote              bool
	adminHosts               []string
	redis, redisPrefix       string
	instances                int
	onFail                   string
	redisTimeout, redisProbe time.Duration
	redisLease, redisDenials int
}

func newProxy() *cobra.Command { return new(proxyFlags).command() }

// command returns the command that f is filled by.
func (f *proxyFlags) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "proxy --limit COUNT/DURATION [--upstream URL]",
		Short:   "Put a limit in front of a server",
		Long:    proxyLong,
		Example: proxyExample,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	cmd.Flags().SortFlags = false
	f.addLimits(cmd)
	f.addAnswers(cmd)
	f.addServer(cmd)
	f.addRedis(cmd)
	if err := cmd.MarkFlagRequired("limit"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

func (f *proxyFlags) addLimits(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", "127.0.0.1:8080", "the `address` to serve on")
	flags.StringVarP(&f.upstream, "upstream", "u", "", "the `URL` to pass requests on to (default a built-in page)")
	flags.StringArrayVarP(&f.limits, "limit", "l", nil, "a limit, `[NAME=]COUNT/DURATION[:STRATEGY]`, or tiers separated by commas (repeatable)")
	flags.StringVarP(&f.strategy, "strategy", "s", rule.Fixed, "how to count: fixed, sliding, log, token or leaky")
	flags.Uint64Var(&f.burst, "burst", 0, "size of the token bucket (default the limit)")
	flags.Uint64Var(&f.queue, "queue", 0, "depth of the leaky bucket's queue (default the limit)")
	flags.StringArrayVar(&f.routes, "route", nil, "`PATTERN [cost=N] [limit=LIMIT]`: a part of the traffic that is treated in another way (repeatable)")
	flags.StringVar(&f.by, "by", "ip", "what tells callers apart: ip, header:NAME, host, user, path, pattern, or several: ip+path")
	flags.StringSliceVar(&f.trust, "trust", nil, "addresses and `prefixes` of proxies in front, whose X-Forwarded-For is believed")
	flags.BoolVar(&f.forwarded, "forwarded", false, "believe the Forwarded header of RFC 7239 instead")
	flags.IntVar(&f.ipv6Prefix, "ipv6-prefix", 64, "how many `bits` of an IPv6 address tell callers apart")
	flags.StringSliceVar(&f.deny, "deny", nil, "refuse these addresses, prefixes and `keys` from the start")
	flags.IntVar(&f.maxDeny, "max-deny", 10_000, "how many may be on the deny list")
	flags.StringVar(&f.penalty, "penalty-box", "", "`DENIALS/WITHIN=FOR`: 20/1m=10m refuses for 10m who was denied 20 times in 1m")
}

func (f *proxyFlags) addAnswers(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.headers, "headers", "draft", "what clients are told: draft (RateLimit), legacy (X-RateLimit), original (Rate-Limiting) or none")
	flags.IntVar(&f.status, "status", http.StatusTooManyRequests, "the status of a denial")
	flags.BoolVar(&f.mochiweb, "mochiweb", false, "answer as the Erlang original did: 413 and a page in HTML")
	flags.StringVar(&f.deniedPage, "denied-page", "", "answer with the page in this HTML `file`")
	flags.DurationVar(&f.jitter, "jitter", 0, "spread those who are denied at once over so much time")
	flags.StringSliceVar(&f.countIf, "count-if", nil, "count only requests answered with these `statuses`: 401, 4xx")
	flags.StringVar(&f.fail, "fail", "closed", "what becomes of a request when the limiter cannot decide: open (it passes) or closed (503)")
	flags.BoolVar(&f.shadow, "shadow", false, "decide, report and count, but let every request pass")
}

func (f *proxyFlags) addServer(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.preserveHost, "preserve-host", false, "pass the client's Host to the upstream, not the upstream's own")
	flags.DurationVar(&f.upstreamTimeout, "upstream-timeout", time.Minute, "how long the upstream may take to begin its answer; 0: as long as it likes")
	flags.DurationVar(&f.drain, "drain", 30*time.Second, "how long requests in flight may take after SIGTERM, WebSockets and streams included")
	flags.IntVar(&f.maxBuckets, "max-buckets", 1<<20, "how many buckets may be kept at one time, of about 115 bytes each")
	flags.DurationVar(&f.keep, "keep", time.Minute, "how long a bucket is kept when it is over")
	flags.DurationVar(&f.sweepEvery, "sweep-every", 10*time.Second, "the time between two sweeps")
	flags.StringVar(&f.accessLog, "access-log", "text", "the form of the access log, and of the other: text, json, or off")
	flags.BoolVar(&f.logKeys, "log-keys", false, "log the callers' keys, which may be secrets; addresses are logged anyway")
	flags.StringVar(&f.admin, "admin", "127.0.0.1:8081", "the `address` of the page, the figures and the health check, or off")
	flags.BoolVar(&f.adminRemote, "admin-remote", false, "let --admin be other than a loopback address; needs a token")
	flags.StringVar(&f.adminToken, "admin-token-file", "", "the `file` the admin token is in (default $WEIR_ADMIN_TOKEN)")
	flags.StringSliceVar(&f.adminHosts, "admin-host", nil, "`names`, besides localhost, that --admin is asked for by")
}

func (f *proxyFlags) addRedis(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.redis, "redis", "", "hold the limits on this Redis, `redis://[user:password@]host[:port][/database]`")
	flags.IntVar(&f.instances, "instances", 1, "how many proxies share the Redis: without it, each has one such part of a limit")
	flags.StringVar(&f.onFail, "on-redis-failure", "local", "who decides without Redis: local, open (all pass) or closed (none does)")
	flags.StringVar(&f.redisPrefix, "redis-prefix", "weir:", "how keys on Redis begin")
	flags.DurationVar(&f.redisTimeout, "redis-timeout", fallback.DefaultTimeout, "how long a decision may wait for Redis")
	flags.DurationVar(&f.redisProbe, "redis-probe", fallback.DefaultProbeInterval, "how often a Redis that is down is tried")
	flags.IntVar(&f.redisLease, "redis-lease", 0, "take a caller's budget in blocks of so many, to ask Redis less (fixed windows)")
	flags.IntVar(&f.redisDenials, "redis-denials", 0, "keep so many denials, so that an attack does not reach Redis")
}

func (f *proxyFlags) run(cmd *cobra.Command) error {
	stdout := proxy.NewLines(cmd.OutOrStdout())
	cfg, err := f.config(stdout, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	p, err := proxy.New(cfg)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // the second signal does what signals do
	if err := errors.Join(p.Run(ctx), stdout.Flush()); err != nil {
		return failure{err}
	}
	return nil
}
