// Command functions counts the functions of weir that one decision passes, those of Save, Load, a
// sweep, a decision of two limits, a request of HTTP with one and decisions of a Fallback, the
// lines of code of the core, and the arrows between the files of the root package that run back. In
// the whole repository it counts the methods that stand in another file than their type, the
// effects in initializers of if and switch statements, and the types that reach many names by
// embedding.
//
//	go run ./proofs/functions [-v]
//
// It builds itself with coverage counters in the packages weir, weir/internal, weir/limits,
// weir/httplimit and weir/fallback, makes single decisions, and lists the functions with a counter
// that is not 0. They are those of the source, with those that the compiler inlines, and without
// those of one line.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

const module = "github.com/weirgo/weir"

func main() {
	verbose := flag.Bool("v", false, "print the names of the functions")
	dir := flag.String("decide", "",
		"make the decisions, and write their counters to this `directory`")
	flag.Parse()
	run := func() error { return report(*verbose) }
	if *dir != "" {
		run = func() error { return decideAll(*dir) }
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "functions:", err)
		os.Exit(1)
	}
}

func report(verbose bool) error {
	root, err := rootDir()
	if err != nil {
		return err
	}
	passed, err := measure(root)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprint(w, "functions")
	for _, k := range kinds {
		fmt.Fprint(w, "\t"+k.name)
	}
	for s := range strategies {
		fmt.Fprint(w, "\n"+strategies[s].name)
		for _, names := range passed[s] {
			fmt.Fprintf(w, "\t%d in %d files", len(names), filesOf(names))
		}
	}
	for i, names := range passed[len(strategies)] {
		fmt.Fprintf(w, "\n%s\t%d in %d files", trips[i].name, len(names), filesOf(names))
	}
	fmt.Fprint(w, "\n\nlines of code")
	for _, dir := range core {
		n, err := lines(filepath.Join(root, dir))
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "\n%s\t%d", filepath.Join("weir", dir), n)
	}
	arrows, err := arrowsOf(root, module)
	if err != nil {
		return err
	}
	order, back := bestOrder(arrows)
	fmt.Fprintf(w, "\n\narrows of weir\t%d\nthat run back\t%d\n", len(arrows), len(back))
	files, err := goFiles(root)
	if err != nil {
		return err
	}
	packages, hidden := homesOf(files), effectsOf(files)
	writeHabits(w, packages, hidden, widest(reachesOf(files), mostNames))
	w.Flush()
	if verbose {
		list(passed)
		listHabits(packages, hidden)
		fmt.Printf("\nthe files, each above those it uses:\n%s\n", strings.Join(order, "\n"))
		for _, a := range back {
			fmt.Printf("but %s uses %s: %d times\n", a.from, a.to, arrows[a])
		}
	}
	return nil
}

// filesOf returns how many files the functions are in.
func filesOf(names []string) int {
	files := map[string]bool{}
	for _, name := range names {
		file, _, _ := strings.Cut(name, ":")
		files[file] = true
	}
	return len(files)
}

func list(passed [][][]string) {
	for i, names := range passed[len(strategies)] {
		fmt.Printf("\n%s:\n%s\n", trips[i].name, strings.Join(names, "\n"))
	}
	for s := range strategies {
		for k, names := range passed[s] {
			fmt.Printf("\n%s, %s:\n%s\n", strategies[s].name, kinds[k].name, strings.Join(names, "\n"))
		}
	}
}

// rootDir returns the directory of the root module.
func rootDir() (string, error) {
	dir, err := output("go", "list", "-m", "-f", "{{.Dir}}", module)
	return strings.TrimSpace(dir), err
}

// counters returns the directory for the counters of a decision.
func counters(dir string, strategy, kind, turn int) string {
	return filepath.Join(dir, strconv.Itoa(strategy), strconv.Itoa(kind), strconv.Itoa(turn))
}

// measure returns the functions that a decision passes, by strategy and kind, those of the median
// turn, and after them those of the trips.
func measure(root string) ([][][]string, error) {
	dir, err := os.MkdirTemp("", "functions")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	// No counters are written unless package main has some too.
	const self = module + "/proofs/functions"
	program := filepath.Join(dir, "functions")
	counted := []string{module, module + "/internal/...", module + "/limits", module + "/httplimit",
		module + "/fallback", self}
	if _, err := output("go", "build", "-cover", "-covermode=atomic",
		"-coverpkg="+strings.Join(counted, ","), "-o", program, self); err != nil {
		return nil, err
	}
	// At its end the program writes to GOCOVERDIR what it has counted since the last decision.
	if _, err := output("env", "GOCOVERDIR="+dir, program, "-decide", dir); err != nil {
		return nil, err
	}
	covdata, err := output("go", "tool", "-n", "covdata")
	if err != nil {
		return nil, err
	}
	r := reader{covdata: strings.TrimSpace(covdata), root: root, files: map[string][]function{}}
	passed := make([][][]string, len(strategies)+1)
	for i := range trips {
		names, err := r.passed(counters(dir, len(strategies), i, 0))
		if err != nil {
			return nil, err
		}
		passed[len(strategies)] = append(passed[len(strategies)], names)
	}
	for s := range strategies {
		for k := range kinds {
			lists := make([][]string, turns)
			for turn := range lists {
				lists[turn], err = r.passed(counters(dir, s, k, turn))
				if err != nil {
					return nil, err
				}
			}
			slices.SortFunc(lists, func(a, b []string) int { return len(a) - len(b) })
			passed[s] = append(passed[s], lists[len(lists)/2])
		}
	}
	return passed, nil
}

func output(name string, args ...string) (string, error) {
	cmd := exec.CommandContext(context.Background(), name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), err)
	}
	return string(out), err
}
