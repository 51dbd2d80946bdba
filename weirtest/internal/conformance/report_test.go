package conformance

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// TestReportOfAChargedDenial fails on purpose, in the process that TestReport starts.
func TestReportOfAChargedDenial(t *testing.T) {
	if os.Getenv("WEIRTEST_BROKEN") == "" {
		t.Skip("only run by TestReport")
	}
	make, laws := flawed(flaws{countsDenials: true})
	laws.Skip = map[string]string{"Exact": "not under test"}
	Test(t, newTestClock, make, laws)
}

func TestReport(t *testing.T) {
	slow.Native(t)
	exe, err := os.Executable()
	require.NoError(t, err)
	child := exec.Command(exe, "-test.run=^TestReportOfAChargedDenial$", "-test.v")
	child.Env = append(os.Environ(), "WEIRTEST_BROKEN=1")
	out, err := child.CombinedOutput()
	var failed *exec.ExitError
	require.ErrorAs(t, err, &failed, "a broken strategy must fail the test")
	for _, want := range []string{
		"--- FAIL: TestReportOfAChargedDenial/DenialTakesNothing",
		"the last request must be admitted: 2 are left, as the denial before is not counted",
		`0s  Run   "caller"  10 in 1s  8     Allow    8      1s`,
		`0s  Run   "caller"  10 in 1s  5     Deny     8      1s`,
		`0s  Run   "caller"  10 in 1s  2     Deny     13     1s`,
		"--- PASS: TestReportOfAChargedDenial/Span",
		"--- SKIP: TestReportOfAChargedDenial/Exact",
		"not under test",
	} {
		assert.Contains(t, string(out), want)
	}
}
