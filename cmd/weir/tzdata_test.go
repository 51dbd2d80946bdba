package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
