package main

import (
	"go/version"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/semver"
)

// needed is the Go version that the project's own code needs: testing/synctest and WaitGroup.Go.
const needed = "1.25.0"

// Each published module allows the oldest Go version that its requirements do.
func TestGoVersionIsOldest(t *testing.T) {
	tree, env := packed(t)
	for _, m := range tree.Published() {
		dir := filepath.Join(tree.Dir, m.Dir)
		oldest, from := needed, "its code"
		for line := range strings.Lines(shell(t, dir, env,
			`go list -m -f '{{if not .Main}}{{.GoVersion}} {{.Path}}{{end}}' all`)) {
			v, path, _ := strings.Cut(strings.TrimSpace(line), " ")
			if semver.Compare("v"+v, "v"+oldest) > 0 {
				oldest, from = v, path
			}
		}
		file, err := tree.modFile(m.Dir)
		require.NoError(t, err)
		assert.Equal(t, oldest, file.Go.Version, "%s: the oldest is that of %s", m.Path, from)
	}
}

// Each published module is correct Go of its oldest version, and so are its tests. In the night it
// is compiled, too, except those of adapters. Where only the last number differs from the Go that
// runs this, every other test shows it.
func TestBuildsWithOldestGo(t *testing.T) {
	tree, env := packed(t)
	c := newChecker(tree.Dir)
	for _, m := range tree.Published() {
		file, err := tree.modFile(m.Dir)
		require.NoError(t, err)
		if version.Lang("go"+file.Go.Version) == version.Lang(runtime.Version()) {
			continue
		}
		t.Run(m.Dir, func(t *testing.T) {
			// The toolchain comes from the module proxy, with the user's settings.
			root := strings.TrimSpace(shell(t, t.TempDir(),
				[]string{"GOWORK=off", "GOTOOLCHAIN=go" + file.Go.Version},
				"go env GOROOT"))
			env := append(env, "GOTOOLCHAIN=local", "PATH="+filepath.Join(root, "bin")+":/usr/bin:/bin",
				"GOROOT="+root)
			dir := filepath.Join(tree.Dir, m.Dir)
			require.Contains(t, shell(t, dir, env, "go version"), "go"+file.Go.Version+" ")
			if m.Workspace != adapters && os.Getenv("WEIR_VERIFY") == "full" {
				shell(t, dir, env, "go vet ./...")
				return
			}
			// that go is found in this process's
			t.Setenv("PATH", filepath.Join(root, "bin")+":/usr/bin:/bin")
			require.NoError(t, c.check(dir, append(env, "CGO_ENABLED=0"), true, "./..."))
		})
	}
}
