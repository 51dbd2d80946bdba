package docblocks

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const page = "# Page\n```go\nno()\n```\n## A\n```go\nif a {\n\tb()\n}\n```\n### Below A\n```sh\n" +
	"run\n```\n" +
	"## B\n```go\nc()\n```\n"

func TestBlocksOfASection(t *testing.T) {
	assert.Equal(t, []Block{{"## A", "go", "if a {\n\tb()\n}\n"}, {"### Below A", "sh", "run\n"}},
		blocksOf(page, "## A"))
	assert.Equal(t, []Block{{"### Below A", "sh", "run\n"}}, blocksOf(page, "### Below A"))
	assert.Equal(t, []Block{{"## B", "go", "c()\n"}}, blocksOf(page, "## B"))
	assert.Empty(t, blocksOf(page, "## C"))
}

// recorder is a test that may fail.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper()               {}
func (r *recorder) Errorf(string, ...any) { r.failed = true }

func TestCheckRejectsABlockThatNoFileHas(t *testing.T) {
	dir := t.TempDir()
	pageFile, code := filepath.Join(dir, "page.md"), filepath.Join(dir, "code.go")
	require.NoError(t, os.WriteFile(pageFile, []byte(page), 0o600))
	require.NoError(t, os.WriteFile(code, []byte("\tif a {\n\n\t\tb()\n\t}\n\tc(1)\n"), 0o600))
	for section, want := range map[string]bool{"## A": true, "## B": true, "## C": true} {
		r := &recorder{TB: t}
		Check(r, pageFile, section, code)
		assert.Equal(t, want, r.failed, section)
	}
	require.NoError(t, os.WriteFile(code, []byte("\tif a {\n\n\t\tb()\n\t}\n\trun\n"), 0o600))
	r := &recorder{TB: t}
	Check(r, pageFile, "## A", code)
	assert.False(t, r.failed)
}

func TestCheckRowsRejectsARowWhoseCodeNoFileHas(t *testing.T) {
	dir := t.TempDir()
	pageFile, code := filepath.Join(dir, "page.md"), filepath.Join(dir, "code.go")
	require.NoError(t, os.WriteFile(pageFile,
		[]byte("| A, B | `b()` | 1 |\n| A | `c(2)`, `d()` | 2 |\n| D | none | 3 |\n"), 0o600))
	require.NoError(t, os.WriteFile(code, []byte("\ta, b := b()\n"), 0o600))
	for name, want := range map[string]bool{"A": true, "B": false, "C": true, "D": true} {
		r := &recorder{TB: t}
		CheckRows(r, pageFile, name, code)
		assert.Equal(t, want, r.failed, name)
	}
}

func TestAnEllipsisStandsForAnything(t *testing.T) {
	const output = "one\ntwo 2\nthree\nfour\n"
	for block, want := range map[string]bool{
		output:                        true,
		"one\n…\nfour\n":              true,
		"…\nthree\n…\n":               true,
		"one\ntwo …\nthree\nfour\n":   true,
		"one\n…\n":                    true,
		"…\n":                         true,
		"one\n":                       false,
		"four\n":                      false,
		"two 2\n…\n":                  false,
		"one\n…\nthree\n":             false,
		"…\nthree\n…\none\n…\n":       false,
		"one\ntwo …\nthree\n":         false,
		"…\nfour\n…\nfour\n":          false,
		"one\ntwo 2\nthree\n\nfour\n": false,
	} {
		assert.Equal(t, want, Shows(block, output), "%q", block)
	}
}

func TestShellPrintsWhatEachBlockPrints(t *testing.T) {
	sh := Shell{Dir: t.TempDir(), Env: []string{"AT=127.0.0.1:8080"}, Ports: []string{"8080"},
		Replace: map[string]string{"tool": "echo ran"}, Prelude: "twice() { echo $1 $1; }\n"}
	printed := sh.Run(t, "tool\nx=b\n", "", "twice $x\n",
		"[ $AT = 127.0.0.1:8080 ] && [ ${AT##*:} != 80''80 ] && echo a free port\n")
	assert.Equal(t, []string{"ran\n", "", "b b\n", "a free port\n"}, printed)

	r := &recorder{TB: t}
	assert.Equal(t, []string{"a\n", "", ""}, sh.Run(r, "echo a\n", "false\n", "echo c\n"))
	assert.True(t, r.failed, "a command fails")
}
