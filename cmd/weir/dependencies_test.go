package main

import (
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestBinariesCarryWhatTheyUse compares what each binary links with dependencies.txt: the packages
// of this repository, and the modules of others.
func TestBinariesCarryWhatTheyUse(t *testing.T) {
	var got strings.Builder
	for _, binary := range []string{".", "./weir-server"} {
		list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f",
			"{{with .Module}}{{.Path}}{{end}} {{.ImportPath}}", binary)
		list.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
		out, err := list.Output()
		require.NoError(t, err)
		linked := map[string]bool{}
		for line := range strings.Lines(string(out)) {
			module, pkg, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			if own, ok := strings.CutPrefix(pkg, "github.com/weirgo/"); ok {
				linked[own] = true
			} else if module != "" {
				linked[module] = true
			}
		}
		got.WriteString(binary + "\n")
		for _, name := range slices.Sorted(maps.Keys(linked)) {
			got.WriteString("\t" + name + "\n")
		}
	}
	want, err := os.ReadFile("dependencies.txt")
	require.NoError(t, err)
	assert.Equal(t, string(want), got.String(), "dependencies.txt: if the change is meant, write it there")
}

// The tool has the rules of time zones, for systems that have none. The library takes a Location,
// and leaves the half megabyte to the program.
func TestOnlyTheToolHasTimeZones(t *testing.T) {
	deps := func(pkg string) []string {
		out, err := exec.Command("go", "list", "-deps", pkg).Output()
		require.NoError(t, err)
		return strings.Fields(string(out))
	}
	assert.Contains(t, deps("."), "time/tzdata")
	assert.NotContains(t, deps("github.com/weirgo/weir/rules"), "time/tzdata")
	assert.NotContains(t, deps("github.com/weirgo/weir/redislimit"), "time/tzdata")
}
