package main

import (
	"encoding/json"
	"fmt"
	"go/version"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/testkit/slow"
)

// command runs a program in dir, and returns its standard output.
func command(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env, cmd.Stderr = dir, append(os.Environ(), env...), os.Stderr
	out, err := cmd.Output()
	require.NoError(t, err)
	return string(out)
}

// What the go command lists of the tool is in its bill of materials and has its licences, in the
// same bytes in each run.
func TestInventoryOfTheTool(t *testing.T) {
	t.Chdir("../..")
	dir := t.TempDir()
	tool := filepath.Join(dir, "weir")
	command(t, ".", []string{"CGO_ENABLED=0"}, "go", "build", "-o", tool, "./cmd/weir")
	require.NoError(t, run("", []string{tool}))

	text, err := os.ReadFile(tool + ".cdx.json")
	require.NoError(t, err)
	require.NoError(t, valid(text))
	var got bom
	require.NoError(t, json.Unmarshal(text, &got))
	assert.Equal(t, "github.com/weirgo/weir/cmd/weir", got.Metadata.Component.Name)
	licenses, err := os.ReadFile(filepath.Join(dir, "LICENSES.txt"))
	require.NoError(t, err)
	own, err := os.ReadFile("LICENSE")
	require.NoError(t, err)
	assert.Contains(t, string(licenses), strings.TrimSpace(string(own)))

	linked := 0
	for line := range strings.Lines(command(t, ".", nil, "go", "version", "-m", tool)) {
		fields := strings.Fields(line)
		if fields[0] != "dep" {
			continue
		}
		linked++
		i := slices.IndexFunc(got.Components, func(c component) bool { return c.Name == fields[1] })
		require.GreaterOrEqual(t, i, 0, line)
		c := got.Components[i]
		if strings.HasPrefix(c.Name, project) {
			continue
		}
		assert.Equal(t, fields[2], c.Version, line)
		assert.Equal(t, []property{{"go:sum", fields[3]}}, c.Properties, line)
		assert.Contains(t, string(licenses), "\n"+c.Name+" "+c.Version+": LICENSE", line)
		of := command(t, "cmd/weir", nil, "go", "list", "-m", "-f", "{{.Dir}}", c.Name)
		license, err := filepath.Glob(filepath.Join(strings.TrimSpace(of), "LICENSE*"))
		require.NoError(t, err)
		require.NotEmpty(t, license, line)
		words, err := os.ReadFile(license[0])
		require.NoError(t, err)
		assert.Contains(t, string(licenses), strings.TrimSpace(string(words)), line)
	}
	assert.Greater(t, linked, 5)
	assert.Len(t, got.Components, linked+1, "and Go's own")
	assert.Contains(t, string(licenses), "\nstdlib "+strings.TrimPrefix(goVersion(t), "go")+": LICENSE")
	assert.True(t, slices.ContainsFunc(got.Components, func(c component) bool {
		return c.URL == "pkg:golang/stdlib@"+strings.TrimPrefix(goVersion(t), "go")
	}))

	require.NoError(t, run(filepath.Join(dir, "again"), []string{tool}))
	again, err := os.ReadFile(filepath.Join(dir, "again"))
	require.NoError(t, err)
	assert.Equal(t, string(licenses), string(again))
	bill, err := os.ReadFile(tool + ".cdx.json")
	require.NoError(t, err)
	assert.Equal(t, string(text), string(bill))
}

func goVersion(t *testing.T) string {
	return strings.TrimSpace(command(t, ".", nil, "go", "env", "GOVERSION"))
}

