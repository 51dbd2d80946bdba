package main

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const source = `package p

func (s *set) add(n int) bool {
	defer s.unlock()
	if n > 1 && !s.full() {
		s.count.Store(0)
		s.least.Store(1)
		s.n += n - 1
		return true
	}
	s.n = arith.Add(s.n, n%3)
	return s.word.CompareAndSwap(min(n, 3), n)
}
`

func mutantsOf(t *testing.T, src string) []mutant {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return generate(fset, "p.go", []byte(src), file, true)
}

func TestEveryOperatorApplies(t *testing.T) {
	var changes []string
	for _, m := range mutantsOf(t, source) {
		if _, err := parser.ParseFile(token.NewFileSet(), "p.go", m.apply([]byte(source)),
			0); err != nil {
			t.Errorf("%s: %v", m, err)
		}
		changes = append(changes, m.operator+": "+m.change)
	}
	for _, want := range []string{
		"defer: defer s.unlock() => ",
		"negation: if n > 1 && !s.full() { => if !(n > 1 && !s.full()) {",
		"negation: if n > 1 && !s.full() { => if n > 1 && s.full() {",
		"logic: if n > 1 && !s.full() { => if n > 1 || !s.full() {",
		"comparison: if n > 1 && !s.full() { => if n >= 1 && !s.full() {",
		"constant: if n > 1 && !s.full() { => if n > 2 && !s.full() {",
		"constant: if n > 1 && !s.full() { => if n > 0 && !s.full() {",
		"dropped: s.count.Store(0) => ",
		"arithmetic: s.n += n - 1 => s.n -= n - 1",
		"arithmetic: s.n += n - 1 => s.n += n + 1",
		"order: s.count.Store(0) s.least.Store(1) => s.least.Store(1) s.count.Store(0)",
		"exit: return true => ",
		"swap: return s.word.CompareAndSwap(min(n, 3), n) => return s.word.CompareAndSwap(n, min(n, 3))",
		"minmax: return s.word.CompareAndSwap(min(n, 3), n) => return s.word.CompareAndSwap(max(n, 3), n)",
		"bits: s.n = arith.Add(s.n, n%3) => s.n = arith.Add(s.n, n/3)",
		"saturating: s.n = arith.Add(s.n, n%3) => s.n = arith.Sub(s.n, n%3)",
		"offset: s.n = arith.Add(s.n, n%3) => s.n = (arith.Add(s.n, n%3)) + 1",
		"offset: s.n += n - 1 => s.n += (n - 1) + 1",
	} {
		if !slices.Contains(changes, want) {
			t.Errorf("no mutant %q in:\n%s", want, strings.Join(changes, "\n"))
		}
	}
}

func TestIdentifiersAreUniqueAndOutliveOtherChanges(t *testing.T) {
	moved := strings.Replace(source, "\n\n", "\n\nfunc first() int { return 1 }\n\n", 1)
	later := map[string]bool{}
	for _, m := range mutantsOf(t, moved) {
		if later[m.id] {
			t.Errorf("%s twice", m.id)
		}
		later[m.id] = true
	}
	for _, m := range mutantsOf(t, source) {
		if !later[m.id] {
			t.Errorf("%s is no longer there", m)
		}
	}
}

func TestAnotherPackageIsTestedByItsOwnTests(t *testing.T) {
	p, err := load("../..", "internal/core/arith", true)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(p.mutants, func(m mutant) bool { return p.check(m) == nil }) {
		t.Errorf("none of %d mutants compiles", len(p.mutants))
	}
	for _, m := range p.mutants {
		if !strings.HasPrefix(m.id, "internal/core/arith/") {
			t.Errorf("%s is not named after its package", m)
		}
	}
	suites := newTester(config{pkg: "internal/core/arith"}).suites
	if len(suites) != 1 || suites[0].dir != "." ||
		!slices.Equal(suites[0].args, []string{"./internal/core/arith"}) {
		t.Errorf("suites %v", suites)
	}
}

func TestListOfEquivalentsMustBeUpToDate(t *testing.T) {
	mutants := mutantsOf(t, source)
	for _, c := range []struct{ list, want string }{
		{"# nothing\n\n" + mutants[0].id + " it is the same", ""},
		{mutants[0].id, "no reason"},
		{mutants[0].id + " a\n" + mutants[0].id + " b", "twice"},
		{"p.go:set.add:negation:0 gone", "no mutant"},
		{"internal/p/p.go:set.add:negation:0 of another package", ""},
	} {
		file := filepath.Join(t.TempDir(), "list")
		if err := os.WriteFile(file, []byte(c.list), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := readEquivalents(file, []string{"."}, mutants)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.list, err, c.want)
		}
	}
}

// Each named mutant changes a text that is there once, and its test exists.
func TestNamedMutantsAreCurrent(t *testing.T) {
	for _, n := range named {
		m, err := n.mutant("../..")
		if err != nil {
			t.Errorf("%s: %v", n.fault, err)
			continue
		}
		if mutated := m.apply(m.pkg.sources[n.file]); n.text == n.with ||
			!strings.HasSuffix(string(mutated), string(m.pkg.sources[n.file][m.to:])) {
			t.Errorf("%s: nothing is changed", n.fault)
		}
		if !hasTest(t, filepath.Join("../..", n.dir), n.test) {
			t.Errorf("%s: %s has no %s", n.fault, n.dir, n.test)
		}
	}
}

// hasTest reports whether a package has a test.
func hasTest(t *testing.T, dir, test string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(files, func(file string) bool {
		src, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(src), "\nfunc "+test+"(t *testing.T)")
	})
}
