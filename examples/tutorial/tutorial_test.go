// Package tutorial has the programs of docs/tutorial.md, each in a directory of its own.
package tutorial

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/testkit/docblocks"
	"github.com/weirgo/weir/internal/testkit/slow"
)

const page = "../../docs/tutorial.md"

// steps are the sections with a program, and its directory.
var steps = []struct{ section, dir string }{
	{"## 1. A key, a limit", "limit"},
	{"## 2. A strategy", "strategy"},
	{"## 3. An HTTP server", "server"},
	{"## 4. Behind a load balancer", "balancer"},
	{"## 5. A restart", "restart"},
	{"## 6. A second replica", "replicas"},
}

// Each step shows the program in its directory, its commands, and their output.
func TestTutorialShowsItsPrograms(t *testing.T) {
	for _, step := range steps {
		program, err := os.ReadFile(filepath.Join(step.dir, "main.go"))
		require.NoError(t, err)
		blocks := docblocks.Of(t, page, step.section)
		require.Len(t, blocks, 3, step.section)
		assert.Equal(t, docblocks.Block{Heading: step.section, Language: "go", Code: string(program)},
			blocks[0])
		assert.Equal(t, []string{"sh", "text"}, []string{blocks[1].Language, blocks[2].Language})
	}
	installs := docblocks.Of(t, page, "## Before") // TestReadmeInEmptyFolder runs them
	assert.Len(t, docblocks.Of(t, page, "# Tutorial"), len(installs)+3*len(steps))
}

// The commands of each step print what the page says.
func TestTutorialPrints(t *testing.T) {
	slow.Test(t)
	here, err := os.Getwd()
	require.NoError(t, err)
	// It is built with free ports in place of those of the page.
	build := `sed "s/:80[8]0/:$WEB/; s/:637[9]/:$REDIS/" "$STEP/main.go" > main.go
echo '{"Replace": {"'$STEP'/main.go": "'$PWD'/main.go"}}' > overlay.json
go -C "$STEP" ` + strings.Join(slow.Command(t.Context(), "build", "-overlay", `"$PWD/overlay.json"`,
		"-ldflags", `"-s -w"`, "-o", `"$PWD/hello"`).Args[1:], " ") + ` .`
	for _, step := range steps {
		t.Run(step.dir, func(t *testing.T) {
			t.Parallel()
			blocks := docblocks.Of(t, page, step.section)
			got := docblocks.Shell{
				Dir:     t.TempDir(),
				Env:     []string{"STEP=" + filepath.Join(here, step.dir), "WEB=8080", "REDIS=6379"},
				Ports:   []string{"8080", "8082", "6379"},
				Replace: map[string]string{"go run .": build + "\n./hello", "go build -o hello .": build},
			}.Run(t, blocks[1].Code)[0]
			assert.True(t, docblocks.Shows(blocks[2].Code, got),
				"the page has\n%s\nbut the commands print\n%s",
				blocks[2].Code, got)
		})
	}
}
