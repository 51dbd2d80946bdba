package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/slow"
)

// The most functions that a decision may pass, and the most lines of code of the core: what they are
// today, so that a change that passes more of them says why. They are meant to fall.
const (
	mostKnown = 18
	mostNew   = 36
	mostLines = 4860
)

func TestDecisionsPassFewFunctions(t *testing.T) {
	slow.Test(t)
	passed, err := measured()
	require.NoError(t, err)
	for s := range strategies {
		for k, kind := range kinds {
			most := mostKnown
			if kind.before == 0 {
				most = mostNew
			}
			names := passed[s][k]
			assert.LessOrEqual(t, len(names), most, "%s, %s:\n%s", strategies[s].name, kind.name,
				strings.Join(names, "\n"))
		}
	}
}

func TestCoreIsSmall(t *testing.T) {
	root, err := rootDir()
	require.NoError(t, err)
	total := 0
	for _, dir := range core {
		n, err := lines(filepath.Join(root, dir))
		require.NoError(t, err)
		total += n
	}
	assert.LessOrEqual(t, total, mostLines, "lines of code")
}
