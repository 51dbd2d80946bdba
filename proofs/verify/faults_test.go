package verify

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/testkit/slow"
)

// edit replaces a text that occurs once in a file of the core.
type edit struct{ file, text, with string }

// fault is an error in the protocol between lock-free hits and the recycling of slots.
type fault struct {
	name   string
	widen  []edit // make the critical moment longer and change nothing else
	breaks []edit
	test   string // the test that fails
	says   string // part of its output
	panics bool   // it may break the table, so that a search panics or never ends
}

func importRuntime(file string) edit {
	return edit{file, "import (", "import \"runtime\"\nimport ("}
}

// beforeSwap lets other goroutines run between the load of a slot's state and the compare-and-swap
// that counts a hit.
var beforeSwap = edit{"checkrate.go",
	"\t\tif l.buckets.Admit(s, state, state+slots.Word(cost), 1-cost) {",
	"\t\truntime.Gosched()\n\t\tif l.buckets.Admit(s, state, state+slots.Word(cost), 1-cost) {"}

var faults = []fault{
	{
		name:  "release does not raise the generation",
		widen: []edit{importRuntime("checkrate.go"), beforeSwap},
		breaks: []edit{
			{"internal/core/slots/word.go", "{ return w>>CountBits<<CountBits + 1<<CountBits }",
				"{ return w >> CountBits << CountBits }"},
			// Then only the state shows whether the slot is in use.
			{"checkrate.go", "state.Epoch() != epoch {", "state.Epoch() != epoch || !state.Live() {"},
		},
		test: "TestRecycledSlotsCountExactly",
		says: "windows in which not exactly",
	},
	{
		name: "insertion does not compare the reading of the clock with the horizon",
		breaks: []edit{{"internal/core/slots/table.go",
			"case at.Now < sh.Horizon && at.Horizon != sh.Horizon:",
			"case false:"}},
		test: "TestStalledGoroutineRevivesNoWindow",
		says: "Not equal",
	},
	{
		name: "the state is published before the key",
		widen: []edit{
			importRuntime("internal/core/slots/index.go"),
			{"internal/core/slots/index.go", "\t\tn := int(word^tag) - 2\n",
				"\t\tfor range 8 {\n\t\t\truntime.Gosched()\n\t\t}\n\t\tn := int(word^tag) - 2\n"},
			{"internal/core/slots/index.go", "\t\tn := int(word^tag) - 2 //",
				"\t\tfor range 8 {\n\t\t\truntime.Gosched()\n\t\t}\n\t\tn := int(word^tag) - 2 //"},
			importRuntime("internal/core/slots/locked.go"),
			{"internal/core/slots/locked.go", "\ts.write(lowWord, c.key.low)\n",
				"\tfor range 4 {\n\t\truntime.Gosched()\n\t}\n\ts.write(lowWord, c.key.low)\n"},
			// With a limit of 1, a late hit of the previous key uses up the new one.
			{"proofs/verify/recycling_test.go", "const limit = 15\n\tcalls :=", "const limit = 1\n\tcalls :="},
		},
		breaks: []edit{
			{"internal/core/slots/locked.go", "\tif len(c.ID) > ids.Inline {\n\t\tk.C = ",
				"\tatomic.AddUint64(&s[stateWord], 1)\n\tif len(c.ID) > ids.Inline {\n\t\tk.C = "},
			{"internal/core/slots/locked.go", "\tatomic.StoreUint64(&s[stateWord], epoch|uint64(first.N+1))\n", ""},
		},
		test: "TestRecycledSlotsCountExactly",
		says: "windows in which not exactly",
	},
	{
		name: "denied hits are tallied without the generation",
		widen: []edit{
			importRuntime("checkrate.go"),
			{"checkrate.go", "\t\t\tif !s.Deny(state) {",
				"\t\t\truntime.Gosched()\n\t\t\tif !s.Deny(state) {"},
			// Short IDs only: the fault would also change the parts of long ones, and their list would be
			// endless.
			{"proofs/verify/recycling_test.go", "{3, 1000, 22, 23, 56, 57, 100, 500}", "{3, 4, 5, 6, 7, 8, 9, 10}"},
		},
		breaks: []edit{{"internal/core/slots/slot.go",
			"if Word(d).Epoch() != state.Epoch() {\n\t\t\treturn false",
			"if false {\n\t\t\treturn false"}},
		test: "TestRecycledSlotsCountExactly",
		says: "Not equal",
	},
}

// beforeRoll lets other goroutines run between the load of a slot's state and the compare-and-swap
// of a decision, and between the words that a roll stores.
var beforeRoll = []edit{
	importRuntime("internal/core/engine/slots.go"),
	{"internal/core/engine/slots.go", "\t\thave.N = next.N\n", "\t\truntime.Gosched()\n\t\thave.N = next.N\n"},
	importRuntime("internal/core/slots/locked.go"),
	{"internal/core/slots/locked.go", "\tatomic.StoreUint64(&s[stillWord1], uint64(next.Still1))\n",
		"\truntime.Gosched()\n\tatomic.StoreUint64(&s[stillWord1], uint64(next.Still1))\n" +
			"\truntime.Gosched()\n"},
}

