package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/weirgo/weir/proofs/benchmarks/internal/bench"
)

// results holds all measurements.
type results struct {
	figures
	rivals, ours []footprint
	sweeping     sweeping
	growths      []growth // of grows
	stall        time.Duration
	peak         float64 // resident bytes of a process with huge ids
	begun        time.Time
	rounds       int
	load         string
}

//go:embed method.md
var method string

//go:embed notes.md
var notes string

// report returns the text of RESULTS.md: the figures and verdicts of this run, and the texts of
// notes.md and method.md.
func (r *results) report() []byte {
	var b bytes.Buffer
	b.WriteString("# Benchmarks\n\n")
	r.writeSummary(&b)
	r.writeBars(&b)
	for i := range groups {
		r.writeGroup(&b, &groups[i])
	}
	r.writeMemory(&b)
	r.writeMillions(&b)
	r.writeLatency(&b)
	b.WriteString("\n## How it was measured\n\n" + strings.TrimSpace(method) + "\n\n")
	r.writeMachine(&b)
	return b.Bytes()
}

func (r *results) writeMachine(b *bytes.Buffer) {
	fmt.Fprintf(b, "%s.\n"+
		"Load average at the start: %s. The run took %v, with %d rounds.\n"+
		"Noise: the slowest and the fastest turn of the median figure differ by %.0f %%.\n\n",
		bench.Machine(), r.load, time.Since(r.begun).Round(time.Second), r.rounds, 100*r.spread())
	table(b, "module", "version")
	seen := map[string]bool{"": true}
	for _, g := range groups {
		for _, s := range g.stores {
			if !seen[s.module] {
				seen[s.module] = true
				row(b, s.module, bench.Version(s.module))
			}
		}
	}
}

func (r *results) writeGroup(b *bytes.Buffer, g *group) {
	fmt.Fprintf(b, "\n## %s\n\n"+
		"Nanoseconds per call; in parentheses, weir's time divided by the rival's.\n", g.title)
	for _, m := range modes {
		fmt.Fprintf(b, "\n%s:\n\n", strings.ToUpper(m.name[:1])+m.name[1:])
		head := []string{""}
		for _, w := range g.workloads {
			head = append(head, w.is)
		}
		table(b, append(head, "allocations, "+g.workloads[0].is)...)
		for _, s := range g.stores {
			cells := []string{s.name}
			for _, w := range g.workloads {
				cells = append(cells, r.cell(cell{g.name, w.name, m.name, s.name}))
			}
			allocs := r.allocs(cell{g.name, g.workloads[0].name, m.name, s.name})
			row(b, append(cells, fmt.Sprintf("%.2f", allocs))...)
		}
	}
}

// cell formats a figure, with the ratio of weir's figure to it if it is a rival's.
func (r *results) cell(c cell) string {
	ours := c
	ours.store = "weir"
	ns := fmt.Sprintf("%.0f", r.ns(c))
	if c == ours || r.figures[ours] == nil || !isLimiter(c.store) {
		return ns
	}
	return fmt.Sprintf("%s (%.2f)", ns, r.ratio(ours, c))
}

func (r *results) writeMemory(b *bytes.Buffer) {
	b.WriteString("\n## Memory\n\n" +
		"Live heap per id and CPU time of one garbage collection, with a million ids of 12 bytes on\n" +
		"average, each seen once. httprate stores a hash of each id instead of the id.\n\n")
	table(b, "", "bytes per id", "GC, ms")
	for _, f := range r.rivals {
		f.row(b)
	}
	b.WriteString("\nweir's strategies:\n\n")
	table(b, "", "bytes per id", "GC, ms")
	for _, f := range r.ours {
		f.row(b)
	}
}

func (r *results) writeLatency(b *bytes.Buffer) {
	fmt.Fprintf(b, "\n## Latency while sweeping\n\n"+
		"The latency of single decisions on %d known ids while the other core sweeps %d other\n"+
		"buckets, which expire in %d waves. Each id is in the CPU cache, as if it was just read from a\n"+
		"request. In the rows, timing is an empty call, idle has no other load, and neighbor has the\n"+
		"other core write to memory of its own, which shows the noise of the machine. Each row is the\n"+
		"best of three.\n\n",
		lasting, ending, waves)
	table(b, "", "decisions", "p50, ns", "p99, ns", "p99.9, ns", "slowest, µs")
	r.sweeping.timing.row(b, "timing")
	r.sweeping.idle.row(b, "idle")
	r.sweeping.neighbor.row(b, "neighbor")
	r.sweeping.swept.row(b, "sweeping")
}

