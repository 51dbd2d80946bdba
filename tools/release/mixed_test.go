package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// prometheus is the tree in dir with two modules: the root, and metrics/weirprom.
func prometheus(t *testing.T, dir string) *Tree {
	t.Helper()
	tree, err := Open(dir)
	require.NoError(t, err)
	tree.Modules = slices.DeleteFunc(tree.Modules, func(m *Module) bool {
		return m.Dir != "." && m.Dir != "metrics/weirprom"
	})
	return tree
}

// Modules that fit are mixed without a failure. When the root renames what another module imports,
// the release and the tree do not fit any more, either way round.
func TestMixedFindsModulesThatDoNotFit(t *testing.T) {
	tree := repo(t)
	shell(t, tree.Dir, nil, "git tag v0.8.0 && git tag v0.10.0-rc.1 && git tag redislimit/v0.9.0")
	last, err := tree.lastRelease()
	require.NoError(t, err)
	assert.Equal(t, "v0.10.0-rc.1", last)
	released := filepath.Join(t.TempDir(), "released")
	shell(t, tree.Dir, nil, "git worktree add -q --detach "+released+" v0.8.0")
	old := prometheus(t, released)
	require.NoError(t, mix(prometheus(t, tree.Dir), old, t.TempDir()))

	for _, name := range []string{"metrics/metrics.go", "metrics/weirprom/collector.go"} {
		name = filepath.Join(tree.Dir, name)
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Contains(t, string(text), "PrometheusName")
		require.NoError(t, os.WriteFile(name,
			[]byte(strings.ReplaceAll(string(text), "PrometheusName", "NameForPrometheus")), 0o644))
	}
	now := prometheus(t, tree.Dir)
	assert.ErrorContains(t, mix(now, old, t.TempDir()), "PrometheusName")
	assert.ErrorContains(t, mix(old, now, t.TempDir()), "NameForPrometheus")
}

// Without a release there is nothing to mix.
func TestMixedWithoutARelease(t *testing.T) {
	assert.NoError(t, mixed(repo(t)))
}
