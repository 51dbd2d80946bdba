// Package programs has ten whole programs, in testdata, as short as they are written from memory.
package programs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/testkit/slow"
)

// programs are the folders of testdata.
var programs = map[string]struct {
	lines  int // of code, at most
	prints string
}{
	"fake":    {23, "later, ann: in 1m0s\nhello, ann\n"},
	"login":   {18, "true\ntrue\ntrue\ntrue\ntrue\nfalse\n"},
	"outage":  {24, "true true false\n"},
	"restart": {26, "true true\n<nil>\ntrue false\n<nil>\n"},
	"tenant": {26, "working\nworking\nworking\n" +
		strings.Repeat("weir: denied by sliding log, 3 in 1m\n", 2)},
	"tokens": {25, "took 250 <nil>\ntook 250 <nil>\nnot now: 500 left <nil>\n"},
	"web":    {24, "200 OK\n200 OK\n429 Too Many Requests\n"},
	"two": {23, "true 3 sliding window, 4 in 1h <nil>\ntrue 2 sliding window, 4 in 1h <nil>\n" +
		"true 1 sliding window, 4 in 1h <nil>\ntrue 0 sliding window, 4 in 1h <nil>\n" +
		"false 0 sliding window, 4 in 1h <nil>\n"},
	"jobs": {25, "working <nil>\nworking <nil>\nbusy: 2 at work\n"},
	"wait": {21, ""},
}

func TestPrograms(t *testing.T) {
	bin := t.TempDir()
	args := []string{"-ldflags", "-s -w", "-o", bin}
	for name := range programs {
		args = append(args, "./testdata/"+name)
	}
	out, err := slow.Command(t.Context(), "build", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	for name, want := range programs {
		t.Run(name, func(t *testing.T) {
			program, err := os.ReadFile(filepath.Join("testdata", name, "main.go"))
			require.NoError(t, err)
			lines := 0
			for line := range strings.Lines(string(program)) {
				if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
					lines++
				}
			}
			assert.LessOrEqual(t, lines, want.lines)
			cmd := exec.CommandContext(t.Context(), filepath.Join(bin, name))
			cmd.Dir = t.TempDir()
			got, err := cmd.Output()
			require.NoError(t, err)
			if name != "wait" {
				assert.Equal(t, want.prints, string(got))
				return
			}
			took, err := time.ParseDuration(strings.TrimSpace(string(got)))
			require.NoError(t, err)
			assert.GreaterOrEqual(t, took, 200*time.Millisecond, "two of five wait 100 ms each")
		})
	}
}
