package verify

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	named    = regexp.MustCompile("`([a-z./]+)` ((?:Test|Fuzz)\\w+)")
	declared = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
)

// The tests that CLAIMS.md and SECURITY.md name exist where they say.
func TestClaims(t *testing.T) {
	for _, file := range []string{"CLAIMS.md", "../SECURITY.md"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		tests := named.FindAllStringSubmatch(string(text), -1)
		assert.NotEmpty(t, tests, file)
		for _, name := range tests {
			assert.Contains(t, testsIn(t, filepath.Join("..", name[1])), name[2], "%s: not in %s", file, name[1])
		}
	}
}

func testsIn(t *testing.T, dir string) (names []string) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, name := range declared.FindAllStringSubmatch(string(text), -1) {
			names = append(names, name[1])
		}
	}
	return names
}

// Every row of CLAIMS.md has a test.
func TestEveryClaimHasATest(t *testing.T) {
	text, err := os.ReadFile("CLAIMS.md")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if claim, proof, ok := strings.Cut(strings.TrimPrefix(line, "| "), " | "); ok && !strings.HasPrefix(line, "| claim") {
			assert.Regexp(t, named, proof, claim)
		}
	}
}
