package servercmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
	"github.com/weirgo/weir/cmd/weir/internal/serve/proxy"
)

const proxyLong = `Proxy passes the requests that a limit admits on to an upstream. A client over the
limit gets 429 and the time after which to retry. Without --upstream it serves a built-in page.

A limit is [NAME=]COUNT/DURATION[:STRATEGY]: 100/1m, burst=10/1s:token, daily=10000/1d. With several
--limit flags a request passes if all of them admit it; a denied request takes nothing from any of
them. Tiers, 1000/1s,5000/10s,7000/15s, do the same in one decision. The strategies are

  fixed    a counter for each window of time, aligned to the clock
  sliding  the previous window's counter, weighted by its overlap, plus the current one
  log      the time of each admitted request: the exact rolling window
  token    a bucket of --burst tokens that gets COUNT new ones per DURATION
  leaky    a queue, --queue deep, that lets COUNT requests out per DURATION, evenly; requests wait
           in it; not available with --redis

10000/month@Europe/Berlin counts in the months of a time zone, and so do hour, day, week and year;
month:17 begins on the 17th, week:7 on Sunday, year:406 on 6 April, and day:6h and month:17:6h at
six in the morning.

Callers are told apart --by ip, header:NAME, host, user (of Basic authorization), path or pattern
(the --route), joined by plus signs: ip+pattern. A client that can choose its key has as many
budgets as it likes, so use header and user only for values that were verified before the request
comes here; path alone limits a path, not a caller. One address has at most --max-keys keys; further
ones share a budget. Behind another proxy, --trust its address; otherwise all requests count as its
own. It must set X-Forwarded-For, -Host and -Proto, which are then believed and passed on: a client
can forge those that it does not set. Fields of clients that name an address, a host, a user or a
URL are stripped; where limits depend on the path or the method, so are those that change these.

A --route is a pattern of Go's http.ServeMux with a cost, or with a limit that replaces --limit;
--by pattern, it needs neither:
  --route 'GET /search cost=5' --route 'POST /login limit=5/1m'
A request is held to the limits of each route that any reading of its path matches, since servers
differ: /x/..;/a is /a for Tomcat and is not for Express. Letter case, final slashes, encoding, dot
segments, empty segments, backslashes and path parameters are read in every way, and the path is
passed on as it came. --normalize-paths passes it on in one spelling instead, and refuses with 400
what servers read differently even so: %2F, %5C, NUL, double encoding and ..; segments. Use it if
the upstream needs none of them. A path over 8 KiB gets 414, and one with too many readings 400.
docs/SECURITY.md has the table of servers.

CONFIG is a file in YAML with the flags by their names, such as

  upstream: http://127.0.0.1:9000
  limit: [100/1m, burst=10/1s:token]
  trust: 10.0.0.0/8

The command line comes before it. --print-config prints all there is, with the defaults as comments.

--overload admits only what fits: it learns how many requests the upstream can handle at a time, and
lets them take about twice as long as in calm, or --overload=GOAL, as in --overload=250ms. What is
refused counts nowhere. First are those that --class says are sheddable, and the callers who hold
most; what is critical comes last:
  --overload --class 'POST /login=critical,/export=sheddable'
Of several readings of a path, the least important class counts. Streams and WebSockets hold no
place. --max-in-flight is a fixed number in place of it.

Instead of limits, --rules takes rules in YAML; "weir rules --help" describes them. Their
rate_limits say how a request becomes descriptors, as in a Go program. The proxy loads them again
when their files change, and keeps the counts; if rules have a mistake, the old ones stay in force.
--by then tells callers apart only for the deny list and for the bounds on requests in flight, and
--max-keys bounds the counters that one address may use.

With --redis, any number of proxies share the limits. While Redis is unreachable each proxy decides
alone, from the last known counts, with 1/--instances of each limit, and adds what it admitted to
the counts on Redis afterwards. Give the password in $WEIR_REDIS_PASSWORD or a file: all users of
a machine can read the arguments of a process.

Clients may use HTTP/2 without TLS, and an --upstream h2c://HOST:PORT gets it, so that gRPC passes,
but no WebSockets. A call over the limit fails with Unavailable. Streams whose clients send little
or much need --body-rate 0 and --max-body 0.

Only WebSocket upgrades are passed on. Connections, requests in flight and request bodies are
bounded; a connection over --max-conns replaces one without a request. An HTTP/2 connection has at
most 100 requests at a time, and one address as many as connections, 256. A client that does not
read what waits for it, for --send-timeout, is cut off.

The page at --admin shows the traffic and the keys of denied callers. It has its own address,
loopback by default; any other address needs --admin-remote and a token, in a file or in
$WEIR_ADMIN_TOKEN. Set a token if others use the machine. The address serves

  GET    /-/healthz  200, or 503 from SIGTERM on; needs no token
  GET    /-/metrics  the figures for Prometheus
  GET    /-/stats    the figures in JSON
  GET    /-/explain  ?key=KEY says why a caller is denied, or is not; so does "weir why KEY". With
                     --rules, ?descriptor=KEY=VALUE,... does so for a descriptor
  POST   /-/deny     {"what": "192.0.2.0/24", "for": "7d"} denies an address, a prefix or a key
  DELETE /-/deny     {"what": "192.0.2.0/24"} admits it again
  POST   /-/reload   loads the rules again; needs a token, as do the next two
  DELETE /-/caller   ?descriptor=KEY=VALUE,... resets what its limit has counted: "weir rules reset"
  DELETE /-/callers  resets all descriptors that begin with it, and answers with lines of JSON

Changes need the header Weir-Admin: 1. Without "for", a denial does not end. A key that looks like
an address is written key:KEY. Instead of "what" they accept "prefix", or "id", a key from
/-/stats. What would stop more than a quarter of the callers of the last minute or of all addresses,
or the client that sends it, is answered with 409 and a number of callers, and is repeated with that
number in "confirm". --deny-file keeps the list over a restart.

  curl -X POST -H 'Weir-Admin: 1' -H "Authorization: Bearer $WEIR_ADMIN_TOKEN" \
    -d '{"what": "192.0.2.1", "for": "2h"}' http://127.0.0.1:8081/-/deny

--try counts requests by a further limit, in this process alone, and denies nobody by it: the page
shows whom it would deny.

--state keeps the counts over a restart in a file, written every --state-every and at the end; a
process that is killed loses what it counted since. A second process on the file is refused. A file
that cannot be loaded, as after the clock was wrong, is kept as FILE.bad-1, with a warning.

SIGHUP reads the certificate, --deny-file, --denied-page, --rules and CONFIG again. All of CONFIG
takes effect but addresses, names of other files, --max-deny, the table and Redis, for which SIGUSR2
is: such a CONFIG is refused, as one with a mistake is. So are a --deny-file and a CONFIG that
may have been cut, since less than half is left, unless their last line is # end.

SIGUSR2 starts the program again, which takes the sockets over and reads everything anew; if it
fails, this process goes on. No connection is refused. This process finishes its requests; with
--state it saves the counts within three seconds, and the new one accepts connections then.
--pid-file has the number of the new process. The main process of a systemd unit or a container,
which would end with it, refuses SIGUSR2: use systemctl restart. Sockets of systemd's socket
activation are used in place of --listen and, if there are two or one is named so, --admin.

On SIGTERM and SIGINT the health check fails, and each response closes its connection. After
--drain-delay no new connections are accepted; those that are open are read for a second more, since
requests may be on their way, and requests in flight have --drain to finish. A second signal ends
the process at once.
The access log goes to the standard output, on a terminal with a short line for each request and the
sums below them, everything else to the standard error. Its lines are gathered for a tenth of a
second or 64 KiB, which a crash or a second signal loses.`

