package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestRulesPageShowsLimits compares the rules in docs/rules.md with the file that it names.
func TestRulesPageShowsLimits(t *testing.T) {
	page, err := os.ReadFile("../../docs/rules.md")
	require.NoError(t, err)
	limits, err := os.ReadFile("../../rules/testdata/limits.yaml")
	require.NoError(t, err)
	assert.Contains(t, string(page), "```yaml\n"+string(limits)+"```\n")
	assert.Equal(t, 12, strings.Count(string(limits), "\n"))
}
