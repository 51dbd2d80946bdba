package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
)

// TestWhatIsMeantByACommandOfRules has words that other programs have for lint, and a file without
// a command.
func TestWhatIsMeantByACommandOfRules(t *testing.T) {
	file := filepath.Join(t.TempDir(), "limits.yaml")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for word, want := range map[string]string{
		"check": "; did you mean lint?", "validate": "; did you mean lint?", "lnt": "; did you mean lint?",
		file: "; did you mean weir rules lint " + file + "?", file + "l": "", "nonsense": "",
	} {
		var errors strings.Builder
		assert.Equal(t, cli.ExitUsage, run([]string{"rules", word}, nil, new(strings.Builder), &errors))
		first, _, _ := strings.Cut(errors.String(), "\n")
		assert.True(t, strings.HasSuffix(first, `for "weir rules"`+want), first)
	}
}
