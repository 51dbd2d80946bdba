package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// writeHabits writes the figures of the whole repository.
func writeHabits(w io.Writer, packages map[string]*homes, e *effects, wide map[string]int) {
	methods, away := 0, 0
	for _, p := range packages {
		methods += p.methods
		away += len(p.away)
	}
	fmt.Fprintf(w, "\nmethods\t%d\naway from their types\t%d\n", methods, away)
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		if p := packages[dir]; len(p.away) > 0 {
			fmt.Fprintf(w, "%s\t%d of %d\n", dir, len(p.away), p.methods)
		}
	}
	fmt.Fprintf(w, "\nassignments in initializers\t%d\nnot in the condition\t%d\ncalls in initializers\t%d\n",
		len(e.assigned), len(e.unseen), len(e.called))
	fmt.Fprintf(w, "of %d lines\t%.1f per 10,000\n", e.lines, e.perMyriad())
	fmt.Fprintf(w, "\ntypes that reach more than %d names by embedding\t%d\n", mostNames, len(wide))
	for _, of := range slices.Sorted(maps.Keys(wide)) {
		fmt.Fprintf(w, "%s\t%d\n", of, wide[of])
	}
}

// listHabits prints each method and each effect that is counted.
func listHabits(packages map[string]*homes, e *effects) {
	fmt.Println("\nmethods away from their types:")
	for _, dir := range slices.Sorted(maps.Keys(packages)) {
		for _, m := range packages[dir].away {
			fmt.Println(m)
		}
	}
	fmt.Printf("\neffects in initializers:\n%s\n", strings.Join(slices.Concat(e.assigned, e.called), "\n"))
	fmt.Printf("\nnot in the condition:\n%s\n", strings.Join(e.unseen, "\n"))
}
