package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const testVersion = "v0.9.9"

// packed packs a copy of the repository and returns it, with the environment of a user who can
// install it: no workspace, and the project's modules at testVersion only. All tests share one, to
// download and unzip the frameworks' modules once; none of them changes it.
func packed(t *testing.T) (*Tree, []string) {
	t.Helper()
	p, err := packOnce()
	require.NoError(t, err)
	return p.tree, slices.Clip(p.env)
}

var scratch string // a directory, set by TestMain

var packOnce = sync.OnceValues(func() (p packing, err error) {
	if p.tree, err = Open("../.."); err != nil {
		return p, err
	}
	if p.tree, err = p.tree.Copy(filepath.Join(scratch, "weir")); err != nil {
		return p, err
	}
	proxy := filepath.Join(scratch, "proxy")
	if err := pack(p.tree, proxy, testVersion); err != nil {
		return p, err
	}
	if p.env, err = goEnv(proxy, filepath.Join(scratch, "modules")); err != nil {
		return p, err
	}
	p.env = append(p.env, quick...)
	return p, nil
})

// quick has the compiler leave out what debuggers need, and collect less garbage. All tests have
// the same, so that none compiles what another has.
var quick = []string{"GOFLAGS=-modcacherw -trimpath -gcflags=all=-dwarf=false", "GOGC=400"}

// packing is a packed copy of the repository.
type packing struct {
	tree *Tree
	env  []string
}

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "weir-release-"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(scratch)
	os.Exit(code)
}

// shell runs a shell command in dir and returns its standard output.
func shell(t *testing.T, dir string, env []string, line string) string {
	t.Helper()
	out, err := command(dir, env, "bash", "-euo", "pipefail", "-c", line)
	require.NoError(t, err)
	return string(out)
}

// Each published module can be installed, or added to a new module, in an empty folder.
func TestInstallInEmptyFolder(t *testing.T) {
	tree, env := packed(t)
	for _, m := range tree.Published() {
		t.Run(m.Dir, func(t *testing.T) {
			dir := t.TempDir()
			if strings.HasPrefix(m.Dir, "cmd/") {
				bin := t.TempDir()
				tool, env := filepath.Join(bin, filepath.Base(m.Dir)), append(env, "GOBIN="+bin)
				shell(t, dir, env, "go install "+m.Path+"@latest")
				assert.Contains(t, shell(t, dir, env, tool+" --version"), testVersion)
				// What it says if a command needs its other program.
				install := shell(t, dir, env, "! "+tool+" proxy 2>&1 | grep -o 'go install .*'")
				assert.Contains(t, shell(t, dir, env, install+tool+" proxy --help"), "weir proxy --limit")
				return
			}
			shell(t, dir, env, "go mod init example.com/app && go get "+m.Path+"@latest")
			shell(t, dir, env,
				`p=$(go list -e -f '{{if and .GoFiles (ne .Name "main")}}{{.ImportPath}}{{end}}' `+m.Path+`/... | grep -v internal/) && printf 'package app\n\nimport (\n' > app.go &&
				printf '\t_ "%s"\n' $p >> app.go && echo ')' >> app.go && go mod tidy`)
			if m.Workspace == adapters { // every import is found; make standalone checks these modules
				shell(t, dir, env, "go list -deps ./... >deps")
				return
			}
			require.NoError(t, newChecker(dir).check(dir, append(env, "CGO_ENABLED=0"), false, "./..."))
		})
	}
}

var fence = regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$")

// The install lines of the README, and the programs there and in docs, work when they are pasted
// into an empty folder.
func TestReadmeInEmptyFolder(t *testing.T) {
	_, env := packed(t)
	dir := t.TempDir()
	env = append(env, "GOBIN="+t.TempDir())
	shell(t, dir, env, "go mod init example.com/app")
	installed := 0
	programs, fragments := 0, 0
	pages, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	for _, page := range append([]string{"../../README.md"}, pages...) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, block := range fence.FindAllStringSubmatch(string(text), -1) {
			switch language, code := block[1], block[2]; {
			case language == "sh" && regexp.MustCompile(`(?m)^go (get|install) `).MatchString(code):
				shell(t, dir, env, code)
				installed++
			case language == "go" && strings.HasPrefix(code, "package "):
				require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(code), 0o644))
				shell(t, dir, env, "go mod tidy && go vet . && test -z \"$(gofmt -l .)\"")
				programs++
			case language == "go" && page == "../../README.md": // docs have other fragments
				fragments++
			}
		}
	}
	assert.Equal(t, 3, installed, "two of the README, and that of the tutorial")
	assert.Equal(t, 3, fragments, "the calls, which examples/pages compiles")
	assert.GreaterOrEqual(t, programs, 10)
}

// The negative control: a replace directive, which go install refuses, is noticed.
func TestPackRejectsReplace(t *testing.T) {
	tree, err := Open("../..")
	require.NoError(t, err)
	tree, err = tree.Copy(t.TempDir())
	require.NoError(t, err)
	shell(t, tree.Dir, []string{"GOWORK=off"},
		"go mod edit -replace github.com/weirgo/weir=../.. cmd/weir/go.mod")
	assert.ErrorContains(t, pack(tree, t.TempDir(), testVersion), "replace")
}
