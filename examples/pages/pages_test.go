package pages

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/testkit/docblocks"
	"github.com/weirgo/weir/internal/testkit/slow"
)

const root = "../.."

// Every piece of Go in the README and in docs stands in a Go file of the repository, which is
// compiled. A whole program is compiled by the tests of the release, which paste it into an empty
// folder.
func TestEveryPieceOfGoIsCompiled(t *testing.T) {
	var files []string
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".go") {
			files = append(files, path)
		}
		return err
	}))
	code := docblocks.Read(t, files...)
	pieces := 0
	for _, page := range pagesOf(t) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		if !strings.Contains(string(text), "```go\n") {
			continue
		}
		title, _, _ := strings.Cut(string(text), "\n")
		for _, block := range docblocks.Of(t, page, title) {
			if block.Language == "go" && !strings.HasPrefix(block.Code, "package ") {
				pieces++
				assert.True(t, code.Has(block.Code), "%s: no Go file has\n%s", page, block.Code)
			}
		}
	}
	assert.Greater(t, pieces, 40)
	assert.False(t, code.Has("a\nb\nc\n"), "the negative control")
}

// pagesOf returns the pages in docs and at the top of the repository.
func pagesOf(t *testing.T) (pages []string) {
	for _, dir := range []string{"", "docs", "docs/internals"} {
		found, err := filepath.Glob(filepath.Join(root, dir, "*.md"))
		require.NoError(t, err)
		require.NotEmpty(t, found, dir)
		pages = append(pages, found...)
	}
	return pages
}

// What users read stays short: eleven pages beside their index, whose lines may fall freely. What
// only contributors need is in docs/internals.
func TestPagesStayShort(t *testing.T) {
	count := func(dir string) (pages, lines int) {
		for _, page := range pagesOf(t) {
			// Forges look for the other pages there.
			others := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md"}
			inDir := filepath.Dir(page) == filepath.Join(root, dir)
			if inDir && !slices.Contains(others, filepath.Base(page)) {
				text, err := os.ReadFile(page)
				require.NoError(t, err)
				pages, lines = pages+1, lines+strings.Count(string(text), "\n")
			}
		}
		return pages, lines
	}
	pages, lines := count("docs")
	assert.LessOrEqual(t, pages, 11)
	assert.LessOrEqual(t, lines, 2900)
	pages, lines = count("docs/internals")
	assert.NotZero(t, pages)
	assert.LessOrEqual(t, lines, 500)
}

// The program of the README prints what its comment says.
func TestReadmeProgramPrints(t *testing.T) {
	program := docblocks.Of(t, root+"/README.md", "# weir")[0]
	file := filepath.Join(t.TempDir(), "main.go")
	require.NoError(t, os.WriteFile(file, []byte(program.Code), 0o600))
	out, err := slow.Command(t.Context(), "run", file).CombinedOutput()
	assert.NoError(t, err)
	assert.Regexp(t, `^(true\n){3}false\nfalse 0 \d+(\.\d+)?[mµ]?s <nil>\n$`, string(out))
}
