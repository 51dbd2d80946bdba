package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/weirgo/weir/proofs/benchmarks/internal/bench"
)

//go:embed notes.md
var notes string

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
