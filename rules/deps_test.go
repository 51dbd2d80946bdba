package rules_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestImportsBringOnlyYAML checks that an importer of the package links only YAML and the
// dependencies of weir itself.
func TestImportsBringOnlyYAML(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{.Path}}{{end}}",
		".").Output()
	require.NoError(t, err)
	modules := slices.Compact(slices.Sorted(slices.Values(strings.Fields(string(out)))))
	allowed := []string{
		"github.com/weirgo/weir", "github.com/weirgo/weir/rules", "go.yaml.in/yaml/v4",
		"github.com/puzpuzpuz/xsync/v3", "golang.org/x/sync",
	}
	for _, m := range modules {
		assert.Contains(t, allowed, m)
	}
	assert.Contains(t, modules, "go.yaml.in/yaml/v4")
}