func init() {
	faults = append(faults,
		fault{
			name:  "an epoch does not change the word that hits expect",
			widen: beforeRoll,
			breaks: []edit{
				{"internal/core/slots/locked.go", "\ts, then := c.Slot, state.next()\n\tif !s.kill(state) {",
					"\ts, then := c.Slot, state\n\tif !s.Swap(state, state) {"},
			},
			test: "TestRollingEpochsCountExactly/Counter",
			says: "Error:",
		},
		fault{
			name:  "a roll does not hold the mutex",
			widen: beforeRoll,
			breaks: []edit{{"internal/core/engine/slots.go",
				"\t\t\t\treturn v, now, nil\n\t\t\t}\n",
				"\t\t\t\treturn v, now, nil\n\t\t\t}\n" +
					"\t\t\tk, state := s.Table.Pack(id), slot.State()\n" +
					"\t\t\tc := slots.Locked{Slot: slot, State: state, ID: id,\n" +
					"\t\t\t\tHave: slot.Content(state), Shard: &s.Table.Shards()[s.Table.ShardNumber(k.Hash)]}\n" +
					"\t\t\tv, next := s.Algorithm.Decide(c.Have, p, now)\n" +
					"\t\t\tdone := false\n" +
					"\t\t\tif v.Allowed && state.Live() {\n\t\t\t\tdone, _ = c.Replace(next)\n\t\t\t}\n" +
					"\t\t\tif done {\n" +
					"\t\t\t\ts.Table.Allowed.Add(s.Table.Allowed.One(), state.Count()-next.N+1)\n" +
					"\t\t\t\treturn v, now, nil\n" +
					"\t\t\t}\n"}},
			test:   "TestRollingEpochsCountExactly/Counter",
			says:   "Error:",
			panics: true,
		},
		fault{
			name:  "the still words move under a hit",
			widen: beforeRoll,
			breaks: []edit{{"internal/core/slots/locked.go", "\tif !s.kill(state) {\n\t\treturn false\n\t}\n\tif then.Epoch()",
				"\tatomic.StoreUint64(&s[stillWord1], uint64(next.Still1))\n" +
					"\tatomic.StoreUint64(&s[stillWord2], uint64(next.Still2))\n\truntime.Gosched()\n" +
					"\tif !s.kill(state) {\n\t\treturn false\n\t}\n\tif then.Epoch()"}},
			test: "TestRollingEpochsCountExactly/Counter",
			says: "Error:",
		},
	)
}

func init() {
	faults = append(faults, fault{
		name: "a tally is stored",
		widen: []edit{importRuntime("internal/core/tally/tally.go"),
			{"internal/core/tally/tally.go", "\tif one == striped ||", "\truntime.Gosched()\n\tif one == striped ||"}},
		breaks: []edit{{"internal/core/tally/tally.go", "!t.one.CompareAndSwap(one, one+n)",
			"t.one.Swap(one+n) == -1"}},
		test: "TestRollingEpochsCountExactly/SlidingWindow",
		says: "Not equal",
	})
	faults = append(faults, fault{
		name: "a cost is taken off after its hit",
		widen: []edit{importRuntime("internal/core/slots/table.go"),
			{"internal/core/slots/table.go", "\tsum.Add(n)\n\tif", "\truntime.Gosched()\n\tsum.Add(n)\n\tif"},
			{"internal/core/slots/table.go", "\t\treturn true\n\t}\n\tsum.Add(-n)\n",
				"\t\truntime.Gosched()\n\t\treturn true\n\t}\n\tsum.Add(-n)\n"}},
		breaks: []edit{{"internal/core/slots/table.go", "\tsum.Add(n)\n\tif", "\tif"},
			{"internal/core/slots/table.go", "\t\treturn true\n\t}\n\tsum.Add(-n)\n",
				"\t\tsum.Add(n)\n\t\treturn true\n\t}\n"}},
		test: "TestStatsLeaveOutTheCostOfHitsUnderWay",
		says: "Error:",
	})
	const test, says = "TestPlacesCountExactly", "Error:"
	faults = append(faults,
		fault{
			name: "a sweep releases a slot with places",
			breaks: []edit{
				{"internal/core/engine/places.go", "if c.N&(sharedBit|heldMask) == 0 {", "if c.N&sharedBit == 0 {"},
				// A place is given back only to a slot that has one, so that the table stays whole.
				{"internal/core/engine/places.go", "state := p.Slot.Add(p.back); state",
					"state := p.Slot.State(); heldIn(state) >= -int64(p.back) &&\n" +
						"\t\tp.Slot.Swap(state, state.With(state.Count()+int64(p.back))) && state"},
			},
			test: test, says: says,
		},
		fault{
			name: "a place is given back by a store",
			widen: []edit{
				importRuntime("internal/core/engine/places.go"),
				{"internal/core/engine/places.go", "\tif state := p.Slot.Add(", "\truntime.Gosched()\n\tif state := p.Slot.Add("},
			},
			breaks: []edit{{"internal/core/engine/places.go", "p.Slot.Add(p.back); state",
				"p.Slot.State() + slots.Word(p.back); func() bool {\n\t\truntime.Gosched()\n" +
					"\t\tp.Slot[0] = uint64(state)\n\t\treturn true\n\t}() && state"}},
			panics: true,
			test:   test, says: says,
		},
		fault{
			name: "leases do not count for places",
			breaks: []edit{{"internal/core/engine/places.go", "state.Epoch() == epoch && state&sharedBit == 0; {",
				"state.Epoch() == epoch; {"}},
			test: test, says: says,
		},
	)
}

