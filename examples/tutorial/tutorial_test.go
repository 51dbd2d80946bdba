// Package tutorial has the programs of docs/tutorial.md, each in a directory of its own.
package tutorial

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/docblocks"
	"github.com/weirgo/weir/internal/slow"
)

const page = "../../docs/tutorial.md"

// steps are the sections with a program, and its directory.
var steps = []struct{ section, dir string }{
	{"## 1. A key, a limit, a window", "checkrate"},
	{"## 2. A strategy", "strategy"},
	{"## 3. An HTTP server", "server"},
	{"## 4. Behind a load balancer", "balancer"},
	{"## 5. A restart", "restart"},
	{"## 6. A second replica", "replicas"},
	{"## 7. Watching it", "watching"},
}

// Each step shows the program in its directory, its commands, and their output.
func TestTutorialShowsItsPrograms(t *testing.T) {
	for _, step := range steps {
		program, err := os.ReadFile(filepath.Join(step.dir, "main.go"))
		require.NoError(t, err)
		blocks := docblocks.Of(t, page, step.section)
		require.Len(t, blocks, 3, step.section)
		assert.Equal(t, docblocks.Block{Language: "go", Code: string(program)}, blocks[0])
		assert.Equal(t, []string{"sh", "text"}, []string{blocks[1].Language, blocks[2].Language})
	}
}

// The commands of each step print what the page says.
func TestTutorialPrints(t *testing.T) {
	slow.Test(t)
	bin := t.TempDir()
	build := exec.Command("go", append(append([]string{"build"}, raceFlag...), "-ldflags", "-s -w", "-o", bin, "./...")...)
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, step := range steps {
		t.Run(step.dir, func(t *testing.T) {
			t.Parallel()
			blocks := docblocks.Of(t, page, step.section)
			got := shell(t, filepath.Join(bin, step.dir), blocks[1].Code)
			assert.True(t, docblocks.Shows(blocks[2].Code, got), "the page has\n%s\nbut the commands print\n%s",
				blocks[2].Code, got)
		})
	}
}

// shell runs commands of the page in an empty folder: with the program built already, on ports that are
// free, and waiting until they are open in place of for a second.
func shell(t *testing.T, program, commands string) string {
	t.Helper()
	env := append(os.Environ(), "PROGRAM="+program)
	for _, port := range []string{"8080", "8082", "6379"} {
		if !strings.Contains(commands, port) {
			continue
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		_, free, _ := net.SplitHostPort(l.Addr().String())
		require.NoError(t, l.Close())
		commands = strings.ReplaceAll(commands, port, free)
		commands = strings.ReplaceAll(commands, "sleep 1\n", "await "+free+"; sleep 1\n")
		switch port {
		case "8080":
			env = append(env, "LISTEN=127.0.0.1:"+free)
		case "6379":
			env = append(env, "REDIS=127.0.0.1:"+free)
		}
	}
	commands = strings.NewReplacer("go run .", `"$PROGRAM"`, "go build -o hello .", `cp "$PROGRAM" hello`,
		"sleep 1\n", "\n").Replace(commands)
	const prelude = `await() { for i in $(seq 300); do (: </dev/tcp/127.0.0.1/$1) 2>/dev/null && return; sleep 0.1; done; }
trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT
`
	cmd := exec.CommandContext(t.Context(), "bash", "-c", prelude+commands)
	cmd.Dir, cmd.Env = t.TempDir(), env
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	t.Logf("%v\n%s", err, &errs)
	return out.String()
}
