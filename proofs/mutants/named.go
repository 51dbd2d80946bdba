package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// namedMutant is a fault that no operator makes, or that once survived: a text of a file is
// replaced, and a test must fail.
type namedMutant struct {
	fault     string // what is wrong then
	file      string // from the root
	text      string // occurs once in file
	with      string
	dir, test string // a package from the root, and its test that fails
}

var named = []namedMutant{
	{"a third place of one request is never released", "httplimit/in_flight.go",
		"\t\t\tall = append(all, place)\n", "\t\t\t_ = append(all, place)\n",
		"httplimit", "TestEveryPlaceOfARequestIsReleased"},
	{"Release ends at the first error", "httplimit/in_flight.go",
		"err = errors.Join(err, held.Release(ctx))",
		"if err = errors.Join(err, held.Release(ctx)); err != nil {\n\t\t\treturn err\n\t\t}",
		"httplimit", "TestEveryPlaceOfARequestIsReleased"},
	{"the renewal misses an item that is due sooner", "internal/core/renewal/renewal.go",
		"} else if it.place == 1 {", "} else if false {",
		"internal/core/renewal", "TestAnItemThatIsDueSoonerIsCalledFirst"},
	{"a renewal takes the whole lease", "internal/core/renewal/kept.go",
		"context.WithTimeout(context.Background(), k.renewAfter(3))",
		"context.WithTimeout(context.Background(), k.renewAfter(1))",
		"internal/core/renewal", "TestARenewalThatHangsLeavesTimeForAnother"},
	{"CountIf misses a client that left, without a Writer", "httplimit/count_if.go",
		"status == 0 || r.Context().Err() != nil || countIf(status)",
		"status == 0 || countIf(status)",
		"httplimit", "TestARequestWhoseClientLeftCounts"},
	{"CountIf misses a client that left before a status", "httplimit/count_if.go",
		"if w.lost || w.status == 0", "if w.status == 0",
		"httplimit", "TestARequestWhoseClientLeftCounts"},
	{"CountIf misses a client that left before anything was written", "httplimit/count_if.go",
		"if w.lost || w.status == 0 && w.clientGone() {", "if w.lost {",
		"httplimit", "TestARequestWhoseClientLeftCounts"},
	{"addresses of a policy's own Extractor count for MaxKeysPerClient", "httplimit/asks.go",
		"if a.exceedsKeys(r, s.Extractor, key) {", "if a.exceedsKeys(r, nil, key) {",
		"httplimit", "TestKeysOfEachExtractorCount"},
	{"equal keys of two Extractors count once for MaxKeysPerClient", "httplimit/asks.go",
		"\t\tkey = s.distinctKey()\n", "", "httplimit", "TestKeysOfEachExtractorCount"},
	{"an undecided limit binds", "httplimit/state.go",
		"\t\treturn other.undecided\n", "\t\treturn s.undecided\n",
		"httplimit", "TestAKeyThatNobodyDecidedOnDoesNotBind"},
	{"any text is the status line of a hijacked connection", "httplimit/hijack.go",
		`len(p) < line || string(p[:code-2]) != "HTTP/1." {`, "len(p) < line {",
		"httplimit", "TestStatusOfAHijackedConnection"},
	{"the status of a hijacked connection needs more than its line", "httplimit/hijack.go",
		"if len(p) < line ||", "if len(p) <= line ||", "httplimit", "TestStatusOfAHijackedConnection"},
	{"a hijacked connection has a status that was not written", "httplimit/hijack.go",
		"parseStatus(p[:n])", "parseStatus(p)", "httplimit",
		"TestTheFirstWriteOfAHijackedConnectionCounts"},
	{"the legacy fields of an outer guard hide a denial", "httplimit/state.go",
		"left <= s.remaining && !s.denied {", "left <= s.remaining {",
		"httplimit", "TestLegacyHeadersOfNestedGuards"},
	{"the legacy fields of an outer guard go although they bind as much", "httplimit/state.go",
		"left <= s.remaining &&", "left < s.remaining &&",
		"httplimit", "TestLegacyHeadersOfNestedGuards"},
	{"the legacy fields of an outer guard stay beside others", "httplimit/state.go",
		"\t\t\tdelete(f.header, name)\n", "\t\t\t_ = name\n",
		"httplimit", "TestLegacyHeadersOfNestedGuards"},
	{"Named drops FailOpen", "limit.go", "name: name, failOpen: m.failOpen}", "name: name}",
		".", "TestBuildersOfALimitKeepTheRest"},
	{"FailOpen drops the name", "limit.go", "name: m.name, failOpen: true}", "failOpen: true}",
		".", "TestBuildersOfALimitKeepTheRest"},
	{"a cost over a limit above 2^48-2 passes", "stores.go",
		"if cost > s.limit && uint64(p.Cost) == s.most {", "if false {",
		".", "TestKnownCallersGetTheVerdictsOfNewOnes"},
	{"AllowBytes of a long key decides after Close", "decider.go",
		"len(key) > maxID || d.l.closed.Load() {", "len(key) > maxID {",
		".", "TestNoLimitDecidesAfterClose"},
	{"a Wait is negative", "limit.go", "out.Wait = max(0, op.Left)", "out.Wait = op.Left",
		".", "TestNoOutcomeHasANegativeWait"},
	{"a Seed after its period counts, on slots", "internal/core/engine/slots.go",
		"if c.Now >= expires {", "if false {", ".", "TestSeedAfterItsPeriodCountsNothing"},
	{"a Seed after its period makes a bucket", "request.go",
		"if expires > s.l.clock.Read() {", "if true {",
		".", "TestSeedAfterItsPeriodCountsNothing"},
	{"a Seed after its period counts, on states", "internal/core/engine/states.go",
		"if h.Now < expires {", "if true {", ".", "TestSeedAfterItsPeriodCountsNothing"},
	{"an entry under construction is reclaimed", "internal/core/states/states.go",
		"beingMade := end == algorithm.Never && timeout == 0",
		"beingMade := end == algorithm.Never && false", "internal/core/states",
		"TestAnEntryUnderConstructionIsNotReclaimed"},
	{"the parts of a long ID keep their generation", "internal/core/slots/shard.go",
		"\t\tnext := s.State().next()\n", "\t\tnext := s.State()\n",
		"internal/core/slots", "TestRemovedPartsOfAnIDGetAnotherGeneration"},
	{"a part of a long ID uses its generations again", "internal/core/slots/shard.go",
		"\t\tsh.free(n, next)\n", "\t\tsh.free(n, 0)\n",
		"internal/core/slots", "TestRemovedPartsOfAnIDGetAnotherGeneration"},
	{"a renewal ends at the first error", "internal/core/renewal/kept.go",
		"return k.renewAfter(12)", "return 0",
		"internal/core/renewal", "TestARenewalFollowsAnErrorSoon"},
	{"a Reserve of two on one store is a Run of both", "limits/reserve.go",
		"m.Op.Keep, m.Op.Full, ops[i] = true,", "m.Op.Keep, m.Op.Full, ops[i] = false,",
		"limits", "TestReserveOfTwoOnOneStore"},
	{"CommitEach takes more costs than there are asks", "hold.go",
		"if len(actual) != len(v.ops) {", "if len(actual) < len(v.ops) {",
		"limits", "TestCommitEachOfMoreOrFewerCosts"},
	{"an All of two that cannot give back is no mistake", "limits/decide.go",
		"case m.turn == last && first >= 0:", "case m.turn == last && first > 0:",
		"limits", "TestAllOfTwoThatCannotGiveBack"},
	{"metadata is nested deeper than its bound", "rules/metadata.go",
		"if depth > maxDepth {", "if depth > 10*maxDepth {", "rules", "TestDepthIsBounded"},
}

