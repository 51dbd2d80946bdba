// Package programs has whole programs, in testdata, as short as they are written from memory.
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

func TestPrograms(t *testing.T) {
	bin := t.TempDir()
	out, err := slow.Command(t.Context(), "build", "-ldflags", "-s -w", "-o", bin,
		"./testdata/login", "./testdata/two", "./testdata/jobs", "./testdata/wait").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for name, want := range map[string]struct {
		lines  int // of code, at most
		prints string
	}{
		"login": {18, "true\ntrue\ntrue\ntrue\ntrue\nfalse\n"},
		"two": {23, "true 3 sliding window, 4 in 1h <nil>\ntrue 2 sliding window, 4 in 1h <nil>\n" +
			"true 1 sliding window, 4 in 1h <nil>\ntrue 0 sliding window, 4 in 1h <nil>\n" +
			"false 0 sliding window, 4 in 1h <nil>\n"},
		"jobs": {25, "working <nil>\nworking <nil>\nbusy: 2 at work\n"},
		"wait": {21, ""},
	} {
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
			got, err := exec.CommandContext(t.Context(), filepath.Join(bin, name)).Output()
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
