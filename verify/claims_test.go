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

// The tests named in CLAIMS.md and SECURITY.md exist in the stated directories.
func TestClaims(t *testing.T) {
	tests := map[string][]string{} // by directory
	for _, file := range []string{"CLAIMS.md", "../SECURITY.md"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		claims := named.FindAllStringSubmatch(string(text), -1)
		assert.NotEmpty(t, claims, file)
		for _, claim := range claims {
			dir, name := claim[1], claim[2]
			if tests[dir] == nil {
				tests[dir] = testsIn(t, filepath.Join("..", dir))
			}
			assert.Contains(t, tests[dir], name, "%s: not in %s", file, dir)
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

// Every row of CLAIMS.md names a test.
func TestEveryClaimHasATest(t *testing.T) {
	text, err := os.ReadFile("CLAIMS.md")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if claim, proof, ok := strings.Cut(strings.TrimPrefix(line, "| "), " | "); ok &&
			!strings.HasPrefix(line, "| claim") {
			assert.Regexp(t, named, proof, claim)
		}
	}
}
