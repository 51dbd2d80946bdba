package metrics_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What can be watched links no metrics library: an importer of the root module gets xsync and
// x/sync, as before.
func TestWatchingBringsNoLibrary(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}",
		".", "..", "../httplimit", "../fallback", "../near").Output()
	require.NoError(t, err)
	modules := slices.Compact(slices.Sorted(slices.Values(strings.Fields(string(out)))))
	assert.Equal(t, []string{"github.com/puzpuzpuz/xsync/v3", "github.com/weirgo/weir",
		"golang.org/x/sync"}, modules)
}