var (
	packageURL = regexp.MustCompile(`^pkg:golang/[a-z0-9./~_-]+(@[A-Za-z0-9._%-]+)?(#[a-z0-9/._-]+)?$`)
	digest     = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// valid checks what the schema of CycloneDX 1.5 requires of a bill of materials, and that it has
// nothing that is not written here.
func valid(text []byte) error {
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.DisallowUnknownFields()
	var b bom
	if err := d.Decode(&b); err != nil {
		return err
	}
	if b.Format != "CycloneDX" || b.Spec != "1.5" || b.Version != 1 {
		return fmt.Errorf("%s %s %d", b.Format, b.Spec, b.Version)
	}
	refs := map[string]bool{}
	for i, c := range append([]component{b.Metadata.Component}, b.Components...) {
		kind := "library"
		if i == 0 {
			kind = "application"
		}
		switch {
		case c.Type != kind, c.Name == "", c.Ref == "", refs[c.Ref], !packageURL.MatchString(c.URL):
			return fmt.Errorf("%+v", c)
		}
		refs[c.Ref] = true
		for _, h := range c.Hashes {
			if h.Algorithm != "SHA-256" || !digest.MatchString(h.Content) {
				return fmt.Errorf("%+v", h)
			}
		}
		for _, p := range c.Properties {
			if p.Name == "" || p.Value == "" {
				return fmt.Errorf("%+v", c)
			}
		}
	}
	return nil
}

func TestBillOfMaterials(t *testing.T) {
	p := &program{sha256: make([]byte, 32), path: "example.com/App/cmd/app",
		main: module{path: "example.com/App", version: "v1.2.3"},
		modules: []module{{path: "example.com/Old", version: "v2.0.0+incompatible", sum: "h1:x="},
			{path: stdlib, version: "1.26.8"}},
		settings: map[string]string{"GOOS": "linux", "GOARCH": "amd64", "-ldflags": "-s"}}
	text, err := bomOf(p)
	require.NoError(t, err)
	require.NoError(t, valid(text))
	assert.JSONEq(t, `{"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
		"metadata": {"component": {"type": "application", "name": "example.com/App/cmd/app", "version": "v1.2.3",
			"bom-ref": "pkg:golang/example.com/app@v1.2.3#cmd/app",
			"purl": "pkg:golang/example.com/app@v1.2.3#cmd/app",
			"hashes": [{"alg": "SHA-256", "content": "`+strings.Repeat("0", 64)+`"}],
			"properties": [{"name": "go:GOOS", "value": "linux"}, {"name": "go:GOARCH", "value": "amd64"}]}},
		"components": [
			{"type": "library", "name": "example.com/Old", "version": "v2.0.0+incompatible",
				"bom-ref": "pkg:golang/example.com/old@v2.0.0%2Bincompatible",
				"purl": "pkg:golang/example.com/old@v2.0.0%2Bincompatible",
				"properties": [{"name": "go:sum", "value": "h1:x="}]},
			{"type": "library", "name": "stdlib", "version": "1.26.8",
				"bom-ref": "pkg:golang/stdlib@1.26.8", "purl": "pkg:golang/stdlib@1.26.8"}]}`, string(text))

	for _, broken := range []struct{ name, old, with string }{
		{"no type", `"type": "library",`, ""},
		{"another format", "CycloneDX", "SPDX"},
		{"a field that is not of it", `"bomFormat"`, `"license": "MIT", "bomFormat"`},
		{"two components of one name", "stdlib@1.26.8", "example.com/old@v2.0.0%2Bincompatible"},
		{"a hash that is none", strings.Repeat("0", 64), "h1:x="},
		{"a URL with a plus", "%2B", "+"},
	} {
		changed := strings.ReplaceAll(string(text), broken.old, broken.with)
		require.NotEqual(t, string(text), changed, broken.name)
		assert.Error(t, valid([]byte(changed)), broken.name)
	}
}

func TestLicenseFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(names ...string) {
		for _, name := range names {
			require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("text of "+name), 0o600))
		}
	}
	m := module{path: "example.com/a", version: "v1.0.0", dir: dir}
	write("license.go", "README.md", "LICENSES.csv", "licensecheck/a.txt", "testdata/LICENSE",
		"_other/LICENSE", ".github/LICENSE", "notices.go", "copyrighted")
	_, err := licenseFiles(m)
	require.ErrorContains(t, err, "example.com/a@v1.0.0 has no licence")

	want := []string{"COPYING", "COPYING.LESSER", "COPYRIGHT", "LICENCE", "LICENSE-MIT", "LICENSE.md",
		"LICENSES/Apache-2.0.txt", "MIT-LICENSE.txt", "NOTICE", "PATENTS", "UNLICENSE", "part/License.txt"}
	write(want...)
	files, err := licenseFiles(m)
	require.NoError(t, err)
	var got []string
	for _, file := range files {
		name, err := filepath.Rel(dir, file)
		require.NoError(t, err)
		got = append(got, filepath.ToSlash(name))
	}
	assert.Equal(t, want, got)
}

