// Command replay measures weir replay: its time for a log in order compared with the time to count
// the log's lines, its time for the same log shuffled, and its memory. It writes
// proofs/benchmarks/replay/RESULTS.md, which is the end of proofs/benchmarks/RESULTS.md.
//
//	go run ./proofs/benchmarks/replay            # takes a minute and 4 GB of disk
//	go run ./proofs/benchmarks/replay -o ''      # prints the report only
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/weirgo/weir/proofs/benchmarks/internal/bench"
)

var (
	lines   = flag.Int("lines", 10_000_000, "requests in the log")
	callers = flag.Int("callers", 100_000, "their callers")
	rounds  = flag.Int("rounds", 5, "measure each task this often; the median counts")
	out     = flag.String("o", "proofs/benchmarks/replay/RESULTS.md",
		"write the report to this file; none if empty")
	keep  = flag.String("logs", "", "keep the logs in this folder, or use those there")
	write = flag.String("write", "", "write the logs to this folder, and do nothing else")
)

// The files of the logs.
const orderedLog, shuffledLog = "ordered.log", "shuffled.log"

func main() {
	flag.Parse()
	bench.Main("replay", do)
}

func do() error {
	if *write != "" {
		return errors.Join(writeLog(filepath.Join(*write, orderedLog), false),
			writeLog(filepath.Join(*write, shuffledLog), true))
	}
	scratch, err := os.MkdirTemp("", "weir-replay-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	tool, dir := filepath.Join(scratch, "weir"), *keep
	if dir == "" {
		dir = scratch
	}
	if text, err := exec.CommandContext(context.Background(), "go", "build", "-o", tool,
		"./cmd/weir").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	ordered, shuffled := filepath.Join(dir, orderedLog), filepath.Join(dir, shuffledLog)
	if _, err := os.Stat(shuffled); err != nil {
		// In a process of its own: the peak memory of a child is at least that of its parent.
		writer := exec.CommandContext(context.Background(), os.Args[0], "-write", dir, "-lines",
			fmt.Sprint(*lines), "-callers", fmt.Sprint(*callers))
		if text, err := writer.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, text)
		}
	}
	replay := []string{tool, "replay", "--limit", "100/1m:fixed", "-o", "json", "-q"}
	rows := []*row{{name: "wc -l", command: []string{"wc", "-l"}, file: ordered},
		{name: "replay, in order", command: replay, file: ordered},
		{name: "replay, shuffled", command: replay, file: shuffled}}
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
	return bench.Publish(b.Bytes(), *out)
}

// report writes the figures and their bounds.
func report(b *bytes.Buffer, rows []*row) {
	wc, ordered, shuffled := rows[0], rows[1], rows[2]
	fmt.Fprintf(b, "## Replay\n\n"+
		"Written by `go run ./proofs/benchmarks/replay`: %s,\n"+
		"load average %s. One limit is replayed on a log of\n"+
		"%d million lines and %d callers in the combined format. Each figure is the median of %d "+
		"rounds;\n"+
		"every task runs in its own process. Ratios are medians of the ratios within a round.\n\n",
		bench.Machine(), bench.Load(), *lines/1_000_000, *callers, *rounds)
	fmt.Fprintf(b, "|  | time | CPU time | memory |\n|---|--:|--:|--:|\n")
	for _, r := range rows {
		fmt.Fprintf(b, "| %s | %.2f s | %.2f s | %.0f MB |\n", r.name, bench.Median(r.wall),
			bench.Median(r.cpu), bench.Median(r.memory))
	}
	fmt.Fprintf(b, "\n|  | at most | measured |  |\n|---|--:|--:|---|\n")
	bar := func(name string, most, got float64, unit string) {
		fmt.Fprintf(b, "| %s | %g%s | %.2f%s | %s |\n", name, most, unit, got, unit,
			bench.Verdict(got <= most))
	}
	bar("CPU time shuffled, vs in order", 2, bench.Ratio(shuffled.cpu, ordered.cpu), "×")
	bar("memory, shuffled", 300, bench.Median(shuffled.memory), " MB")
	fmt.Fprintf(b,
		"\nIn CPU time, replaying a log in order takes %.1f times as long as counting its lines. By "+
			"the clock,\n"+
			"which depends on other load on the machine, a shuffled log took %.2f times as long as one "+
			"in order.\n",
		bench.Ratio(ordered.cpu, wc.cpu), bench.Ratio(shuffled.wall, ordered.wall))
}
