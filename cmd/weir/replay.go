package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/accesslog"
	"github.com/weirgo/weir/cmd/weir/internal/analyse/replay"
	"github.com/weirgo/weir/cmd/weir/internal/analyse/report"
	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
	"github.com/weirgo/weir/cmd/weir/internal/cli/screen"
)

const replayLong = `Replay runs the requests of access logs through limits, with the times of the log
as the clock. It reports how many requests the limits would have denied, which callers they would
have denied most, and when. With --suggest, and without a limit, it reports which limits fit.

Files have the common or the combined format of nginx and Apache, a W3C format (IIS, CloudFront), or
JSON as Caddy, nginx, Traefik, Envoy, Cloudflare, Google Cloud and weir proxy write it; for other
JSON, --map names the fields, and for other text --format or --log-format the format. Gzip, zstd and
bzip2 are recognized by their content; "-" is the standard input. Lines that cannot be read are
counted, and an example of each reason is shown. The report does not depend on the order of the
lines or of the files.

The prefixes that Docker, Kubernetes, syslog and journalctl put in front of a line are removed;
--strip-prefix removes others. A line that leaves open which of its words is the client is not read.
If a log lists the addresses of proxies in X-Forwarded-For, or has only those of your balancer,
--trust names the proxies, as for weir proxy. If over 5 % of the lines cannot be read, if most
callers are no addresses or seem to be proxies, if there is one caller only, or as many as lines,
replay says so, suggests nothing, prints no command, and exits with 3.

A limit is [NAME=]COUNT/DURATION[:STRATEGY], as for weir proxy: 100/1m, login=5/500ms, 10000/1d:log.
Durations are from 1ms to 365d, in whole milliseconds. Several counts and durations, separated by
commas, are tiers, which must all admit a request: 1000/1s,5000/10s,7000/15s. Give --limit several
times to compare limits in one run. Limits without a strategy are replayed with each --strategy:

  fixed    a counter for each window of time, aligned to the clock
  sliding  the previous window's counter, weighted by its overlap, plus the current one
  log      the time of each admitted request: the exact rolling window
  token    a bucket of --burst tokens that gets COUNT new ones per DURATION
  leaky    a queue, --burst deep, that lets COUNT requests out per DURATION; requests that would
           have waited count as admitted

10000/month@Europe/Berlin counts in the months of a time zone, and so do hour, day, week and year;
month:17 begins on the 17th, week:7 on Sunday, year:406 on 6 April, and day:6h and month:17:6h at
six in the morning.

--follow goes on with what is written to the file, also after it was rotated, and decides on it by
the limits or the rules, if there are some, in the order of the lines. On a terminal it shows the
last minute, its busiest callers, and as much of the report as fits, every second; Ctrl-C prints all
of the last one.

--rules replays rules, the same that weir proxy, weir serve and Go programs use; see "weir rules
--help". Their rate_limits say how a request becomes descriptors. A log has the address, the method,
the path, the query, the user (as the context value "user"), and in the combined format the referer
and the user agent. An action that reads another header makes no descriptor. The report shows all
rules together and each rule by itself: the requests that it matched, and those that it denied or,
in shadow mode, would have denied.

--compare replays a second limit beside --limit, or second rules beside --rules, and reports what
only one of the two denies, by caller and by route. --replicas replays each limit once more as that
many instances without a shared store would have decided: a request goes to one of them at random.

--suggest reports, for each --strategy and for 1s, 1m, 1h and 1d, the lowest limit that denies a
request to at most --deny-at-most of the callers. It is exact: a caller's peak is the lowest limit
that denies none of the caller's requests, computed from all of them, and the suggested limit is the
lowest peak that at most that share of the callers exceed.

With --by-route it does so for each endpoint, and --rules-out writes the limits for a minute as
rules. Ids in paths are folded to {id}: numbers, UUIDs, 8 or more hexadecimal digits, 24 or more
letters and digits. Over 20 names below one path with fewer than 10 callers each are folded to
{name}. Assets, health checks and endpoints with fewer than 10 callers are apart.

--overload reports, of a log with durations, what was in flight over time and which callers took
most of the service's time; whom a guard that learns the limit would have refused, by a goal that is
given or learnt; and which fixed number would have fit. All requests are of the class normal. A log
is an open loop: what a guard refuses makes no other request quicker there. Lines without a duration
are counted and left out, as are requests that became another protocol. Where times are whole
seconds, all requests of a second are spread evenly over it.

Callers are keyed --by ip (an IPv6 address by its prefix), path (without the query; spellings of one
path are one), user, agent (the user agent), or ip+path. Requests without it are counted and left
out. Requests that the server answered with 429 already are also shown apart. Keys over 1 KiB are
shortened and end in a SHA-256 digest. With --count-if, requests with other statuses are decided on
but take nothing, as in weir proxy.

A server writes a line when a request ends. If the log has the durations of requests, replay uses
their times of arrival. Apache logs the time of arrival; nginx's common format has only the time of
the end, which replay uses instead. If times are in whole seconds, replay spreads
each caller's requests of a second evenly over it; for a fixed window of whole seconds this makes no
difference.

Requests are decided on as if the denied ones had been sent all the same: callers that wait as long
as they are asked to would meet fewer denials. The report ends with the commands that enforce its
limits on the same requests, or says why there is none.

Memory grows by 16 bytes with each request, and with the number of callers (with --rules, of
distinct descriptors and callers). The exit code is 1 if replay failed or one of several files could
not be read, 2 if the command line is wrong or the file is not an access log, and 3 if the callers
are in doubt. Interrupted by Ctrl-C, replay reports what it has read, and exits with 130.`

