package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/rules"
)

// TestReadmeRules compares the rules and the output of lint in the README with the files it names.
func TestReadmeRules(t *testing.T) {
	page, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	limits, err := os.ReadFile("../../rules/testdata/limits.yaml")
	require.NoError(t, err)
	assert.Contains(t, string(page), "```yaml\n"+string(limits)+"```\n")
	assert.Equal(t, 12, strings.Count(string(limits), "\n"))

	t.Chdir("../..")
	_, err = rules.LoadFiles("rules/testdata/mistakes.yaml")
	require.Error(t, err)
	assert.Contains(t, string(page), "```text\n"+err.Error()+"\n```\n")
}
