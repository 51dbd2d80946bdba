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
	for _, file := range []string{"CLAIMS.md", "../../SECURITY.md"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		claims := named.FindAllStringSubmatch(string(text), -1)
		assert.NotEmpty(t, claims, file)
		for _, claim := range claims {
			dir, name := claim[1], claim[2]
			if tests[dir] == nil {
				tests[dir] = testsIn(t, filepath.Join("..", "..", dir))
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

// Every row of CLAIMS.md names a test, and a negative control or why none is needed. The test of a
// claim whose control is a fault is in the table of faults, and no other is.
func TestEveryClaimHasATestAndAControl(t *testing.T) {
	text, err := os.ReadFile("CLAIMS.md")
	require.NoError(t, err)
	faulty := map[string]bool{}
	for _, f := range claimFaults {
		faulty["`"+f.dir+"` "+f.test] = true
	}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.TrimSuffix(line, "\n"), " |")
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| claim |") {
			continue
		}
		if !assert.Len(t, cells, 4, "claim, test, control: %s", line) {
			continue
		}
		proof, control := cells[1], strings.TrimSpace(cells[2])
		assert.Regexp(t, named, proof, cells[0])
		if _, reason, none := strings.Cut(control, "none needed: "); !none || len(reason) < 10 {
			assert.Regexp(t, named, control, "the control of %s", cells[0])
		}
		for _, test := range named.FindAllString(proof, -1) {
			delete(faulty, test)
		}
	}
	assert.Empty(t, faulty, "faults of no claim's test")
}
