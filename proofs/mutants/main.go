// Command mutants measures what the tests of the core notice. It makes mutants of the root package
// and the layers below it, each with one small fault, and runs the tests against every one through
// go test -overlay, so that nothing is written into the tree. A mutant that no test fails has
// survived: either a test is missing, or the mutant is equivalent to the original. Those that are
// equivalent are listed, with the reason, in equivalents.txt.
//
//	go run ./proofs/mutants [-n 300] [-seed 1] [-only table.go] [-id table.go:shard.insert] [-list]
//	go run ./proofs/mutants -package internal/core/arith -n 0
//	go run ./proofs/mutants -named [-id limit.go]
//
// The mutants of another package are tested by its own tests alone, and those of named.go, of any
// package, each by the one test that is to fail.
//
// It fails if the tests fail without a mutant, if an entry of a list matches no mutant, and if
// more than 5 % of the mutants survive without being listed; of a package by itself, or of
// named.go, any.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// config holds the flags.
type config struct {
	root string // the directory of the root package
	pkg  string // the package to mutate, from root; "." for core
	n    int    // how many mutants to choose; 0 for all
	// how many of them to leave out, from the first: to go on where a run was ended
	skip    int
	seed    uint64        // of the selection
	only    string        // a file
	id      string        // the beginning of an identifier
	list    bool          // print the mutants, and test none
	all     bool          // test the listed equivalents too
	named   bool          // test those of named.go
	workers int           // tests at one time
	timeout time.Duration // of one package's tests
}

func main() {
	var cfg config
	flag.StringVar(&cfg.root, "root", ".", "`directory` of the root package")
	flag.StringVar(&cfg.pkg, "package", ".",
		"`directory` of the package to mutate, from the root; . for the core")
	flag.IntVar(&cfg.n, "n", 300, "number of mutants to choose; 0 for all")
	flag.IntVar(&cfg.skip, "skip", 0,
		"number of those to leave out, to go on with a run that was ended")
	flag.Uint64Var(&cfg.seed, "seed", 1, "seed of their selection")
	flag.StringVar(&cfg.only, "only", "", "mutate this `file` alone")
	flag.StringVar(&cfg.id, "id", "", "test the mutants whose identifier begins with this")
	flag.BoolVar(&cfg.list, "list", false, "list the mutants and test none")
	flag.BoolVar(&cfg.all, "all", false, "test the listed equivalents too")
	flag.BoolVar(&cfg.named, "named", false, "test the mutants of named.go")
	flag.IntVar(&cfg.workers, "workers", 2, "mutants tested at one time")
	flag.DurationVar(&cfg.timeout, "timeout", time.Minute,
		"time limit of one package's tests; a mutant that takes longer is killed")
	flag.Parse()
	if err := run(cfg); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run(cfg config) error {
	var err error
	cfg.root, err = filepath.Abs(cfg.root)
	if err != nil {
		return err
	}
	if cfg.named {
		return runNamed(cfg)
	}
	cfg.pkg = path.Clean(cfg.pkg)
	dirs := []string{cfg.pkg}
	if cfg.pkg == "." {
		dirs = core
	}
	var mutants []mutant
	for _, dir := range dirs {
		p, err := load(cfg.root, dir, cfg.pkg != ".")
		if err != nil {
			return err
		}
		mutants = append(mutants, p.mutants...)
	}
	list := filepath.Join(cfg.root, "proofs", "mutants", "equivalents.txt")
	equivalents, err := readEquivalents(list, dirs, mutants)
	if err != nil {
		return err
	}
	chosen, uncompiled, err := choose(mutants, cfg)
	if err != nil {
		return err
	}
	chosen = chosen[min(cfg.skip, len(chosen)):]
	fmt.Printf("%d mutants of %d; %d more did not compile\n", len(chosen), len(mutants), uncompiled)
	if cfg.list {
		for _, m := range chosen {
			fmt.Println(m)
		}
		return nil
	}
	tests := newTester(cfg)
	if err := tests.unmutated(); err != nil {
		return err
	}
	allowed := 0
	if cfg.pkg == "." {
		allowed = 5
	}
	return report(tests.run(chosen, equivalents), equivalents, allowed)
}

// choose returns the mutants to test, and how many it left out because they do not compile. It
// takes as many of each operator, in an order that depends on the seed and the identifiers alone: a
// change of the code leaves the rest of the selection as it is.
func choose(mutants []mutant, cfg config) (chosen []mutant, uncompiled int, err error) {
	for _, m := range shuffled(mutants, cfg.seed) {
		if cfg.only != "" && m.file != cfg.only || !strings.HasPrefix(m.id, cfg.id) {
			continue
		}
		if cfg.n > 0 && len(chosen) == cfg.n {
			break
		}
		switch err := m.pkg.check(m); {
		case errors.Is(err, errNotCompiled):
			uncompiled++
		case err != nil:
			return nil, 0, err
		default:
			chosen = append(chosen, m)
		}
	}
	return chosen, uncompiled, nil
}

func shuffled(mutants []mutant, seed uint64) []mutant {
	digest := func(m mutant) uint64 {
		h := fnv.New64a()
		fmt.Fprint(h, seed, m.id)
		return h.Sum64()
	}
	list := slices.SortedFunc(slices.Values(mutants), func(a, b mutant) int {
		return cmp.Compare(digest(a), digest(b))
	})
	rank := map[string]int{} // by identifier: the place among those of the operator
	count := map[string]int{}
	for _, m := range list {
		rank[m.id] = count[m.operator]
		count[m.operator]++
	}
	slices.SortStableFunc(list, func(a, b mutant) int { return cmp.Compare(rank[a.id], rank[b.id]) })
	return list
}

// report prints the results. It fails if more than a percentage of the mutants survived.
func report(results []result, equivalents map[string]string, allowed int) error {
	count := map[outcome]int{}
	for _, r := range results {
		count[r.outcome]++
	}
	total := len(results) - count[notCompiled]
	fmt.Printf("\n%d mutants: %d killed, %d of them by the time limit; %d survived; %d equivalent\n",
		total,
		count[killed]+count[timedOut], count[timedOut], count[survived], count[equivalent])
	for _, r := range results {
		if _, listed := equivalents[r.mutant.id]; r.outcome == survived || listed {
			fmt.Printf("%s: %s %s\n", r.outcome, r.mutant, equivalents[r.mutant.id])
		}
	}
	if 100*count[survived] > allowed*total {
		return fmt.Errorf("%d of %d mutants survive unexplained, at most %d %%", count[survived], total,
			allowed)
	}
	return nil
}