// mutant returns the mutant of the tree at root.
func (n namedMutant) mutant(root string) (m mutant, err error) {
	src, err := os.ReadFile(filepath.Join(root, n.file))
	if err != nil {
		return m, err
	}
	if at := strings.Count(string(src), n.text); at != 1 {
		return m, fmt.Errorf("%s has this text %d times, and must once: the code has changed, look at "+
			"it again:\n%s", n.file, at, n.text)
	}
	from := strings.Index(string(src), n.text)
	return mutant{
		pkg: &pkg{root: root, sources: map[string][]byte{n.file: src}}, id: n.file, operator: "named",
		file: n.file, line: 1 + strings.Count(string(src[:from]), "\n"), from: from,
		to: from + len(n.text), with: n.with, change: n.fault,
		suites: []suite{suiteOf(n.dir, n.test)},
	}, nil
}

// runNamed tests the mutants of the list. None may survive.
func runNamed(cfg config) error {
	var chosen []mutant
	tests := map[string]string{} // by directory
	for _, n := range named {
		if !strings.HasPrefix(n.file, cfg.id) {
			continue
		}
		m, err := n.mutant(cfg.root)
		if err != nil {
			return err
		}
		chosen, tests[n.dir] = append(chosen, m), tests[n.dir]+"|"+n.test
	}
	t := newTester(cfg)
	t.suites = nil
	for dir, all := range tests {
		t.suites = append(t.suites, suiteOf(dir, all[1:]))
	}
	if err := t.unmutated(); err != nil {
		return err
	}
	return report(t.run(chosen, nil), nil, 0)
}

// suiteOf returns tests of a package, by a pattern of their names.
func suiteOf(dir, names string) suite {
	return suite{".", []string{"-run", "^(" + names + ")$", "./" + dir}}
}
