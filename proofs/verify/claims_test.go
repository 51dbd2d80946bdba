package verify

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	quoted   = regexp.MustCompile("`([^`]+)`|((?:Test|Fuzz)\\w+)")
	declared = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
)

// testAt is a test in a directory.
type testAt struct{ dir, name string }

// testsNamedIn returns the tests that a row of a table names outside of backquotes, each in the
// directory that was named last before it.
func testsNamedIn(row string) (tests []testAt) {
	dir := ""
	for _, found := range quoted.FindAllStringSubmatch(row, -1) {
		if found[1] != "" {
			dir = found[1]
		} else {
			tests = append(tests, testAt{dir, found[2]})
		}
	}
	return tests
}

// missing returns the tests named in rows of tables that do not exist where they are said to be.
func missing(t *testing.T, page string) (tests []testAt) {
	existing := map[string][]string{} // by directory
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		for _, test := range testsNamedIn(line) {
			if existing[test.dir] == nil {
				existing[test.dir] = testsIn(t, filepath.Join("..", "..", test.dir))
			}
			if !slices.Contains(existing[test.dir], test.name) {
				tests = append(tests, test)
			}
		}
	}
	return tests
}

// The tests named in CLAIMS.md, SECURITY.md and proofs.md exist in the stated directories.
func TestClaims(t *testing.T) {
	for _, file := range []string{"CLAIMS.md", "../../docs/SECURITY.md", "../../docs/internals/proofs.md"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		assert.Contains(t, string(text), "` Test")
		assert.Empty(t, missing(t, string(text)), file)
	}
}

func TestClaimsOfTestsThatDoNotExistAreFound(t *testing.T) {
	page := "| `Peek` is. | `adapters/echov4limit` TestNowhere, `proofs/verify` TestClaims, TestGone | " +
		"`weirtest` TestClaims |\nTestOfNoRow\n| `weirtest.TestStrategy` is. | TestWithoutADirectory |\n"
	assert.Equal(t, []testAt{
		{"adapters/echov4limit", "TestNowhere"}, {"proofs/verify", "TestGone"}, {"weirtest", "TestClaims"},
		{"weirtest.TestStrategy", "TestWithoutADirectory"},
	}, missing(t, page))
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
	faulty := map[testAt]bool{}
	for _, f := range claimFaults {
		faulty[testAt{f.dir, f.test}] = true
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
		tests := testsNamedIn(proof)
		assert.NotEmpty(t, tests, cells[0])
		if _, reason, none := strings.Cut(control, "none needed: "); !none || len(reason) < 10 {
			assert.NotEmpty(t, testsNamedIn(control), "the control of %s", cells[0])
		}
		for _, test := range tests {
			delete(faulty, test)
		}
	}
	assert.Empty(t, faulty, "faults of no claim's test")
}