const replayExample = `  weir replay access.log
  weir replay --limit 100/1m access.log
  weir replay --follow access.log
  weir replay --overload --log-format '$remote_addr $msec $request_time' access.log
  weir replay --rules limits.yaml access.log
  weir replay --rules limits.yaml --compare limits.new.yaml access.log
  weir replay --limit 100/1m --replicas 3 --skew 1 access.log
  weir replay --suggest --by-route --rules-out suggested.yaml access.log
  weir replay --limit 20/1m --limit 100/1m --html report.html access.log.1.gz access.log
  weir replay --limit 60/1m --strategy fixed,log --limit 60/1m:token --burst 10 --by user access.log
  weir replay --limit 5/1m --path /login --method POST --count-if 401 access.log
  weir replay --suggest --map time=ts,ip=client.addr,path=url -o json app.log | jq .suggestions
  ssh web1 cat /var/log/nginx/access.log | weir replay --limit 1000/1s,5000/10s,7000/15s -`

func newReplay() *cobra.Command { return new(replayFlags).command() }

// command returns the command, whose flags fill f.
func (f *replayFlags) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "replay [--limit COUNT/DURATION] [--rules FILE] [--suggest] FILE...",
		Short:   "What would this limit have done to the traffic of an access log, and which one fits?",
		Long:    replayLong,
		Example: replayExample,
		RunE:    f.run,
	}
	flags := cmd.Flags()
	flags.StringArrayVarP(&f.limits, "limit", "l", nil,
		"a limit, `[NAME=]COUNT/DURATION[:STRATEGY]`, COUNT/UNIT@ZONE, or tiers separated by commas "+
			"(repeatable)")
	flags.StringSliceVarP(&f.strategies, "strategy", "s", []string{rule.Default},
		"how to count: fixed, sliding, log, token or leaky (repeatable)")
	flags.Uint64Var(&f.burst, "burst", 0,
		"size of the token bucket or of the leaky bucket's queue (default the limit)")
	flags.BoolVarP(&f.follows, "follow", "f", false,
		"go on with what is written to the log, and show the last minute and the report on one screen")
	f.rules.Add(cmd)
	flags.StringVar(&f.compare, "compare", "",
		"compare with this `limit`, or with --rules these rules: what only one of them denies")
	flags.IntVar(&f.cfg.Replicas.N, "replicas", 1,
		"also replay what this `number` of instances without a shared store would have admitted")
	flags.Float64Var(&f.cfg.Replicas.Skew, "skew", 0,
		"instance i gets requests in proportion to 1/i^`S`; 0 spreads them evenly")
	cli.Section(cmd, "Limits")
	flags.BoolVar(&f.suggest, "suggest", false, "report which limits fit the log, as without a limit")
	flags.BoolVar(&f.cfg.ByEndpoint, "by-route", false,
		"suggest for each endpoint: methods and paths with their ids folded")
	flags.StringVar(&f.rulesOut, "rules-out", "",
		"write the limits that --by-route suggests for a minute to this `file`, as rules")
	flags.StringVar(&f.denyAtMost, "deny-at-most", "0.1%",
		"the `share` of callers that a suggested limit may deny, or of requests that a number of "+
			"--overload may refuse")
	cli.Section(cmd, "Suggestions")
	flags.Var(&f.overload, "overload", "report what was in flight, of a log with durations, and what "+
		"a guard that learns the limit would have refused: by this `goal` of how long a request may "+
		"take, as in --overload=300ms, or by one that it learns")
	flags.Lookup("overload").NoOptDefVal = learn
	cli.Section(cmd, "The service itself")
	flags.StringVar(&f.by, "by", string(replay.ByIP),
		"what callers are keyed by: ip, path, user, agent or ip+path")
	flags.IntVar(&f.cfg.IPv6Bits, "ipv6-prefix", 64, "how many `bits` of an IPv6 address make a key")
	flags.StringSliceVar(&f.trust, "trust", nil,
		"the `addresses` and prefixes of proxies whose X-Forwarded-For names the client (repeatable)")
	flags.BoolVar(&f.cfg.Force, "force", false,
		"suggest limits, and print commands, although the callers seem not to be clients")
	cli.Section(cmd, "Callers")
	f.addInput(flags)
	cli.Section(cmd, "The log")
	flags.StringVarP(&f.output, "output", "o", "text",
		"what to print: "+strings.Join(outputs, ", "))
	flags.StringVar(&f.html, "html", "",
		"also write the report as an HTML page to this `file`; - prints it instead of the text")
	flags.IntVar(&f.cfg.Top, "top", 10, "how many callers to list for each limit")
	flags.IntVar(&f.cfg.MaxBuckets, "max-buckets", 1<<24,
		"how many callers a sliding log or tiers may keep at the same time")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print only the report: no progress, no notes")
	cli.Section(cmd, "The report")
	cli.Help(cmd)
	return cmd
}

