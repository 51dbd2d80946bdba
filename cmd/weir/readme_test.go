package main

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/docblocks"
)

// TestReadmeShowsWhatReplayPrints compares the samples of reports in the README and in docs, in which …
// stands for what is left out, with the output of the commands above them.
func TestReadmeShowsWhatReplayPrints(t *testing.T) {
	page, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Skip("not in the repository:", err)
	}
	for _, name := range []string{"../../docs/rules.md", "../../docs/replay.md"} {
		more, err := os.ReadFile(name)
		require.NoError(t, err)
		page = append(page, more...)
	}
	t.Chdir("../..")
	samples := regexp.MustCompile(
		"(?s)go run ./cmd/weir (replay [^\n]*)\n```\n\n```text\n(.*?)```").FindAllSubmatch(page, -1)
	require.Len(t, samples, 3)
	for _, sample := range samples {
		showsWhatPrints(t, string(sample[1]), string(sample[2]))
	}
	assert.Contains(t, string(samples[0][2]), "suggested limits")
	assert.Contains(t, string(samples[1][2]), "all rules")
}

// showsWhatPrints runs the tool, and compares what it prints with a block of a page.
func showsWhatPrints(t *testing.T, command, block string) {
	t.Helper()
	var out, errs bytes.Buffer
	require.Equal(t, exitOK, run(strings.Fields(command), strings.NewReader(""), &out, &errs), errs.String())
	assert.True(t, docblocks.Shows(block, out.String()), "the page has\n%s\nbut %s prints\n%s", block, command, &out)
}

// TestTutorialShowsWhatReplayPrints runs the commands of the tutorial's last step.
func TestTutorialShowsWhatReplayPrints(t *testing.T) {
	blocks := docblocks.Of(t, "../../docs/tutorial.md", "## 8. A number from a log")
	require.Len(t, blocks, 2)
	script, command, ok := strings.Cut(blocks[0].Code, "go run github.com/weirgo/weir/cmd/weir@latest replay ")
	require.True(t, ok)
	t.Chdir(t.TempDir())
	out, err := exec.Command("bash", "-c", script).CombinedOutput()
	require.NoError(t, err, "%s", out)
	showsWhatPrints(t, "replay "+command, blocks[1].Code)
}
