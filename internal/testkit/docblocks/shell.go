package docblocks

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
)

// Shell runs the commands of a page in bash.
type Shell struct {
	Dir     string            // where they run
	Env     []string          // variables besides those of the test
	Ports   []string          // ports in all of this, and in the commands, that free ones replace
	Replace map[string]string // other text of the commands, and what a test runs in its place
	Prelude string            // commands that run first
}

// prelude has await PORT, which waits until a server listens there, or fails once nothing runs in
// the background. Whatever still runs at the end is killed.
const prelude = `await() {
  for i in $(seq 300); do
    (: </dev/tcp/127.0.0.1/$1) 2>/dev/null && return
    [ "$(jobs -pr)" ] || return 1
    sleep 0.1
  done
  return 1
}
trap 'kill $(jobs -p) 2>/dev/null || :; wait' EXIT
set -eo pipefail
`

// mark stands between the outputs of two blocks.
const mark = "\x1e\n"

// Run runs blocks of commands, one after the other in the same shell, and returns what each prints.
// It fails t unless they succeed. A `sleep 1` that ends a line waits for the ports instead.
func (s Shell) Run(t testing.TB, blocks ...string) []string {
	t.Helper()
	script := strings.Join(blocks, "printf '"+`\x1e\n`+"'\n")
	var pairs []string
	for _, text := range slices.Backward(slices.Sorted(maps.Keys(s.Replace))) { // "go run" before "go"
		pairs = append(pairs, text, s.Replace[text])
	}
	script = strings.NewReplacer(pairs...).Replace(script)
	pairs = nil
	wait := ""
	for _, port := range s.Ports {
		free := freePort(t)
		pairs = append(pairs, port, free)
		if strings.Contains(script, port) {
			wait += "await " + free + "\n"
		}
	}
	ported := strings.NewReplacer(pairs...)
	env := os.Environ()
	for _, variable := range s.Env {
		env = append(env, ported.Replace(variable))
	}
	script = strings.ReplaceAll(ported.Replace(s.Prelude+script), "sleep 1\n", "\n"+wait)
	cmd := exec.CommandContext(t.Context(), "bash", "-c", prelude+script)
	cmd.Dir, cmd.Env = s.Dir, env
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Errorf("%v\n%s\n%s\n%s", err, script, &out, &errs)
	}
	t.Logf("%s", &errs)
	printed := strings.Split(out.String(), mark)
	return append(printed, make([]string, max(0, len(blocks)-len(printed)))...)
}

// The ports of freePort count from a random one, for the sake of tests in other processes. They are
// below those that the kernel chooses for port 0 and for clients: a server of another test could
// take such a port between two commands of a page.
var (
	firstPort = 10000 + rand.IntN(20000)
	ports     atomic.Int32 // that were tried
)

// freePort returns a port of the loopback address on which nothing listens, another one each time.
func freePort(t testing.TB) string {
	t.Helper()
	for range 100 {
		port := strconv.Itoa(firstPort + int(ports.Add(1)))
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:"+port)
		if err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}