// writeSummary writes the part that most readers need: one table of the common limiters.
func (r *results) writeSummary(b *bytes.Buffer) {
	g := &groups[1]
	at := func(w *workload, s store) cell { return cell{g.name, w.name, oneCore.name, s.name} }
	allow := cell{groups[0].name, hot.name, oneCore.name, "Allow"}
	fmt.Fprintf(b,
		"weir decides on a known caller in %.0f ns and allocates %s: that is Allow of a limit by the\n"+
			"sliding window. The table shows the time of CheckRate, and of the rivals' calls, on one core;\n"+
			"in parentheses, weir's time divided by the rival's:\n\n",
		r.ns(allow), count(r.allocs(allow)))
	table(b, "", "one busy caller, ns", "10,000 callers, ns", "a million callers, ns",
		"bytes per caller",
		"allocations")
	for _, s := range g.stores {
		cells := []string{s.name}
		for _, w := range []*workload{&hot, &tenThousand, &zipf} {
			cells = append(cells, r.cell(at(w, s)))
		}
		row(b, append(cells, r.bytesOf(s.name), count(r.allocs(at(&hot, s))))...)
	}
	w := r.growths[0]
	fmt.Fprintf(b, "\nWith five million callers, weir uses %.0f bytes per caller, a full garbage\n"+
		"collection takes %.0f ms of CPU (go-limiter: %.0f ms), and the longest decision while the "+
		"table\n"+
		"grew took %.1f ms.\n",
		w.Bytes, units(w.GC, time.Millisecond), units(r.growths[1].GC, time.Millisecond),
		units(w.Max, time.Millisecond))
	b.WriteString("\nThe stores make different promises: see [how it was " +
		"measured](#how-it-was-measured).\n" +
		"The [bars](#bars) that weir should meet come next, with the missed ones marked, then all " +
		"figures.\n")
}

// bytesOf returns the bytes per id of a store, or "" if it was not measured.
func (r *results) bytesOf(store string) string {
	for _, f := range r.rivals {
		if f.Store == store {
			return fmt.Sprintf("%.0f", f.Bytes)
		}
	}
	return ""
}

// printBars writes the bars for ratios that were measured as lines of text.
func (r *results) printBars() {
	var missed []string
	for _, b := range ratiosOf(r.figures) {
		cells := r.judge(b, &missed)
		fmt.Printf("%-88s at most %-6s measured %-6s %s\n", cells[0], cells[1], cells[2], cells[3])
	}
}

// writeVerbs writes verbsResults.
func (r *results) writeVerbs() error {
	var b bytes.Buffer
	b.WriteString(
		"## Other operations\n\nWritten by `go run . -verbs` and measured like the rest.\n\n",
	)
	if len(r.writeTable(&b, verbBars)) > 0 {
		b.WriteString("\n" + verbsMissed)
	}
	for i := range verbGroups {
		var section bytes.Buffer
		r.writeGroup(&section, &verbGroups[i])
		b.Write(bytes.Replace(section.Bytes(), []byte("\n## "), []byte("\n### "), 1))
	}
	fmt.Fprintf(&b, "\n%s. Load average at the start: %s. The run took %v, with %d rounds.\n",
		r.begun.Format(time.DateOnly), r.load, time.Since(r.begun).Round(time.Second), r.rounds)
	return os.WriteFile(verbsResults, b.Bytes(), 0o644)
}

// writeBars writes the bars, lists the missed ones, and explains where the time goes.
func (r *results) writeBars(b *bytes.Buffer) {
	b.WriteString(
		"\n## Bars\n\nThe time of a decision divided by go-limiter's, in the median turn:\n\n",
	)
	missed := r.writeShares(b)
	b.WriteString("\nThe time of the calls of a Limit divided by the rival's natural call, or by another of weir's:\n\n")
	missed = append(missed, r.writeTable(b, inEachMode(callBars))...)
	b.WriteString("\nThe time of weir's strategies divided by the rival's:\n\n")
	missed = append(missed, r.writeTable(b, inEachMode(strategyBars))...)
	b.WriteString("\nThe other bars; a ratio (×) compares times on one core:\n\n")
	missed = append(missed, r.writeTable(b, bars)...)
	if len(missed) == 0 {
		b.WriteString("\nAll bars are met.\n")
	} else {
		b.WriteString("\nMissed:\n\n- " + strings.Join(missed, "\n- ") + "\n")
	}
	b.WriteString("\n### Where the time goes\n\n" + strings.TrimSpace(notes) + "\n")
}

