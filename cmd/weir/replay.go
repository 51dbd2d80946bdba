package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/weirgo/weir/cmd/weir/internal/replay"
	"github.com/weirgo/weir/cmd/weir/internal/report"
	"github.com/weirgo/weir/cmd/weir/internal/rule"
)

const replayLong = `Replay runs the requests of access logs through limits, on the logs' own clock, and reports what the limits would have
done: how many requests would have been denied, to how many callers, to which the most, and when. With --suggest it
reports which limits fit the log.

Files are in the common or the combined format of nginx and Apache, or in JSON as Caddy, nginx, Traefik, Envoy and weir
proxy write it; --map names the fields of any other. Gzip is recognized by content; "-" is the standard input. Lines that
cannot be read are counted, and the first few shown. The order of the lines, and of the files, makes no difference.

A limit is [NAME=]COUNT/DURATION[:STRATEGY], as for weir proxy: 100/1m, login=5/500ms, 10000/1d:log. Durations are 1ms to
365d, in whole milliseconds. Several of them, separated by commas, are tiers that must all admit:
1000/1s,5000/10s,7000/15s. Give --limit several times to compare limits in one run; each without a strategy of its own is
counted by each --strategy:

  fixed    a counter for each window of time, aligned to the clock
  sliding  the counter of the window before, weighted by how much of it is still covered, plus the current one
  log      the time of each request admitted: the exact rolling window
  token    a bucket that holds --burst tokens and gets COUNT new ones per DURATION
  leaky    a queue that is --burst deep and lets COUNT requests out per DURATION; a request that would have waited counts
           as admitted, and nothing waits here

--rules replays rules, the same that weir proxy, weir serve and a Go program limit by; "weir rules --help" describes them.
Their rate_limits say how a request becomes descriptors. A log has the address, the method, the path, the query, the
user, as the context_value of that name, and in the combined format the referer and the user agent; what asks for another
header makes no descriptor. The report has all rules together and each for itself: of the requests that a rule matched,
those that it denied or, in shadow mode, would have denied.

--suggest reports, for each --strategy and for 1s, 1m, 1h and 1d, the least limit that denies a request to at most
--deny-at-most of the callers. It is exact: a caller's peak is the least limit at which none of the caller's requests is
denied, worked out from all of them; the limit is the least that all but so many callers' peaks do not exceed.

Callers are keyed --by ip (an IPv6 address by its prefix), path (without the query), user, or ip+path. Requests without a
user, or without a path, are counted and left out. A key over 1 KiB is cut and ends in its SHA-256. With --count-if a
request with another status is decided on but takes nothing, as in weir proxy.

Time. A server writes a line when a request is over. Where the log has how long a request took, its time is that at which
it came. Apache logs that time; nginx's common format has only the time at which a request was over, which is taken for
it. Logs in whole seconds do not say when in a second a request came: each caller's requests of one second are spread
evenly over it. That makes no difference to a fixed window of whole seconds.

Memory is bounded by the number of callers (with --rules, of different descriptors and callers), not of lines: beyond some 10 million requests, 5 bytes for each go to a
temporary file in $TMPDIR. The exit code is 0, or 1 if something failed, or 2 if the command line is wrong or a file has
no line of an access log.`

const replayExample = `  weir replay --limit 100/1m access.log
  weir replay --suggest access.log
  weir replay --rules limits.yaml access.log
  weir replay --limit 20/1m --limit 100/1m --html report.html access.log.1.gz access.log
  weir replay --limit 60/1m --strategy fixed,sliding,log --limit 60/1m:token --burst 10 --by user access.log
  weir replay --limit 5/1m --path /login --method POST --count-if 401 access.log
  weir replay --suggest --format json --map time=ts,ip=client.addr,path=url -o json app.log | jq .suggestions
  ssh web1 cat /var/log/nginx/access.log | weir replay --limit 1000/1s,5000/10s,7000/15s -`

// replayFlags are the flags of weir replay.
type replayFlags struct {
	limits, strategies []string
	burst              uint64
	by, format, fields string
	ipv6Prefix         int
	since, until       string
	paths, methods     []string
	statuses, countIf  []string
	rules              rulesFlags
	suggest            bool
	denyAtMost         string
	output, html       string
	top, maxBuckets    int
	quiet              bool
	reorder            string // ignored
}

func newReplay() *cobra.Command { return new(replayFlags).command() }

// command returns the command that f is filled by.
func (f *replayFlags) command() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "replay [--limit COUNT/DURATION] [--rules FILE] [--suggest] FILE...",
		Short:   "What would this limit have done to the traffic of an access log, and which one fits?",
		Long:    replayLong,
		Example: replayExample,
		RunE:    f.run,
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringArrayVarP(&f.limits, "limit", "l", nil,
		"a limit, `[NAME=]COUNT/DURATION[:STRATEGY]`, or tiers separated by commas (repeatable)")
	flags.StringSliceVarP(&f.strategies, "strategy", "s", []string{rule.Fixed},
		"how to count: fixed, sliding, log, token or leaky (repeatable)")
	flags.Uint64Var(&f.burst, "burst", 0,
		"size of the token bucket, depth of the leaky bucket's queue (default the limit)")
	f.rules.add(cmd)
	flags.BoolVar(&f.suggest, "suggest", false, "report which limits fit the log")
	flags.StringVar(&f.denyAtMost, "deny-at-most", "0.1%",
		"the `share` of callers that a suggested limit may deny")
	flags.StringVar(&f.by, "by", string(replay.ByIP), "what callers are keyed by: ip, path, user or ip+path")
	flags.IntVar(&f.ipv6Prefix, "ipv6-prefix", 64, "how many `bits` of an IPv6 address make a key")
	f.addInput(cmd)
	f.addOutput(cmd)
	cmd.MarkFlagsOneRequired("limit", "rules", "suggest")
	for _, other := range []string{"limit", "strategy", "burst", "suggest", "count-if"} {
		cmd.MarkFlagsMutuallyExclusive("rules", other)
	}
	return cmd
}

