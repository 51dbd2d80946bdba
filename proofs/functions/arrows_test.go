package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The most arrows between the files of the root package that may run back, in the order that has
// the fewest: a file is read without those above it.
const mostBack = 2

func TestFilesFlowOneWay(t *testing.T) {
	root, err := rootDir()
	require.NoError(t, err)
	arrows, err := arrowsOf(root, module)
	require.NoError(t, err)
	assert.Contains(t, arrows, arrow{"limit.go", "strategy.go"}, "the arrows are seen")
	_, back := bestOrder(arrows)
	assert.LessOrEqual(t, len(back), mostBack, "%v", back)
}

// doc.go ends with a list of the files, each once.
func TestTheListOfFilesIsWhole(t *testing.T) {
	root, err := rootDir()
	require.NoError(t, err)
	doc, err := os.ReadFile(filepath.Join(root, "doc.go"))
	require.NoError(t, err)
	_, list, found := strings.Cut(string(doc), "\npackage weir\n")
	require.True(t, found)
	sources, err := filepath.Glob(filepath.Join(root, "*.go"))
	require.NoError(t, err)
	var want []string
	for _, file := range sources {
		name := filepath.Base(file)
		if name != "doc.go" && !strings.HasSuffix(name, "_test.go") {
			want = append(want, name)
		}
	}
	assert.ElementsMatch(t, want, regexp.MustCompile(`[a-z_]+\.go\b`).FindAllString(list, -1))
}

func TestArrowsAreUsesOfOtherFiles(t *testing.T) {
	dir := t.TempDir()
	for name, src := range map[string]string{
		"go.mod":    "module example.org/p\n",
		"a.go":      "package p\n\nimport \"time\"\n\ntype a struct{ n int }\n\nfunc (a) m() {}\n\nvar _ time.Time\n",
		"b.go":      "package p\n\nfunc b(x a) int { x.m(); return x.n }\n",
		"b_test.go": "package p\n\nvar _ = b\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(src), 0o600))
	}
	t.Setenv("GOWORK", "off")
	arrows, err := arrowsOf(dir, "example.org/p")
	require.NoError(t, err)
	assert.Equal(t, map[arrow]int{{"b.go", "a.go"}: 3}, arrows, "a type, a method and a field")
}

func TestBestOrderLeavesTheFewestArrowsBack(t *testing.T) {
	for name, tt := range map[string]struct {
		arrows []arrow
		back   int
	}{
		"a chain":               {[]arrow{{"a", "b"}, {"b", "c"}, {"a", "c"}}, 0},
		"a circle":              {[]arrow{{"a", "b"}, {"b", "c"}, {"c", "a"}}, 1},
		"two circles":           {[]arrow{{"a", "b"}, {"b", "a"}, {"c", "d"}, {"d", "c"}, {"a", "c"}}, 2},
		"one that all point to": {[]arrow{{"b", "a"}, {"c", "a"}, {"d", "a"}, {"a", "d"}}, 1},
	} {
		arrows := map[arrow]int{}
		for _, a := range tt.arrows {
			arrows[a] = 1
		}
		order, back := bestOrder(arrows)
		assert.Len(t, back, tt.back, "%s: %v", name, order)
	}
}
