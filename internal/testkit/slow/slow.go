// Package slow separates the tests that every change runs from those that take longer or that hold
// a real server to milliseconds.
//
// The environment variable WEIR_VERIFY selects them: unset, as in make test, slow tests are
// skipped; 1, as in make verify, they run; full, as in make nightly, they run at their largest
// sizes. make verify finds the tests to run by their calls of this package, so a test calls it
// directly, not through a function of its own.
//
// It also says whether the race detector runs, for tests that measure or that build programs.
package slow

import (
	"os"
	"testing"
)

const variable = "WEIR_VERIFY"

// Native skips t in an emulator, where make 386 sets WEIR_EMULATED: t measures times or depends on
// them, or its program starts itself, which is one for another machine.
func Native(t testing.TB) {
	t.Helper()
	if os.Getenv("WEIR_EMULATED") != "" {
		t.Skip("not in an emulator")
	}
}

// Test skips t unless WEIR_VERIFY is set.
func Test(t testing.TB) {
	t.Helper()
	if os.Getenv(variable) == "" {
		t.Skip("slow: make verify runs it")
	}
}

// N returns the size of a test: quick if WEIR_VERIFY is unset, full if it is "full", and otherwise
// verify.
func N(quick, verify, full int) int {
	switch os.Getenv(variable) {
	case "":
		return quick
	case "full":
		return full
	}
	return verify
}