// writeShares writes the table of shareBars, with the rivals' own shares, and returns the missed
// bars.
func (r *results) writeShares(b *bytes.Buffer) (missed []string) {
	rivals := groups[1].stores[2:]
	head := []string{"", "at most", "weir", ""}
	for _, s := range rivals {
		head = append(head, s.name)
	}
	table(b, head...)
	for _, bar := range inEachMode(shareBars) {
		cells := r.judge(bar, &missed)
		for _, s := range rivals {
			at := bar.cells[1]
			at.store = s.name
			cells = append(cells, fmt.Sprintf("%.2f", r.ratio(at, bar.cells[1])))
		}
		row(b, cells...)
	}
	return missed
}

// writeTable writes a table of bars and returns the missed ones.
func (r *results) writeTable(b *bytes.Buffer, bars []bar) (missed []string) {
	table(b, "", "at most", "measured", "")
	for _, bar := range bars {
		row(b, r.judge(bar, &missed)...)
	}
	return missed
}

// judge returns the row of a bar, and adds the bar to missed if it is not met.
func (r *results) judge(b bar, missed *[]string) []string {
	measured := b.measured(r)
	met := within(measured, b.most)
	cells := []string{b.is, fmt.Sprintf("%.2f%s", b.most, b.unit),
		fmt.Sprintf("%.2f%s", measured, b.unit), bench.Verdict(met)}
	if !met {
		*missed = append(*missed, fmt.Sprintf("%s: %s, at most %s", cells[0], cells[2], cells[1]))
	}
	return cells
}

func (r *results) writeMillions(b *bytes.Buffer) {
	b.WriteString("\n## Millions of ids\n\n" +
		"A store grows from empty to five million ids of up to 14 bytes. The table shows the live heap\n" +
		"per id, the CPU time of a full garbage collection, and the latency of single decisions, each\n" +
		"in the best of five processes. weir uses the same memory for ids of up to 22 bytes.\n\n")
	table(b, "", "bytes per id", "GC, ms", "longest, ms", "over 1 ms", "p99.9, µs", "p50, ns")
	for _, g := range r.growths {
		row(b, g.Store, fmt.Sprintf("%.1f", g.Bytes), fmt.Sprintf("%.0f", g.GC.Seconds()*1e3),
			fmt.Sprintf("%.2f", g.Max.Seconds()*1e3),
			fmt.Sprint(g.Slow), fmt.Sprintf("%.1f", g.P999.Seconds()*1e6), fmt.Sprint(g.P50.Nanoseconds()))
	}
	fmt.Fprintf(b,
		"\nA loop that only read the clock, for as long as weir took, paused for up to %.2f\n"+
			"ms in the best of five runs.\n", units(r.stall, time.Millisecond))
	fmt.Fprintf(b,
		"\nA process with ten million ids and their buckets used at most %.2f GB of resident\n"+
			"memory.\n\n", r.peak/1e9)
	b.WriteString("The next table compares the computed size of the data structures with the " +
		"measured\n" +
		"one. The number of shards is the smallest power of two with at most 20,000 slots of 64 bytes " +
		"in\n" +
		"each. An index word takes 4 bytes; an index starts with 16 words and doubles when three " +
		"quarters\n" +
		"of them are used. The last chunk of 128 slots is half full on average, and each chunk takes 40\n" +
		"bytes in lists.\n\n")
	table(b, "ids", "shards", "ids per shard", "slot", "index", "last chunk", "lists", "bytes per id",
		"total, GB", "measured bytes per id")
	for _, n := range []int{grown, huge, 100 * million} {
		l := layoutOf(n)
		measured := ""
		if n == grown {
			measured = fmt.Sprintf("%.1f", r.growths[0].Bytes)
		}
		row(b, fmt.Sprintf("%d million", n/million), fmt.Sprint(l.shards),
			fmt.Sprintf("%.0f", l.perShard),
			fmt.Sprint(slotBytes),
			fmt.Sprintf("%.1f", l.words), fmt.Sprintf("%.1f", l.slack), fmt.Sprintf("%.1f", l.chunks),
			fmt.Sprintf("%.1f", l.perID()), fmt.Sprintf("%.2f", l.total()/1e9), measured)
	}
	fmt.Fprintf(b,
		"\nThe garbage collector scans one object per 128 ids and none of the ids. For 100\n"+
			"million ids it takes about 20 times as long as for 5 million: %.1f s of CPU.\n",
		20*r.growths[0].GC.Seconds())
}

// table writes the head of a table. All columns but the first hold numbers.
func table(b *bytes.Buffer, head ...string) {
	row(b, head...)
	b.WriteString("|---" + strings.Repeat("|--:", len(head)-1) + "|\n")
}

func row(b *bytes.Buffer, cells ...string) {
	b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

func count(allocations float64) string {
	if allocations < 0.005 {
		return "nothing"
	}
	return fmt.Sprintf("%.0f", allocations)
}
