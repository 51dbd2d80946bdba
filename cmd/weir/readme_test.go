package main

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestReadmeShowsWhatReplayPrints compares the samples of reports in the README and in docs, which
// leave out lines, with the output of the commands above them.
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
		var out, errs bytes.Buffer
		args := strings.Fields(string(sample[1]))
		require.Equal(t, exitOK, run(args, strings.NewReader(""), &out, &errs), errs.String())
		rest := out.String()
		for line := range strings.Lines(string(sample[2])) {
			_, after, ok := strings.Cut(rest, line)
			require.True(t, ok, "%q is not printed, or not in this order", line)
			rest = after
		}
	}
	assert.Contains(t, string(samples[0][2]), "suggested limits")
	assert.Contains(t, string(samples[1][2]), "all rules")
}
