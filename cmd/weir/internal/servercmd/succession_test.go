package servercmd

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPIDFileThatCannotBeWritten has the process fail before it takes over.
func TestPIDFileThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	for file, want := range map[string]string{
		dir:                                  "is a directory",
		filepath.Join(dir, "missing", "pid"): "cannot be written",
	} {
		assert.ErrorContains(t, checkPID(file), want)
	}
	require.NoError(t, checkPID(filepath.Join(dir, "pid")))
	left, err := filepath.Glob(filepath.Join(dir, "*"))
	require.NoError(t, err)
	assert.Empty(t, left)
}