const proxyExample = `  weir proxy --limit 10/10s
  weir proxy --listen 127.0.0.1:8080 --upstream http://127.0.0.1:9000 --limit 100/1m --by ip
  weir proxy --upstream http://127.0.0.1:9000 --limit burst=10/1s:token --limit daily=10000/1d
  weir proxy --upstream http://127.0.0.1:9000 --limit 100/1m --route 'POST /login limit=5/1m' \
    --count-if 401
  weir proxy --upstream http://127.0.0.1:9000 --overload --class 'POST /login=critical'
  weir proxy --upstream http://127.0.0.1:9000 --rules limits.yaml
  weir proxy --limit 100/1m --print-config > weir.yaml && weir proxy weir.yaml
  weir proxy --listen :443 --tls-cert cert.pem --tls-key key.pem --upstream http://127.0.0.1:9000 \
    --limit 100/1m --redis redis://127.0.0.1:6379 --instances 2`

// proxyFlags are the flags of weir proxy: those that are fields of its Config, and the texts of the
// others.
type proxyFlags struct {
	cfg         proxy.Config
	upstream    string
	classes     []string
	limits      limitFlags
	callers     callerFlags
	answers     answerFlags
	process     processFlags
	redis       proxyRedisFlags
	printConfig bool
	given       []*pflag.Flag // on the command line
}