// addInput adds the flags that read and select the requests.
func (f *replayFlags) addInput(flags *pflag.FlagSet) {
	flags.StringVar(&f.format, "format", "auto",
		"the log's format: "+strings.Join(accesslog.Formats(), ", ")+" (with --map)")
	flags.StringVar(&f.fields, "map", "",
		"the fields of a JSON line, `FIELD=PATH,...`: time, start, ip (ip_port if a port always "+
			"follows), user, method, path, query, status, request, xff, referer, agent, duration, "+
			"duration_ms or duration_ns")
	flags.StringVar(&f.logFormat, "log-format", "",
		"the log's format as `text` of nginx's log_format, Apache's LogFormat, or Envoy's format string")
	flags.StringVar(&f.stripPrefix, "strip-prefix", "",
		"remove what this `regexp` matches at the beginning of each line; the prefixes of Docker, "+
			"Kubernetes, syslog and journalctl are known")
	flags.StringVar(&f.since, "since", "",
		"leave out requests before this `time`: 2006-01-02T15:04:05Z, 2006-01-02 15:04, 2006-01-02 "+
			"(UTC), or 24h for 24 hours ago")
	flags.StringVar(&f.until, "until", "", "leave out requests at or after this `time`")
	flags.StringSliceVar(&f.paths, "path", nil,
		"only requests with one of these `paths` or below it, read as weir proxy reads a --route")
	flags.StringSliceVar(&f.methods, "method", nil,
		"only requests with one of these `methods`; GET includes HEAD")
	flags.StringSliceVar(&f.statuses, "status", nil,
		"only requests answered with one of these `statuses`: 200, 4xx")
	flags.StringSliceVar(&f.countIf, "count-if", nil,
		"count only requests answered with one of these `statuses`: 401, 4xx")
}

