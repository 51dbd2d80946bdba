package verify

import (
	"cmp"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// layers are those of the core, from the ground up: a package imports what stands before its line,
// and what stands in its line imports nothing of that line. docs/internals/design.md has the
// picture.
var layers = [][]string{
	{"internal/core/arith", "internal/core/bounds", "internal/core/ids", "internal/core/tally",
		"internal/core/turns", "internal/core/snapshot"},
	{"internal/core/calendar", "internal/core/room"},
	{"internal/core/algorithm"},
	{"internal/core/clock"},
	{"internal/core/slots"},
	{"internal/core/states", "internal/core/windows"},
	{"internal/core/engine"},
	{"internal/core/foroverload"},
	{"."},
	{"limits", "overload"},
}

// importsOf returns what a package of the root module imports from it, without its tests.
func importsOf(t *testing.T, dir string) (imports []string) {
	t.Helper()
	const module = "github.com/weirgo/weir"
	files, err := filepath.Glob(filepath.Join("..", "..", dir, "*.go"))
	require.NoError(t, err)
	require.NotEmpty(t, files, dir)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, i := range f.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			require.NoError(t, err)
			if in, ok := strings.CutPrefix(path, module); ok {
				imports = append(imports, cmp.Or(strings.TrimPrefix(in, "/"), "."))
			}
		}
	}
	return imports
}

// upwards returns the imports that point up, or aside, given those of each package.
func upwards(of func(dir string) []string) (wrong []string) {
	var below []string
	for _, layer := range layers {
		for _, dir := range layer {
			for _, in := range of(dir) {
				known := slices.ContainsFunc(layers, func(l []string) bool { return slices.Contains(l, in) })
				if known && !slices.Contains(below, in) {
					wrong = append(wrong, dir+" imports "+in)
				}
			}
		}
		below = append(below, layer...)
	}
	return wrong
}

func TestLayersOfTheCoreImportDownwards(t *testing.T) {
	of := func(dir string) []string { return importsOf(t, dir) }
	assert.Empty(t, upwards(of))
	assert.Contains(t, of("."), "internal/core/slots", "the imports are seen")
}

// The picture of docs/internals/design.md has every layer.
func TestThePictureHasTheLayers(t *testing.T) {
	text, err := os.ReadFile("../../docs/internals/design.md")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(text), "## Layers\n\n```text\n")
	picture, _, ok := strings.Cut(rest, "```")
	require.True(t, ok)
	words := strings.FieldsFunc(picture, func(r rune) bool { return !unicode.IsLetter(r) })
	for _, layer := range layers {
		for _, dir := range layer {
			name := "weir"
			if dir != "." {
				name = filepath.Base(dir)
			}
			assert.Contains(t, words, name)
		}
	}
}

func TestAnImportThatPointsUpIsFound(t *testing.T) {
	for from, to := range map[string]string{"internal/core/slots": "internal/core/states", "internal/core/clock": ".",
		"internal/core/states": "internal/core/windows"} {
		wrong := upwards(func(dir string) []string {
			if dir == from {
				return []string{"internal/core/arith", to}
			}
			return nil
		})
		assert.Equal(t, []string{from + " imports " + to}, wrong)
	}
}