func newProxy() *cobra.Command { return new(proxyFlags).command() }

// command returns the command, whose flags fill f.
func (f *proxyFlags) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "proxy {--limit COUNT/DURATION | --rules FILE | --overload | CONFIG} [--upstream URL]",
		Short:   "Put a limit in front of a server",
		Long:    proxyLong,
		Example: proxyExample,
		Args:    oneFile,
		RunE:    f.run,
	}
	cli.Help(cmd)
	cmd.Flags().BoolVar(&f.printConfig, "print-config", false,
		"print the configuration as a file, and do nothing else")
	for _, add := range []func(*cobra.Command, *proxy.Config){f.addTraffic, f.limits.add,
		f.callers.add, f.answers.add, f.addBounds, f.process.add, f.redis.add} {
		add(cmd, &f.cfg)
	}
	return cmd
}

// oneFile refuses several files of settings.
func oneFile(_ *cobra.Command, files []string) error {
	switch {
	case len(files) > 1:
		return fmt.Errorf("want one file of settings, not %d: %s", len(files), strings.Join(files, " "))
	case len(files) == 1 && new(proxy.Overload).Set(files[0]) == nil:
		return fmt.Errorf("%q is no file of settings; if it is a goal, write --overload=%[1]s", files[0])
	}
	return nil
}

func (f *proxyFlags) addTraffic(cmd *cobra.Command, cfg *proxy.Config) {
	flags := cmd.Flags()
	flags.StringVar(&cfg.Listen, "listen", "127.0.0.1:8080", "the `address` to serve on")
	flags.StringVarP(&f.upstream, "upstream", "u", "",
		"the `URL` to pass requests on to, http, https or h2c (default a built-in page)")
	flags.StringVar(&cfg.TLS.Cert, "tls-cert", "",
		"serve HTTPS and HTTP/2 with the certificate in this PEM `file`, read again when it changes")
	flags.StringVar(&cfg.TLS.Key, "tls-key", "", "the `file` with its key")
	flags.BoolVar(&cfg.PreserveHost, "preserve-host", false,
		"pass the client's Host to the upstream, not the upstream's own")
	flags.DurationVar(&cfg.UpstreamTimeout, "upstream-timeout", time.Minute,
		"how long the upstream may take to begin its response, or to read a piece of a body; 0: no bound")
	flags.BoolVar(&cfg.NormalizePaths, "normalize-paths", false,
		"pass paths on in one spelling, and refuse those that servers read differently even so")
	flags.StringVar(&cfg.AddressPath, "address-path", "",
		"answer this `path` with the address that a request counts for, to try --trust out")
	cli.Section(cmd, "Traffic")
}

func (f *proxyFlags) addBounds(cmd *cobra.Command, cfg *proxy.Config) {
	flags := cmd.Flags()
	flags.IntVar(&cfg.MaxConns, "max-conns", 0,
		"connections at the same time (default half of what the process may open, up to 10000)")
	flags.IntVar(&cfg.MaxConnsPerAddr, "max-conns-per-ip", 256,
		"connections, and requests in flight, of one untrusted address or IPv6 /64; 0: no bound")
	flags.Var(&cfg.Overload, "overload",
		"admit what fits: learn how many requests the upstream can handle at a time, within `GOAL` if given")
	flags.Lookup("overload").NoOptDefVal = proxy.Learn
	flags.StringSliceVar(&f.classes, "class", nil,
		"`PATTERN=CLASS`: sheddable, refused first by --overload, normal or critical")
	flags.IntVar(&cfg.MaxInFlight, "max-in-flight", 0, "requests at the same time; 0: no bound")
	flags.IntVar(&cfg.MaxInFlightPerClient, "max-in-flight-per-client", 0,
		"requests and streams of one caller at the same time, over all proxies on one Redis; 0: no bound")
	flags.Int64Var(&cfg.Bodies.Max, "max-body", 32<<20, "`bytes` of a request's body; 0: no bound")
	flags.Int64Var(&cfg.Bodies.Rate, "body-rate", 1<<10,
		"minimum `bytes` a second of a request body, after 10s; 0: no bound")
	flags.DurationVar(&cfg.SendTimeout, "send-timeout", time.Minute,
		"how long a client may take to read a piece of a response, up to 32 KiB; 0: no bound")
	cli.Section(cmd, "Bounds")
}

