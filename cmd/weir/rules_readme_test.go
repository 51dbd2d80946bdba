package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestReadmeRules compares the rules in the README with the file that docs/rules.md names.
func TestReadmeRules(t *testing.T) {
	page, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	limits, err := os.ReadFile("../../rules/testdata/limits.yaml")
	require.NoError(t, err)
	assert.Contains(t, string(page), "```yaml\n"+string(limits)+"```\n")
	assert.Equal(t, 12, strings.Count(string(limits), "\n"))
}
