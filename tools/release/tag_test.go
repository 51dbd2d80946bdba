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

// repo is a git repository with a copy of the project.
func repo(t *testing.T) *Tree {
	t.Helper()
	for _, who := range []string{"AUTHOR", "COMMITTER"} {
		t.Setenv("GIT_"+who+"_NAME", "test")
		t.Setenv("GIT_"+who+"_EMAIL", "test@example.com")
	}
	tree, err := Open("../..")
	require.NoError(t, err)
	tree, err = tree.Copy(t.TempDir())
	require.NoError(t, err)
	shell(t, tree.Dir, nil, "git add -A && git commit -q -m start")
	return tree
}

// The tool is installed from the tags of a git repository, as from the public one.
func TestTag(t *testing.T) {
	tree := repo(t)
	tags, err := (&release{tree, testVersion}).tag()
	require.NoError(t, err)
	assert.Equal(t, testVersion, tags[0], "the root module comes first")
	for _, user := range []string{"cmd/weir/", "adapters/caddylimit/"} {
		assert.Greater(t, slices.Index(tags, user+testVersion),
			slices.Index(tags, "redislimit/"+testVersion),
			"and %s after what it requires", user)
	}
	assert.Len(t, tags, len(tree.Published()))

	bin := t.TempDir()
	env := append((&release{tree, testVersion}).directEnv(t.TempDir()), append(slices.Clip(quick), "GOBIN="+bin)...)
	shell(t, t.TempDir(), env, "go install github.com/weirgo/weir/cmd/weir@"+testVersion)
	assert.Contains(t, shell(t, bin, nil, "./weir --version"), testVersion)

	changes, err := os.ReadFile(filepath.Join(tree.Dir, "CHANGELOG.md"))
	require.NoError(t, err)
	assert.Contains(t, string(changes), "\n## "+strings.TrimPrefix(testVersion, "v")+" - 20")

	_, err = (&release{tree, "v0.9.10"}).tag()
	assert.ErrorContains(t, err, "Unreleased", "there is nothing to release")
	assert.Empty(t, shell(t, tree.Dir, nil, "git status --porcelain; git tag --list '*v0.9.10'"),
		"and nothing is left of it")
}

func TestTagRefuses(t *testing.T) {
	tree := repo(t)
	for _, version := range []string{"", "0.2.0", "v1", "v1.2", "v1.2.3+meta", "next"} {
		_, err := (&release{tree, version}).tag()
		assert.ErrorContains(t, err, "not a version", "%q", version)
	}
	require.NoError(t, os.WriteFile(filepath.Join(tree.Dir, "doc.go"), []byte("package weir\n"),
		0o644))
	_, err := (&release{tree, testVersion}).tag()
	assert.ErrorContains(t, err, "uncommitted")
}
