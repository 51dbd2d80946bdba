package servercmd

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEndsWithFirst says which processes have successors that outlive them.
func TestEndsWithFirst(t *testing.T) {
	for _, row := range []struct {
		name         string
		pid, parent  int
		exec, invoke string
		want         string // of the error; empty: none
	}{
		{"of a shell", 70, 60, "", "", ""},
		{"orphan", 70, 1, "", "", ""},
		{"first of a container", 1, 0, "", "", "container"},
		{"main of a unit", 70, 1, "70", "i", "systemctl restart"},
		{"main of a unit of a user", 70, 60, "70", "i", "systemctl restart"},
		{"main of a unit of an old systemd", 70, 1, "", "i", "systemctl restart"},
		{"of a shell in a unit", 70, 60, "60", "i", ""},
		{"orphan of a shell in a unit", 70, 1, "60", "i", ""},
		{"of a shell in a unit of an old systemd", 70, 60, "", "i", ""},
	} {
		env := map[string]string{"SYSTEMD_EXEC_PID": row.exec, "INVOCATION_ID": row.invoke}
		err := endsWithFirst(row.pid, row.parent, func(name string) string { return env[name] })
		if row.want == "" {
			assert.NoError(t, err, row.name)
		} else {
			assert.ErrorContains(t, err, row.want, row.name)
		}
	}
}

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
