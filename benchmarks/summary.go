package main

import (
	"bytes"
	"fmt"
	"time"
)

// writeSummary writes what most readers come for: one table of the common limiters.
func (r *results) writeSummary(b *bytes.Buffer) {
	g := &groups[0]
	at := func(w *workload, s store) cell { return cell{g.name, w.name, oneCore.name, s.name} }
	weir := g.stores[0]
	fmt.Fprintf(b, "A decision on a known caller takes weir %.0f ns and allocates %s.\n"+
		"The table has the time of one decision on one core, and weir's share of each rival's in brackets:\n\n",
		r.ns(at(&hot, weir)), count(r.allocs(at(&hot, weir))))
	table(b, "", "one busy caller, ns", "10,000 callers, ns", "a million callers, ns", "bytes a caller",
		"allocations")
	for _, s := range g.stores {
		cells := []string{s.name}
		for _, w := range []*workload{&hot, &tenThousand, &zipf} {
			cells = append(cells, r.cell(at(w, s)))
		}
		row(b, append(cells, r.bytesOf(s.name), count(r.allocs(at(&hot, s))))...)
	}
	w := r.growths[0]
	fmt.Fprintf(b, "\nWith five million callers it takes %.0f bytes a caller, a full garbage collection %.0f ms of CPU (go-limiter: %.0f),\n"+
		"and the longest decision on the way there %.1f ms.\n",
		w.Bytes, units(w.GC, time.Millisecond), units(r.growths[1].GC, time.Millisecond),
		units(w.Max, time.Millisecond))
	b.WriteString("\nThe stores do not promise the same; [what was measured](#how-it-was-measured) says how they differ. Below\n" +
		"are the [bars](#bars) that weir is held to, with those it misses, then every figure.\n")
}

// bytesOf returns the memory of one id in a store.
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
