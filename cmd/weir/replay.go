package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/weirgo/weir/cmd/weir/internal/replay"
	"github.com/weirgo/weir/cmd/weir/internal/report"
	"github.com/weirgo/weir/cmd/weir/internal/rule"
)

const replayLong = `Replay runs the requests of access logs through weir's limiters, on the logs' own clock, and reports what the limits
would have done: how many requests would have been denied, to how many callers, to whom the most, and when.

Files may be in the common or the combined format of nginx and Apache, or Caddy's JSON; gzip is told by its content; "-"
is the standard input. Several files are merged by time, in whatever order they are given. Lines that cannot be read are
counted, and the first few shown.

A limit is COUNT/DURATION: 100/1m, 5/500ms, 10000/1d. Durations are of 1ms to 365d, in whole milliseconds. Several of
them, separated by commas, are tiers that must all admit: 1000/1s,5000/10s,7000/15s. Give --limit several times to
compare limits in one pass; each is counted by each --strategy:

  fixed    a counter for each window of time, aligned to the clock
  sliding  the counter of the window before weighted by how much of it is still in sight, plus the current one
  log      the time of each request admitted: the exact rolling window
  token    a bucket that holds --burst tokens and gets COUNT new ones per DURATION
  leaky    a queue that is --burst deep and lets COUNT requests out per DURATION; a request that would have waited counts
           as admitted, and nothing waits here

Order. A server writes a line when a request is over. Caddy's lines tell how long it took, and Apache's the time at which
it came; nginx's tell the time at which it was over, which is taken for the time at which it came. So lines are out of
order, and what came in the last --reorder of the log, two million requests at most, is held back and put in order. A
request that is later than that is decided on when its line comes, since a limiter's time does not run back; the report
says how many were. The common and the combined format tell whole seconds: the requests of one second are spread evenly over it, in
the order of the log. That makes no difference to a fixed window of whole seconds.

Callers are told apart --by ip (of Caddy's addresses client_ip, if it is there), path (without the query), user, or
ip+path. Requests without a user, or without a path, are counted and left out. A name over 1 KiB is cut and ends in its
SHA-256.

Memory is bounded by the number of callers, not of lines. The exit code is 0, or 1 if something failed, or 2 if the
command line is wrong or a file has no line of an access log.`

const replayExample = `  weir replay --limit 100/1m access.log
  weir replay --limit 20/1m --limit 100/1m --html report.html access.log.1.gz access.log
  weir replay --limit 60/1m --strategy fixed,sliding,log,token --burst 10 --by user access.log
  ssh web1 cat /var/log/nginx/access.log | weir replay --limit 1000/1s,5000/10s,7000/15s -`

// replayFlags are the flags of weir replay.
type replayFlags struct {
	limits, strategies []string
	burst              uint64
	by, output, html   string
	reorder            time.Duration
	maxBuckets         int
	quiet              bool
}

// maxReorder bounds --reorder, whose every second takes memory.
const maxReorder = 7 * 24 * time.Hour

func newReplay() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:     "replay --limit COUNT/DURATION FILE...",
		Short:   "What would this limit have done to the traffic of an access log?",
		Long:    replayLong,
		Example: replayExample,
		RunE:    f.run,
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringArrayVarP(&f.limits, "limit", "l", nil, "a limit, `COUNT/DURATION`, or tiers separated by commas (repeatable)")
	flags.StringSliceVarP(&f.strategies, "strategy", "s", []string{rule.Fixed}, "how to count: fixed, sliding, log, token or leaky (repeatable)")
	flags.Uint64Var(&f.burst, "burst", 0, "size of the token bucket, depth of the leaky bucket's queue (default the limit)")
	flags.StringVar(&f.by, "by", string(replay.ByIP), "what tells callers apart: ip, path, user or ip+path")
	flags.StringVarP(&f.output, "output", "o", "text", "what to print: text, json or csv")
	flags.StringVar(&f.html, "html", "", "write a report to look at to this `file`, too")
	flags.DurationVar(&f.reorder, "reorder", time.Minute, "how far out of order a log may be")
	flags.IntVar(&f.maxBuckets, "max-buckets", 1<<24, "how many buckets a limiter may keep at one time, of about 115 bytes each")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print nothing but the report: no progress, no remarks")
	if err := cmd.MarkFlagRequired("limit"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

// check returns the Config that the flags ask for.
func (f *replayFlags) check(files []string) (replay.Config, error) {
	var cfg replay.Config
	stdins := 0
	for _, name := range files {
		if name == replay.Stdin {
			stdins++
		}
	}
	switch {
	case len(files) == 0:
		return cfg, errors.New(`which log? Name a file, or - for the standard input`)
	case stdins > 1:
		return cfg, errors.New("the standard input can be read only once")
	case !slices.Contains([]string{"text", "json", "csv"}, f.output):
		return cfg, fmt.Errorf("output is text, json or csv, not %q", f.output)
	case f.reorder < 0 || f.reorder > maxReorder:
		return cfg, fmt.Errorf("reorder is from 0s to %v, not %v", maxReorder, f.reorder)
	case f.maxBuckets <= 0:
		return cfg, fmt.Errorf("max-buckets is positive, not %d", f.maxBuckets)
	}
	by, err := replay.ParseBy(f.by)
	if err != nil {
		return cfg, err
	}
	rules, err := rule.Cross(f.limits, f.strategies, f.burst)
	if err != nil {
		return cfg, err
	}
	return replay.Config{Files: files, Rules: rules, By: by, Reorder: f.reorder, MaxBuckets: f.maxBuckets}, nil
}

func (f *replayFlags) run(cmd *cobra.Command, files []string) error {
	cfg, err := f.check(files)
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

// classify tells bad input, which is the user's, from what failed.
func classify(err error) error {
	if errors.As(err, new(*replay.InputError)) {
		return err
	}
	return failure{err}
}

// remark says on the standard error what was left out, when the report is for a program to read.
func (f *replayFlags) remark(stderr io.Writer, r *replay.Result) {
	if f.output == "text" {
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
	case "json":
		err = report.JSON(&b, r)
	case "csv":
		err = report.CSV(&b, r)
	default:
		report.Text(&b, r, textStyle(stdout))
	}
	if err == nil {
		_, err = stdout.Write(b.Bytes())
	}
	return err
}

// textStyle looks at where the report goes: a terminal gets its own width, and colors unless NO_COLOR is set.
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