// config returns the Config for the flags; given reports whether a flag was set.
func (f *proxyFlags) config(
	given func(string) bool, stdout, stderr io.Writer,
) (proxy.Config, error) {
	cfg := f.cfg
	err := errors.Join(f.limits.checkRules(given), checkNumbers(&cfg, &f.redis.cfg),
		f.setUpstream(&cfg), f.limits.set(&cfg), f.callers.set(&cfg), f.process.setAdmin(&cfg),
		f.redis.set(&cfg), f.answers.set(&cfg, given), f.limits.setGuard(&cfg.Guard),
		f.process.setLogs(&cfg, stdout, stderr))
	return cfg, err
}

// setUpstream sets the upstream, and how important requests are to it.
func (f *proxyFlags) setUpstream(cfg *proxy.Config) (err error) {
	if f.upstream != "" {
		cfg.Upstream, err = url.Parse(f.upstream)
		if err != nil {
			return cli.Wrong("upstream", "must be a URL such as http://127.0.0.1:9000, not %q", f.upstream)
		}
	}
	cfg.Classes, err = parsed("class", f.classes, proxy.ParseClass)
	return of("--class", err)
}

func (f *proxyFlags) run(cmd *cobra.Command, file []string) error {
	cmd.Flags().Visit(func(flag *pflag.Flag) { f.given = append(f.given, flag) })
	located := func(err error) error { return err }
	for _, name := range file {
		read, err := readConfig(cmd, name)
		if err != nil {
			return err
		}
		located = read.located
	}
	f.process.screen, f.process.terminal = screen.Of(cmd.OutOrStdout())
	foot, out, errs := f.process.foot(cmd.OutOrStdout(), cmd.ErrOrStderr())
	stdout := proxy.NewLines(out)
	cfg, err := f.config(cmd.Flags().Changed, stdout, errs)
	if err != nil {
		return located(err)
	}
	if f.printConfig {
		if err := cfg.Check(); err != nil {
			return located(err)
		}
		return cli.Failure(printConfig(cmd.OutOrStdout(), cmd, notes(&cfg)))
	}
	log := newFormats(cfg.Log.Handler())
	cfg.Log = slog.New(log)
	next, err := newSuccession(f.process.pidFile, cfg.Log)
	if err != nil {
		return err
	}
	cfg.Succession = next
	p, err := proxy.New(cfg)
	if err != nil {
		return located(err)
	}
	r := &reloader{proxy: p, file: strings.Join(file, ""), given: f.given, flags: cmd.Flags(),
		cfg: cfg, log: log, make: func(next *proxyFlags, given func(string) bool) (proxy.Config, error) {
			next.process.screen, next.process.terminal = f.process.screen, f.process.terminal
			return next.config(given, stdout, errs)
		}}
	defer onHandOver(func() error {
		err := next.handOver()
		if err != nil {
			cfg.Log.Error("no other process takes over", "error", err.Error())
		}
		return err
	})()
	return runUntilSignal(cmd.Context(), func(ctx context.Context) error {
		kept, drop := context.WithCancel(ctx)
		var keeping sync.WaitGroup
		if f.process.terminal {
			// without a terminal there is nobody to see it
			keeping.Go(func() { _ = foot.Keep(kept, time.Second, p.Sum) })
		}
		err := errors.Join(p.Run(ctx), stdout.Flush())
		drop()
		keeping.Wait()
		if f.process.terminal && ctx.Err() != nil { // it has served
			fmt.Fprintln(cmd.ErrOrStderr(), p.Sum())
		}
		return err
	}, r.reload)
}