// outputs are the values of --output.
var outputs = []string{"text", "json", "html"}

func (f *replayFlags) run(cmd *cobra.Command, files []string) error {
	if f.html == "-" {
		if cmd.Flags().Changed("output") && f.output != "html" {
			return fmt.Errorf("--html - prints the page, --output %s prints another form: choose one",
				f.output)
		}
		f.output, f.html = "html", ""
	}
	if err := cli.Exclude("overload", cmd.Flags().Changed, notOverload); err != nil {
		return err
	}
	others := []string{"limit", "count-if"}
	if !f.suggest {
		others = append(others, "strategy", "burst")
	}
	if err := cli.Exclude("rules", cmd.Flags().Changed, others); err != nil {
		return err
	}
	cfg, err := f.config(files)
	if err != nil {
		return err
	}
	cfg.Stdin, cfg.Args = cmd.InOrStdin(), args(cmd.Flags(), &cfg.Filter)
	interrupted, stop := signal.NotifyContext(cmd.Context(), os.Interrupt)
	defer stop()
	context.AfterFunc(interrupted, stop) // a second one ends the program
	if f.follows {
		return f.follow(interrupted, cmd, cfg)
	}
	bar := newBar(cmd.ErrOrStderr(), files, f.quiet)
	cfg.Progress = bar.show
	// paths take two thirds more time to read
	cfg.Routes = cfg.Overload == nil && (f.html != "" || f.output != "text")
	cfg.Stop = interrupted.Done()
	result, err := replay.Run(cfg)
	bar.clear()
	if err != nil {
		return classify(err)
	}
	if err := f.write(cmd, result); err != nil {
		return cli.Failure(err)
	}
	if slices.ContainsFunc(result.Failed, replay.Failure.Interrupted) {
		return cli.Interrupted(replay.ErrInterrupted)
	}
	if len(result.Failed) > 0 {
		return cli.Failure(result.Failed[0].Err)
	}
	if result.Doubtful {
		doubt := screen.Printable(strings.Join(result.Doubts, "; "))
		if f.suggest {
			doubt += "; --force suggests limits all the same"
		}
		return cli.Doubt(errors.New(doubt))
	}
	return nil
}

// classify marks an error as a failure unless it is in the input.
func classify(err error) error {
	switch {
	case errors.As(err, new(*replay.InputError)):
		return err
	case err == replay.ErrInterrupted:
		return cli.Interrupted(err)
	}
	return cli.Failure(err)
}

// write writes the report, each form of it when it is complete. It notes on the standard error what
// was left out, unless the report itself does.
func (f *replayFlags) write(cmd *cobra.Command, r *replay.Result) error {
	var b bytes.Buffer
	if f.html != "" {
		err := report.HTML(&b, r)
		if err == nil {
			err = os.WriteFile(f.html, b.Bytes(), 0o666)
		}
		if err != nil {
			return err
		}
		b.Reset()
	}
	if f.rulesOut != "" && !r.Doubtful {
		if err := f.writeRules(r); err != nil {
			return err
		}
	}
	var err error
	switch f.output {
	case "text":
		on, _ := screen.Of(cmd.OutOrStdout())
		report.Text(&b, r, on)
	case "html":
		err = report.HTML(&b, r)
	case "json":
		err = report.JSON(&b, r)
	}
	if !f.quiet && f.output == "json" {
		for _, note := range report.Notes(r) {
			fmt.Fprintf(cmd.ErrOrStderr(), "weir: %s\n", note)
		}
	}
	if err == nil {
		_, err = cmd.OutOrStdout().Write(b.Bytes())
	}
	return err
}
