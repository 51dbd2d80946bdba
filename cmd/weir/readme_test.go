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

// The README's sample of a report is what the command above it prints, with lines left out.
func TestReadmeShowsWhatReplayPrints(t *testing.T) {
	page, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Skip("not in the repository:", err)
	}
	sample := regexp.MustCompile("(?s)go run ./cmd/weir (replay [^\n]*)\n```\n\n```text\n(.*?)```").FindSubmatch(page)
	require.NotNil(t, sample)
	args := strings.Fields(string(sample[1]))
	args[len(args)-1] = "../../" + args[len(args)-1]
	var out, errs bytes.Buffer
	require.Equal(t, exitOK, run(args, strings.NewReader(""), &out, &errs), errs.String())
	rest := out.String()
	for line := range strings.Lines(string(sample[2])) {
		_, after, ok := strings.Cut(rest, line)
		require.True(t, ok, "%q is not printed, or not in this order", line)
		rest = after
	}
	assert.Contains(t, string(sample[2]), "suggested limits")
}
