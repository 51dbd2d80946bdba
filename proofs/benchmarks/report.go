package main

import (
	"bytes"
	_ "embed"
	"fmt"
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

// report returns the text of BENCHMARKS.md: the figures and verdicts of this run, and the texts of
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

func (f footprint) row(b *bytes.Buffer) {
	row(b, f.Store, fmt.Sprintf("%.0f", f.Bytes), fmt.Sprintf("%.0f", units(f.GC, time.Millisecond)))
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

func (l latencies) row(b *bytes.Buffer, name string) {
	row(b, name, fmt.Sprint(l.N), fmt.Sprint(l.P50.Nanoseconds()), fmt.Sprint(l.P99.Nanoseconds()),
		fmt.Sprint(l.P999.Nanoseconds()), fmt.Sprintf("%.0f", units(l.Max, time.Microsecond)))
}

// table writes the head of a table. All columns but the first hold numbers.
func table(b *bytes.Buffer, head ...string) {
	row(b, head...)
	b.WriteString("|---" + strings.Repeat("|--:", len(head)-1) + "|\n")
}

func row(b *bytes.Buffer, cells ...string) {
	b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
}

// spread returns the difference between the slowest and the fastest turn of a figure, divided by
// its median; it is the median of all figures.
func (f figures) spread() float64 {
	var spreads []float64
	for c := range f {
		least, most := f.extremes(c)
		spreads = append(spreads, (most-least)/f.ns(c))
	}
	return bench.Median(spreads)
}
