package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/rules"
)

// TestReadmeRules compares the rules in the README, and the output of lint in docs/rules.md, with
// the files they name.
func TestReadmeRules(t *testing.T) {
	page, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	limits, err := os.ReadFile("../../rules/testdata/limits.yaml")
	require.NoError(t, err)
	assert.Contains(t, string(page), "```yaml\n"+string(limits)+"```\n")
	assert.Equal(t, 12, strings.Count(string(limits), "\n"))

	page, err = os.ReadFile("../../docs/rules.md")
	require.NoError(t, err)
	t.Chdir("../..")
	_, err = rules.LoadFiles("rules/testdata/mistakes.yaml")
	require.Error(t, err)
	assert.Contains(t, string(page), "```text\n"+err.Error()+"\n```\n")
}
