package main

import (
	"bytes"
	"fmt"
	"time"
)

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

func count(allocations float64) string {
	if allocations < 0.005 {
		return "nothing"
	}
	return fmt.Sprintf("%.0f", allocations)
}