func TestEqualTextsStandOnce(t *testing.T) {
	var modules []module
	for path, text := range map[string]string{"example.com/a": "Words.\n", "example.com/b": "Words.\r\n\r\n",
		"example.com/c": "Others."} {
		m := module{path: path, version: "v1.0.0", dir: t.TempDir()}
		require.NoError(t, os.WriteFile(filepath.Join(m.dir, "LICENSE"), []byte(text), 0o600))
		modules = append(modules, m)
	}
	slices.SortFunc(modules, module.compare)
	text, err := licensesOf(modules)
	require.NoError(t, err)
	assert.Contains(t, string(text),
		"example.com/a v1.0.0: LICENSE\nexample.com/b v1.0.0: LICENSE\n\nWords.\n\n=")
	assert.Contains(t, string(text), "example.com/c v1.0.0: LICENSE\n\nOthers.\n")
}

// A licence is not taken from a module that has other contents than the one that was linked.
func TestModulesHaveTheSumsOfTheProgram(t *testing.T) {
	t.Chdir("../..")
	xsync := module{path: "github.com/puzpuzpuz/xsync/v3", version: "v3.5.1",
		sum: "h1:GJYJZwO6IdxN/IKbneznS6yPkVC+c3zyY/j19c++5Fg="}
	modules, err := located([]*program{{main: module{path: project}, modules: []module{xsync}}})
	require.NoError(t, err)
	assert.NotEmpty(t, modules[0].dir)
	xsync.sum = "h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	_, err = located([]*program{{main: module{path: project}, modules: []module{xsync}}})
	assert.ErrorContains(t, err, "not that of the program")
}

// The image is built with one Go, which is no older than the workspace's.
func TestTheImageIsPinned(t *testing.T) {
	text, err := os.ReadFile("../../cmd/weir/Containerfile")
	require.NoError(t, err)
	from := regexp.MustCompile(`(?m)^FROM (\S+)`).FindAllStringSubmatch(string(text), -1)
	require.Len(t, from, 2)
	pinned := regexp.MustCompile(`^golang:([0-9]+\.[0-9]+\.[0-9]+)-[a-z]+$`).FindStringSubmatch(from[0][1])
	require.NotNil(t, pinned, from[0][1])
	assert.Equal(t, "scratch", from[1][1])
	work, err := os.ReadFile("../../go.work")
	require.NoError(t, err)
	needed := regexp.MustCompile(`(?m)^go (\S+)$`).FindStringSubmatch(string(work))
	assert.GreaterOrEqual(t, version.Compare("go"+pinned[1], "go"+needed[1]), 0)
}

// Two clones in other directories, compiled without a common cache, are the same program.
func TestBuildsHaveEqualBytes(t *testing.T) {
	if slow.N(0, 0, 1) == 0 {
		t.Skip("slow, for it compiles the tool twice: make nightly runs it")
	}
	temp := t.TempDir()
	first, second := filepath.Join(temp, "a"), filepath.Join(temp, "another", "folder")
	command(t, "../..", nil, "git", "clone", "-q", ".", first)
	command(t, first, nil, "git", "clone", "-q", ".", second)
	var programs []string
	for _, dir := range []string{first, second} {
		command(t, dir, []string{"CGO_ENABLED=0", "GOFLAGS=", "GOCACHE=" + t.TempDir()}, "go", "build",
			"-trimpath", "-buildvcs=true", "-ldflags=-s -w", "-o", "dist/weir", "./cmd/weir")
		program, err := os.ReadFile(filepath.Join(dir, "dist", "weir"))
		require.NoError(t, err)
		programs = append(programs, string(program))
	}
	assert.True(t, programs[0] == programs[1]) // not Equal, which prints them
}
