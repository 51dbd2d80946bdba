// Command replaybench measures weir replay: its time for a log in order compared with the time to
// parse the log, its time for the same log shuffled, and its memory. It writes
// benchmarks/replay/RESULTS.md, which is the end of BENCHMARKS.md.
//
//	go run ./cmd/weir/internal/replaybench            # takes a minute and 4 GB of disk
//	go run ./cmd/weir/internal/replaybench -o ''      # prints the report only
package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
	"github.com/weirgo/weir/cmd/weir/internal/replay"
	"github.com/weirgo/weir/cmd/weir/internal/rule"
)

var (
	lines   = flag.Int("lines", 10_000_000, "requests in the log")
	callers = flag.Int("callers", 100_000, "their callers")
	rounds  = flag.Int("rounds", 5, "measure each task this often; the median counts")
	out     = flag.String("o", "benchmarks/replay/RESULTS.md", "write the report to this file; none if empty")
	keep    = flag.String("logs", "", "keep the logs in this folder, or use those there")
	task    = flag.String("task", "",
		"do this task on the file that is the argument, and print how many requests and kilobytes it was")
)

// tasks are the measured tasks, each run in its own process.
var tasks = map[string]func(file string) (requests uint64, err error){"parse": parse, "replay": run}

func main() {
	flag.Parse()
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "replaybench:", err)
		os.Exit(1)
	}
}

func do() error {
	if t := tasks[*task]; t != nil {
		n, err := t(flag.Arg(0))
		fmt.Println(n, peakMemory())
		return err
	}
	dir := *keep
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "replaybench-"); err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
	}
	ordered, shuffled := filepath.Join(dir, "ordered.log"), filepath.Join(dir, "shuffled.log")
	if _, err := os.Stat(shuffled); err != nil {
		if err := errors.Join(writeLog(ordered, false), writeLog(shuffled, true)); err != nil {
			return err
		}
	}
	rows := []*row{{name: "parse, one goroutine", task: "parse", file: ordered},
		{name: "replay, in order", task: "replay", file: ordered},
		{name: "replay, shuffled", task: "replay", file: shuffled}}
	for round := range *rounds {
		fmt.Fprintln(os.Stderr, time.Now().Format(time.TimeOnly), "round", round+1, "of", *rounds)
		for _, r := range rows {
			if err := r.measure(); err != nil {
				return err
			}
		}
	}
	var b bytes.Buffer
	report(&b, rows)
	fmt.Print(b.String())
	if *out == "" {
		return nil
	}
	return os.WriteFile(*out, b.Bytes(), 0o644)
}

// parse reads and parses a log on one goroutine.
func parse(file string) (requests uint64, err error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 256<<10)
	var p accesslog.Parser
	var e accesslog.Entry
	for {
		line, err := in.ReadSlice('\n')
		if err == io.EOF {
			return requests, nil
		}
		if err == nil {
			err = p.Parse(line, &e)
		}
		if err != nil {
			return requests, err
		}
		requests++
	}
}

// run replays a log with one limit.
func run(file string) (requests uint64, err error) {
	limits, err := rule.Cross([]string{"100/1m"}, []string{rule.Fixed}, 0)
	if err != nil {
		return 0, err
	}
	r, err := replay.Run(replay.Config{Files: []string{file}, Rules: limits, By: replay.ByIP,
		MaxBuckets: 1 << 24, Top: 10})
	if err != nil {
		return 0, err
	}
	if r.Callers != *callers {
		return r.Requests, fmt.Errorf("%d callers, want %d", r.Callers, *callers)
	}
	return r.Requests, nil
}

// report writes the figures and their bounds.
func report(b *bytes.Buffer, rows []*row) {
	parse, ordered, shuffled := rows[0], rows[1], rows[2]
	fmt.Fprintf(b, "## Replay\n\n"+
		"Written by `go run ./cmd/weir/internal/replaybench`, %s. One limit is replayed on a log of\n"+
		"%d million lines and %d callers in the combined format. Each figure is the median of %d rounds;\n"+
		"every task runs in its own process. Ratios are medians of the ratios within a round.\n\n",
		machine(), *lines/1_000_000, *callers, *rounds)
	fmt.Fprintf(b, "|  | time | CPU time | memory |\n|---|--:|--:|--:|\n")
	for _, r := range rows {
		fmt.Fprintf(b, "| %s | %.2f s | %.2f s | %.0f MB |\n", r.name, median(r.wall), median(r.cpu),
			median(r.memory))
	}
	fmt.Fprintf(b, "\n|  | at most | measured |  |\n|---|--:|--:|---|\n")
	bar := func(name string, most, got float64, unit string) {
		verdict := "met"
		if got > most {
			verdict = "**missed**"
		}
		fmt.Fprintf(b, "| %s | %g%s | %.2f%s | %s |\n", name, most, unit, got, unit, verdict)
	}
	bar("time in order, vs parsing", 1.5, ratio(ordered.wall, parse.wall), "×")
	bar("time shuffled, vs in order", 2, ratio(shuffled.wall, ordered.wall), "×")
	bar("memory, shuffled", 300, median(shuffled.memory), " MB")
	fmt.Fprintf(b,
		"\nIn CPU time, replaying a log in order takes %.2f times as long as parsing it, and a shuffled\n"+
			"log takes %.2f times as long as one in order. Parsing, numbering the callers and deciding run on\n"+
			"all cores.\n", ratio(ordered.cpu, parse.cpu), ratio(shuffled.cpu, ordered.cpu))
	if strings.Contains(b.String(), "missed") {
		fmt.Fprintf(b, "Wall-clock times depend on other load on the machine.\n")
	}
}
