package verify

import (
	"flag"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// TestMain fails if a limiter leaves its janitor running.
func TestMain(m *testing.M) {
	if os.Getenv(childJob) != "" {
		os.Exit(runChild())
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if childDir != "" {
			os.RemoveAll(childDir)
		}
		os.Exit(code)
	}))
}

// checks sets the number of runs of a property.
func checks(t *testing.T, n int) {
	f := flag.Lookup("rapid.checks")
	before := f.Value.String()
	require.NoError(t, f.Value.Set(strconv.Itoa(n)))
	t.Cleanup(func() { _ = f.Value.Set(before) })
}

// starts are initial readings of a clock: before, around and after zero, in milliseconds.
var starts = []int64{-1000, -7, -1, 0, 1, 1 << 40}
