package verify

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// readers returns the calls in a source file that read the clock, and those that use the wall time.
func readers(t *testing.T, name string, src any) (clock, wall []string) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, src, 0)
	require.NoError(t, err)
	ast.Inspect(file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		at := fset.Position(sel.Pos()).String() + " " + sel.Sel.Name
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == "time" {
			switch sel.Sel.Name {
			case "Now", "Since", "Until":
				clock = append(clock, at)
			}
			return true
		}
		if strings.HasPrefix(sel.Sel.Name, "Unix") {
			wall = append(wall, at)
		}
		return true
	})
	return clock, wall
}

// A decision that reads the wall clock elsewhere would follow its steps.
func TestOnlyTheClockReadsTime(t *testing.T) {
	var names []string
	for _, dir := range []string{"", "engine", "room", "slots", "snapshot", "states", "tally", "windows"} {
		if dir != "" {
			dir = "internal/core/" + dir + "/"
		}
		files, err := filepath.Glob("../../" + dir + "*.go")
		require.NoError(t, err)
		require.NotEmpty(t, files, dir)
		names = append(names, files...)
	}
	seen := 0
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		seen++
		clock, wall := readers(t, name, nil)
		assert.Empty(t, wall, "a wall time is taken apart in %s", name)
		// The janitor times its sweeps, Wait sleeps in real time whatever the strategy's clock is, and an
		// instant of a Strategy elsewhere is one of real time for a Limit.
		if !slices.Contains([]string{"janitor.go", "wait.go", "decider.go", "outcome.go"}, filepath.Base(name)) {
			assert.Empty(t, clock, "the clock is read in %s", name)
		}
	}
	require.Greater(t, seen, 8, "the sources of the core")

	clock, wall := readers(t, "control.go",
		"package p\nfunc f() int64 { return time.Now().UnixMilli() }")
	assert.Len(t, clock, 1, "the control reads the clock")
	assert.Len(t, wall, 1, "the control takes a wall time apart")
}
