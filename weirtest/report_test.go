package weirtest

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestOfAChargedDenial fails on purpose, in the process that TestTestStrategyReports starts.
func TestOfAChargedDenial(t *testing.T) {
	if os.Getenv("WEIRTEST_BROKEN") == "" {
		t.Skip("only run by TestTestStrategyReports")
	}
	make, laws := flawed(flaws{counting: true})
	laws.Skip = map[string]string{"Exact": "it is not what this is about"}
	TestStrategy(t, make, laws)
}

func TestTestStrategyReports(t *testing.T) {
	exe, err := os.Executable()
	require.NoError(t, err)
	child := exec.Command(exe, "-test.run=^TestOfAChargedDenial$", "-test.v")
	child.Env = append(os.Environ(), "WEIRTEST_BROKEN=1")
	out, err := child.CombinedOutput()
	var failed *exec.ExitError
	require.ErrorAs(t, err, &failed, "a broken strategy must fail the test")
	for _, want := range []string{
		"--- FAIL: TestOfAChargedDenial/DenialTakesNothing",
		"the last request must be admitted: 2 are left, since the denial before took nothing",
		`0s  Run   "caller"  10 in 1s  8     Allow    8      1s`,
		`0s  Run   "caller"  10 in 1s  5     Deny     8      1s`,
		`0s  Run   "caller"  10 in 1s  2     Deny     13     1s`,
		"--- PASS: TestOfAChargedDenial/Span",
		"--- SKIP: TestOfAChargedDenial/Exact",
		"it is not what this is about",
	} {
		assert.Contains(t, string(out), want)
	}
}
