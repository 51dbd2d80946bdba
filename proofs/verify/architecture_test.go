package verify

import (
	"cmp"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// parts are those of the repository: what their packages begin with, and which other parts these
// may import. The first part of which a package is one counts. docs/internals/architecture.md has
// the picture.
var parts = []struct {
	name     string
	packages []string
	imports  []string
}{
	{"proofs", []string{"proofs", "weirtest", "tools", "examples", "internal/testkit",
		"redislimit/redistest"},
		[]string{"core", "stores", "doors", "watching", "programs"}},
	{"programs", []string{"cmd", "adapters/caddylimit"}, []string{"core", "stores", "doors", "watching"}},
	{"watching", []string{"metrics", "offenders"}, []string{"core", "stores", "doors"}},
	{"doors", []string{"httplimit", "httpclient", "rules", "adapters", "internal/doors"}, []string{"core"}},
	{"stores", []string{"redislimit", "fallback", "near", "internal/stores"}, []string{"core"}},
	{"core", []string{".", "limits", "overload", "internal/core"}, nil},
}

// partOf returns the number of the part of a package.
func partOf(dir string) int {
	for i, p := range parts {
		for _, begin := range p.packages {
			if dir == begin || strings.HasPrefix(dir, begin+"/") {
				return i
			}
		}
	}
	return -1
}

// packagesOf returns the directories of the packages that are no tests alone.
func packagesOf(t *testing.T) []string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "git", "ls-files", "*.go")
	list.Dir = "../.."
	out, err := list.Output()
	require.NoError(t, err)
	dirs := map[string]bool{}
	for name := range strings.FieldsSeq(string(out)) {
		if !strings.HasSuffix(name, "_test.go") && !strings.Contains(name, "testdata/") {
			dirs[path.Dir(name)] = true
		}
	}
	return slices.Sorted(maps.Keys(dirs))
}

// wrongArrows returns the imports that no part may have, given those of each package.
func wrongArrows(dirs []string, of func(dir string) []string) (wrong []string) {
	for _, dir := range dirs {
		from := partOf(dir)
		for _, in := range of(dir) {
			to := partOf(cmp.Or(in, "."))
			if from != to && (from < 0 || to < 0 || !slices.Contains(parts[from].imports, parts[to].name)) {
				wrong = append(wrong, dir+" imports "+in)
			}
		}
	}
	return wrong
}

func TestTheArchitecture(t *testing.T) {
	dirs := packagesOf(t)
	require.Greater(t, len(dirs), 85)
	assert.Empty(t, wrongArrows(dirs, func(dir string) []string { return importsOf(t, dir) }))

	text, err := os.ReadFile("../../docs/internals/architecture.md")
	require.NoError(t, err)
	assert.Empty(t, unlisted(dirs, string(text)))
	assert.LessOrEqual(t, strings.Count(string(text), "\n"), 120, "lines")
}

// unlisted returns the packages that a page does not name in backquotes: by their path, by its
// beginning and an ellipsis, or below an internal directory by their name.
func unlisted(dirs []string, page string) (missing []string) {
	fields := strings.Split(page, "`")
	for _, dir := range dirs {
		if !slices.ContainsFunc(fields, func(f string) bool {
			begin, all := strings.CutSuffix(f, "…")
			return f == dir || all && strings.HasPrefix(dir, begin) ||
				(strings.Contains("/"+dir, "/internal/") || dir == "redislimit/redistest") &&
					f == path.Base(dir)
		}) {
			missing = append(missing, dir)
		}
	}
	return missing
}

func TestWrongArrowsAndUnlistedPackagesAreFound(t *testing.T) {
	for from, to := range map[string]string{
		"internal/core/slots": "redislimit", ".": "httplimit", "redislimit": "httplimit", "rules": "near",
		"httplimit": "metrics", "metrics": "cmd/weir/internal/serve/live", "cmd/weir": "weirtest",
		"fallback": "proofs/verify",
	} {
		wrong := wrongArrows([]string{from}, func(string) []string { return []string{"internal/core/arith", to} })
		assert.Equal(t, []string{from + " imports " + to}, wrong)
	}
	page := "`.`, `slots` and `proofs/…`"
	assert.Equal(t, []string{"near", "internal/core/clock"},
		unlisted([]string{".", "internal/core/slots", "proofs/fleet", "near", "internal/core/clock"}, page))
}
