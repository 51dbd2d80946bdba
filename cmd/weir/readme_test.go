package main

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/internal/testkit/docblocks"
)

// showsWhatPrints runs the tool, and compares what it prints with a block of a page.
func showsWhatPrints(t *testing.T, command, block string) {
	t.Helper()
	var out, errs bytes.Buffer
	require.Equal(t, cli.ExitOK, run(strings.Fields(command), strings.NewReader(""), &out, &errs), errs.String())
	assert.True(t, docblocks.Shows(block, out.String()), "the page has\n%s\nbut %s prints\n%s", block, command, &out)
}

// TestTutorialShowsWhatReplayPrints runs the commands of the tutorial's last step.
func TestTutorialShowsWhatReplayPrints(t *testing.T) {
	blocks := docblocks.Of(t, "../../docs/tutorial.md", "## 8. A number from a log")
	require.Len(t, blocks, 2)
	script, command, ok := strings.Cut(blocks[0].Code,
		"go run github.com/weirgo/weir/cmd/weir@latest replay ")
	require.True(t, ok)
	t.Chdir(t.TempDir())
	out, err := exec.Command("bash", "-c", script).CombinedOutput()
	require.NoError(t, err, "%s", out)
	showsWhatPrints(t, "replay "+command, blocks[1].Code)
}
