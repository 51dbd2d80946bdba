package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/testkit/slow"
)

// The most functions that a decision may pass, by strategy: of a known caller, of one that is
// denied, and of a new one. They and the most lines of code of the core are what they are today, so
// that a change that passes more of them says why. They are meant to fall: to 18 and 25 functions,
// and 3,700 lines.
var most = map[string][]int{
	"CheckRate":     {12, 11, 23},
	"FixedWindow":   {15, 14, 26},
	"Calendar":      {14, 13, 23},
	"SlidingWindow": {23, 24, 37},
	"TokenBucket":   {26, 23, 39},
	"Counter":       {21, 20, 34},
}

// mostTrips are the most functions, and their files, that each of trips may pass.
var mostTrips = [][2]int{{33, 12}, {113, 28}, {40, 12}, {76, 24}, {47, 19}, {88, 32}, {63, 27}}

const mostLines = 8_834

func TestDecisionsPassFewFunctions(t *testing.T) {
	slow.Test(t)
	passed, err := measured()
	require.NoError(t, err)
	for s := range strategies {
		name := strategies[s].name
		require.Len(t, most[name], len(kinds), name)
		for k, kind := range kinds {
			names := passed[s][k]
			assert.LessOrEqual(t, len(names), most[name][k], "%s, %s:\n%s", name, kind.name,
				strings.Join(names, "\n"))
		}
	}
}

func TestTripsPassFewFunctions(t *testing.T) {
	slow.Test(t)
	passed, err := measured()
	require.NoError(t, err)
	for i, names := range passed[len(strategies)] {
		assert.LessOrEqual(t, len(names), mostTrips[i][0], "%s:\n%s", trips[i].name,
			strings.Join(names, "\n"))
		assert.LessOrEqual(t, filesOf(names), mostTrips[i][1], trips[i].name)
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
