package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// core are the root package and its layers of state, which are mutated together.
var core = []string{".", "limits", "internal/core/ids", "internal/core/slots",
	"internal/core/states", "internal/core/windows", "internal/core/turns", "internal/core/snapshot",
	"internal/core/engine"}

// pkg is a package that is mutated.
type pkg struct {
	root     string
	dir      string // from root
	fset     *token.FileSet
	names    []string // of files, from root
	sources  map[string][]byte
	files    map[string]*ast.File
	importer types.Importer
	mutants  []mutant
}

// load parses a package, without its tests, and makes all its mutants; pure as in generate.
func load(root, dir string, pure bool) (*pkg, error) {
	p := &pkg{root: root, dir: dir, fset: token.NewFileSet(), sources: map[string][]byte{},
		files: map[string]*ast.File{}}
	out, err := goList(filepath.Join(root, dir), "-f", "{{range .GoFiles}}{{println .}}{{end}}", ".")
	if err != nil {
		return nil, err
	}
	for _, name := range strings.Fields(string(out)) {
		if name == "check.go" { // is for tests alone
			continue
		}
		name = path.Join(dir, name)
		src, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(p.fset, name, src, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		p.names = append(p.names, name)
		p.sources[name], p.files[name] = src, file
		p.mutants = append(p.mutants, generate(p.fset, name, src, file, pure)...)
	}
	for i := range p.mutants {
		p.mutants[i].pkg = p
	}
	p.importer, err = exports(p.fset, filepath.Join(root, dir))
	return p, err
}

func goList(dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(context.Background(), "go", append([]string{"list"}, args...)...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	return cmd.Output()
}

// exports returns an importer of what the package in dir depends on.
func exports(fset *token.FileSet, dir string) (types.Importer, error) {
	out, err := goList(dir, "-export", "-deps", "-f",
		"{{if .Export}}{{.ImportPath}} {{.Export}}{{end}}", ".")
	if err != nil {
		return nil, err
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	return importer.ForCompiler(fset, "gc",
		func(path string) (io.ReadCloser, error) { return os.Open(files[path]) }), nil
}

var errNotCompiled = errors.New("does not compile")

// check returns errNotCompiled if the mutant does not compile.
func (p *pkg) check(m mutant) error {
	mutated, err := parser.ParseFile(p.fset, m.file, m.apply(p.sources[m.file]),
		parser.SkipObjectResolution)
	if err != nil {
		return errNotCompiled
	}
	var files []*ast.File
	for _, name := range p.names {
		if name == m.file {
			files = append(files, mutated)
			continue
		}
		files = append(files, p.files[name])
	}
	cfg := types.Config{Importer: p.importer, Sizes: types.SizesFor("gc", "amd64")}
	if _, err := cfg.Check(path.Join("github.com/weirgo/weir", p.dir), p.fset, files,
		nil); err != nil {
		return errNotCompiled
	}
	return nil
}

// overlay writes a mutant and the file that go test -overlay reads. remove deletes both.
func (p *pkg) overlay(m mutant) (file string, remove func(), err error) {
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	source := filepath.Join(dir, filepath.Base(m.file))
	replace := map[string]map[string]string{"Replace": {filepath.Join(p.root, m.file): source}}
	text, err := json.Marshal(replace)
	if err == nil {
		err = os.WriteFile(source, m.apply(p.sources[m.file]), 0o600)
	}
	file = filepath.Join(dir, "overlay.json")
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		remove()
	}
	return file, remove, err
}

// readEquivalents reads a list of identifiers, each followed by the reason why no test can fail
// that mutant, and returns those of the packages in dirs. It fails where a reason is missing or an
// identifier matches no mutant.
func readEquivalents(file string, dirs []string, mutants []mutant) (map[string]string, error) {
	known := map[string]bool{}
	for _, m := range mutants {
		known[m.id] = true
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	reasons := map[string]string{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, reason, _ := strings.Cut(line, " ")
		if name, _, _ := strings.Cut(id, ":"); !slices.Contains(dirs, path.Dir(name)) {
			continue
		}
		switch {
		case reason == "":
			return nil, fmt.Errorf("%s: no reason for %s", file, id)
		case !known[id]:
			return nil, fmt.Errorf("%s: no mutant %s: the code has changed; look at it again", file, id)
		case reasons[id] != "":
			return nil, fmt.Errorf("%s: %s twice", file, id)
		}
		reasons[id] = reason
	}
	return reasons, nil
}