func (f *replayFlags) addInput(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.format, "format", "auto", "the log's format: auto, common (combined, too), caddy, weir, nginx, traefik, envoy or json (with --map)")
	flags.StringVar(&f.fields, "map", "", "where a JSON line has what: `FIELD=PATH,...`; fields are time, ip, user, method, path, status, request, duration, duration_ms, duration_ns")
	flags.StringVar(&f.since, "since", "", "leave out requests before this `time`: 2006-01-02T15:04:05Z, 2006-01-02 15:04, 2006-01-02 (UTC), or 24h for that long ago")
	flags.StringVar(&f.until, "until", "", "leave out requests from this `time` on")
	flags.StringSliceVar(&f.paths, "path", nil,
		"only requests whose path begins with one of these `prefixes`")
	flags.StringSliceVar(&f.methods, "method", nil, "only requests with one of these `methods`")
	flags.StringSliceVar(&f.statuses, "status", nil,
		"only requests answered with one of these `statuses`: 200, 4xx")
	flags.StringSliceVar(&f.countIf, "count-if", nil,
		"count only requests answered with one of these `statuses`: 401, 4xx")
}

func (f *replayFlags) addOutput(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVarP(&f.output, "output", "o", "text",
		"what to print: text, json, html, csv (of the limits), csv:callers, csv:timeline or csv:suggest")
	flags.StringVar(&f.html, "html", "",
		"write a report to look at to this `file`, too; - prints it in the place of the text")
	flags.IntVar(&f.top, "top", 10, "how many callers to name for each limit")
	flags.IntVar(&f.maxBuckets, "max-buckets", 1<<24,
		"how many callers a sliding log or tiers may keep at one time")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print nothing but the report: no progress, no remarks")
	flags.StringVar(&f.reorder, "reorder", "", "no longer needed")
	if err := flags.MarkHidden("reorder"); err != nil {
		panic(err) // the flag is defined above
	}
}

// outputs are the forms that can be printed.
var outputs = func() []string {
	names := []string{"text", "json", "html", "csv"}
	for _, table := range report.CSVTables() {
		names = append(names, "csv:"+table)
	}
	return names
}()

func (f *replayFlags) run(cmd *cobra.Command, files []string) error {
	if f.html == "-" {
		if cmd.Flags().Changed("output") && f.output != "html" {
			return fmt.Errorf("--html - prints the page, and --output %s something else: choose one",
				f.output)
		}
		f.output, f.html = "html", ""
	}
	cfg, err := f.config(files)
	if err != nil {
		return err
	}
	cfg.Stdin = cmd.InOrStdin()
	bar := newBar(cmd.ErrOrStderr(), files, f.quiet)
	cfg.Progress = bar.show
	result, err := replay.Run(cfg)
	bar.clear()
	if err != nil {
		return classify(err)
	}
	if f.html != "" {
		if err := writeHTML(f.html, result); err != nil {
			return failure{err}
		}
	}
	if !f.quiet {
		f.remark(cmd.ErrOrStderr(), result)
	}
	if err := f.print(cmd.OutOrStdout(), result); err != nil {
		return failure{err}
	}
	return nil
}

// classify tells bad input, which the user can correct, from a failure.
func classify(err error) error {
	if errors.As(err, new(*replay.InputError)) {
		return err
	}
	return failure{err}
}

// remark says on the standard error what was left out, when the report is for a program to read.
func (f *replayFlags) remark(stderr io.Writer, r *replay.Result) {
	if f.reorder != "" {
		fmt.Fprintln(stderr, "weir: --reorder has no effect: the order of a log's lines makes no difference")
	}
	if f.output == "text" || f.output == "html" {
		return // the report says it
	}
	for _, note := range report.Notes(r) {
		fmt.Fprintf(stderr, "weir: %s\n", note)
	}
}

// print writes the report in one piece.
func (f *replayFlags) print(stdout io.Writer, r *replay.Result) error {
	var b bytes.Buffer
	var err error
	switch f.output {
	case "text":
		report.Text(&b, r, textStyle(stdout))
	case "json":
		err = report.JSON(&b, r)
	case "html":
		err = report.HTML(&b, r)
	default:
		err = report.CSV(&b, r, f.csvTable())
	}
	if err == nil {
		_, err = stdout.Write(b.Bytes())
	}
	return err
}

// csvTable returns the table that csv:TABLE asks for.
func (f *replayFlags) csvTable() string {
	const prefix = "csv:"
	if len(f.output) > len(prefix) {
		return f.output[len(prefix):]
	}
	return "limits"
}

// textStyle looks at where the report goes: a terminal gets its own width, and colors unless
// NO_COLOR is set.
func textStyle(stdout io.Writer) report.Style {
	style := report.Style{Width: 80}
	if f, ok := stdout.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		style.Color = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
		if w, _, err := term.GetSize(int(f.Fd())); err == nil {
			style.Width = min(max(w, 60), 140)
		}
	}
	return style
}

// writeHTML writes the report to a file, which it leaves alone until the report is made.
func writeHTML(name string, r *replay.Result) error {
	var b bytes.Buffer
	if err := report.HTML(&b, r); err != nil {
		return err
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = f.Write(b.Bytes())
	return cmp.Or(err, f.Close())
}