// protocolTests are the files of the tests that the faults fail, with all that they need: a program
// of these alone is compiled and linked in a third of the time that one of the package takes.
var protocolTests = []string{
	"limiter_test.go", "places_test.go", "recycling_test.go", "rolling_test.go", "stalled_test.go", "stats_test.go",
}

// Negative controls: with a broken rule of the protocol, the tests that prove it must fail.
func TestFaultsOfTheProtocolAreRejected(t *testing.T) {
	slow.Test(t)
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			timeout := 5 * time.Minute
			if f.panics {
				timeout = 20 * time.Second // its search may never end
			}
			out := testCore(t, f.test, slices.Concat(f.widen, f.breaks), 50, timeout)
			if f.panics && strings.Contains(out, "panic: ") { // or a timeout
				return
			}
			require.True(t, strings.Contains(out, "--- FAIL: "+f.test), "the fault was not detected: %s",
				head(out))
			assert.True(t, strings.Contains(out, f.says), "%s", head(out))
		})
	}
}

// They must pass if all critical moments are made longer and nothing else changes: with their own
// numbers, and with those that the faults have them use.
func TestLongerMomentsOfTheProtocolAreNoFaults(t *testing.T) {
	slow.Test(t)
	var core, numbers []edit
	var tests []string
	for _, f := range faults {
		name, _, _ := strings.Cut(f.test, "/")
		if !slices.Contains(tests, name) {
			tests = append(tests, name)
		}
		for _, e := range f.widen {
			all := &core
			if strings.HasSuffix(e.file, "_test.go") {
				all = &numbers
			}
			if !slices.Contains(*all, e) {
				*all = append(*all, e)
			}
		}
	}
	for name, edits := range map[string][]edit{
		"their own numbers": core, "those of the faults": slices.Concat(core, numbers),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const runs = 15
			out := testCore(t, "("+strings.Join(tests, "|")+")", edits, runs, 5*time.Minute)
			for _, test := range tests {
				require.Equal(t, runs, strings.Count(out, "--- PASS: "+test+" "), "%s failed without a fault:\n%s",
					test, out[max(0, len(out)-4000):])
			}
		})
	}
}

// testCore runs tests of the protocol on an edited core, at small sizes and many times: a fault
// shows only by chance.
func testCore(t *testing.T, tests string, edits []edit, runs int, timeout time.Duration) string {
	return testEdited(t, "proofs/verify", tests, edits, slices.Concat(protocolTests,
		[]string{"-count=" + strconv.Itoa(runs), "-failfast", "-timeout", timeout.String()})...)
}

// testEdited runs a test of a directory with edited files, using a build overlay, so no file of the
// repository changes. The arguments are the package or files, and flags. It returns the output.
func testEdited(t *testing.T, dir, test string, edits []edit, args ...string) string {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	temp := t.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for _, e := range edits {
		path := filepath.Join(root, e.file)
		from, edited := path, filepath.Join(temp, filepath.Base(e.file))
		if _, again := overlay.Replace[path]; again {
			from = edited
		}
		src, err := os.ReadFile(from)
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(src), e.text), "%s must contain this text once:\n%s",
			e.file, e.text)
		require.NoError(t, os.WriteFile(edited, []byte(strings.Replace(string(src), e.text, e.with, 1)),
			0o600))
		overlay.Replace[path] = edited
	}
	text, err := json.Marshal(overlay)
	require.NoError(t, err)
	file := filepath.Join(temp, "overlay.json")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"test", "-overlay", file, "-v", "-vet=off",
		"-ldflags", "-s -w", "-run", "^" + strings.ReplaceAll(test, "/", "$/^") + "$"}, args...)...)
	cmd.Dir = filepath.Join(root, dir)
	cmd.Env = append(os.Environ(), "WEIR_VERIFY=") // small sizes
	out, _ := cmd.CombinedOutput()                 // fails if the test fails
	return string(out)
}

// head returns the beginning of an output.
func head(out string) string { return out[:min(len(out), 4000)] }
