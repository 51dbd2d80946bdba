package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
)

// The commands that serve run another program, which stands beside this one or in the PATH. Without
// it each of them says what to install.
func TestCommandsThatServeNeedTheirProgram(t *testing.T) {
	dir := t.TempDir()
	link := func(program string) string {
		path, err := exec.LookPath(program)
		require.NoError(t, err)
		require.NoError(t, os.Link(path, filepath.Join(dir, program)))
		return filepath.Join(dir, program)
	}
	alone := link("weir")
	weir := func(args ...string) (string, int) {
		cmd := exec.Command(alone, args...)
		cmd.Env = []string{"PATH=", "GORACE=atexit_sleep_ms=0"}
		out, _ := cmd.CombinedOutput()
		return string(out), cmd.ProcessState.ExitCode()
	}
	for _, args := range [][]string{{"proxy", "--limit", "1/1m"}, {"serve"}, {"proxy", "--help"}} {
		out, code := weir(args...)
		assert.Equal(t, "weir: "+args[0]+" is a command of weir-server, which is neither beside this "+
			"program nor in the PATH; go run ./cmd/weir/weir-server in a clone, or: "+
			"go install github.com/weirgo/weir/cmd/weir/weir-server@latest\n", out)
		assert.Equal(t, cli.ExitFailure, code)
	}
	out, _ := weir("help", "proxy")
	assert.Contains(t, out, "go install")

	link(serverProgram)
	for _, args := range [][]string{{"proxy", "--help"}, {"help", "proxy"}} {
		out, code := weir(args...)
		assert.Contains(t, out, "\n  weir proxy --limit 10/10s\n")
		assert.Equal(t, cli.ExitOK, code)
	}
	out, code := weir("proxy", "--limit", "wish")
	assert.Contains(t, out, "\nTry \"weir proxy --help\".\n")
	assert.Equal(t, cli.ExitUsage, code, "its exit code is that of the other program")
}
